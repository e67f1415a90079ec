"""Narrow screens and colours: what people see, and what programs do not."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.edges.cli.output import EDGES, GAP, READABLE, fitted
from tests.edges.cli.conftest import fill
from tests.edges.cli.test_terminal import DRAWING, Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli, Program

LONG = "tenant/of/a/rather/long/name/that/goes/on"
RED, YELLOW = "\x1b[31m", "\x1b[33m"


@given(st.lists(st.integers(1, 200), min_size=1, max_size=9), st.integers(20, 200))
def test_columns_fit(natural: list[int], width: int) -> None:
    """A table is no wider than the screen, only its widest column is folded, and never to a few letters."""
    widths = fitted(natural, width)
    assert sum(widths) + GAP * (len(widths) - 1) + EDGES <= width
    narrowed = [(had, has) for had, has in zip(natural, widths, strict=False) if has < had]
    assert len(narrowed) <= 1
    if len(widths) > 1:
        assert all(has >= READABLE for _, has in narrowed)


@pytest.mark.parametrize("columns", [120, 80, 50])
def test_values_stay_whole(program: Program, url: str, columns: int) -> None:
    """On a narrow screen a key is not broken up; columns are left out instead, and named."""
    fill(url, (LONG, 1, {"writer": "agent:directive"}))
    shown = DRAWING.sub("", Terminal(program, columns=columns).show("history", LONG))
    table = [row for row in shown.splitlines() if not row.startswith("holdfast:")]
    assert all(len(row) <= columns for row in table)
    assert ("agent:directive" in shown) is (columns >= 80)
    assert ("too narrow for" in shown) is (columns < 80)
    assert re.search(r"\d{4}-\d\d-\d\dT[\d:.]+Z +set +1\b", shown)
    assert (LONG[:READABLE] in shown) is (columns > 50)


def test_an_audit_names_its_keys_on_80_columns(program: Program, cli: Cli) -> None:
    """A long key is folded rather than left out: a record without its key says little."""
    cli("namespace", "set", "--audit")
    cli.did("set", LONG, "1")
    shown = DRAWING.sub("", Terminal(program, columns=80).show("audit", "log"))
    assert "too narrow for: writer, purpose, request;" in shown
    assert LONG[:20] in shown


def test_asked_values_stay_on_a_narrow_screen(program: Program, url: str) -> None:
    """`history --values` leaves out the key, which was typed, and the writer before the values."""
    fill(url, (LONG, {"turn": "alice"}, {"writer": "agent:directive"}))
    shown = DRAWING.sub("", Terminal(program, columns=70).show("history", LONG, "--values"))
    assert '{"turn":"alice"}' in shown
    assert "too narrow for: key, writer;" in shown


def test_a_long_value_is_folded(program: Program, url: str) -> None:
    """A long value takes as many lines as it needs, and all of it is there."""
    fill(url, ("k", "x" * 300, {}))
    shown = DRAWING.sub("", Terminal(program, columns=80).show("get", "k", "--long"))
    assert shown.count("x") == 300 + shown.count("expires") + shown.count("example")
    assert all(len(row.rstrip()) <= 80 for row in shown.splitlines())


def test_errors_are_red_on_a_terminal_alone(program: Program, url: str) -> None:
    """Colour is for eyes: not in a pipe, and not where NO_COLOR or a dumb terminal says otherwise."""
    fill(url, ("k", 1, {}))
    assert RED in Terminal(program).show("get", "gone", code=3)
    assert "\x1b" not in Terminal(program, NO_COLOR="1").show("get", "gone", code=3)
    assert "\x1b" not in Terminal(program, TERM="dumb").show("get", "gone", code=3)
    assert "\x1b" not in program("get", "gone").stderr


def test_doctor_begins_with_what_is_wrong(cli: Cli, program: Program, url: str, tmp_path: Path) -> None:
    """Failures come first, then warnings, each with its fix; levels have colours on a terminal."""
    cli.did("set", "k", "1")
    outcome = cli("doctor", "--nats", "nats://127.0.0.1:1")
    levels = [row.split()[0] for row in outcome.out.splitlines()]
    assert outcome.code == 1
    assert levels == sorted(levels, key=["fail", "warn", "ok"].index)
    assert outcome.out.startswith("fail  nats")
    assert "(start one, or name another with --nats)" in outcome.out.splitlines()[0]
    checks = json.loads(cli("doctor", "--nats", "nats://127.0.0.1:1", "--json").out)["checks"]
    assert checks[0]["level"] == "fail"
    assert f"{YELLOW}warn" in Terminal(program).show("doctor")


def test_bars_know_the_end(program: Program, url: str, tmp_path: Path) -> None:
    """The bar of an export counts what is exported, and that of an import knows the size of the file."""
    fill(url, ("a1", 1, {}), ("a2", 2, {}), ("b", 3, {}))
    assert "2/2" in Terminal(program).show("export", "--prefix", "a")
    file = tmp_path / "all.jsonl"
    file.write_text(program("export").stdout)
    size = file.stat().st_size
    shown = Terminal(program).show("import", str(file), "--plugin", "copy")
    assert f"/{size} bytes" in DRAWING.sub("", shown)
