"""The quick form of the torture: our stores for agents lose, double and fork nothing."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tools.torture import report

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: dict[str, Any] = {
    "date": "2026-11-18",
    "machine": "2 cores",
    "rows": [
        {
            "state": "threads",
            "name": name,
            "ours": name == "Our store & more",
            "packages": {"package": "1.0"},
            "crowds": {
                "2": {"lost": 0, "acknowledged": 10, "refused": 0, "forks": 0, "doubled": 0, "seconds": 1.0},
                "10": {
                    "lost": lost,
                    "acknowledged": 50,
                    "refused": 0,
                    "forks": 0,
                    "doubled": 0,
                    "seconds": 2.0,
                },
            },
            "stale": 0,
            "killed": {"lost": 0, "doubled": 0, "forks": 0},
            "twice": None,
            "cut": None,
        }
        for name, lost in (("Our store & more", 0), ("Their store", 45))
    ],
}


@pytest.mark.unmeasured
@pytest.mark.parametrize(
    "store",
    [
        "HoldfastSaver with turn",
        "HoldfastGraphStore, aupdate",
        "append",
        "compaction",
        "HoldfastStore, update",
        "HoldfastTaskStore",
        "Service with turn",
        "update_state",
    ],
)
async def test_our_stores_lose_nothing(store: str, tmp_path: Path) -> None:
    """Two workers at once, a stopped one, a killed one and writes sent twice lose and double nothing."""
    command = [
        sys.executable,
        "-m",
        "tools.torture",
        "--quick",
        "--only",
        store,
        "--json",
        str(tmp_path / "r"),
    ]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(300):
        _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    [row] = json.loads((tmp_path / "r").read_text())["rows"]
    assert row["crowds"]["2"]["acknowledged"] >= 9
    assert (row["crowds"]["2"]["lost"], row["stale"], row["killed"]["lost"]) == (0, 0, 0)
    assert row["killed"]["acknowledged"] > 0


def test_table_and_picture_show_what_was_lost() -> None:
    """The table has a row for each store, ours in bold, and the picture says how many turns were lost."""
    table = report.table(RESULTS)
    assert "| **Our store & more** | 0 / 10 | 0 / 50 |" in table
    assert "| Their store | 0 / 10 | 45 / 50 |" in table
    assert "2026-11-18 (2 cores) with package 1.0" in table
    picture = report.picture(RESULTS)
    assert "Our store &amp; more" in picture
    assert "45 of 50" in picture
    assert [report.is_bad(row) for row in RESULTS["rows"]] == [False, True]


def test_short_table_puts_their_stores_beside_ours() -> None:
    """The README has a line for each kind of state, which says what ten workers have lost in each store."""
    [_, _, line, _, origin, *_] = report.short_table(RESULTS).split("\n")
    assert line == "| threads | store: **45** of 50 lost | store & more: 0 of 50 lost |"
    assert "2026-11-18 (2 cores) with package 1.0" in origin


def test_table_is_written_between_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing replaces what is between the marks of a page and leaves the rest."""
    for name in ("PAGE", "README", "PICTURE"):
        monkeypatch.setattr(report, name, tmp_path / name)
        (tmp_path / name).write_text(f"before\n{report.BEGIN}\nformer\n{report.END}\nafter\n")
    report.write(RESULTS)
    for name, header in (("PAGE", "| store |"), ("README", "| state |")):
        text = (tmp_path / name).read_text()
        assert text.startswith(f"before\n{report.BEGIN}\n\n{header}")
        assert text.endswith(f"{report.END}\nafter\n")
        assert "former" not in text
