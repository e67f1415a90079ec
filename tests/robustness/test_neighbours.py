"""A plugin that is told apart by its credentials harms nobody, whatever it sends: others get every answer.

The suite floods for a moment and counts errors. `./dev soak neighbours` floods for longer, and also compares
how long the quiet plugin waits beside each flood with how long it waits alone. Part of that wait is the
machine's and the NATS server's, whoever answers: so a bare echo over the same server is asked in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from nats.errors import Error as NatsError

from holdfast.edges.nats.credentials import new_credentials
from holdfast.edges.nats.server_config import SERVICE, Permissions
from tests.edges.running import Up, holdfast_up, plain_client
from tests.robustness import echo_process
from tests.robustness.flooding_neighbour import KINDS, flooding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from holdfast.edges.nats.credentials import Credentials
    from holdfast.edges.nats.server_config import Mode

SECONDS: Final = float(os.environ.get("HOLDFAST_FLOOD_SECONDS", "0.3"))
RATIO: Final = float(os.environ.get("HOLDFAST_FLOOD_RATIO", "inf"))
"""How many times as long as alone the slowest of a hundred requests may take beside a flood."""
MODES: Final[tuple[Mode, ...]] = ("accounts", "permissions") if SECONDS > 1 else ("accounts",)
PAUSE: Final = 0.004
PATIENCE: Final = 5 if math.isfinite(RATIO) else 30
"""For how many seconds an answer is waited for; in the suite for long, since a busy machine is no error."""
COMPUTING: Final = "import time\nuntil = time.monotonic() + {}\nwhile time.monotonic() < until: pass"


class Seen(NamedTuple):
    """What a plugin saw: how long its requests took in milliseconds, and what went wrong."""

    took: list[float]
    errors: list[str]

    @property
    def p99(self) -> float:
        """What 99 of 100 requests took at the most."""
        return sorted(self.took)[len(self.took) * 99 // 100]

    def __str__(self) -> str:
        middle = sorted(self.took)[len(self.took) // 2]
        return (
            f"{len(self.took)} asked, {len(self.errors)} errors, p50 {middle:.1f} ms, p99 {self.p99:.1f} ms"
        )


class Place:
    """A running service with a quiet plugin and one that floods."""

    def __init__(self, up: Up, known: dict[str, Credentials]) -> None:
        self.up = up
        self._known = known

    def address(self, user: str) -> str:
        """Where a user connects, with its password."""
        return self.up.url.replace("//", f"//{user}:{self._known[user].secret}@")

    async def asked_while(self, working: asyncio.Task[int], *, patience: int = PATIENCE) -> tuple[Seen, Seen]:
        """Have the quiet plugin ask until something else is done: the service, and a bare echo in between."""
        seen, echo = Seen([], []), Seen([], [])
        async with (
            plain_client(self.up.url, **self._known["quiet"].options()) as client,
            plain_client(self.up.url, user=echo_process.USER, password=echo_process.USER) as other,
        ):
            number = 0
            while not working.done():
                number += 1
                fields: dict[str, int | str] = {"key": "k", "value": number, "deadline_ms": patience * 1000}
                verb = "set" if number % 2 else "get"
                await _ask(client, f"db.kv.quiet.{verb}", fields, seen=seen)
                await asyncio.sleep(PAUSE)
                await _ask(other, echo_process.SUBJECT, fields | {"success": True}, seen=echo)
                await asyncio.sleep(PAUSE)
        return seen, echo

    async def reconnects(self) -> int:
        """How many times connections of the service came back."""
        _, text = await self.up.http("/metrics")
        [found] = re.findall(r"^holdfast_nats_reconnects_total (\S+)$", text, re.MULTILINE)
        return int(float(found))


async def _ask(client: Client, subject: str, fields: dict[str, int | str], *, seen: Seen) -> None:
    began = time.perf_counter()
    try:
        payload, patience = json.dumps(fields).encode(), int(fields["deadline_ms"]) / 1000
        reply = await client.request(subject, payload, timeout=patience)
        if not (answer := json.loads(reply.data))["success"]:
            seen.errors.append(answer["error_code"])
    except NatsError as error:
        seen.errors.append(type(error).__name__)
    seen.took.append((time.perf_counter() - began) * 1000)


@contextlib.asynccontextmanager
async def place(
    folder: Path, mode: Mode, *, impatient: bool = False, **variables: str
) -> AsyncIterator[Place]:
    """A service whose server was set up by `holdfast nats config`.

    Args:
        folder: Where everything is kept.
        mode: How plugins are kept apart.
        impatient: Whether the server cuts off who is two large messages behind.
        **variables: Settings of the service.
    """
    permissions = Permissions(("quiet", "flood"), mode=mode)
    known = {user: new_credentials(user, "passwords") for user in permissions.users}
    config = folder / "nats.conf"
    text = permissions.configuration(known).replace(
        "accounts: {\n", f"accounts: {{\n{echo_process.ACCOUNT}", 1
    )
    config.write_text(text + ("max_pending: 2MB\n" if impatient else ""))
    login = ("--nats-user", SERVICE, "--nats-password", known[SERVICE].secret)
    settings = {"HOLDFAST_REPLY_MODE": mode, **variables}
    async with (
        holdfast_up(folder, "--nats-config", config, *login, **settings) as up,
        echo_process.echoing(up.nats_port),
    ):
        yield Place(up, known)


async def _alone() -> int:
    await asyncio.sleep(SECONDS)
    return 0


async def _computing() -> int:
    """Have two processes compute and send nothing: what a flood costs others by its processor time alone."""
    command = (sys.executable, "-c", COMPUTING.format(SECONDS))
    processes = [await asyncio.create_subprocess_exec(*command) for _ in range(2)]
    return sum([await process.wait() for process in processes])


@pytest.mark.parametrize("mode", MODES)
async def test_no_flood_harms_another_plugin(tmp_path: Path, mode: Mode) -> None:
    """Beside each flood of the list every request of another plugin is answered with success.

    In the campaign, the slowest of a hundred takes at most three times as long as alone. The factor of a bare
    echo beside the same flood is printed too: it shows how much of that is the machine's doing.
    """
    async with place(tmp_path, mode) as at:
        await at.asked_while(asyncio.create_task(_alone()))
        alone, echo_alone = await at.asked_while(asyncio.create_task(_alone()))
        print(f"\n{mode}, alone: {alone}\n    echo: {echo_alone}")
        computing, echo = await at.asked_while(asyncio.create_task(_computing()))
        print(f"{mode}, beside two processes that only compute: {computing}\n    echo: {echo}")
        ratios: dict[str, tuple[float, float]] = {}
        for kind in KINDS:
            before = await at.reconnects()
            working = asyncio.create_task(flooding(at.address("flood"), kind, SECONDS))
            seen, echo = await at.asked_while(working)
            cut = await at.reconnects() - before
            own, machine = ratios[kind] = seen.p99 / alone.p99, echo.p99 / echo_alone.p99
            print(
                f"{mode}, {kind}, {working.result() / SECONDS / 1e6:.0f} MB/s: {seen}, {own:.1f} times, "
                f"cut off {cut} times\n    echo: {echo}, {machine:.1f} times"
            )
            assert seen.errors == [], kind
    assert all(own <= RATIO for own, _ in ratios.values()), ratios


@pytest.mark.parametrize("connections", ["128", "0"])
async def test_a_flood_is_cut_off_alone(tmp_path: Path, connections: str) -> None:
    """A server that cuts off a flooded connection cuts off the flooding plugin; without links, everybody."""
    async with place(tmp_path, "accounts", HOLDFAST_PLUGIN_CONNECTIONS=connections, impatient=True) as at:
        flood = asyncio.create_task(flooding(at.address("flood"), "large", 2))
        seen, _ = await at.asked_while(flood, patience=PATIENCE if int(connections) else 1)
        cut, log = await at.reconnects(), [line["message"] for line in at.up.log]
    print(f"\n{connections} connections: {seen}, cut off {cut} times")
    gone = {line.split("'")[1] for line in log if "to NATS; reconnecting" in line}
    if connections == "0":
        assert gone == {"holdfast"}
        assert seen.errors
    else:
        assert gone == {"holdfast link 1"}
        assert seen.errors == []
