"""A script that uses every verb on the store that it is given, and prints what it gets."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import holdfast
from holdfast.clock import ManualClock


async def main(url: str) -> None:
    """Print the result of every verb; nothing of it depends on where the store keeps its rows."""
    clock = ManualClock()
    async with holdfast.open(url, clock=clock, reap=False, audit_key="a-secret-of-every-verb") as store:
        for kv in (store.kv("trivia"), store.semantic("acme", "web")):
            value = {"turn": "alice", "é": [1.5, -0.0, 2**70]}
            print(await kv.set("game/42", value, ttl=1800, request_id="1"))
            print(await kv.get("game/42"), await kv.get_ttl("game/42"))
            print(await kv.set("game/42", None, ttl=holdfast.KEEP, expected_version=1, request_id="2"))
            print(await kv.incr("n", 41, ttl=9, request_id="3"), await kv.incr("n", request_id="4"))
            print(await kv.set_ttl("n", 60, request_id="5"), await kv.remove_ttl("n", request_id="6"))
            items = [{"key": "a", "value": 1, "semantics": {"purpose": "cursor"}}, {"key": "B!", "value": 2}]
            print(*map(shown, await kv.set_many(items, request_id="7")))
            print(*map(shown, await kv.get_many(["a", "nothing", ""])))
            print(*map(shown, await kv.delete_many(["a", "nothing"], request_id="8")))
            checks = [{"key": "n", "version": 5}]
            writes: Any = [{"key": "n", "incr": 1}, {"key": "b", "value": "😀"}, {"key": "c", "delete": True}]
            print(shown(await attempt(kv.batch(checks=checks, writes=writes, request_id="9"))))
            print(await kv.batch(writes=writes, request_id="10"))
            print(await kv.restore("a", ttl=5, request_id="11"), await kv.delete("b", request_id="12"))
            clock.advance(5)
            page = await kv.list(limit=1, values=True)
            print(page, await kv.list(cursor=page.cursor), await store.sweep())
            print(await kv.changes(2, limit=3), await kv.history("a"), await store.stats(kv.namespace))
            async for change in kv.watch(since=0):
                print(change)
                if change.op == "expired":
                    break


async def attempt(call: object) -> object:
    """The result of a call, or the error that it raised."""
    try:
        return await call  # type: ignore[misc]
    except holdfast.HoldfastError as error:
        return error


def shown(result: object) -> str:
    """A result; of an error all that a caller can act on."""
    if not isinstance(result, holdfast.HoldfastError):
        return repr(result)
    told = sorted(name.removeprefix("_") for name in vars(result))
    return f"{result.code} {result.message!r} {[(name, getattr(result, name)) for name in told]}"


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
