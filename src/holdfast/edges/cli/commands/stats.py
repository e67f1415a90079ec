"""`holdfast stats`, `ping` and `top`: the contents and the state of a store.

Nothing here writes, and nothing costs more on a larger namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.options import number, seconds
from holdfast.edges.cli.output import document, line, on_terminal, rows, shown_time
from holdfast.edges.cli.target import HERE, STORE, Place, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PARTS: Final = holdfast.Parts.__struct_fields__
_COLUMNS: Final = ("namespace", "keys", "bytes", "kept", *_PARTS, "version", "changed")
_TOP_COLUMNS: Final = ("namespace", "keys", "bytes", "changes/s")


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a namespace at a moment, and its rate of change before that."""

    namespace: str
    keys: int
    bytes: int
    changes_per_second: float


async def stats(*, target: Target = HERE) -> None:
    """Print what each namespace holds, or one: live keys, their bytes, and all bytes that it keeps, by kind.

    A quota counts what is kept, without the audit. The last version and the time of the last change follow.
    """
    async with target.look() as store:
        if target.named:
            namespaces = [await store.stats(target.keys(store).namespace)]
        else:
            namespaces = await store.namespaces()
    if target.json:
        document(namespaces[0] if target.named else {"namespaces": namespaces})
    else:
        rows(_COLUMNS, map(_stats_cells, namespaces))


def _stats_cells(one: holdfast.Stats) -> tuple[str | int, ...]:
    held = one.namespace, one.keys, one.bytes, one.kept_bytes
    return (*held, *msgspec.structs.astuple(one.parts), one.version, shown_time(one.changed_at))


async def ping(*, count: Annotated[int, Parameter(converter=number)] = 1, target: Place = STORE) -> None:
    """Ask whether a write would be accepted now, and print how long the answer took.

    Parameters
    ----------
    count
        Number of requests to send.
    """
    if type(count) is not int or count < 1:
        raise holdfast.ValidationError("count must be a whole number from 1", field="count")
    times: list[float] = []
    async with target.open(creates=False) as store:
        while len(times) < count:
            begun = time.perf_counter()
            await store.ready()
            times.append(round((time.perf_counter() - begun) * 1000, 3))
            if not target.json:
                line(f"ready in {times[-1]:.3f} ms")
    if target.json:
        document({"count": len(times), "times_ms": times})


async def top(
    *,
    interval: Annotated[float, Parameter(converter=seconds)] = 2,
    once: bool = False,
    target: Place = STORE,
) -> None:
    """Show the namespaces that change fastest, with their keys and bytes, until Ctrl-C.

    Parameters
    ----------
    interval
        Seconds between two updates; 2 if not given.
    once
        Print one table after one interval, for scripts.
    """
    if not 0 < interval <= 3600:
        raise holdfast.ValidationError(
            "interval must be more than 0 and at most 3600 seconds", field="interval"
        )
    async with target.look() as store:
        with _display(target, once=once) as show:
            before = await store.namespaces()
            while True:
                begun = time.monotonic()
                await asyncio.sleep(interval)
                now = await store.namespaces()
                show(samples(before, now, time.monotonic() - begun))
                before = now
                if once:
                    return


def samples(before: Sequence[holdfast.Stats], now: Sequence[holdfast.Stats], passed: float) -> list[Sample]:
    """Return the current samples, by rate of change and then by number of keys, highest first."""
    known = {one.namespace: one.version for one in before}
    samples = [
        Sample(
            namespace=one.namespace,
            keys=one.keys,
            bytes=one.bytes,
            changes_per_second=round((one.version - known.get(one.namespace, 0)) / passed, 1),
        )
        for one in now
    ]
    return sorted(samples, key=lambda one: (-one.changes_per_second, -one.keys, one.namespace))


@contextlib.contextmanager
def _display(target: Place, *, once: bool) -> Iterator[Callable[[list[Sample]], None]]:
    """Yield a function that shows samples: as a live table on a terminal, else as lines with an empty one
    between."""
    if target.json:
        yield lambda samples: document({"namespaces": samples})
    elif once:
        yield lambda samples: rows(_TOP_COLUMNS, map(_cells, samples))
    elif not on_terminal():
        yield lambda samples: rows(_TOP_COLUMNS, [*map(_cells, samples), ()])
    else:
        # late: it takes 30 ms, and only a terminal needs it
        from rich.live import Live

        # late: it takes 30 ms, and only a terminal needs it
        from holdfast.edges.cli.drawing import table

        with Live(auto_refresh=False, screen=True) as live:
            yield lambda samples: live.update(
                table(_TOP_COLUMNS, map(_cells, samples), width=live.console.width), refresh=True
            )


def _cells(sample: Sample) -> tuple[str, int, int, float]:
    return sample.namespace, sample.keys, sample.bytes, sample.changes_per_second
