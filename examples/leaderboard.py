"""A leaderboard: scores that many writers add to at once, and the best of them without reading all.

    python examples/leaderboard.py
    HOLDFAST_URL=nats://127.0.0.1:4222 python examples/leaderboard.py

The first run prints

    1. grace 90
    2. ada 60
    3. alan 60
    rank of kurt: 4

and every further run adds the same points once more, so that the second prints

    1. grace 180
    2. ada 120
    3. alan 120
    rank of kurt: 4
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import holdfast

POINTS = {"ada": [10, 20, 30], "grace": [40, 50], "alan": [60], "kurt": [5]}


def place(player: str, points: int) -> str:
    """Where a player stands: more points come first, and equals are in the order of their names."""
    return f"{10**9 - points:010d} {player}"


async def create(tables: holdfast.Tables) -> None:
    """Make both tables unless they are there: the points of each player, and the players by their points."""
    with contextlib.suppress(holdfast.TableExists):
        await tables.create_table("players", partition_key=("player", "string"))
    with contextlib.suppress(holdfast.TableExists):
        await tables.create_table("board", partition_key=("season", "string"), sort_key=("place", "string"))


async def add(tables: holdfast.Tables, player: str, points: int) -> None:
    """Add points and move the player on the board in one step; begin anew if another writer was faster."""
    while True:
        item = await tables.get_item("players", player)
        old, version = (item.value["points"], item.version) if item else (0, 0)
        new = {"player": player, "points": old + points}
        placed = {"season": "spring", "place": place(player, old + points)} | new
        writes: list[dict[str, Any]] = [
            {"put": {"table": "players", "item": new, "expected_version": version}},
            {"delete": {"table": "board", "partition_key": "spring", "sort_key": place(player, old)}},
            {"put": {"table": "board", "item": placed}},
        ]
        with contextlib.suppress(holdfast.ConditionFailed, holdfast.VersionConflict):
            await tables.transact_write(writes)
            return


def lines(page: holdfast.ItemPage) -> Iterator[str]:
    """The players of a page, numbered."""
    for number, item in enumerate(page.items, start=1):
        yield f"{number}. {item.value['player']} {item.value['points']}"


async def main() -> None:
    """Let all points come in at once, then show the best three and where one of the others stands."""
    async with holdfast.open(os.environ.get("HOLDFAST_URL", "leaderboard.db")) as store:
        tables = store.tables("leaderboard")
        await create(tables)
        await asyncio.gather(*(add(tables, player, each) for player in POINTS for each in POINTS[player]))
        print(*lines(await tables.query("board", "spring", limit=3)), sep="\n")
        kurt = await tables.get_item("players", "kurt")
        assert kurt is not None
        ahead = await tables.query("board", "spring", sk={"lt": place("kurt", kurt.value["points"])})
        print("rank of kurt:", ahead.count + 1)


if __name__ == "__main__":
    asyncio.run(main())
