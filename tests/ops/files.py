"""The files below `ops`, read.

The reader of rules is strict. It knows the form that the file here has, and raises at any other line, so
that no rule goes unseen.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = ROOT / "ops/prometheus/holdfast.rules.yml"
RULE_TESTS: Final = ROOT / "ops/prometheus/holdfast.rules.test.yml"
DASHBOARD: Final = ROOT / "ops/grafana/holdfast.json"

_ALERT: Final = re.compile(
    r"""      - alert: (?P<name>\w+)
        expr: >-
(?P<expr>(?:          \S.*\n)+)(?:        for: (?P<pause>\d+m)
)?        labels:
          severity: (?P<severity>warning|critical)
        annotations:
          summary: "(?P<summary>[^"\n]+)"
"""
)
_CASE: Final = re.compile(r"^  - name: (\w+) (fires|stays quiet)\n((?:    .*\n)+)", re.MULTILINE)


class Alert(NamedTuple):
    """An alerting rule."""

    name: str
    expression: str
    severity: str
    summary: str


def alerts() -> list[Alert]:
    """Every alerting rule."""
    text = RULES.read_text(encoding="utf-8")
    head, mark, body = text.partition("    rules:\n")
    assert re.fullmatch(r"(?:#.*\n)+groups:\n  - name: holdfast\n", head), head
    assert mark
    found = []
    for block in body.split("\n\n"):
        match = _ALERT.fullmatch(block.rstrip("\n") + "\n")
        assert match is not None, f"this rule is not understood:\n{block}"
        expression = " ".join(match["expr"].split())
        found.append(Alert(match["name"], expression, match["severity"], match["summary"]))
    return found


def rule_tests() -> set[tuple[str, bool]]:
    """The alerts that have a test, and whether it is one where they fire."""
    text = RULE_TESTS.read_text(encoding="utf-8")
    found = set()
    for name, kind, body in _CASE.findall(text):
        assert f"        alertname: {name}\n" in body
        assert ("        exp_alerts: []\n" in body) == (kind == "stays quiet")
        assert ("          - exp_labels:\n" in body) == (kind == "fires")
        found.add((name, kind == "fires"))
    assert len(found) == text.count("  - name: ")
    return found


def dashboard() -> dict[str, Any]:
    """The dashboard."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def targets() -> list[tuple[str, str]]:
    """The title of a panel and an expression, for every line that the dashboard draws."""
    return [
        (panel["title"], target["expr"])
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]


def filled_in(expression: str) -> str:
    """An expression of the dashboard with what Grafana puts in, apart from what is chosen of labels."""
    return expression.replace("${prefix}", "holdfast").replace("$__rate_interval", "5m")


def promtool() -> str | None:
    """Where promtool is, if this machine has it."""
    own = ROOT / ".dev" / "tools" / "bin"
    return shutil.which("promtool", path=os.pathsep.join([os.environ.get("PATH", ""), str(own)]))
