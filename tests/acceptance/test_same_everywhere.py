"""The same program gives the same answers, whatever keeps the rows."""

from __future__ import annotations

from pathlib import Path

from tests.forking import completed

SCRIPT = Path(__file__).with_name("every_verb.py")


def test_every_verb_prints_the_same_on_every_engine(tmp_path: Path, pg_url: str) -> None:
    """Moving from a file to PostgreSQL is a change of the URL: the output is the same, byte for byte."""
    runs = {
        url: completed(str(SCRIPT), url, cwd=tmp_path)
        for url in ("state.db", "memory://", "sqlite://", pg_url)
    }
    for done in runs.values():
        done.check_returncode()
    outputs = {url: done.stdout for url, done in runs.items()}
    assert (tmp_path / "state.db").exists()
    assert outputs["state.db"].count("\n") > 40
    assert set(outputs.values()) == {outputs["state.db"]}
