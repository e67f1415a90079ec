"""The same program gives the same answers, whatever keeps the rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("every_verb.py")


def test_every_verb_prints_the_same_on_every_engine(tmp_path: Path, pg_url: str) -> None:
    """Moving from a file to PostgreSQL is a change of the URL: the output is the same, byte for byte."""
    outputs = {
        url: subprocess.run(
            [sys.executable, SCRIPT, url], cwd=tmp_path, capture_output=True, check=True
        ).stdout
        for url in ("state.db", "memory://", "sqlite://", pg_url)
    }
    assert (tmp_path / "state.db").exists()
    assert outputs["state.db"].count(b"\n") > 40
    assert set(outputs.values()) == {outputs["state.db"]}
