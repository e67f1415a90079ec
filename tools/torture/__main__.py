"""Tortures stores that keep the state of agents and prints what they have lost.

    python -m tools.torture [--quick] [--only TEXT] [--json FILE] [--write]
    python -m tools.torture --speed

`--quick` is two workers with our stores. `--write` puts the table into docs/explanation/agents.md and a short
one into the README, and draws docs/explanation/torture.svg.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.torture import frameworks, memories, ordeals, report, speed
from tools.torture.contestants import CONTESTANTS, Contestant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.postgres import Server

TURNS = 5
CUTS = 8
"""Answers that are lost, one at a time."""


def main() -> int:
    """Torture, print, and return 1 if one of our stores has lost something."""
    parser = argparse.ArgumentParser(prog="./dev torture", description="Torture stores for agents' state.")
    parser.add_argument("--quick", action="store_true", help="two workers, our stores alone")
    parser.add_argument("--only", default="", help="the stores whose names contain this text")
    parser.add_argument("--json", type=Path, help="a file to write the results to")
    parser.add_argument("--speed", action="store_true", help="measure how fast they are, and nothing else")
    parser.add_argument("--write", action="store_true", help="write the table for README and documentation")
    chosen = parser.parse_args()
    if chosen.speed:
        results = [speed.crowded()]
        with _servers(wanted=True) as server:
            results += asyncio.run(speed.compared(server))
        print(speed.told(results))
        return any(one.ratio < one.bar for one in results)
    rows: list[dict[str, Any]] = []
    with _servers(wanted=not chosen.quick) as server:
        contestants = (*CONTESTANTS, *frameworks.CONTESTANTS, *memories.CONTESTANTS)
        kinds = list(dict.fromkeys(contestant.state for contestant in contestants))
        for contestant in sorted(contestants, key=lambda one: (kinds.index(one.state), one.ours)):
            if chosen.only.lower() in contestant.name.lower() and (contestant.ours or not chosen.quick):
                row = tortured(contestant, server, crowds=(2,) if chosen.quick else (2, 10))
                rows += [] if row is None else [row]
    findings = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "rows": rows,
    }
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(findings, indent=1))
    print(report.table(findings))
    if chosen.write:
        report.write(findings)
    return any(report.is_bad(row) for row in rows if row["ours"])


def tortured(contestant: type[Contestant], server: Server | None, crowds: tuple[int, ...]) -> Any:
    """Put a store through every ordeal and return what came of it; None if it is not installed."""
    try:
        contestant.imported()
    except ImportError as error:
        print(f"{contestant.name} is left out: {error}", file=sys.stderr)
        return None
    if contestant.needs_postgres and server is None:
        return None
    row: dict[str, Any] = {
        "state": contestant.state,
        "name": contestant.name,
        "ours": contestant.ours,
        "note": contestant.note,
        "packages": contestant.versions(),
        "crowds": {},
    }
    print(f"{contestant.name} …", file=sys.stderr, flush=True)
    for workers in crowds:
        with _place(contestant, server) as where:
            outcome = ordeals.crowd(contestant, where, workers, TURNS)
            row["crowds"][str(workers)] = outcome._asdict()
            _explain(outcome)
    with _place(contestant, server) as where:
        row["stale"] = ordeals.stopped(contestant, where, 3)
    with _place(contestant, server) as where:
        row["killed"] = ordeals.killed(contestant, where, 3)._asdict()
    row["cut"] = None
    if contestant.needs_postgres:
        with _place(contestant, server) as where:
            row["cut"] = ordeals.cut(contestant, where, CUTS)._asdict()
    row["twice"] = None
    if contestant.appends:
        with _place(contestant, server) as where:
            row["twice"] = ordeals.twice(contestant, where, TURNS)._asdict()
    return row


def _explain(outcome: ordeals.Outcome) -> None:
    for reason in sorted(set(outcome.reasons))[:3]:
        print(f"    refused: {reason}", file=sys.stderr)


@contextlib.contextmanager
def _place(contestant: type[Contestant], server: Server | None) -> Iterator[str]:
    """Give a file in a new folder, or a new database."""
    if contestant.needs_postgres and server is not None:
        url = server.create_database()
        yield url
        server.drop_database(url)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-torture-") as folder:
        yield str(Path(folder) / "state.db")


@contextlib.contextmanager
def _servers(*, wanted: bool) -> Iterator[Server | None]:
    """Start PostgreSQL, if it is wanted and there."""
    if not wanted:
        yield None
        return
    # late: the packaged server takes long to import
    from tests.postgres import postgres_server

    with postgres_server() as server:
        yield server


if __name__ == "__main__":
    sys.exit(main())
