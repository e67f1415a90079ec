"""`python -m bench.page FILE …`: what runs found, as the tables of docs/explanation/performance.md.

With `--picture` it is what they found of the bars' scenarios as SVG, all in one picture.

It copies figures and makes none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench.book import Scenario, Spread, figure
from bench.plot import svg


def page(found: dict[str, Any]) -> str:
    """One run: where, how busy, its bars, and its scenarios without those."""
    parts = [_machine(found), _bars(found["bars"])]
    parts += [
        _scenario(one) for one in found["scenarios"] if one["scenario"].startswith(("where.", "growth."))
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def picture(runs: list[dict[str, Any]]) -> str:
    """The scenarios of runs that their bars are about, drawn."""
    return svg(
        [_drawn(one) for found in runs for one in found["scenarios"] if one["scenario"] in _barred(found)]
    )


def _barred(found: dict[str, Any]) -> set[str]:
    return {bar["name"].partition(":")[0] for bar in found["bars"]}


def _drawn(one: dict[str, Any]) -> Scenario:
    sides = {side: values["values"] for side, values in one["sides"].items()}
    return Scenario(one["scenario"], one["unit"], sides)


def _machine(found: dict[str, Any]) -> str:
    machine = found["machine"]
    what = (
        f"{machine['cores']} cores ({machine['processor']}), {machine['system']}, Python {machine['python']}"
    )
    busy = "busy with other things" if found["busy"] else "quiet"
    return (
        f"`./dev bench {machine['command']}` on {what}, SQLite {machine['sqlite']}; the machine was {busy}."
    )


def _bars(bars: list[dict[str, Any]]) -> str:
    if not bars:
        return ""
    rows = [
        f"| {bar['bar']} | {bar['name']} | {_bound(bar)} | {_spread(bar)} | {_verdict(bar)} |" for bar in bars
    ]
    return "\n".join(["| bar | what | bound | found | |", "|---|---|---|---|---|", *rows])


def _scenario(one: dict[str, Any]) -> str:
    rows = [f"| {side} | {_spread(values)} |" for side, values in one["sides"].items()]
    return "\n".join([f"| {one['scenario']} | {one['unit']} |", "|---|---|", *rows])


def _verdict(bar: dict[str, Any]) -> str:
    return "reached" if bar["reached"] else "missed"


def _bound(bar: dict[str, Any]) -> str:
    return (
        f"at least {figure(bar['at_least'])}"
        if bar["at_least"] is not None
        else f"at most {bar['at_most']:g}"
    )


def _spread(values: dict[str, Any]) -> str:
    return str(Spread(*(values[name] for name in ("median", "low", "high", "rounds"))))


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != "--picture"]
    runs = [json.loads(Path(name).read_text(encoding="utf-8")) for name in names]
    print(picture(runs) if "--picture" in sys.argv else "\n".join(map(page, runs)), end="")
