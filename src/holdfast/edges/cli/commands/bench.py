"""`holdfast bench`: the speed of a store as seen from here.

Law: it uses only public verbs, on keys of its own that it removes afterwards. It measures without comparing:
`./dev bench` in a clone does that.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.options import number
from holdfast.edges.cli.options import seconds as duration
from holdfast.edges.cli.output import document, rows
from holdfast.edges.cli.target import HERE, Target

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")
Work = Literal["set", "get", "mixed"]

PLUGIN: Final = "holdfast-bench"
_GETS: Final = {"set": 0.0, "get": 1.0, "mixed": 0.7}
_SHARES: Final = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p99_9_ms": 0.999}
_AT_ONCE: Final = 500
_ATTEMPTS: Final = 100
_MOST_IN_FLIGHT: Final = 10_000
_MOST_KEYS: Final = 1_000_000


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one kind of work; latencies are None if no call succeeded."""

    work: str
    in_flight: int
    seconds: float
    calls: int
    per_second: float
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    p99_9_ms: float | None
    errors: dict[str, int]


async def bench(
    work: Work | None = None,
    /,
    *,
    in_flight: Annotated[int, Parameter(converter=number)] = 128,
    seconds: Annotated[float, Parameter(converter=duration)] = 5,
    keys: Annotated[int, Parameter(converter=number)] = 1_000,
    target: Target = HERE,
) -> None:
    """Measure the sets and gets per second of a store, and their latency.

    It writes values of about 100 bytes to unused keys, of the plugin `holdfast-bench` if none is named, and
    deletes them at the end. Each caller sends its next request as soon as it has the reply.

    Parameters
    ----------
    work
        Workload; all three in turn if not given. Mixed means 70 % gets.
    in_flight
        Number of concurrent callers; 128 if not given.
    seconds
        Duration of each workload; 5 if not given.
    keys
        Number of keys that are written and read; 1000 if not given.
    """
    _whole(in_flight, _MOST_IN_FLIGHT, field="in_flight")
    _whole(keys, _MOST_KEYS, field="keys")
    if not 0 < seconds <= 3600:
        raise holdfast.ValidationError("seconds must be more than 0 and at most 3600", field="seconds")
    run = secrets.token_hex(8)
    async with target.open() as store:
        kv = target.keys(store) if any(target.chosen) else store.kv(PLUGIN)
        names = [f"bench:{run}:{position:07}" for position in range(keys)]
        try:
            await _fill(kv, names)
            found = [
                await _measured(kv, names, kind, in_flight=in_flight, seconds=seconds)
                for kind in ([work] if work else _GETS)
            ]
        finally:
            for start in range(0, keys, _AT_ONCE):
                await _patiently(partial(kv.delete_many, names[start : start + _AT_ONCE]))
    if target.json:
        document({"results": found})
    else:
        rows(_COLUMNS, map(_cells, found))


def figures(
    work: str, in_flight: int, seconds: float, taken: Sequence[float], errors: Counter[str]
) -> Figures:
    """Return the figures of calls with these latencies in milliseconds."""
    ordered = sorted(taken)
    told: dict[str, Any] = {
        name: round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 3) if ordered else None
        for name, share in _SHARES.items()
    }
    return Figures(
        work=work,
        in_flight=in_flight,
        seconds=round(seconds, 3),
        calls=len(ordered),
        per_second=round(len(ordered) / seconds, 1),
        errors=dict(errors),
        **told,
    )


async def _measured(
    kv: holdfast.KV, names: Sequence[str], work: str, *, in_flight: int, seconds: float
) -> Figures:
    chance, share = random.Random(1), _GETS[work]
    taken: list[float] = []
    errors: Counter[str] = Counter()
    began = time.perf_counter()

    async def caller() -> None:
        while (now := time.perf_counter()) < began + seconds:
            key = chance.choice(names)
            try:
                await (kv.get(key) if chance.random() < share else kv.set(key, _value(len(taken))))
            except holdfast.HoldfastError as error:
                errors[error.code] += 1
                # A refusal may come at once. Without a pause, one caller would block all others.
                await asyncio.sleep(0)
            else:
                taken.append((time.perf_counter() - now) * 1000)

    await asyncio.gather(*(caller() for _ in range(in_flight)))
    return figures(work, in_flight, time.perf_counter() - began, taken, errors)


async def _fill(kv: holdfast.KV, names: Sequence[str]) -> None:
    for start in range(0, len(names), _AT_ONCE):
        items = [{"key": name, "value": _value(0)} for name in names[start : start + _AT_ONCE]]
        for result in await _patiently(partial(kv.set_many, items)):
            if isinstance(result, holdfast.HoldfastError):
                raise result


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Retry a call while its error is retryable: a store may still be busy after a measurement."""
    for _ in range(_ATTEMPTS):
        try:
            return await call()
        except holdfast.HoldfastError as error:
            if not error.retryable:
                raise
            await asyncio.sleep(getattr(error, "retry_after", None) or 0.1)
    return await call()


def _value(turn: int) -> dict[str, Any]:
    return {"turn": turn, "score": [3, 1, 4], "pad": "x" * 60}


def _whole(given: int, most: int, *, field: str) -> None:
    if type(given) is not int or not 1 <= given <= most:
        raise holdfast.ValidationError(f"{field} must be a whole number from 1 to {most}", field=field)


_COLUMNS: Final = ("work", "in flight", "calls/s", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "errors")


def _cells(found: Figures) -> tuple[str | int | float | None, ...]:
    latencies = (found.p50_ms, found.p95_ms, found.p99_ms, found.p99_9_ms)
    return found.work, found.in_flight, found.per_second, *latencies, sum(found.errors.values())
