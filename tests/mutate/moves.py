"""Bugs in the moves of whole stores: things that are lost, kept, or not noticed.

Law: as in `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_FOLLOWING: Final = ("tests/moves/test_following.py",)
_DIFFERENCES: Final = ("tests/moves/test_differences.py",)
_BACKUPS: Final = ("tests/moves/test_backups.py",)
_LATE: Final = ("tests/moves/test_late_movers.py",)
_CLUSTER: Final = ("tests/moves/test_cluster_loads.py", "tests/edges/cli/test_cluster_moves.py")

PLANTS: Final = (
    Plant(
        "a copy that follows does not notice expired requests",
        "moves/copying.py",
        "if old.requests + added != new.requests:",
        "if False:",
        _FOLLOWING,
    ),
    Plant(
        "a copy that follows keeps the records below the journal's floor",
        "moves/copying.py",
        "await self._drop(Shelf.JOURNAL, held.mark)",
        "pass",
        _FOLLOWING,
    ),
    Plant(
        "a switch leaves the source open to writes",
        "moves/transfers.py",
        "await self._source.close_to_writes(self._moved, instead_of=closed)",
        "pass",
        _FOLLOWING,
    ),
    Plant(
        "a switch that fails leaves the source closed",
        "moves/transfers.py",
        "await asyncio.shield(self._give_back())",
        "pass",
        _FOLLOWING,
    ),
    Plant(
        "a switch that failed opens a source that another process has closed",
        "moves/transfers.py",
        "await self._source.close_to_writes(None, instead_of=self._moved)",
        "await self._source.close_to_writes(None, instead_of=(await _facts(self._source)).closed)",
        _LATE,
    ),
    Plant(
        "a switch can be completed while it is being canceled",
        "moves/transfers.py",
        "await _replace(loader, ours, msgspec.structs.replace(ours, closed=self._mark))",
        "pass",
        _LATE,
    ),
    Plant(
        "a source is closed again for another place",
        "engines/sqlite/moving.py",
        "if shelves.facts_of(connection.execute(_FACTS).fetchall()).closed != instead_of:",
        "if False:",
        _LATE,
    ),
    Plant(
        "a comparison ignores what differs",
        "moves/differences.py",
        "if [one.hash for one in mine] != [one.hash for one in yours]:",
        "if len(mine) != len(yours):",
        _DIFFERENCES,
    ),
    Plant(
        "a backup's checksums are not compared",
        "moves/backup_file.py",
        "if self._exactly(_CHECK) != self._check:",
        "if len(self._exactly(_CHECK)) != _CHECK:",
        _BACKUPS,
    ),
    Plant(
        "a process that lost the load goes on loading",
        "engines/cluster/loading.py",
        "if closed is None or shard.replica.standing.closed != closed or not",
        "if closed is None or not",
        _CLUSTER,
    ),
    Plant(
        "shards that were left closed stay closed",
        "engines/cluster/loading.py",
        "            if facts.closed is None:\n",
        "            if facts.closed is not None:\n",
        _CLUSTER,
    ),
    Plant(
        "a cluster that has moved accepts writes",
        "engines/cluster/loads.py",
        '            raise Unavailable(f"the store {store} accepts no writes: {self.closed}")',
        "            return",
        _CLUSTER,
    ),
    Plant(
        "a cluster is read before a load is complete",
        "engines/cluster/shard.py",
        "        if not self.loads:\n",
        "        if False:\n",
        _CLUSTER,
    ),
    Plant(
        "a node keeps rows in memory that a load replaced",
        "engines/cluster/replica.py",
        "                self.file.forget()\n",
        "",
        _CLUSTER,
    ),
    Plant(
        "a cluster keeps its epoch when a store moves there",
        "engines/cluster/replica.py",
        "self.file.epoch = self.standing.epoch or self._epoch",
        "self.file.epoch = self._epoch",
        _CLUSTER,
    ),
)
