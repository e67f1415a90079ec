"""Negative controls: what would be wrong is seen by the same attempts that find nothing.

Each test takes away one thing that keeps users apart and expects a breach of the kind that it prevents.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.nats import library_client
from tests.security.attacks import Attacker
from tests.security.bus import running_bus
from tests.security.responders import stand_in

pytestmark = pytest.mark.unmeasured

unguarded = partial(stand_in, guarded=False)
PUBLISHED = '"_INBOX.*.>", "db.event.>", "$SRV.LINKS.holdfast.7"'
"""What the service may publish in the mode permissions."""


async def test_a_service_that_publishes_anywhere_acts_for_others() -> None:
    """Without the guard and with leave to publish everything, a reply becomes another's request."""

    def altered(config: str) -> str:
        return _replaced(config, f"allow: [ {PUBLISHED} ]", 'allow: [ ">" ]')

    async with running_bus("permissions", unguarded, altered=altered) as bus:
        await Attacker("trivia", bus).misdirect()
        breaches = "\n".join(bus.breaches())
    for namespace in ("kv/quote-db", "table/quote-db", "semantic/acme/web", "admin"):
        assert f"commands of {namespace} were executed unasked" in breaches
    for subject in ("db.event.kv.quote-db.set", "db.event.semantic.acme.web.set", "_INBOX.OPERATOR.forged"):
        assert f"at {subject!r}" in breaches


async def test_a_service_without_guard_answers_into_others_inboxes() -> None:
    """Where the server alone is relied upon, replies reach the inboxes and the events of others."""
    async with running_bus("permissions", unguarded) as bus:
        await Attacker("trivia", bus).misdirect()
        breaches = "\n".join(bus.breaches())
    assert "commands of kv/trivia were executed unasked" in breaches
    assert "kv/quote-db" not in breaches
    for subject in ("_INBOX.quote-db.forged", "_INBOX.acme.web.forged", "db.event.kv.quote-db.set"):
        assert f"at {subject!r}" in breaches


async def test_allow_responses_lets_a_service_act_for_others() -> None:
    """What the server calls a response goes wherever the caller said, also to another's subject."""

    def altered(config: str) -> str:
        publish = f"publish: {{ allow: [ {PUBLISHED} ] }}"
        return _replaced(config, publish, f"{publish}\n          allow_responses: {{ max: 1 }}")

    async with (
        running_bus("permissions", unguarded, altered=altered) as bus,
        library_client(bus.url, bus.credentials["trivia"]) as client,
    ):
        await client.publish("db.kv.trivia.set", b"{}", reply="db.link.1.kv.quote-db.set")
        await client.flush()
        await bus.everybody_asks()
        assert "1 commands of kv/quote-db were executed unasked" in bus.breaches()


async def test_a_plugin_that_may_hear_all_inboxes_overhears() -> None:
    """With the subscription that clients take by default, a plugin reads the replies to all others."""

    def altered(config: str) -> str:
        return _replaced(config, '"_INBOX.trivia.>"', '"_INBOX.>"')

    async with running_bus("permissions", stand_in, altered=altered) as bus:
        heard = "\n".join(await Attacker("trivia", bus).overhear())
    for subject in ("_INBOX.>", "_INBOX.quote-db.>", "_INBOX.acme.web.>", "_INBOX.OPERATOR.>"):
        assert f"at {subject!r}" in heard


async def test_a_plugin_with_anothers_subject_acts_for_it() -> None:
    """A grant too much in the common account is a breach in every way it can be used."""

    def altered(config: str) -> str:
        mine, theirs = '\n              "db.link.0.kv.trivia.>"', '"db.link.1.kv.quote-db.>"'
        return _replaced(config, mine, f"{mine}, {theirs}")

    async with running_bus("permissions", stand_in, altered=altered) as bus:
        await Attacker("trivia", bus).impersonate()
        assert bus.breaches() != []
        assert all("kv/quote-db" in breach or "kv.quote-db" in breach for breach in bus.breaches())


async def test_a_plugin_in_the_services_group_steals_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may join the service's queue group is given others' requests, which are then not answered."""
    monkeypatch.setattr("tests.security.bus.PATIENCE", 0.5)

    def altered(config: str) -> str:
        return _replaced(config, '"_INBOX.trivia.>"', '"_INBOX.trivia.>", "db.link.1.>"')

    async with running_bus("permissions", stand_in, altered=altered) as bus:

        async def overhear() -> None:
            for _ in range(8):  # the server chooses by chance who of a group gets a request
                await Attacker("trivia", bus).overhear()

        with pytest.raises(AssertionError, match="got no answer"):
            await overhear()


async def test_accounts_isolate_users_without_the_guard() -> None:
    """In the mode accounts the guard is not what keeps users apart: without it nothing reaches another."""
    async with running_bus("accounts", unguarded) as bus:
        await Attacker("trivia", bus).misdirect()
        assert bus.breaches(own="trivia") == []


def _replaced(config: str, this: str, that: str) -> str:
    assert this in config
    return config.replace(this, that)
