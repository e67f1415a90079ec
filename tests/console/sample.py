"""A store with plausible contents, for tests of pages and for screenshots.

It is filled through the public handles and verbs alone. Nothing in it is drawn at random, so that two
runs show the same pages.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
from typing import TYPE_CHECKING, Any, Final

from holdfast.edges.monitoring.metrics import Point

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.edges.monitoring.metrics import RecentMetrics
    from holdfast.store import Store

PIXEL: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAJUlEQVR42mN48OENBHFnxwIRnMsAF0JGeCUwRSEItwTpduByLgB7HVr1kKnG1QAA"
    "AABJRU5ErkJggg=="
)
"""A small image."""
LEADERS: Final = (("ada", 4120), ("grace", 3980), ("edsger", 2875), ("barbara", 2610), ("alan", 1999))


async def fill(store: Store) -> None:
    """Fill a store."""
    await _keys(store)
    await _project(store)
    await _tables(store)
    await _blobs(store)
    tokens = store.tokens()
    await tokens.create(
        plugin="trivia", verbs=["get", "list", "stats", "history", "changes"], name="scoreboard"
    )
    await tokens.create(operator=True, ttl=2_592_000, name="on call")
    await tokens.create(tenant="acme", project="search", ttl=86_400, name="indexer")


async def _keys(store: Store) -> None:
    trivia = store.kv("trivia")
    await store.set_policy("kv/trivia", {"quota_bytes": 20_000, "trash": True, "audit": True})
    for name, points in LEADERS:
        await trivia.set(f"player:{name}", {"points": points, "level": points // 500}, writer="game")
    for number in range(1, 9):
        text = {"text": f"Question {number}?", "answers": ["yes", "no"], "right": number % 2}
        await trivia.set(f"question:2026:{number:03}", text, writer="editor", spec_ref="quiz/2026")
    await trivia.set("session:ada", {"round": 3}, ttl=1_500, semantics={"purpose": "session"})
    await trivia.set("session:grace", {"round": 1}, ttl=2_900, semantics={"purpose": "session"})
    await trivia.set("player:ada", {"points": 4155, "level": 8}, writer="game")
    await trivia.set("banner", {"text": "Winter round"}, ttl=600, writer="editor")
    await trivia.set("banner:old", {"text": "Autumn round"}, writer="editor")
    await trivia.delete("banner:old", writer="editor")
    await store.kv("weather").set("station/oslo", {"celsius": -3.5, "wind": 7}, writer="collector")
    await store.kv("weather").set(
        "station/bergen", {"celsius": 4.0, "wind": 12}, ttl=7_200, writer="collector"
    )


async def _project(store: Store) -> None:
    search = store.semantic("acme", "search")
    for name, purpose in (
        ("index/state", "checkpoint"),
        ("plan/current", "plan"),
        ("notes/ranking", "memory"),
    ):
        await search.set(
            name,
            {"step": 4, "note": "the ranking uses fresh clicks"},
            writer="planner:rank",
            semantics={"purpose": purpose, "producer": "planner:rank", "consumer_hints": ["indexer"]},
            spec_ref="spec/ranking#3",
        )
    await search.set("index/state", {"step": 5}, writer="indexer:run", semantics={"purpose": "checkpoint"})


async def _tables(store: Store) -> None:
    tables = store.tables("arcade")
    await tables.create_table(
        "scores",
        partition_key=("game", "string"),
        sort_key=("score", "number"),
        ttl_attribute="until",
    )
    await tables.create_index("scores", "by_player", key=("player", "string"))
    for game in ("asteroids", "breakout"):
        for name, points in LEADERS:
            item = {
                "game": game,
                "score": points,
                "player": name,
                "country": "NO",
                "tags": ["ranked", "2026"],
            }
            await tables.put_item("scores", item)
    await tables.create_table("seasons", partition_key=("year", "number"))
    await tables.put_item("seasons", {"year": 2026, "title": "Winter"})


async def _blobs(store: Store) -> None:
    blobs = store.blobs("media")
    await blobs.put("logo.png", PIXEL, content_type="image/png", metadata={"author": "studio"})
    await blobs.put("reports/2026-11.csv", b"day,visits\n1,120\n2,143\n", content_type="text/csv")
    await blobs.put("models/rank.bin", bytes(300_000), ttl=86_400)


async def give_up(post: Any) -> None:
    """Leave dead letters. `post` sends fields to a path of the HTTP door."""
    for number, (key, code, message) in enumerate(
        (
            ("player:alan", "VERSION_CONFLICT", "the key has version 4, not 3"),
            ("question:2026:009", "QUOTA_EXCEEDED", "kv/trivia would keep 20118 bytes"),
        )
    ):
        request = {
            "key": key,
            "value": {"points": 2000},
            "request_id": f"game-{number}",
            "last_writer": "game",
        }
        fields = {"verb": "set", "request": request, "error_code": code, "message": message, "attempts": 6}
        await post("/v1/kv/trivia:escalate", fields)


@contextlib.asynccontextmanager
async def locked(store: Store) -> AsyncIterator[Any]:
    """Hold a lock, with one more caller waiting for it, within an `async with` block."""
    kv = store.kv("trivia")
    async with kv.lock("import/questions", ttl=60, owner="importer-1") as lock:
        waiting = asyncio.create_task(kv.lock("import/questions", ttl=60, owner="importer-2").acquire())
        try:
            async for change in kv.watch("lock/import/questions/waiting/", since=0):
                if change.op == "set":
                    break
            yield lock
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


def traffic(recent: RecentMetrics, now: int) -> None:
    """Give the charts an hour, a day and a week with busy times, a few errors, and a pause."""
    for ring in recent.rings.values():
        step = int(ring.step)
        for number in range(ring.kept, 0, -1):
            wave = math.sin(number / 23) + 0.6 * math.sin(number / 7)
            busy = 2.4 if 0.25 < number / ring.kept < 0.5 else 1.0
            idle = 0.62 < number / ring.kept < 0.68
            requests = 0 if idle else int((64 + 15 * wave) * busy * step)
            ring.keep(
                Point(
                    at=now - number * step * 1_000,
                    seconds=float(step),
                    requests=requests,
                    errors=0 if idle else max(0, int((6 * wave * busy - 9) * step / 10)),
                    p50=None if idle else 0.001,
                    p99=None if idle else 0.005 if wave > 0.9 else 0.0025 * busy,
                    commits=0 if idle else int(requests / (3 + busy)),
                    commands=requests // 2,
                    waiting=0 if idle else int(max(0.0, 3 * wave * busy)),
                    lag=max(0.0, 0.2 * wave),
                )
            )
