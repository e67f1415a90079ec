"""The limits of a generated configuration: a plugin that reads nothing does not fill the server's memory.

The memory of the real server is measured. The same attack without the limits is past the same bound.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from holdfast.edges.nats.server_config import (
    CONNECTIONS,
    PENDING,
    PENDING_UNCOUNTED,
    Permissions,
    new_credentials,
)
from holdfast.errors import ValidationError
from tests.nats import Wire, nats_server
from tests.security.test_configuration import text_of
from tests.security.unread import MEGABYTE, REPLY, Cost, attack

if TYPE_CHECKING:
    from holdfast.edges.nats.server_config import Mode

MANY: Final = int(os.environ.get("HOLDFAST_UNREAD_CONNECTIONS", "0"))
"""How many connections the campaign opens; 0 for the small attack of the suite."""
SMALL: Final[dict[str, dict[str, Any]]] = {
    "accounts": {"connections": 24, "replies": 24, "limit": 4},
    "permissions": {"connections": 7, "replies": 96, "limit": None},
}
BESIDE: Final = 48
"""How many megabytes the server may grow beside what it keeps for connections."""

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc"
)


def sizes(mode: Mode) -> dict[str, Any]:
    """How large the attack is."""
    return {"connections": MANY, "replies": 140, "limit": None} if MANY else SMALL[mode]


def bound(mode: Mode, size: dict[str, Any]) -> int:
    """How many megabytes the server may grow, a quarter more than what it is to keep at most."""
    allowed = (size["limit"] or CONNECTIONS) if mode == "accounts" else size["connections"]
    pending = PENDING if mode == "accounts" else PENDING_UNCOUNTED
    kept = (min(allowed, size["connections"]) - 1) * min(pending, size["replies"] * REPLY)
    return int(kept * 1.25) // MEGABYTE + BESIDE


def told(mode: Mode, cost: Cost, what: str) -> None:
    """Print the figures of the campaign."""
    if MANY:
        print(f"\n{mode}, {what}: {cost.admitted} connections admitted, the server grew by {cost.grown} MB")


@needs_proc
async def test_unread_replies_cost_bounded_memory(mode: Mode) -> None:
    """Connections that never read while they ask for large replies cost what the configuration allows."""
    size = sizes(mode)
    cost = await attack(mode, **size)
    told(mode, cost, "with limits")
    assert cost.grown <= bound(mode, size)
    if mode == "accounts":
        assert cost.admitted == min(size["connections"], size["limit"] or CONNECTIONS)


@needs_proc
async def test_control_without_limits_unread_replies_exceed_the_bound(mode: Mode) -> None:
    """The negative control: without the limits the same attack is past the same bound."""
    size = sizes(mode)
    cost = await attack(mode, **size, altered=_without_limits)
    told(mode, cost, "without limits")
    assert cost.admitted == size["connections"]
    assert cost.grown > bound(mode, size)


def _without_limits(text: str) -> str:
    names = "limits|max_connections|max_pending|write_deadline"
    bare, removed = re.subn(rf"(?m)^ *({names}): .*\n", "", text)
    assert removed >= 3
    return bare


async def test_each_user_has_its_own_connection_limit_with_accounts() -> None:
    """In accounts mode each user has its own number of connections, also two users of one plugin."""
    who = Permissions(("trivia", "trivia:read"), connections=2)
    credentials = {user: new_credentials(user, "nkeys") for user in who.users}
    async with (
        nats_server(who.configuration(credentials)) as server,
        Wire.open(server.url, credentials["trivia"]),
        Wire.open(server.url, credentials["trivia"]),
        Wire.open(server.url, credentials["trivia:read"]),
    ):
        with pytest.raises(ConnectionError, match="maximum account active connections exceeded"):
            async with Wire.open(server.url, credentials["trivia"]):
                pass


async def test_all_connections_share_a_limit_with_permissions() -> None:
    """In permissions mode the server counts all connections, with room for each user and for the service."""
    text = text_of(Permissions(("trivia", "quote-db"), mode="permissions", connections=3))
    assert re.search(r"(?m)^max_connections: (\d+)$", text)[1] == str(3 * 3 + 16 * 3)  # type: ignore[index]
    assert "limits:" not in text


@pytest.mark.parametrize(
    "line",
    ["max_payload: 1048576", 'write_deadline: "10s"', "max_control_line: 4096", "max_subscriptions: 1000"],
)
def test_every_configuration_limits_a_connection(mode: Mode, line: str) -> None:
    """What one connection may send, keep and leave unread is limited in both modes."""
    assert f"\n{line}\n" in text_of(Permissions(("trivia",), mode=mode))
    assert "\nmax_pending: " in text_of(Permissions(("trivia",), mode=mode))


@pytest.mark.parametrize("number", [0, -1])
def test_a_limit_of_zero_connections_is_refused(number: int) -> None:
    """A user who may not connect at all is a mistake in writing."""
    with pytest.raises(ValidationError, match="connections"):
        Permissions(("trivia",), connections=number)
