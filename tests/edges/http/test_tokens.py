"""Tokens: who may do what over HTTP, and where none is needed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
from collections import Counter
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.edges.http import guard
from holdfast.edges.http.guard import TokenGuard, TokenUses
from holdfast.edges.http.responses import NoToken
from holdfast.errors import Busy, InvalidPluginName, PermissionDenied, ValidationError
from holdfast.operators.tokens import Token
from tests.edges.http.ground import Served, served
from tests.edges.nats.ground import calling, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from pathlib import Path


@pytest.fixture
async def closed(bus: str, tmp_path: Path) -> AsyncIterator[Served]:
    """A service that is not in open mode, so that every caller needs a token."""
    async with served(tmp_path / "state.db", bus, open_mode=False) as found:
        yield found


async def shown(here: Served, token: str, method: str, path: str, body: Any = None) -> httpx.Response:
    """A request with a token."""
    return await here.ask(method, path, body, Authorization=f"Bearer {token}")


async def test_without_a_token_nothing_is_answered(closed: Served) -> None:
    """Where callers are told apart, a caller without a token is refused, on the same machine too."""
    for method, path in (("GET", "/v1/kv/trivia/a"), ("POST", "/v1/admin:tokens"), ("GET", "/v1/kv/trivia")):
        response = await closed.ask(method, path)
        assert (response.status_code, response.json()["code"]) == (401, "PERMISSION_DENIED")
        assert response.headers["www-authenticate"].startswith("Bearer")
    assert (await closed.ask("GET", "/livez")).status_code == 200


async def test_a_token_is_for_its_plugin_and_verbs(closed: Served) -> None:
    """A token opens the keys and tables of its plugin, for its verbs, and nothing else."""
    made = await closed.store.tokens().create(plugin="trivia", verbs=["get", "list", "set", "list_tables"])
    allowed: list[tuple[str, str, Any, int]] = [
        ("PUT", "/v1/kv/trivia/a", 1, 200),
        ("GET", "/v1/kv/trivia/a", None, 200),
        ("GET", "/v1/kv/trivia", None, 200),
        ("POST", "/v1/table/trivia:list_tables", {}, 200),
        ("DELETE", "/v1/kv/trivia/a", None, 403),
        ("POST", "/v1/kv/trivia:delete", {"key": "a"}, 403),
        ("POST", "/v1/kv/trivia:batch", {"writes": []}, 403),
        ("GET", "/v1/kv/other/a", None, 403),
        ("PUT", "/v1/kv/other/a", 1, 403),
        ("POST", "/v1/table/other:list_tables", {}, 403),
        ("GET", "/v1/semantic/trivia/trivia/a", None, 403),
        ("POST", "/v1/admin:stats", {"namespace": "kv/trivia"}, 403),
        ("POST", "/v1/admin:token_create", {"operator": True}, 403),
    ]
    for method, path, body, status in allowed:
        response = await shown(closed, made.token, method, path, body)
        assert response.status_code == status, (method, path)
        if status == 403:
            assert "this token is for trivia and allows get, list" in response.json()["detail"]
    assert await closed.store.kv("other").get("a") is None


async def test_tokens_for_projects_and_operators(closed: Served) -> None:
    """A project's token opens that project alone; an operator's opens everything."""
    project = (await closed.store.tokens().create(tenant="acme", project="web")).token
    operator = (await closed.store.tokens().create(operator=True)).token
    assert (await shown(closed, project, "PUT", "/v1/semantic/acme/web/a", 1)).status_code == 200
    assert (await shown(closed, project, "PUT", "/v1/semantic/acme/api/a", 1)).status_code == 403
    assert (await shown(closed, project, "PUT", "/v1/kv/acme/a", 1)).status_code == 403
    assert (await shown(closed, operator, "PUT", "/v1/kv/any/a", 1)).status_code == 200
    assert (await shown(closed, operator, "POST", "/v1/admin:namespaces")).status_code == 200


async def test_a_revoked_token_is_refused(bus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token is refused once it is revoked or has expired: within a second it is looked up again."""
    clock = ManualClock()
    async with served(tmp_path / "state.db", bus, open_mode=False, clock=clock) as here:
        monkeypatch.setattr(guard, "FRESH", 0.0)
        tokens = here.store.tokens()
        revoked, expiring = await tokens.create(plugin="trivia"), await tokens.create(plugin="trivia", ttl=60)
        for made in (revoked, expiring):
            assert (await shown(here, made.token, "GET", "/v1/kv/trivia")).status_code == 200
        assert [one.id for one in await tokens.list()] == sorted([revoked.about.id, expiring.about.id])
        assert await tokens.revoke(revoked.about.id) is True
        assert await tokens.revoke(revoked.about.id) is False
        clock.advance(61)
        for made in (revoked, expiring):
            response = await shown(here, made.token, "GET", "/v1/kv/trivia")
            assert (response.status_code, "not valid" in response.json()["detail"]) == (401, True)
        assert await tokens.list() == []


@pytest.mark.parametrize("verbs", [[[]], [{}], [None], [1], [True], ["get", ["set"]], [""], [], {}, "get", 1])
async def test_verbs_that_are_none_are_refused(closed: Served, verbs: Any) -> None:
    """A list of verbs that holds something else is a mistake of the caller, and the field is named."""
    token = (await closed.store.tokens().create(operator=True)).token
    asked = {"plugin": "trivia", "verbs": verbs}
    refused = await shown(closed, token, "POST", "/v1/admin:token_create", asked)
    found = refused.json()
    assert (refused.status_code, found["code"], found["field"]) == (400, "VALIDATION_ERROR", "verbs")


LIMITED: dict[str, Any] = {"operator": True, "verbs": ["token_create", "get", "list"]}
MORE: list[dict[str, Any]] = [
    {"operator": True},
    {"operator": True, "verbs": ["token_create", "token_revoke"]},
    {"operator": True, "verbs": ["token_create", "get", "list", "watch"]},
    {"plugin": "trivia"},
    {"plugin": "trivia", "verbs": ["set"]},
    {"plugin": "trivia", "verbs": ["get", "set"]},
    {"tenant": "acme", "project": "web", "verbs": ["set"]},
]


async def test_a_token_grants_no_more_verbs_than_it_has(closed: Served) -> None:
    """Who may make tokens can't make one that allows more: for operators, a plugin or a project."""
    tokens = closed.store.tokens()
    token = (await tokens.create(**LIMITED)).token
    for more in MORE:
        refused = await shown(closed, token, "POST", "/v1/admin:token_create", more)
        assert (refused.status_code, refused.json()["code"]) == (403, "PERMISSION_DENIED"), more
        assert "can't grant more than it has" in refused.json()["detail"]
    assert len(await tokens.list()) == 1
    for less in (LIMITED, {"plugin": "trivia", "verbs": ["get"]}):
        made = await shown(closed, token, "POST", "/v1/admin:token_create", less)
        assert made.status_code == 200, made.text


async def test_a_token_grants_no_longer_life_than_it_has(closed: Served) -> None:
    """A token that expires makes only tokens that expire before it does."""
    made = await closed.store.tokens().create(operator=True, ttl=3_600)
    for ttl, status in ((None, 403), (3_601, 403), (86_400, 403), (3_500, 200)):
        asked: dict[str, Any] = {"plugin": "trivia"} | ({} if ttl is None else {"ttl": ttl})
        response = await shown(closed, made.token, "POST", "/v1/admin:token_create", asked)
        assert response.status_code == status, (ttl, response.text)
        assert status == 200 or "expire" in response.json()["detail"]
    assert len(await closed.store.tokens().list()) == 2


async def test_a_revoked_token_grants_nothing(closed: Served) -> None:
    """A token that is still known by heart makes no other token once it is revoked."""
    made = await closed.store.tokens().create(operator=True)
    assert (await shown(closed, made.token, "POST", "/v1/admin:ready", {})).status_code == 200
    await closed.store.tokens().revoke(made.about.id)
    refused = await shown(closed, made.token, "POST", "/v1/admin:token_create", {"operator": True})
    assert refused.status_code in (401, 403)
    assert await closed.store.tokens().list() == []


async def test_a_session_grants_what_its_token_has(closed: Served) -> None:
    """A page of the console makes tokens with the rights of the visitor; an operator's link has all."""
    port = closed.url.rpartition(":")[2]
    token = (await closed.store.tokens().create(**LIMITED)).token
    link = closed.sessions.redeem(closed.sessions.link())
    for cookie, status in ((closed.sessions.open(token), 403), (link, 200)):
        said = {"Cookie": f"holdfast-{port}={cookie}", "Sec_Fetch_Site": "same-origin"}
        response = await closed.ask("POST", "/v1/admin:token_create", {"operator": True}, **said)
        assert response.status_code == status


async def test_a_client_over_http_grants_what_its_token_has(closed: Served) -> None:
    """`holdfast token create --url http://…` is refused like any other caller with that token."""
    token = (await closed.store.tokens().create(**LIMITED)).token
    async with holdfast.open(f"{closed.url}?token={token}") as store:
        with pytest.raises(PermissionDenied, match="can't grant more than it has"):
            await store.tokens().create(operator=True)
        assert (await store.tokens().create(plugin="trivia", verbs=["get"])).about.verbs == ("get",)


async def test_a_token_is_known_for_a_second(here: Served) -> None:
    """Between two looks at the store a token is known by heart, for one second and no longer."""
    now = 100.0
    tokens = here.store.tokens()
    made = await tokens.create(plugin="trivia")
    checked = TokenGuard(tokens, open_mode=False, ticks=lambda: now)
    assert (await checked.valid(made.token)).id == made.about.id
    await tokens.revoke(made.about.id)
    now = 100.9
    assert (await checked.valid(made.token)).id == made.about.id
    now = 101.1
    with pytest.raises(NoToken):
        await checked.valid(made.token)


async def test_a_token_has_a_name_and_says_when_it_was_used(closed: Served) -> None:
    """A list of tokens has the name of each and when it was last used; a revoked one leaves nothing."""
    tokens = closed.store.tokens()
    used = await tokens.create(plugin="trivia", name="nightly import")
    unused = await tokens.create(plugin="trivia", name="")
    assert (used.about.name, unused.about.name) == ("nightly import", None)
    assert (await shown(closed, used.token, "GET", "/v1/kv/trivia")).status_code == 200

    async def uses() -> dict[str, Any]:
        return {token.id: token.used_at for token in await tokens.list()}

    async with asyncio.timeout(60):
        while (await uses())[used.about.id] is None:
            pass
    assert (await uses())[unused.about.id] is None
    assert [one["name"] for one in msgspec.to_builtins(await tokens.list())].count("nightly import") == 1
    await tokens.revoke(used.about.id)
    assert used.about.id not in await uses()
    assert not await tokens._uses.exists(used.about.id)
    with pytest.raises(ValidationError, match="at most 100"):
        await tokens.create(plugin="trivia", name="x" * 101)


async def test_a_use_is_noted_once_in_ten_minutes() -> None:
    """A busy token costs one write in ten minutes, and a note that the store refuses is left out."""
    now = 100.0
    noted: list[str] = []

    class Book:
        async def note_use(self, id: str) -> None:
            noted.append(id)
            if len(noted) == 1:
                raise Busy("later", retry_after=1.0)

    uses = TokenUses(Book(), ticks=lambda: now)  # type: ignore[arg-type]
    running = asyncio.create_task(uses.run())
    for at in (100.0, 100.5, 699.9, 700.0, 1_300.0):
        now = at
        uses.note("a")
    uses.note("b")
    await until(lambda: len(noted) == 4)
    assert noted == ["a", "a", "a", "b"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_every_instance_knows_a_token_and_its_end(bus: str, pg_url: str) -> None:
    """A token that one instance makes opens another one, and revoking it there closes the first."""
    async with (
        served(pg_url, bus, open_mode=False) as one,
        served(pg_url, bus, open_mode=False) as other,
    ):
        made = await one.store.tokens().create(plugin="trivia")
        for here in (one, other):
            assert (await shown(here, made.token, "GET", "/v1/kv/trivia")).status_code == 200
        assert await other.store.tokens().revoke(made.about.id)
        for here in (one, other):
            here.api.guard._known.clear()  # a second later
            assert (await shown(here, made.token, "GET", "/v1/kv/trivia")).status_code == 401


async def test_logs_hold_no_token(closed: Served, caplog: pytest.LogCaptureFixture) -> None:
    """A token is a secret: no log line holds it, whether the request is answered, refused or malformed."""
    made = await closed.store.tokens().create(plugin="trivia", verbs=["get"])
    secret = made.token.partition(f"_{made.about.id}_")[2]
    with caplog.at_level("DEBUG"):
        for method, path in (("GET", "/v1/kv/trivia/a"), ("PUT", "/v1/kv/trivia/a"), ("GET", "/v1/nowhere")):
            await shown(closed, made.token, method, path, None if method == "GET" else 1)
        await closed.store.tokens().revoke(made.token)
    assert caplog.records
    assert not [one for one in caplog.records if secret in f"{one.getMessage()}{one.__dict__}"]


@pytest.mark.parametrize(
    "said", ["", "Bearer", "Bearer x", "Basic dTpw", "Bearer hf_0123456789abcdef_" + "A" * 43]
)
async def test_a_wrong_token_is_refused_in_open_mode_too(here: Served, said: str) -> None:
    """A caller that shows a token is judged by it, also where none is needed."""
    response = await here.ask("GET", "/v1/kv/trivia", Authorization=said)
    assert response.status_code == 401


async def test_a_wrong_secret_is_refused(closed: Served) -> None:
    """The id of a token lets nobody in: it is in the list of tokens, which many may see."""
    made = await closed.store.tokens().create(plugin="trivia")
    other = made.token[:-1] + ("A" if made.token[-1] != "A" else "B")
    assert (await shown(closed, other, "GET", "/v1/kv/trivia")).status_code == 401


async def _guess(here: Served, made_up: Iterator[str], statuses: Counter[int]) -> None:
    """Send made-up tokens over one connection, one after the other, for ever."""
    where = urlsplit(here.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        for token in made_up:
            head = f"GET /v1/kv/trivia/a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
            writer.write(head.encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            [length] = re.findall(rb"content-length: (\d+)", answer)
            await reader.readexactly(int(length))
            statuses[int(answer.split(b" ", 2)[1])] += 1
    finally:
        writer.transport.abort()


def _made_up() -> Iterator[str]:
    """Tokens that nobody made: half of them have the right form."""
    for number in count():
        yield f"hf_{number:016x}_{'A' * 43}" if number % 2 else f"hf_{number}"


async def test_made_up_tokens_keep_nobody_out(closed: Served) -> None:
    """While a client tries as many made-up tokens as it can, each valid token is let in at its first use."""
    tokens = [(await closed.store.tokens().create(plugin="trivia")).token for _ in range(20)]
    statuses, made_up = Counter[int](), _made_up()
    guessing = [asyncio.create_task(_guess(closed, made_up, statuses)) for _ in range(16)]
    try:
        found = []
        for token in tokens:
            seen = statuses.total()
            await until(lambda: statuses.total() >= seen + 30)  # noqa: B023
            found.append((await shown(closed, token, "GET", "/v1/kv/trivia")).status_code)
    finally:
        for one in guessing:
            one.cancel()
        await asyncio.gather(*guessing, return_exceptions=True)
    assert found == [200] * 20
    assert set(statuses) == {401}


class Slow:
    """The tokens of a store that answers when it is told to, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.answering = asyncio.Event()

    async def find(self, text: str) -> Token | None:
        """See `Tokens.find`."""
        return (await self.find_all([text])).get(text)

    async def find_all(self, texts: Iterable[str]) -> dict[str, Token]:
        """See `Tokens.find_all`."""
        asked = list(texts)
        self.asked.append(asked)
        await self.answering.wait()
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        return {one: Token(id=one[3:19], plugin="trivia", created_at=moment) for one in asked if "_B" in one}


async def test_a_token_without_the_form_of_one_costs_no_read() -> None:
    """Text that can't be a token is refused without a look into the store."""
    store = Slow()
    checked = TokenGuard(store, open_mode=False)  # type: ignore[arg-type]
    for text in (
        "",
        "x",
        "hf_",
        "hf_0_A",
        f"hf_{'0' * 16}_{'A' * 42}",
        f"hf_{'g' * 16}_{'A' * 43}",
        "é" * 60,
    ):
        with pytest.raises(NoToken):
            await checked.valid(text)
    assert store.asked == []


async def test_unknown_tokens_wait_by_the_address_that_sends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many unknown tokens of an address wait, few reads serve all, and other addresses get turns."""
    monkeypatch.setattr(guard, "LOOKS", 500)
    store = Slow()
    checked = TokenGuard(store, open_mode=False)  # type: ignore[arg-type]
    made_up = [f"hf_{number:016x}_{'A' * 43}" for number in range(501)]
    flood = [asyncio.create_task(checked.valid(one, source="192.0.2.1")) for one in made_up]
    await until(lambda: any(one.done() for one in flood))
    real = asyncio.create_task(checked.valid(f"hf_{'1' * 16}_{'B' * 43}", source="192.0.2.2"))
    await asyncio.sleep(0)
    store.answering.set()
    assert (await real).plugin == "trivia"
    assert any("_B" in one for one in store.asked[1])
    ends = await asyncio.gather(*flood, return_exceptions=True)
    assert Counter(type(one) for one in ends) == {NoToken: 500, Busy: 1}
    assert len(store.asked) < 10


async def test_guessing_is_bounded(closed: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown tokens cost the store only so many reads a second; known ones are answered meanwhile."""
    made = await closed.store.tokens().create(plugin="trivia")
    assert (await shown(closed, made.token, "GET", "/v1/kv/trivia")).status_code == 200
    monkeypatch.setattr(guard, "LOOKS", 0)
    guess = f"hf_{'0' * 16}_{'A' * 43}"
    response = await shown(closed, guess, "GET", "/v1/kv/trivia")
    assert (response.status_code, response.json()["code"]) == (503, "BUSY")
    assert (await shown(closed, made.token, "GET", "/v1/kv/trivia")).status_code == 200


@pytest.mark.parametrize("name", ["Forwarded", "X_Forwarded_For", "Via", "X_Real_Ip"])
async def test_a_proxy_on_this_machine_opens_nothing(here: Served, name: str) -> None:
    """A request that a proxy passes on comes from elsewhere, and needs a token."""
    response = await here.ask("GET", "/v1/kv/trivia", **{name: "for=127.0.0.1"})
    assert response.status_code == 401


@contextlib.asynccontextmanager
async def passed_on(here: Served) -> AsyncIterator[int]:
    """The port of a proxy that passes bytes on to a service and adds nothing."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65_536):
                writer.write(piece)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        where = urlsplit(here.url)
        inner, outer = await asyncio.open_connection(where.hostname, where.port)
        await asyncio.gather(copy(reader, outer), copy(inner, writer))

    async with await asyncio.start_server(connect, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("path", ["/v1/kv/trivia", "/v1/kv/trivia?limit=1", "/mcp/kv/trivia", "/ui/live"])
async def test_a_proxy_without_headers_opens_nothing(bus: str, tmp_path: Path, path: str) -> None:
    """Open mode answers callers that name this machine; by other names and ports a proxy may pass them on."""
    async with served(tmp_path / "state.db", bus, names=("kv.example",)) as here, passed_on(here) as proxy:
        own = urlsplit(here.url).port
        elsewhere = [
            f"127.0.0.1:{proxy}",
            f"localhost:{proxy}",
            "kv.example",
            f"kv.example:{own}",
            "192.0.2.7",
        ]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{proxy}", timeout=60) as client:
            for host in elsewhere:
                refused = await client.get(path, headers={"Host": host, "Accept": "application/json"})
                assert (refused.status_code, "no proxy" in refused.json()["detail"]) == (401, True), host
            token = (await here.store.tokens().create(plugin="trivia")).token
            known = {"Host": "kv.example", "Accept": "application/json", "Authorization": f"Bearer {token}"}
            assert (await client.get(path, headers=known)).status_code != 401
        for host in (
            f"127.0.0.1:{own}",
            f"localhost:{own}",
            "localhost",
            f"LOCALHOST.:{own}",
            "127.0.0.1",
            "[::1]",
        ):
            near = await here.client.get(path, headers={"Host": host, "Accept": "application/json"})
            assert near.status_code != 401, host


async def test_an_old_version_of_http_comes_from_a_proxy(here: Served) -> None:
    """Proxies that speak HTTP/1.0 to a service often put its own address into `Host`: a token is needed."""
    where = urlsplit(here.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(f"GET /v1/kv/trivia HTTP/1.0\r\nHost: {where.netloc}\r\n\r\n".encode())
    assert b" 401 " in (await reader.read())[:20]
    writer.close()


async def test_off_this_machine_a_token_is_always_needed(here: Served) -> None:
    """In open mode a caller from another machine needs a token all the same."""
    scope: dict[str, Any] = {"client": ("192.0.2.7", 5000), "headers": []}
    asked: Any = None
    guard = TokenGuard(here.store.tokens(), open_mode=True)
    with pytest.raises(NoToken):
        await guard.admit(scope, asked)
    assert guard.admit_at_once(scope["client"], None, asked) is None
    for near in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        scope["client"] = (near, 5000)
        assert await guard.admit(scope, asked) == ""
        assert guard.admit_at_once(scope["client"], None, asked) == ""


async def test_secrets_are_not_kept(bus: str, tmp_path: Path) -> None:
    """The file holds a hash and not the secret, and no namespace leads to it at any door."""
    async with served(tmp_path / "state.db", bus) as here, calling(bus) as caller:
        made = (await here.call("/v1/admin:token_create", plugin="trivia", ttl=60)).json()
        secret = made["token"].partition(f"_{made['about']['id']}_")[2]
        assert len(secret) > 40
        assert [one.namespace for one in await here.store.namespaces()] == []
        assert (await here.call("/v1/admin:namespaces")).json()["namespaces"] == []
        for name in ("system/tokens", "tokens", "kv/tokens"):
            reply = await caller.ask("db.admin.stats", {"namespace": name})
            assert not reply["success"] or reply["keys"] == 0
        listed = (await here.call("/v1/admin:tokens")).json()["tokens"]
        assert [one["id"] for one in listed] == [made["about"]["id"]]
        assert secret not in json.dumps(listed)
    with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as behind:
        text = "\n".join(behind.iterdump())
    assert (made["about"]["id"] in text, secret in text) == (True, False)


async def test_writes_carry_the_token_in_the_audit(closed: Served) -> None:
    """The audit records which token wrote, beside the claimed writer."""
    await closed.store.set_policy("kv/trivia", {"audit": True})
    made = await closed.store.tokens().create(plugin="trivia")
    await shown(closed, made.token, "PUT", "/v1/kv/trivia/a", 1)
    records = (await closed.store.audit("kv/trivia").log()).records
    assert records[-1].principal == f"token:trivia#{made.about.id}"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"plugin": "a", "operator": True},
        {"plugin": "a", "tenant": "b", "project": "c"},
        {"tenant": "b"},
        {"plugin": "A"},
        {"plugin": "a", "verbs": []},
        {"plugin": "a", "verbs": ["Get!"]},
        {"plugin": "a", "verbs": "get"},
        {"plugin": "a", "ttl": 0},
        {"operator": 1},
    ],
)
async def test_a_token_is_for_one(here: Served, wrong: dict[str, Any]) -> None:
    """A token is for one plugin, one project or operators, and names verbs that could be there."""
    with pytest.raises((ValidationError, InvalidPluginName)):
        await here.store.tokens().create(**wrong)
    assert await here.store.tokens().list() == []


async def test_an_unknown_verb_is_named(here: Served) -> None:
    """A misspelt verb is refused when the token is made, and not when it is used."""
    response = await here.call("/v1/admin:token_create", plugin="a", verbs=["gte"])
    assert (response.status_code, "no verb 'gte'" in response.json()["detail"]) == (400, True)
