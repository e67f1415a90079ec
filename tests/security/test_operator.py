"""With the operator's own credentials the audit and policies can be reached, and with nobody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

import holdfast
from holdfast.edges.nats.server_config import new_credentials
from holdfast.wire.subjects import OPERATOR
from tests.nats import nats_server
from tests.security.bus import OWNERS, permissions
from tests.security.responders import holdfast_service

if TYPE_CHECKING:
    from holdfast.edges.nats.server_config import Credentials, Mode


def address(url: str, credentials: Credentials) -> str:
    """The URL with which a user opens the store."""
    login = f"{credentials.entry()['user']}:{credentials.secret}"
    options = urlencode({"inbox": credentials.inbox, "timeout": 20})
    return f"{url.replace('nats://', f'nats://{login}@')}?{options}"


async def test_the_operator_alone_reaches_audit_and_policies(mode: Mode) -> None:
    """A user with a namespace of its own can neither read its audit, lift its policy nor copy the store."""
    who = permissions(mode)
    known = {user: new_credentials(user, "passwords") for user in who.users}
    async with (
        nats_server(who.configuration(known)) as server,
        holdfast_service(server.url, known, who),
        holdfast.open(address(server.url, known[OPERATOR])) as store,
    ):
        policy = await store.set_policy("kv/trivia", {"audit": True, "quota_keys": 9}, writer="ops")
        assert await store.policy("kv/trivia") == policy
        assert (await store.stats("kv/trivia")).keys == 0
        [record] = (await store.audit("kv/trivia").log()).records
        assert (record.op, record.writer) == ("policy", "ops")
        for user in OWNERS:
            await _assert_shut_out(address(server.url, known[user]))
        assert (await store.audit("kv/trivia").verify()).records == 1


async def _assert_shut_out(url: str) -> None:
    async with holdfast.open(url) as store:
        audit = store.audit("kv/trivia")
        policy, rescue = store.set_policy("kv/trivia", {}), store.rescue("copy.db")
        for attempt in (audit.log(), audit.verify(), policy, rescue):
            with pytest.raises((holdfast.PermissionDenied, holdfast.Unavailable)):
                await attempt
