"""A process that has a SQLite store open and does what the lines on its standard input say.

It answers each line with one line of JSON: `incr KEY COUNT` with the last value, `set KEY TTL` with the
version, `get KEY` with the value, `watch KEY SINCE` with the version of the next change, `now` with the
store's time, `lead` with whether it does the upkeep, `hold SECONDS` while it keeps its turn to write, `do`
and an expression with the value of that, and `close` when it has closed the store. An error is answered by
its code and message.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import json
import sys
import time
from typing import Any

import holdfast
from holdfast.engines.sqlite import SqliteEngine

_state: dict[str, Any] = {}
"""What expressions keep."""


async def main(path: str) -> None:
    """Serve the lines until there are no more."""
    store = holdfast.open(path, sweep_interval=0.5)
    await store.start()
    _say("open")
    while line := await asyncio.to_thread(sys.stdin.readline):
        verb, *arguments = line.split(maxsplit=1) if line.startswith("do ") else line.split()
        try:
            _say(await _done(store, verb, *arguments))
        except holdfast.HoldfastError as error:
            _say({"code": error.code, "message": error.message})
        if verb == "close":
            return


async def _done(store: holdfast.Store, verb: str, *arguments: str) -> Any:
    kv = store.kv("shared")
    engine = store._engine
    assert isinstance(engine, SqliteEngine)
    match verb, arguments:
        case "incr", [key, count]:
            return [await _incremented(kv, key) for _ in range(int(count))][-1]
        case "set", [key, ttl]:
            return (await kv.set(key, 1, ttl=int(ttl))).version
        case "get", [key]:
            entry = await kv.get(key)
            return None if entry is None else entry.value
        case "watch", [key, since]:
            async for change in kv.watch(key, since=int(since)):
                return change.version
        case "now", []:
            return store.now()
        case "lead", []:
            return engine.leads_upkeep()
        case "hold", [seconds]:
            await engine._writer.run(lambda: _hold(engine, float(seconds)))
            return "held"
        case "do", [expression]:
            code = compile(expression, "stdin", "eval", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            value = eval(code, {"store": store, "kv": kv, "state": _state})
            return await value if inspect.isawaitable(value) else value
        case "close", []:
            await store.aclose()
            return "closed"
    raise ValueError(verb)


async def _incremented(kv: holdfast.KV, key: str) -> Any:
    """Add one, also on a machine so busy that another process keeps its turn for seconds."""
    while True:
        with contextlib.suppress(holdfast.Busy):
            return (await kv.incr(key)).value


def _hold(engine: SqliteEngine, seconds: float) -> None:
    """Keep the turn, as a process does that is stopped in the middle of a transaction."""
    engine._writer.begin_load()
    _say("holding")
    time.sleep(seconds)
    engine._writer.give_up_load()


def _say(answer: object) -> None:
    print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
