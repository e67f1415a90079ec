"""Bugs in the engines of one process: memory and SQLite.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_MEMORY: Final = ("tests/conformance/test_memory.py", "tests/engines/test_runs.py", "-k", "not postgres")
_FILE: Final = ("tests/engines/test_sqlite.py", "tests/engines/test_sqlite_last_written.py")
_OTHERS: Final = ("tests/engines/test_sqlite_others.py", *_FILE)
_SQLITE: Final = (*_FILE, "tests/conformance/test_sqlite.py::TestSqlite")
_VANISHED: Final = ("tests/engines/test_sqlite_vanished.py",)
_LINES: Final = ("tests/clocks/test_wall.py", "-k", "not postgresql")
_RUNS: Final = ("tests/engines/test_runs.py", "-k", "sqlite")

PLANTS: Final = (
    Plant(
        "a walk goes to its end and beyond",
        "engines/memory.py",
        "if stop is not None and key >= stop:",
        "if stop is not None and key > stop:",
        _MEMORY,
    ),
    Plant(
        "changes begin with what was seen",
        "engines/memory.py",
        "if record.version > query.since",
        "if record.version >= query.since",
        _MEMORY,
    ),
    Plant(
        "due is only what is overdue",
        "engines/memory.py",
        "if due.expires_at <= now and namespace",
        "if due.expires_at < now and namespace",
        _MEMORY,
    ),
    Plant(
        "a page begins with the last key of the one before",
        "engines/memory.py",
        "key >= query.after if query.reverse else key <= query.after",
        "key > query.after if query.reverse else key < query.after",
        _MEMORY,
    ),
    Plant(
        "a full page says that there is more",
        "engines/memory.py",
        "if len(keys) == query.limit or (keys and room < 0):\n                return",
        "if len(keys) + 1 == query.limit or (keys and room < 0):\n                return",
        _MEMORY,
    ),
    Plant(
        "trimming takes one record too few",
        "engines/memory.py",
        "if record.version > upto]",
        "if record.version >= upto]",
        _MEMORY,
    ),
    Plant(
        "a run takes entries with a meaning",
        "engines/memory.py",
        "if not row.alive(now) and row.version > 0 and row.semantics is None",
        "if not row.alive(now) and row.version > 0",
        _MEMORY,
    ),
    Plant(
        "the older generation outlives a run",
        "engines/sqlite/last_written.py",
        "            self._before.clear()\n",
        "",
        _FILE,
    ),
    Plant(
        "the older generation comes first",
        "engines/sqlite/last_written.py",
        "newer.get(address) or older.get(address)",
        "older.get(address) or newer.get(address)",
        _FILE,
    ),
    Plant(
        "what is removed is still known",
        "engines/sqlite/last_written.py",
        "                self._before.pop(address, None)\n",
        "",
        _FILE,
    ),
    Plant(
        "what grew too large is still known as it was",
        "engines/sqlite/last_written.py",
        "            if row is not None and row.size <= LARGEST:\n"
        "                self._rows[address] = row\n"
        "            else:\n",
        "            if row is not None and row.size <= LARGEST:\n"
        "                self._rows[address] = row\n"
        "            elif row is None:\n",
        _FILE,
    ),
    Plant(
        "namespaces are remembered without end",
        "engines/sqlite/last_written.py",
        "self._namespaces.keep(namespace.name, namespace)",
        "self._namespaces[namespace.name] = namespace",
        _FILE,
    ),
    Plant(
        "memory outlives a failed commit",
        "engines/sqlite/engine.py",
        "            self._recent = Recent()  # it is unknown what was kept\n",
        "",
        _FILE,
    ),
    Plant(
        "memory learns before the commit",
        "engines/sqlite/engine.py",
        "            outcome = await self.decide(commands, now)\n",
        "            outcome = await self.decide(commands, now)\n            self._recent.learn(outcome)\n",
        _SQLITE,
        "The batcher runs one group of a namespace at a time and a failed commit throws the memory away, so "
        "nobody looks at it between the decision and the end of the commit.",
    ),
    Plant(
        "a value that was left out is taken for known",
        "engines/sqlite/deciding.py",
        "if (row := known.get(address)) is None or row.value is None",
        "if known.get(address) is None",
        _SQLITE,
    ),
    Plant(
        "a refusal is not checked against the file",
        "engines/sqlite/writer.py",
        "            self._look_for_others(self._connection, seen)\n",
        "            pass\n",
        _OTHERS,
    ),
    Plant(
        "what others wrote is overwritten",
        "engines/sqlite/writer.py",
        "            self._look_for_others(connection, seen)\n",
        "",
        _OTHERS,
    ),
    Plant(
        "a change of others is found stale for ever",
        "engines/sqlite/engine.py",
        "                writer.data_version = error.found\n",
        "                pass\n",
        _OTHERS,
    ),
    Plant(
        "a broken commit is told as a failure",
        "engines/sqlite/writer.py",
        "(sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY)",
        "(sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR)",
        _FILE,
    ),
    Plant(
        "a failed plan leaves its transaction open",
        "engines/sqlite/writer.py",
        "            self._roll_back()\n            raise\n        self._finish()",
        "            raise\n        self._finish()",
        _OTHERS,
    ),
    Plant(
        "two processes may write",
        "engines/sqlite/files.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        _FILE,
    ),
    Plant(
        "a page never says that there is more",
        "engines/sqlite/reader.py",
        "now, query.limit + 1], query)",
        "now, query.limit], query)",
        _SQLITE,
    ),
    Plant(
        "a listing backwards loses its bound",
        "engines/sqlite/reader.py",
        "(stop is None or _later(stop, after))",
        "stop is None",
        ("tests/engines/test_sqlite_others.py", "tests/engines/test_table_plans.py", *_SQLITE),
    ),
    Plant(
        "several gets show what has expired",
        "engines/sqlite/reader.py",
        "        rows = [found.get(address) for address in addresses]\n"
        "        return [row if row is not None and row.alive(now) else None for row in rows]",
        "        return [found.get(address) for address in addresses]",
        _SQLITE,
    ),
    Plant(
        "the journal's last page is never complete",
        "engine/queries.py",
        "    return given, True\n",
        "    return given, len(given) < query.limit\n",
        _SQLITE,
    ),
    Plant(
        "a run removes one entry too few",
        "engines/sqlite/save_sql.py",
        "run.first, run.first + run.count)",
        "run.first, run.first + run.count - 1)",
        _RUNS,
    ),
    Plant(
        "a deadline is still there when it was taken away",
        "engines/sqlite/save_sql.py",
        "for name in names if name not in key.split",
        "for name in names[:width] if name not in key.split",
        _SQLITE,
    ),
    Plant(
        "the times of a migrated view sort after the present",
        "engines/sql/migrations/versions/0004_comparable.py",
        "    _replace_view(_COMPARABLE)",
        "    _replace_view(_ISO)",
        ("tests/migration/test_view.py",),
    ),
    Plant(
        "a migrated view forgets who may read it",
        "engines/sql/migrations/versions/0004_comparable.py",
        "LOOP EXECUTE given; END LOOP;",
        "LOOP NULL; END LOOP;",
        ("tests/migration/test_view.py",),
    ),
    Plant(
        "a listing shows an entry at its deadline",
        "engines/sqlite/sql.py",
        "(expires_at IS NULL OR expires_at > ?)",
        "(expires_at IS NULL OR expires_at >= ?)",
        _SQLITE,
    ),
    Plant(
        "a commit is acknowledged though the files were last seen a while ago",
        "engines/sqlite/engine.py",
        "            if not self._presence.still():\n",
        "            if self._presence._gone is not None:\n",
        _VANISHED,
    ),
    Plant(
        "a load into a file that vanished is acknowledged",
        "engines/sqlite/moving.py",
        "        if not self._presence.still():\n",
        "        if False:\n",
        _VANISHED,
    ),
    Plant(
        "a thread reads what has replaced the file",
        "engines/sqlite/peeks.py",
        " or not self._there():\n",
        ":\n",
        _VANISHED,
    ),
    Plant(
        "the index of the log is not looked for",
        "engines/sqlite/presence.py",
        '_SUFFIXES: Final = ("-wal", "-shm")',
        '_SUFFIXES: Final = ("-wal",)',
        _VANISHED,
    ),
    Plant(
        "the line of a killed store is ignored",
        "clock.py",
        "        if self.counts_for(clock) and (now",
        "        if self.open is None and (now",
        _LINES,
    ),
    Plant(
        "a line counts on a machine that was started again",
        "clock.py",
        "return self.open and self.machine is not None and self.machine == clock.machine",
        "return self.open and self.machine is not None",
        _LINES,
    ),
    Plant(
        "a store that was killed elsewhere goes on from what it remembered",
        "clock.py",
        "return known + UNREMEMBERED if self.open else known",
        "return known",
        _LINES,
    ),
    Plant(
        "a store is not known to be closed",
        "pipeline/timekeeper.py",
        "                await self._lines.close_line(self._clock)\n",
        "                pass\n",
        _LINES,
    ),
    Plant(
        "the line is kept a second after the store is opened",
        "pipeline/timekeeper.py",
        "        await self._keep_line(clock)\n        self._be(sure=True)\n",
        "        self._be(sure=True)\n",
        _LINES,
    ),
    Plant(
        "who writes next goes back in time",
        "engines/sqlite/engine.py",
        "            await self._take_over_time()\n",
        "",
        _LINES,
    ),
)
