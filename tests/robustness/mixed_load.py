"""Callers of every kind at a running service, for as long as is wanted: what a soak of its memory is made of.

Keys, plugins and values are bounded, so that a service which keeps what it was sent, and no more, does
not grow. Every request must be answered, with success or with a refusal that races between callers explain.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import httpx

from tests.edges.running import ask, plain_client

if TYPE_CHECKING:
    from nats.aio.client import Client

PLUGINS: Final = 5
KEYS: Final = 1_000
"""How many plugins there are, and how many keys each has."""
CALLERS: Final = 32
READS: Final = (0, 14, 16, 19)
"""Which of the requests below only read."""
EXPECTED: Final = frozenset({"VERSION_CONFLICT", "KEY_NOT_FOUND"})
"""What callers who race each other may be told."""
MEANT: Final = {"purpose": "session", "producer": "soak"}


class Load:
    """Callers that ask for one thing after the other, and what they were told; `reads_only` for a while.

    Args:
        url: Where the service is over NATS.
        web: Where it is over HTTP, which every other request takes.
        pause: For how many seconds a caller thinks before it asks again.
        seed: What the callers choose is the same for the same seed.
    """

    def __init__(self, url: str, web: str, *, pause: float = 0.0, seed: int = 1) -> None:
        self._url = url
        self._web = web
        self._pause = pause
        self._random = random.Random(seed)
        self._stop = False
        self.answers: Counter[str] = Counter()
        self.unexpected: list[dict[str, Any]] = []
        self.reads_only = False

    async def run(self) -> None:
        """Ask until told to stop."""
        async with (
            plain_client(self._url) as client,
            httpx.AsyncClient(base_url=self._web, timeout=60) as web,
        ):
            for plugin in range(PLUGINS):
                table = {"table": "t", "partition_key": {"name": "id", "type": "string"}}
                reply = await ask(client, f"db.table.load{plugin}.create_table", **table)
                assert reply["success"] or reply["error_code"] == "TABLE_EXISTS", reply
            await asyncio.gather(*(self._call(client, web) for _ in range(CALLERS)))

    def stop(self) -> None:
        """Have every caller stop after its next answer."""
        self._stop = True

    async def _call(self, client: Client, web: httpx.AsyncClient) -> None:
        while not self._stop:
            subject, fields = self._request()
            if self._random.randrange(2):
                reply = await _ask_over_http(web, subject, deadline_ms=30_000, **fields)
            else:
                reply = await ask(client, subject, deadline_ms=30_000, **fields)
            code = "ok" if reply["success"] else str(reply.get("error_code") or reply["errorCode"]).upper()
            self.answers[code] += 1
            if code != "ok" and code not in EXPECTED and len(self.unexpected) < 10:
                self.unexpected.append({"subject": subject, **reply})
            await asyncio.sleep(self._pause)

    def _request(self) -> tuple[str, dict[str, Any]]:
        pick = self._random
        plugin, key = f"load{pick.randrange(PLUGINS)}", f"key-{pick.randrange(KEYS)}"
        value = {"number": pick.randrange(1_000), "pad": "x" * pick.randrange(400)}
        ttl = pick.choice((None, 2, 10, 60))
        match pick.choice(READS) if self.reads_only else pick.randrange(20):
            case 0 | 1 | 2 | 3 | 4 | 5 | 6:
                return f"db.kv.{plugin}.get", {"key": key}
            case 7 | 8 | 9 | 10:
                return f"db.kv.{plugin}.set", {"key": key, "value": value, "ttl": ttl}
            case 11:
                meant = {"key": f"meant:{key}", "value": value, "ttl": 5, "semantics": MEANT}
                return f"db.kv.{plugin}.set", meant
            case 12:
                return f"db.kv.{plugin}.incr", {"key": f"count:{key}", "ttl": ttl}
            case 13:
                return f"db.kv.{plugin}.delete", {"key": key}
            case 14:
                return f"db.kv.{plugin}.list", {"prefix": "key-", "limit": 50}
            case 15:
                items = [
                    {"key": f"many:{n}", "value": value, "ttl": 10} for n in range(pick.randrange(1, 40))
                ]
                return f"db.kv.{plugin}.set_many", {"items": items}
            case 16:
                return f"db.kv.{plugin}.get_many", {"keys": [f"many:{n}" for n in range(20)]}
            case 17:
                fields = {"key": key, "value": value, "ttl": ttl, "expected_version": pick.randrange(3)}
                return f"db.semantic.acme.{plugin}.put", fields | {"semantics": MEANT}
            case 18:
                return f"db.table.{plugin}.put_item", {"table": "t", "item": {"id": key, "value": value}}
            case _:
                return f"db.table.{plugin}.get_item", {"table": "t", "partition_key": key}


async def _ask_over_http(web: httpx.AsyncClient, subject: str, **fields: Any) -> dict[str, Any]:
    """Make the request of a subject over HTTP."""
    family, *owner, verb = subject.split(".")[1:]
    verb = "set" if verb == "put" else verb  # as the verb of entries is called at this door
    response = await web.post(f"/v1/{family}/{'/'.join(owner)}:{verb}", json=fields)
    answer: dict[str, Any] = response.json()
    return {"success": response.is_success, "error_code": answer.get("code"), **answer}
