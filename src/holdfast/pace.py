"""The pace of work on one event loop: how much is done in a turn, and how long work waits for company.

The numbers were found on a machine with two cores, which the service, the NATS server and the callers share.
There, each message that travels alone wakes a process that takes a core from another one. A turn is one
round of the event loop over everything that is ready. Waits are counted in turns, not in time: an idle loop
finishes them at once, so nothing waits while there is nothing to wait for. Where turns may take long, a wait
ends early.

Each number says what it does and how it was found. Limits that bound memory stay with what they bound. This
module is at the root because the bus, the engines, the pipeline and the service all need it, and none of them
may import another's modules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from holdfast import seams

T = TypeVar("T")
R = TypeVar("R")

# Groups of commands that share a commit (`pipeline.batcher`).

MAX_GROUP: Final = 512
"""Maximum number of commands in a group of an embedded store.

With 128 callers in one process, groups of 64 made a tenth fewer sets (ADR 0021): callers in one process can't
continue before the loop lets them, so a large group keeps none of them idle. 512 was chosen, not measured.
"""
IN_A_GROUP: Final = 64
"""Maximum number of commands in a group of the service.

Callers that share a commit are answered together and send their next requests together. With unbounded groups
and 128 requests in flight, groups of 116 and of 12 alternated, callers and service waited for each other, and
of two cores 1.4 were in use. 64 made an eighth more sets with 10 plugins and a quarter more with 1,000
(ADR 0021). 32 and 48 made 2 to 5 % more, but a quiet plugin waited longer beside a flood.
"""
SHARED_GROUP: Final = 32
"""Maximum number of commands that one namespace has in a group which it shares with others.

The others then wait for no more than that. It was chosen, not measured.
"""
CARRIERS: Final = 2
"""Number of groups of several namespaces that are in flight at a time.

While one waits for its commit, the next one is loaded and decided. It was chosen, not measured.
"""
LANES_WORTH_A_GROUP: Final = 16
"""Number of namespaces for which a group of their own pays while another one is in flight.

If twice as many wait and none is in flight, the first group takes half of them. Before, 128 callers in 1,000
namespaces shared one group, and this process and PostgreSQL waited for each other: they made 0.72 of the sets
of 10 namespaces, now 0.96. With few namespaces, half of the callers would wait for a namespace in flight.
"""
TO_GATHER: Final = 6
"""Number of turns for which writes of the service wait for others if they are not alone.

Requests that were sent at once arrive piece by piece, one piece for each connection, so the first of them
would be committed alone while all others wait. It was found together with `IN_A_GROUP`. 8 to 32 made 2 to 5
% more sets, but a quiet plugin waited longer beside a flood. Embedded stores don't wait: with two callers,
waiting made 5 % fewer sets.
"""
GATHER_SECONDS: Final = 0.002
"""CPU time of the loop after which writes wait for others no longer, whatever is left of `TO_GATHER`.

With 128 callers, the turns take about a millisecond in all. Beside expensive requests of another plugin, six
turns took up to 20 ms, and nothing arrived in them that shared the commit. CPU time is counted, so that other
programs on the machine do not make groups smaller.
"""
ALONE: Final = 4
"""Number of groups of one command in a row after which their caller counts as alone.

Its reply is then sent one turn before listeners are notified, which makes a lone set over the bus a tenth
faster. Groups of one also occur among many callers; with 1 instead of 4, the 70/30 mix lost a tenth, since
events were sent in pieces of their own (ADR 0021).
"""

# Requests that the service has in progress (`edges.intake.service`).

STARTED: Final = 128
OWN_STARTED: Final = 8
"""Maximum number of requests, in total and of one plugin, that are started in a turn.

A request takes several turns to be read and answered, and beside a busy plugin a turn takes as long as the
work that is done for that plugin in it (ADR 0009). So the bound on one plugin is small, and the bound on all
of them is not: many plugins with one request each are served in one turn. 128 was chosen, not measured.
"""
IN_COMPANY: Final = 8
"""Maximum number of requests of one plugin in progress while other plugins send requests too.

Requests that are written together are also committed and answered together. Beside 1,000 requests in flight
of another plugin, a set took twice as long with 32 of them in a group as with 8 (ADR 0009). 12 and 16 made 2
to 5 % more sets, but a quiet plugin waited longer.
"""
COMPANY_SECONDS: Final = 0.25
"""Time for which a plugin counts as active after a request. It spans the pauses of a caller that sends a few
requests a second; it was chosen, not measured."""
PATIENT_TURNS: Final = 4
"""Number of turns for which the replies to gets wait for the results of a commit that is running.

They are then sent in one piece, which took a fifth off the CPU time of a 70/30 mix in all processes together.
Making all replies wait for a turn or two saved a tenth of the CPU time of gets, but answered no more gets and
fewer sets, so only these wait (ADR 0020).
"""

# Work on the loop that would keep other tasks waiting (`pipeline.pipeline`, `engines.sqlite`).

GETS_PER_TURN: Final = 64
LOOKS_PER_TURN: Final = 32
"""Number of gets, and of other quick queries of SQLite, after which other tasks get a turn.

Such a read is answered without a wait, so a caller that only reads would never let another task run. A get
takes some 25 µs, which makes a turn of 1 to 2 ms. Both numbers were chosen, not measured.
"""
PART_ROWS: Final = 25
"""Number of rows of a group that SQLite loads and decides before other tasks get a turn.

A part of 25 entries takes 0.45 ms, and one of 16 items with an index 1 ms (ADR 0010, ADR 0018). A whole group
would hold up every get for several milliseconds.
"""
TURNS_BEFORE_PART: Final = {True: 1, False: 3}
"""Number of turns that other tasks get before the next part with changes (True) or upkeep (False).

Upkeep is not urgent, so it yields for as many turns as a reply takes. With that and runs, the p99 of gets
during a sweep of items fell from 4.4 to at most 1.8 times that of a quiet store (ADR 0018).
"""
TURNS_AFTER_SLICE: Final = 4
"""Number of turns that other tasks get after a slice of a command that takes long.

From its arrival to its commit, and from there to its reply, a set takes about four turns each. So it waits
for two slices or so instead of for the whole command. Alone, a call of 1,000 writes takes 7 % more CPU time.
"""
MANY_BYTES: Final = 65_536
"""Number of characters of values that are checked and shown in one turn. For lists in lists that takes
0.25 ms. A page has up to eight times as many, and pages that were read together are shown one after the
other."""
MANY_ROWS: Final = 192
"""Number of rows and of records that are prepared for saving, published or shown in one turn.

A row and its record take 5 µs to prepare, a record 5 µs to publish, and a change 6 µs to show.
"""


async def turns(count: int) -> None:
    """Let other tasks have this many turns of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def gather(count: int) -> None:
    """Let other tasks have this many turns, or fewer once they have taken `GATHER_SECONDS` of CPU time."""
    until = seams.cpu() + GATHER_SECONDS
    for _ in range(count):
        await asyncio.sleep(0)
        if seams.cpu() > until:
            return


async def in_turns(
    make: Callable[[T], R], items: Sequence[T], size: Callable[[T], int] | None = None
) -> list[R]:
    """Return what `make` makes of each item.

    Other tasks get a turn after every `MANY_ROWS` items and, if `size` says how large an item is, after every
    `MANY_BYTES`.
    """
    if len(items) <= MANY_ROWS and size is None:
        return [make(item) for item in items]
    made: list[R] = []
    rows = weight = 0
    for item in items:
        if rows == MANY_ROWS or weight >= MANY_BYTES:
            await asyncio.sleep(0)
            rows = weight = 0
        made.append(make(item))
        rows += 1
        weight += 0 if size is None else size(item)
    return made


class Turn:
    """The store's time, read once per turn of the event loop.

    The first caller in a turn reads the store's clock; later callers in that turn get the same time. A
    returned time is never in the future, and is stale by at most one turn. It saves the service two readings
    of the clock for each request.

    Args:
        now: Returns the store's time.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._look = now
        self._time = 0
        self._over = True

    def now(self) -> int:
        """Return the time of this turn."""
        if self._over:
            self._time = self._look()
            self._over = False
            asyncio.get_running_loop().call_soon(self._end)
        return self._time

    def _end(self) -> None:
        self._over = True
