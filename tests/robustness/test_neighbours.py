"""A plugin that is told apart by its credentials harms nobody, whatever it sends: others get every answer.

The suite floods for a moment and counts errors. `./dev soak neighbours` and `./dev soak attacks` flood for
longer, and compare how long the quiet plugin waits beside each flood with how long it waits alone. They
report three figures, each for the slowest of a hundred requests:

1. the time that the quiet plugin sees;
2. the time of a bare echo over the same NATS server, asked in between, which makes the same trips between
   processes, threads and the disk as the service does, and decides nothing: what it loses beside a flood is
   the doing of the machine and of the server, which the flood keeps busy;
3. the time that the service's event loop works between the arrival of a request and its reply.

The rule is about the first: beside a flood it is at most three times what it is alone, plus what the echo
loses. The slowest of a hundred requests is one of a few, so each figure is an estimate: a flood goes on until
there are enough answers, and the report says how sure the figures are. Other work of the machine adds to each
figure at random, so a flood that breaks the rule is repeated on a new service, and one run of three in which
the rule holds is enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import random
import re
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from nats.errors import Error as NatsError

from holdfast.edges.nats.server_config import SERVICE, Permissions, new_credentials
from tests.edges.running import Up, holdfast_up, plain_client, started_up
from tests.robustness import echo_process, loop_time
from tests.robustness.flooding_neighbour import KINDS, flooding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable

    from nats.aio.client import Client

    from holdfast.edges.nats.server_config import Credentials, Mode

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = float(os.environ.get("HOLDFAST_FLOOD_SECONDS", "0.3"))
RATIO: Final = float(os.environ.get("HOLDFAST_FLOOD_RATIO", "inf"))
"""How many times as long as alone the slowest of a hundred requests may take beside a flood."""
CAMPAIGN: Final = math.isfinite(RATIO)
TRIES: Final = 3
CALLERS: Final = {"connections": 8}
"""How many callers the quiet plugin has beside a flood, each over a connection of its own; else one. Where an
answer may take seconds, one caller would see a few in all."""
PAUSE: Final = 0.004
ENOUGH: Final = 300 if CAMPAIGN else 0
LONGEST: Final = 3
"""How many requests are answered beside a flood, which goes on for up to so many times as long for that."""
DRAWN: Final = 1_000
"""How many samples are drawn from what was seen, to tell how sure the figures are."""
UNTIL_CUT_OFF: Final = 30
"""How many floods of a second a server gets to cut somebody off; on a busy machine one may be too slow."""
PATIENCE: Final = 15 if CAMPAIGN else 30
"""For how many seconds an answer is waited for: for long, since what comes late is no error, but slow."""


class Seen(NamedTuple):
    """What a plugin saw: how long its requests took in milliseconds, and what went wrong."""

    took: list[float]
    errors: list[str]

    @property
    def p99(self) -> float:
        """What 99 of 100 requests took at the most."""
        return sorted(self.took)[len(self.took) * 99 // 100]

    def more(self, other: Seen) -> Seen:
        """Both together."""
        return Seen(self.took + other.took, self.errors + other.errors)

    def drawn(self, chance: random.Random) -> Seen:
        """As many requests, each drawn from all of these."""
        return Seen(chance.choices(self.took, k=len(self.took)), [])

    def __str__(self) -> str:
        middle = sorted(self.took)[len(self.took) // 2]
        wrong = f"{len(self.errors)} errors {sorted(set(self.errors)) or ''}".rstrip()
        return f"{len(self.took)} asked, {wrong}, p50 {middle:.1f} ms, p99 {self.p99:.1f} ms"


class Figures(NamedTuple):
    """What a flood does to the quiet plugin, and to the echo. Each phase is a pair of monotonic times."""

    kind: str
    alone: Seen
    echo_alone: Seen
    beside: Seen
    echo_beside: Seen
    phases: tuple[tuple[float, float], tuple[float, float]]

    @property
    def allowed(self) -> float:
        """What 99 of 100 requests may take: so many times as long as alone, and what the echo loses, too."""
        return RATIO * self.alone.p99 + max(0.0, self.echo_beside.p99 - self.echo_alone.p99)

    @property
    def excess(self) -> float:
        """By how much 99 of 100 requests take longer than they may; negative if they don't."""
        return self.beside.p99 - self.allowed

    def _drawn(self, chance: random.Random) -> Figures:
        return self._replace(
            alone=self.alone.drawn(chance),
            echo_alone=self.echo_alone.drawn(chance),
            beside=self.beside.drawn(chance),
            echo_beside=self.echo_beside.drawn(chance),
        )

    def surely(self) -> tuple[float, float]:
        """Between which bounds the excess is with a certainty of 95 %, as far as the samples can tell."""
        chance = random.Random(1)
        excesses = sorted(self._drawn(chance).excess for _ in range(DRAWN))
        return excesses[DRAWN // 40], excesses[DRAWN * 39 // 40]

    def __str__(self) -> str:
        own, machine = self.beside.p99 / self.alone.p99, self.echo_beside.p99 / self.echo_alone.p99
        return (
            f"{self.kind}: {self.beside}, {own:.1f} times p99 alone\n"
            f"    alone: {self.alone}\n"
            f"    echo: {self.echo_beside}, {machine:.1f} times\n    echo alone: {self.echo_alone}\n"
            f"    allowed: p99 {self.allowed:.1f} ms"
        )

    def summary(self) -> str:
        """The figures, and how sure they are."""
        low, high = self.surely()
        return f"{self}, exceeded by {self.excess:.1f} ms (surely {low:.1f} to {high:.1f})"


class Place:
    """A running service with a quiet plugin and one that floods."""

    def __init__(self, up: Up, known: dict[str, Credentials]) -> None:
        self.up = up
        self._known = known

    def address(self, user: str) -> str:
        """Where a user connects, with its password."""
        return self.up.url.replace("//", f"//{user}:{self._known[user].secret}@")

    async def asked_while(
        self, work: Callable[[], Coroutine[None, None, int]], *, callers: int = 1, patience: int = PATIENCE
    ) -> tuple[Seen, Seen]:
        """Have the quiet plugin ask until some work is done: the service, and a bare echo in between.

        Several callers ask less often, so that alone they ask no more than one does.
        """
        seen, echo = Seen([], []), Seen([], [])
        async with contextlib.AsyncExitStack() as stack:
            pairs = [
                (
                    await stack.enter_async_context(
                        plain_client(self.up.url, **self._known["quiet"].options())
                    ),
                    await stack.enter_async_context(
                        plain_client(self.up.url, user=echo_process.USER, password=echo_process.USER)
                    ),
                )
                for _ in range(callers)
            ]
            working = asyncio.create_task(work())

            async def call(place: int, client: Client, other: Client) -> None:
                await asyncio.sleep(2 * PAUSE * place)
                number = place
                while not working.done():
                    number += 1
                    fields: dict[str, int | str] = {
                        "key": f"k{place}",
                        "value": number,
                        "deadline_ms": patience * 1000,
                    }
                    verb = "set" if number % 2 else "get"
                    await _ask(client, f"db.kv.quiet.{verb}", fields, seen=seen)
                    await asyncio.sleep(PAUSE * callers)
                    await _ask(other, f"{echo_process.SUBJECT}.{verb}", fields | {"success": True}, seen=echo)
                    await asyncio.sleep(PAUSE * callers)

            await asyncio.gather(*(call(place, *pair) for place, pair in enumerate(pairs)))
            await working
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
    text = echo_process.admitted(permissions.configuration(known), mode)
    config.write_text(text + ("max_pending: 2MB\n" if impatient else ""))
    login = ("--nats-user", SERVICE, "--nats-password", known[SERVICE].secret)
    settings = {"HOLDFAST_REPLY_MODE": mode, **variables}
    settings |= {loop_time.VARIABLE: str(folder / "loop_time"), "PYTHONPATH": str(ROOT)}
    start = partial(started_up, module="tests.robustness.loop_time") if CAMPAIGN else holdfast_up
    async with (
        start(folder, "--nats-config", config, *login, **settings) as up,
        echo_process.echoing(up.nats_port, folder),
    ):
        yield Place(up, known)


async def _alone(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return 0


async def _figures(folder: Path, mode: Mode, kinds: Iterable[str]) -> list[Figures]:
    """Flood a new service with each of these kinds, after the quiet plugin has asked alone."""
    figures = []
    kinds = list(kinds)
    callers = max(CALLERS.get(kind, 1) for kind in kinds) if CAMPAIGN else 1
    async with place(folder, mode) as at:
        await at.asked_while(partial(_alone, SECONDS / 10))
        since = time.monotonic()
        alone = await at.asked_while(partial(_alone, SECONDS / 2), callers=callers)
        for kind in kinds:
            began = time.monotonic()
            beside = await _beside(at, kind, callers)
            figures.append(Figures(kind, *alone, *beside, ((since, began), (began, time.monotonic()))))
            print(f"\n{mode}, {figures[-1].summary() if CAMPAIGN else figures[-1]}")
            assert figures[-1].beside.errors == [], kind
        if not CAMPAIGN:
            await at.up.kill()
    return figures


async def _beside(at: Place, kind: str, callers: int) -> tuple[Seen, Seen]:
    """Flood a service while the quiet plugin asks, until that has got enough answers."""
    seen, echo = Seen([], []), Seen([], [])
    for _ in range(LONGEST):
        flood = partial(flooding, at.address("flood"), kind, SECONDS)
        more, more_echo = await at.asked_while(flood, callers=callers)
        seen, echo = seen.more(more), echo.more(more_echo)
        if len(seen.took) >= ENOUGH:
            break
    return seen, echo


async def _tried(folder: Path, mode: Mode, kind: str) -> bool:
    """Flood a service with one kind until the rule holds, each time a new one: backlogs outlast a flood."""
    for number in range(TRIES):
        run = folder / f"{kind}-{number}"
        run.mkdir()
        [figures] = await _figures(run, mode, [kind])
        _print_loop_times(run, figures)
        if figures.excess <= 0:
            return True
    return False


def _print_loop_times(folder: Path, figures: Figures) -> None:
    """Print how long the service's loop worked during each request of the quiet plugin."""
    noted = loop_time.noted_in(folder / "loop_time")
    for name, (since, until) in zip(("alone", "beside"), figures.phases, strict=True):
        for verb in ("set", "get"):
            took = [one.took for one in noted if since <= one.at <= until and one.verb == verb]
            print(f"    CPU time of the loop during a {verb}, {name}: {Seen(took, [])}")


@pytest.mark.skipif(CAMPAIGN, reason="the campaign compares times, too")
async def test_no_flood_harms_another_plugin(tmp_path: Path) -> None:
    """Beside each flood of the list every request of another plugin is answered with success."""
    await _figures(tmp_path, "accounts", KINDS)


@pytest.mark.skipif(not CAMPAIGN, reason="it takes minutes: ./dev soak neighbours")
@pytest.mark.parametrize("mode", ["accounts", "permissions"])
async def test_no_flood_slows_another_plugin_down(tmp_path: Path, mode: Mode) -> None:
    """The slowest of a hundred requests takes at most three times as long as alone, and what an echo loses.

    No request fails, in any run.
    """
    slow = [kind for kind in KINDS if not await _tried(tmp_path, mode, kind)]
    assert not slow, f"too slow in each of {TRIES} runs beside: {slow}"


@pytest.mark.parametrize("connections", ["128", "0"])
async def test_a_flood_is_cut_off_alone(tmp_path: Path, connections: str) -> None:
    """A server that cuts off a flooded connection cuts off the flooding plugin; without links, everybody."""
    patience, seen, gone = PATIENCE if int(connections) else 1, Seen([], []), set[str]()
    async with place(tmp_path, "accounts", HOLDFAST_PLUGIN_CONNECTIONS=connections, impatient=True) as at:
        for _ in range(UNTIL_CUT_OFF):
            flood = partial(flooding, at.address("flood"), "large", 1)
            more, _ = await at.asked_while(flood, patience=patience)
            seen = seen.more(more)
            lost = [line["message"] for line in at.up.log if "to NATS; reconnecting" in line["message"]]
            if gone := {message.split("'")[1] for message in lost}:
                break
        cut = await at.reconnects()
    print(f"\n{connections} connections: {seen}, cut off {cut} times")
    if connections == "0":
        assert gone == {"holdfast"}
        assert seen.errors
    else:
        assert gone == {"holdfast link 1"}
        assert seen.errors == []
