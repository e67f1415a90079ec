"""`./dev mutate decide`: mutmut makes small changes to `holdfast.decide`, one at a time, and runs fast tests.

It works in a copy below `.dev`. Some changes can't be noticed, so survivors are listed and are no failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DECIDE: Final = Path("src", "holdfast", "decide")
WORK: Final = ROOT / ".dev" / "mutmut" / "work"
COPIED: Final = ("bench", "holdfast.toml.dist", "pyproject.toml", "src", "tests", "tools")
TESTS: Final = (
    "tests/unit/tables",
    *(
        f"tests/unit/test_{subject}.py"
        for subject in (
            *("audit", "audit_rotation", "audit_values", "blobs", "decide", "kept", "letters", "load"),
            *("policies", "slices", "table_upkeep", "trash", "upkeep", "work"),
        )
    ),
    "tests/engines/test_runs.py",
    "tests/conformance/test_memory.py",
)
SETTINGS: Final = """
[mutmut]
source_paths=
    src
only_mutate=
    {modules}
also_copy=
    bench
    holdfast.toml.dist
    tools
pytest_add_cli_args=
    -p
    no:cacheprovider
    --assert=plain
    -k
    not postgres
pytest_add_cli_args_test_selection=
    {tests}
use_git_change_detection=false
"""


def main() -> int:
    """Run mutmut over the modules that were named, or all of `holdfast.decide`."""
    known = sorted(path.stem for path in (ROOT / DECIDE).glob("*.py") if path.stem != "__init__")
    parser = argparse.ArgumentParser(prog="./dev mutate decide", description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="such as entries; all if none is named")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="how many at a time")
    arguments = parser.parse_args()
    if unknown := set(arguments.modules) - set(known):
        parser.error(f"holdfast.decide has no module {', '.join(sorted(unknown))}")
    _copy(arguments.modules or known)
    code = _mutmut("run", "--max-children", str(arguments.jobs)).returncode
    listed = _mutmut("results", "--all", "true", output=subprocess.PIPE).stdout
    results = [line.strip().split(": ") for line in listed.splitlines() if ": " in line]
    for name, word in results:
        if word not in ("killed", "timeout"):
            print(f"{word}: {name}")
            shown = _mutmut("show", name, output=subprocess.PIPE).stdout
            print("\n".join(line for line in shown.splitlines() if line.startswith(("- ", "+ "))))
    counts = Counter(word for _, word in results)
    print(f"mutate: {len(results)} changes: {', '.join(f'{count} {word}' for word, count in counts.items())}")
    return code


def _mutmut(*arguments: str, output: int | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=WORK, stdout=output, text=True, check=False)


def _copy(modules: list[str]) -> None:
    """Copy what the tests need and say what to change."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    for name in COPIED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, WORK / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, WORK / name)
    settings = SETTINGS.format(
        modules="\n    ".join(str(DECIDE / f"{module}.py") for module in modules),
        tests="\n    ".join(TESTS),
    )
    (WORK / "setup.cfg").write_text(settings)


if __name__ == "__main__":
    sys.exit(main())
