"""A plugin that opens many connections, asks for large replies on all of them, and reads none.

What it does and what that costs the NATS server stand here; how much it may cost stands in the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.edges.nats.server_config import CONNECTIONS, Permissions, new_credentials
from tests.nats import Wire, connection, nats_server
from tests.security.responders import holdfast_service

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.bus.connection import Connection
    from holdfast.edges.nats.server_config import Mode

MEGABYTE: Final = 1_048_576
KEYS: Final = tuple(f"large{number}" for number in range(8))
VALUE: Final = "x" * 64_000
"""Eight of these are about as much as one reply may hold."""
REPLY: Final = len(KEYS) * len(VALUE)
QUESTION: Final = json.dumps({"keys": KEYS}).encode()


class Cost(NamedTuple):
    """What the server let happen, and how many bytes of memory it had at most."""

    admitted: int
    peak: int
    idle: int

    @property
    def grown(self) -> int:
        """By how many megabytes the server has grown at most."""
        return (self.peak - self.idle) // MEGABYTE


async def attack(
    mode: Mode,
    *,
    connections: int,
    replies: int,
    limit: int | None = None,
    altered: Callable[[str], str] = lambda text: text,
) -> Cost:
    """Let one plugin leave so many replies unread on so many connections, and say what it cost.

    One connection asks, and all others listen at the same inbox, so that every reply is sent to each.

    Args:
        mode: Accounts or permissions.
        connections: How many it opens.
        replies: How many it asks for, of half a megabyte each.
        limit: How many connections a user may have; None for the usual.
        altered: Changes the configuration, to show what would happen then.
    """
    allowed = CONNECTIONS if limit is None else limit
    who = Permissions(("trivia", "quote-db"), mode=mode, connections=allowed)
    credentials = {user: new_credentials(user, "nkeys") for user in who.users}
    plugin = credentials["trivia"]
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(nats_server(altered(who.configuration(credentials))))
        await stack.enter_async_context(holdfast_service(server.url, credentials, who))
        asking = await stack.enter_async_context(connection(server.url, plugin))
        quiet = await stack.enter_async_context(connection(server.url, credentials["quote-db"]))
        for key in KEYS:
            await _ask(asking, "db.kv.trivia.set", {"key": key, "value": VALUE})
        idle, admitted = _memory(server.process.pid), 1
        for _ in range(connections - 1):
            with contextlib.suppress(ConnectionError):
                wire = await stack.enter_async_context(Wire.open(server.url, plugin))
                wire.send(f"SUB {plugin.inbox}.> 1".encode())
                admitted += 1
        for _ in range(replies):
            assert asking.send("db.kv.trivia.get_many", QUESTION, reply=f"{plugin.inbox}.unread")
            await _ask(quiet, "db.kv.quote-db.get", {"key": "barrier"})
        return Cost(admitted, _memory(server.process.pid, "VmHWM"), idle)


async def _ask(client: Connection, subject: str, fields: dict[str, str]) -> None:
    answers: asyncio.Queue[bytes] = asyncio.Queue()
    inbox = client.new_inbox()
    client.listen(inbox, lambda message: answers.put_nowait(message.data))
    assert client.send(subject, json.dumps(fields).encode(), reply=inbox)
    async with asyncio.timeout(60):
        assert json.loads(await answers.get())["success"] is True


def _memory(pid: int, what: str = "VmRSS") -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"the kernel does not tell {what}")
