"""How clients ask a service and note the answer: through Holdfast's own client, or in messages of their own.

Every way that a call can end becomes one of the four outcomes of a history, by its type or its code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

import nats.errors

from holdfast.errors import HoldfastError, OutcomeUnknown, VersionConflict
from tests.nats import LibraryClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import holdfast
    from holdfast.model import Entry

HURRIED_MS: Final = 100
PATIENCE: Final = 1.5
"""For how many seconds a hurried client waits: far longer than the service may take, so that it hears of a
TIMEOUT."""


ATTEMPTS: Final = 40
"""How often a write with a request id is sent at the most."""
PAUSE_SECONDS: Final = 0.05
"""Before it is sent again."""


_REUSED: Final = "REQUEST_ID_REUSED"


class Speaker(Protocol):
    """Somebody who can ask."""

    async def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Ask for something; the fields of an operation that tell how it ended."""
        ...


class Own:
    """Holdfast's own client, whose deadline is the time at which it gives up."""

    def __init__(self, store: holdfast.Store, seconds: float) -> None:
        self._store = store
        self._nanoseconds = int(seconds * 1e9)

    async def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """See `Speaker.ask`. A write with a request id is sent again while its outcome is unknown."""
        told = await self._attempt(asked)
        if told["outcome"] != "unknown" or "request_id" not in asked:
            return told
        for _ in range(ATTEMPTS - 1):
            await asyncio.sleep(PAUSE_SECONDS)
            again = await self._attempt(asked)
            if again["outcome"] == "ok" or again.get("code") == _REUSED:
                return again
            if again["outcome"] == "unknown":
                told = again
            elif again["outcome"] == "conflict":
                break  # the first attempt may still come to pass, for all that this one tells
        return told

    async def _attempt(self, asked: dict[str, Any]) -> dict[str, Any]:
        deadline = time.monotonic_ns() + self._nanoseconds
        try:
            return await self._call(asked)
        except VersionConflict as conflict:
            if conflict.reason is not None:
                return {"outcome": "refused", "code": _REUSED}
            return _entry("conflict", conflict.current)
        except OutcomeUnknown as error:
            return {"outcome": "unknown", "code": error.code, "deadline": deadline}
        except HoldfastError as error:
            return {"outcome": "refused", "code": error.code}

    async def _call(self, asked: dict[str, Any]) -> dict[str, Any]:
        kv = self._store.kv(asked["namespace"])
        key, verb, expected = asked["key"], asked["verb"], asked.get("expected")
        if verb == "get":
            return _entry("ok", await kv.get(key))
        name = asked.get("request_id")
        if verb == "delete":
            found = await kv.delete(key, expected_version=expected, request_id=name)
            return {"outcome": "ok", "found": found}
        if asked.get("beside"):
            [result, *_] = await kv.set_many(_items(asked), request_id=name)
            if isinstance(result, HoldfastError):
                raise result
            return _entry("ok", result)
        write = kv.set if verb == "set" else kv.incr
        return _entry("ok", await write(key, asked["argument"], expected_version=expected, request_id=name))


class Hurried:
    """A program that sends messages of its own, and waits well past the deadline that it names in them.

    The deadline counts from the receipt, which nobody can see from here.
    """

    def __init__(self, client: LibraryClient) -> None:
        self._client = client

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Hurried]:
        """One for the length of a block, which comes back whenever the NATS server does."""
        client = LibraryClient()
        await client.connect(url, error_cb=_quiet, max_reconnect_attempts=-1, reconnect_time_wait=1)
        try:
            yield cls(client)
        finally:
            await client.close()

    async def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """See `Speaker.ask`."""
        verb = "set_many" if asked.get("beside") else asked["verb"]
        fields = {
            "key": asked["key"],
            "by" if verb == "incr" else "value": asked.get("argument"),
            "expected_version": asked.get("expected"),
        }
        if verb == "set_many":
            fields = {"items": _items(asked)}
        fields |= {"request_id": asked.get("request_id"), "deadline_ms": HURRIED_MS}
        payload = json.dumps({name: value for name, value in fields.items() if value is not None})
        subject = f"db.kv.{asked['namespace']}.{verb}"
        try:
            reply = json.loads((await self._client.request(subject, payload.encode(), timeout=PATIENCE)).data)
        except nats.errors.NoRespondersError:
            return {"outcome": "refused", "code": "UNAVAILABLE"}
        except (nats.errors.Error, TimeoutError):
            return {"outcome": "unknown"}
        return _told(asked, reply)


def _items(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of a large call: first the one that is asked for, then keys that nobody else uses."""
    item = {"key": asked["key"], "value": asked["argument"]}
    if asked.get("expected") is not None:
        item["expected_version"] = asked["expected"]
    return [item, *({"key": f"beside:{number}", "value": "x" * 1024} for number in range(asked["beside"]))]


def _told(asked: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    if reply["success"] and asked.get("beside"):
        reply = reply["results"][0]
    if not reply["success"]:
        code = reply["error_code"]
        if code == "VERSION_CONFLICT":
            current = reply["current"] or {}
            return {"outcome": "conflict", "found": current.get("value"), "version": current.get("version")}
        return {"outcome": "unknown" if code == "OUTCOME_UNKNOWN" else "refused", "code": code}
    if asked["verb"] == "delete":
        return {"outcome": "ok", "found": reply["deleted"]}
    found = asked["argument"] if asked["verb"] == "set" else reply.get("value")
    return {"outcome": "ok", "found": found, "version": reply.get("version")}


def _entry(outcome: str, entry: Entry | None) -> dict[str, Any]:
    if entry is None:
        return {"outcome": outcome}
    return {"outcome": outcome, "found": entry.value, "version": entry.version}


async def _quiet(error: Exception) -> None:
    """Take note of nothing."""
