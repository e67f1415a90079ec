"""With real credentials against a real server nobody reaches another's data, replies or events.

Deliveries and executions are counted, not errors. That the counting sees a breach is shown by the
negative controls beside this file.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.edges.calls.tables import VERBS
from holdfast.edges.nats.server_config import SERVICE, Credentials
from holdfast.wire.subjects import OPERATOR
from tests.nats import Wire, library_client
from tests.security.attacks import ALL, SHARING, Attacker
from tests.security.bus import BOT, OWNERS, PLUGINS, TABLE_VERBS, TENANTS, running_bus
from tests.security.conftest import ANSWERING, MODES
from tests.security.responders import holdfast_service, no_service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.edges.nats.server_config import Kind, Mode
    from tests.security.bus import Bus
    from tests.security.conftest import Answering

pytestmark = pytest.mark.unmeasured


@pytest.mark.parametrize("kind", ["nkeys", "passwords"])
async def test_honest_users_are_served(mode: Mode, service: Answering, kind: Kind) -> None:
    """Every user is answered at all its subjects and is told of its own changes, and nothing else happens."""
    async with running_bus(mode, service, kind=kind) as bus:
        await bus.everybody_asks()
        assert bus.breaches() == []
        assert bus.responder.executed == bus.asked
        for user in OWNERS:
            own = user.replace("/", ".")
            for family in ("semantic",) if user in TENANTS else ("kv", "table"):
                assert f"db.event.{family}.{own}.set" in bus.parties[user].events


def test_attacks_cover_every_verb_of_tables() -> None:
    """No verb is left out of the attempts."""
    assert set(TABLE_VERBS) == VERBS.keys()


def attackers() -> Iterator[Any]:
    """Every user in each mode, against the two services in turn; against both if all attempts are made."""
    for (number, user), (turn, mode) in itertools.product(enumerate(SHARING), enumerate(MODES)):
        for service in ANSWERING if ALL else [ANSWERING[(number + turn) % 2]]:
            yield pytest.param(mode, service, user, id=f"{mode}-{service.__name__}-{user}")


@pytest.mark.parametrize(("mode", "service", "user"), list(attackers()), indirect=["mode", "service"])
async def test_nobody_reaches_another(bus: Bus, user: str) -> None:
    """No plugin and no tenant's project can read, write, list, watch or forge what is another's."""
    attacker = Attacker(user, bus)
    # In an account of one's own one may talk to oneself; in a common one even that is dropped. The inbox of a
    # user with few verbs lies within its owner's, so what goes beside it may reach the owner.
    own = attacker.owner if bus.permissions.mode == "accounts" or user != attacker.owner else None
    assert await attacker.overhear() == []
    assert await attacker.impersonate() == []
    assert bus.breaches(own=own) == []
    await attacker.misdirect()
    assert bus.breaches(own=own) == []
    await attacker.trace()
    assert bus.breaches(own=attacker.owner) == []
    await bus.everybody_asks(rounds=1)


async def test_a_trusted_plugin_speaks_for_plugins_only(bus: Bus) -> None:
    """The payload dialect names any plugin, but opens neither the tenants' data nor the operators' verbs."""
    answer = await bus.parties[BOT].ask("db.kv.set", plugin_name="trivia", value=1)
    assert (answer["success"], bus.responder.executed["kv/trivia"]) == (True, 1)
    attacker = Attacker(BOT, bus)
    await attacker.impersonate()
    await attacker.misdirect()
    executed = set(bus.responder.executed - bus.asked)
    assert executed <= {*(f"kv/{name}" for name in (*PLUGINS, BOT)), f"table/{BOT}", f"blob/{BOT}"}
    if bus.permissions.mode == "accounts":
        # Without accounts nothing tells the service who speaks here, and so where the answer belongs.
        assert [told for name in (*TENANTS, OPERATOR) for told in bus.parties[name].unasked] == []


async def test_without_credentials_nobody_gets_in(bus: Bus) -> None:
    """A generated configuration lets in nobody who shows nothing, or something wrong."""
    for shown in (None, Credentials(user=OPERATOR, secret="guessed")):
        with pytest.raises(ConnectionError):
            async with Wire.open(bus.url, shown):
                pass


async def test_no_responders_is_told_to_the_caller_only(mode: Mode) -> None:
    """That nobody serves is told to who asked, and to nobody else."""
    async with running_bus(mode, no_service) as bus:
        await Attacker("trivia", bus).misdirect()
        assert bus.breaches(own="trivia") == []


async def test_wrong_subjects_within_the_own_namespace_are_answered(mode: Mode) -> None:
    """Whatever a user may send to is answered, also an unknown verb and too many tokens."""
    async with running_bus(mode, holdfast_service) as bus:
        for user, subject in (
            ("trivia", "db.kv.trivia.nonsense"),
            ("trivia", "rosey.db.kv.trivia.get.more"),
            ("acme/web", "db.semantic.acme.web.nonsense"),
            ("acme/web", "rosey.db.semantic.acme.web.get.more"),
            (BOT, "db.kv.nonsense"),
            (OPERATOR, "db.admin.nonsense"),
            (OPERATOR, "rosey.db.admin.a.b.c"),
        ):
            answer = await bus.parties[user].ask(subject, plugin_name=BOT)
            codes = answer.get("error_code"), answer.get("errorCode"), answer.get("error", {}).get("code")
            assert {"INVALID_SUBJECT", "invalid_subject"} & set(codes), (subject, answer)


async def test_an_operator_discovers_the_service(bus: Bus) -> None:
    """An operator finds the service as NATS tools do."""
    async with library_client(bus.url, bus.credentials[OPERATOR]) as client:
        reply = await client.request("$SRV.PING.holdfast", b"", timeout=60)
    assert b'"holdfast"' in reply.data


async def test_the_credentials_of_the_service_allow_no_more_than_it_needs(mode: Mode) -> None:
    """Who takes over the service's connection can't listen outside its group or speak as a user."""
    async with running_bus(mode, no_service) as bus:
        for line in (
            b"SUB db.kv.*.> 1",
            b"SUB db.kv.*.> other 1",
            b"SUB db.> holdfast 1",
            b"SUB > 1",
            b"SUB _INBOX.trivia.> 1",
            b"PUB db.kv.trivia.set 0\r\n",
            b"PUB db.admin.sweep 0\r\n",
            b"PUB $SRV.PING 0\r\n",
        ):
            async with Wire.open(bus.url, bus.credentials[SERVICE]) as wire:
                wire.send(line)
                assert b"Permissions Violation" in b"".join(await wire.settle()), line
