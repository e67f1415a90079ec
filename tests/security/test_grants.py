"""Users who may use only some verbs: the others are refused by the server, with real credentials.

Both modes, over keys, tables and a tenant's project. What the service executed is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Final

import pytest

import holdfast
from holdfast.edges.intake.request_log import RequestLog
from holdfast.edges.nats import server_config as grants
from holdfast.edges.nats.server_config import SERVICE, Permissions, new_credentials
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.errors import PermissionDenied, ValidationError
from holdfast.wire.subjects import MOST_LINKS, OPERATOR
from tests.docs.test_examples import ROOT
from tests.nats import Wire, connection, nats_server
from tests.security.attacks import forged
from tests.security.bus import FORGED
from tests.security.responders import Tally
from tests.security.test_configuration import ODD, load, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from holdfast.edges.nats.server_config import Credentials, Mode
    from holdfast.store import Store
    from tests.security.bus import Ground, Grounds

PLUGINS: Final = ("trivia", "trivia:read", "audit:get,list", "quote-db")
TENANTS: Final = ("acme/web", "acme/web:read,set", "globex/app:read")
FEW: Final = ("trivia:read", "audit:get,list", "acme/web:read,set", "globex/app:read")
PATIENCE: Final = 60.0


class Place:
    """A server with users who may do little, the service, and what it has executed."""

    def __init__(
        self, url: str, who: Permissions, credentials: dict[str, Credentials], store: Store, tally: Tally
    ) -> None:
        self.url = url
        self.who = who
        self.credentials = credentials
        self.store = store
        self.tally = tally

    def address(self, user: str) -> str:
        """Where a user finds the service."""
        shown = self.credentials[user]
        login = f"{shown.entry()['user']}:{shown.secret}"
        return f"{self.url.replace('nats://', f'nats://{login}@')}?timeout=600&inbox={shown.inbox}"

    async def said(self, user: str, subject: str, *, reply: str = "") -> str:
        """What the server says to a user who sends a request that every verb would take for a good one."""
        [said] = await self.said_to_each(user, [subject], reply=reply)
        return said

    async def said_to_each(self, user: str, subjects: Sequence[str], *, reply: str = "") -> list[str]:
        """The same of several requests, each of which is sent when the server has dealt with the last."""
        owner = user.partition(":")[0]
        said = []
        async with Wire.open(self.url, self.credentials[user]) as wire:
            for subject in subjects:
                wire.publish(subject.encode(), reply.encode(), forged(user, owner))
                said.append(b"".join(await wire.settle()).decode())
        return said

    async def served(self) -> None:
        """Return when the service has dealt with everything that was sent before."""
        async with holdfast.open(self.address("trivia")) as store, asyncio.timeout(PATIENCE):
            await store.kv("trivia").get("barrier")
        async with holdfast.open(self.address("acme/web")) as store, asyncio.timeout(PATIENCE):
            await store.semantic("acme", "web").get("tenant/acme/project/web/barrier")


@pytest.fixture(params=[(), ("trivia", "audit")], ids=["common", "own"])
def own(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The plugins with connections of their own."""
    plugins: tuple[str, ...] = request.param
    return plugins


@pytest.fixture
def who(mode: Mode, own: tuple[str, ...]) -> Permissions:
    """Users who may do little."""
    return Permissions(PLUGINS, TENANTS, mode=mode, own_connection=own)


@pytest.fixture
def ground(grounds: Grounds, who: Permissions, own: tuple[str, ...]) -> Ground:
    """Their server, which the tests use one after the other."""
    return grounds.of(who, ("grants", who.mode, own), kind="passwords")


@pytest.fixture
async def place(own: tuple[str, ...], mode: Mode, who: Permissions, ground: Ground) -> AsyncIterator[Place]:
    """The server and the service; once with connections of the plugins' own."""
    tally = Tally()
    request_log = RequestLog(slow=9, slow_walk=9, counter=tally)
    url, credentials = ground
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(holdfast.open("memory://"))
        for table in (FORGED, "scores"):
            await store.tables("trivia").create_table(table, partition_key=("name", "string"))
        for plugin in (None, *own):
            client = await stack.enter_async_context(connection(url, credentials[SERVICE]))
            settings = Settings(reply_mode=mode, deadline_ms=60_000, plugin=plugin)
            service = NatsService(store, client, settings, request_log)
            await service.start()
            if plugin is None:
                service.serve_links(client, range(MOST_LINKS))
                await client.flush()
            stack.push_async_callback(service.stop)
        yield Place(url, who, credentials, store, tally)


async def test_a_reader_reads_and_writes_nothing(place: Place) -> None:
    """`trivia:read` gets, lists, queries and is ready; every write is PERMISSION_DENIED."""
    async with holdfast.open(place.address("trivia")) as store, asyncio.timeout(PATIENCE):
        await store.kv("trivia").set("k", 1)
        await store.tables("trivia").put_item("scores", {"name": "alice", "points": 7})
    async with holdfast.open(place.address("trivia:read")) as store, asyncio.timeout(PATIENCE):
        kv, tables = store.kv("trivia"), store.tables("trivia")
        await store.ready()
        assert (await kv.list()).keys == ["k"]
        found = await tables.get_item("scores", "alice")
        assert found is not None
        assert found.value == {"name": "alice", "points": 7}
        for write in (
            *(kv.set("k", 2), kv.delete("k"), kv.incr("n"), kv.set_many([{"key": "a", "value": 1}])),
            *(kv.delete_prefix("k"), kv.delete_prefix("k", dry_run=True)),
        ):
            with pytest.raises(PermissionDenied):
                await write
        for change in (tables.put_item("scores", {"name": "bob"}), tables.delete_item("scores", "alice")):
            with pytest.raises(PermissionDenied):
                await change
        entry = await kv.get("k")
        assert entry is not None
        assert entry.value == 1


async def test_a_reader_watches(place: Place) -> None:
    """Who may read the changes hears the events as well, so a watch is as quick as its owner's."""
    heard = asyncio.Event()
    reader = place.credentials["trivia:read"]
    async with (
        connection(place.url, reader) as client,
        holdfast.open(place.address("trivia:read")) as reading,
        holdfast.open(place.address("trivia")) as store,
        asyncio.timeout(PATIENCE),
    ):
        [kv_events, *_] = place.who.events("trivia:read")
        client.listen(kv_events, lambda message: heard.set())
        await client.flush()
        watch = reading.kv("trivia").watch(since=0)
        await store.kv("trivia").set("k", 1)
        change = await anext(watch)
        assert (change.op, change.key) == ("set", "k")
        await heard.wait()


async def test_a_user_with_two_verbs_has_these_and_ready_only(place: Place) -> None:
    """`audit:get,list` may do these two, ask whether the service is ready, and nothing else."""
    await place.store.kv("audit").set("k", 1)
    async with holdfast.open(place.address("audit:get,list")) as store, asyncio.timeout(PATIENCE):
        kv = store.kv("audit")
        await store.ready()
        assert (await kv.list()).keys == ["k"]
        assert await kv.get("k") is not None
        for refused in (kv.set("k", 2), kv.history("k"), kv.changes(0), kv.get_many(["k", "other"])):
            with pytest.raises(PermissionDenied):
                await refused
    assert place.who.events("audit:get,list") == []


async def test_a_user_of_a_project_may_have_few_verbs(place: Place) -> None:
    """A user of a project may be given few verbs too, and `set` is `put` there under both names."""
    key = "tenant/acme/project/web/k"
    async with holdfast.open(place.address("acme/web:read,set")) as store, asyncio.timeout(PATIENCE):
        kv = store.semantic("acme", "web")
        await store.ready()
        await kv.set(key, 1, semantics={"purpose": "test"})
        assert await kv.get(key) is not None
        with pytest.raises(PermissionDenied):
            await kv.delete(key)
    assert "Permissions Violation" not in await place.said("acme/web:read,set", "db.semantic.acme.web.put")
    assert "Permissions Violation" in await place.said("globex/app:read", "db.semantic.globex.app.put")


@pytest.mark.parametrize("user", FEW)
async def test_every_verb_that_was_not_granted_is_refused(place: Place, user: str) -> None:
    """Of all verbs of all families a user with few can have only those executed, through every prefix."""
    owner = user.partition(":")[0]
    families = grants.TENANT_FAMILIES if "/" in owner else grants.PLUGIN_FAMILIES
    granted = set(place.who.requests(user))
    all_of_them = {
        f"{prefix}.{family}.{owner.replace('/', '.')}.{verb}"
        for prefix in place.who.prefixes
        for family in families
        for verb in grants.VERBS[family]
    }
    assert granted < all_of_them
    subjects = sorted(all_of_them)
    said = await place.said_to_each(user, subjects)
    for subject, answer in zip(subjects, said, strict=True):
        assert ("Permissions Violation" in answer) == (subject not in granted), subject
    await place.served()
    executed = sum(place.tally.executed[f"{family}/{owner}"] for family in families)
    barriers = {"trivia": 1, "acme/web": 1}.get(owner, 0)
    assert executed == len(granted) + barriers


async def test_a_reply_to_a_reader_is_not_executed_as_a_write(place: Place) -> None:
    """A user who may only read can't have the service's answer taken for a request to write."""
    await place.store.kv("trivia").set("k", 1)
    for verb in ("delete_many", "set", "incr", "batch"):
        await place.said("trivia:read", "db.kv.trivia.list", reply=f"db.kv.trivia.{verb}")
    await place.served()
    assert (await place.store.kv("trivia").list()).keys == ["k"]
    assert [change.op for change in await place.store.kv("trivia").history("k")] == ["set"]


async def test_a_user_with_few_verbs_overhears_nothing(place: Place) -> None:
    """What the user with all verbs is answered does not reach the one with few, wherever that listens."""
    heard: list[str] = []
    async with (
        connection(place.url, place.credentials["audit:get,list"]) as audit,
        connection(place.url, place.credentials["trivia:read"]) as reader,
        holdfast.open(place.address("trivia")) as store,
        asyncio.timeout(PATIENCE),
    ):
        for client in (audit, reader):
            for subject in (">", "_INBOX.>", "_INBOX.trivia.>", "db.kv.trivia.>", "db.own.>", "_R_.>"):
                client.listen(subject, lambda message: heard.append(message.subject))
            await client.flush()
        await store.kv("trivia").set("k", 1)
        await store.kv("trivia").get("k")
        for client in (audit, reader):
            await client.flush()
    assert {subject for subject in heard if not subject.startswith("db.event.kv.trivia.")} == set()


async def test_no_verb_of_read_changes_a_namespace() -> None:
    """No verb of `read` moves a namespace's version, whatever it is asked: each is tried on a real store."""
    async with holdfast.open("memory://") as store, nats_server() as server, connection(server.url) as client:
        await store.tables("trivia").create_table(FORGED, partition_key=("name", "string"))
        await store.kv("trivia").set("forged", 1)
        before = [(await store.stats(f"{family}/trivia")).version for family in ("kv", "table")]
        service = NatsService(store, client, Settings(), RequestLog(slow=9, slow_walk=9, counter=Tally()))
        await service.start()
        async with Wire.open(server.url) as wire:
            for family in grants.PLUGIN_FAMILIES:
                for verb in grants.READING[family]:
                    wire.publish(f"db.{family}.trivia.{verb}".encode(), b"x", forged("trivia", "trivia"))
            await wire.settle()
        await client.flush()
        await service.stop()
        after = [(await store.stats(f"{family}/trivia")).version for family in ("kv", "table")]
    assert after == before


def test_read_is_every_verb_that_writes_nothing() -> None:
    """The verbs of `read` come from those that the service answers, and no verb that writes is among them."""
    for family in ("kv", "semantic"):
        assert not grants.READING[family] & {
            "set",
            "put",
            "delete",
            "incr",
            "batch",
            "restore",
            "escalate",
        }
        assert {"get", "list", "changes", "stats", "ready"} <= grants.READING[family]
    writes = {"put_item", "drop_table", "transact_write", "set_ttl", "sweep_expired_ttl", "create_index"}
    assert not grants.READING["table"] & writes
    assert {"get_item", "query", "scan", "changes", "describe_table"} <= grants.READING["table"]


def test_the_page_lists_the_verbs_of_read() -> None:
    """The how-to names every verb that `read` grants, and no other."""
    page = (ROOT / "docs" / "howto" / "isolate-plugins.md").read_text(encoding="utf-8")
    found = re.search(r"`read` grants `([^`]*)` of keys and of a project, and\s+`([^`]*)`\s+of tables", page)
    assert found is not None
    assert {*found[1].split(), "ready"} == grants.READING["kv"] == grants.READING["semantic"]
    assert set(found[2].split()) == grants.READING["table"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("trivia:gett", r"'gett' .* did you mean 'get'"),
        ("trivia:raed", "did you mean 'read'"),
        ("trivia:put_itme", "did you mean 'put_item'"),
        ("trivia:zzz", "known are read, .*get, "),
        ("trivia:", "name the verbs of 'trivia' after the colon"),
        ("trivia:get,", "after the colon"),
        ("trivia:get, list", "did you mean 'list'"),
        ("trivia:GET", "'GET' is not a verb"),
        ("trivia:*", "is not a verb"),
        ("trivia:putt", "did you mean 'put'"),
        (
            "trivia:" + ",".join(sorted(grants.VERBS["kv"] | grants.VERBS["table"])),
            "longer than 100",
        ),
    ],
)
def test_unknown_verbs_are_refused(text: str, told: str) -> None:
    """A verb that does not exist is named together with the nearest one that does."""
    with pytest.raises(ValidationError, match=told) as caught:
        Permissions((text,))
    assert caught.value.field == "plugin"


def test_unknown_verbs_of_a_project_are_refused() -> None:
    """A project has no tables, so their verbs are unknown there."""
    with pytest.raises(ValidationError, match="'get_item' is not a verb") as caught:
        Permissions((), ("acme/web:get_item",))
    assert caught.value.field == "tenant"


def test_order_and_repetition_of_verbs_make_no_second_user() -> None:
    """The order, repetitions and other names of verbs make no second user."""
    users = Permissions(
        ("trivia:list,get", "trivia:get,list,get", "trivia:read,get", "trivia:read"),
        ("acme/web:put,get", "acme/web:get,set"),
    ).users
    assert users == (SERVICE, OPERATOR, "trivia:get,list", "trivia:read", "acme/web:get,set")


def test_names_of_users_tenants_and_projects_do_not_collide() -> None:
    """A tenant or project that is called like a part of another user's name has a name of its own."""
    plugins = ("acme", "acme:read", "only", "read:read")
    tenants = ("acme/only", "acme/read", "acme/only:read", "only/read:read")
    users = Permissions(plugins, tenants).users
    assert len({grants.tokens(user) for user in users}) == len(users)


def test_only_a_user_with_all_verbs_can_be_trusted() -> None:
    """Trust opens every namespace, which a list of verbs does not fit."""
    with pytest.raises(
        ValidationError, match="'bot' is trusted, but is not one of the plugins with all verbs"
    ):
        Permissions(("bot:read",), trusted=("bot",))
    who = Permissions(("bot", "bot:read"), trusted=("bot",))
    assert "db.kv.*" in who.requests("bot")
    assert "db.kv.*" not in who.requests("bot:read")


@pytest.mark.parametrize("mode", ["accounts", "permissions"])
@pytest.mark.parametrize("own", [(), ODD], ids=["common", "own"])
def test_every_configuration_with_verbs_is_accepted(mode: Mode, own: tuple[str, ...], tmp_path: Path) -> None:
    """The server loads users with verbs, with and without one that has all, whatever the names."""
    plugins = (*ODD, *(f"{name}:read" for name in ODD), *(f"{name}:get,list" for name in ODD), "alone:get")
    tenants = ("acme/web", "acme/web:read", "globex/app:get,put")
    who = Permissions(plugins, tenants, mode=mode, own_connection=own)
    loaded = load(text_of(who), tmp_path)
    assert (loaded.returncode, loaded.stdout) == (0, ""), loaded.stderr


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("db.link.0.kv.trivia.get", "db.link.0.kv.trivia.set"),
        ("db.link.0.kv.trivia.get", "db.link.0.kv.trivia.>"),
        ("db.link.0.kv.trivia.get", "db.kv.trivia.set"),
        ("db.link.0.kv.trivia.get", "db.link.1.kv.audit.get"),
        ("db.link.1.kv.audit.get", "db.link.0.kv.trivia.get"),
        ("db.event.kv.trivia.>", "db.event.kv.audit.>"),
        ("db.link.2.semantic.acme.web.get", "db.link.2.semantic.acme.web.>"),
    ],
)
def test_importing_a_verb_that_was_not_granted_is_refused(mine: str, theirs: str, tmp_path: Path) -> None:
    """An account with few verbs that asks for another keeps the server from loading the file."""
    text = text_of(Permissions(("trivia:read", "audit:get"), ("acme/web:read",)))
    wanted = f'account: "{SERVICE}", subject: "{mine}"'
    assert text.count(wanted) == 1
    refused = load(text.replace(wanted, f'account: "{SERVICE}", subject: "{theirs}"'), tmp_path)
    assert refused.returncode != 0
    assert "not authorized" in refused.stderr


def test_the_same_users_make_the_same_text() -> None:
    """A configuration depends on users and credentials alone, and can be compared with an older one."""

    def text() -> str:
        who = Permissions(PLUGINS, TENANTS)
        return who.configuration({user: new_credentials(user, "nkeys", random=bytes) for user in who.users})

    assert text() == text()
