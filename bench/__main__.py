"""`./dev bench [SCENARIO …] [--rounds N] [--seconds S] [--json FILE]`: measure, tell, and fail on a miss."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from bench.measure import machine
from bench.scenarios import SCENARIOS


def main() -> int:
    """Run the scenarios that were asked for; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(prog="./dev bench", description="Measure Holdfast, rounds in turn.")
    parser.add_argument("scenario", nargs="*", help=f"any of {', '.join(SCENARIOS)}; without one, all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each round takes")
    parser.add_argument("--json", type=Path, help="a file for everything that was measured")
    arguments = parser.parse_args()
    if unknown := set(arguments.scenario) - set(SCENARIOS):
        parser.error(f"unknown scenario: {', '.join(sorted(unknown))}")
    about = machine()
    print("  ".join(f"{name} {value}" for name, value in about.items()))
    results = []
    for name in arguments.scenario or SCENARIOS:
        result = asyncio.run(SCENARIOS[name](arguments.rounds, arguments.seconds))
        print(result.told(), flush=True)
        results.append(result)
    if arguments.json:
        found = {"machine": about, "results": [result.as_dict() for result in results]}
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
