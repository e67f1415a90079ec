"""Builds what a release consists of into `dist`, and checks it as a user would meet it.

The build takes the files of the last commit and nothing else, so two builds of one commit are the same bytes.
It runs in an environment that has hatchling, twine and check-wheel-contents, which `./dev release` makes; the
checks install the wheel into empty environments. `dist` is replaced only when every check has passed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tools.environments import find_uv, uv_env

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
VERSION_FILE = ROOT / "src" / "holdfast" / "__init__.py"
OLDEST, NEWEST = 11, 15
"""The minor versions of Python 3 that are looked for."""


class Refused(Exception):
    """The release can't be made, and why."""


def main() -> int:
    """Make the release, or say in one line why not."""
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-release-") as folder:
            make(Path(folder))
    except Refused as why:
        print(f"release: {why}", file=sys.stderr)
        return 1
    return 0


def make(folder: Path) -> None:
    """Build, check and put into `dist`."""
    version = released_version()
    check_tree(version)
    files = build(folder / "first")
    compare(files, build(folder / "second"))
    say(f"built {' and '.join(file.name for file in files)}, twice with the same bytes")
    check_metadata(files)
    [wheel] = [file for file in files if file.suffix == ".whl"]
    for python in pythons():
        try_out(wheel, python, folder / python.replace(os.sep, "_"))
    bill = folder / f"holdfast_kv-{version}.cdx.json"
    step([sys.executable, str(ROOT / "dev"), "sbom", str(bill)], "writing the bill of materials")
    publish([*files, bill])


def released_version() -> str:
    """The version of the package, which is defined in one place."""
    constant = re.search(r'^__version__ = "([^"]+)"$', VERSION_FILE.read_text(encoding="utf-8"), re.MULTILINE)
    if constant is None:
        raise Refused("src/holdfast/__init__.py has no __version__")
    return constant[1]


def check_tree(version: str) -> None:
    """A release is a commit: nothing is uncommitted, and the changelog has its section."""
    if changed := git("status", "--porcelain"):
        raise Refused(f"these files are not committed:\n{changed}")
    if f"\n## {version} " not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise Refused(f"CHANGELOG.md has no section for {version}; ./dev changelog {version} makes one")
    if fragments := sorted(file.name for file in (ROOT / "changelog.d").glob("*.*.md")):
        raise Refused(f"changelog.d has fragments that no section has: {', '.join(fragments)}")


def build(folder: Path) -> list[Path]:
    """Build wheel and sdist from the files of the last commit, dated by that commit."""
    source, built = folder / "source", folder / "built"
    source.mkdir(parents=True)
    archive = folder / "source.tar"
    git("archive", "--output", str(archive), "HEAD")
    with tarfile.open(archive) as files:
        files.extractall(source)
    dated = {**os.environ, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct")}
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(built)]
    step(command, "building", cwd=source, env=dated)
    return sorted(built.iterdir())


def compare(first: list[Path], second: list[Path]) -> None:
    """Refuse a build that differs from another one of the same commit."""
    if [(file.name, digest(file)) for file in first] != [(file.name, digest(file)) for file in second]:
        raise Refused("two builds of one commit differ")


def check_metadata(files: list[Path]) -> None:
    """Have the tools of the packaging world look at what was built."""
    names = [str(file) for file in files]
    step([sys.executable, "-m", "twine", "check", "--strict", *names], "twine")
    wheels = [name for name in names if name.endswith(".whl")]
    # W004: Alembic reads the files of migrations by their numbers; nothing imports them.
    command = [sys.executable, "-m", "check_wheel_contents", "--no-config", "--ignore", "W004", *wheels]
    step(command, "check-wheel-contents")


def pythons() -> list[str]:
    """Every Python that Holdfast supports and this machine has, the oldest version first."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = []
    for minor in range(OLDEST, NEWEST + 1):
        candidates = [f"python3.{minor}", *map(str, sorted(installed.glob(f"3.{minor}.*/bin/python")))]
        found += [program for program in candidates if works(program)][:1]
    if not found:
        raise Refused("no Python of a supported version is installed")
    return found


def works(python: str) -> bool:
    """Whether this is a program that runs."""
    try:
        return subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def try_out(wheel: Path, python: str, folder: Path) -> None:
    """Install the wheel into an empty environment; run the README's program and the command there."""
    uv, env = find_uv(), uv_env()
    step([uv, "venv", "--python", python, str(folder)], f"{python}: making an environment", env=env)
    inside = folder / "bin" / "python"
    install = [uv, "pip", "install", "--python", str(inside)]
    step([*install, str(wheel)], f"{python}: installing", env=env)
    program, printed = readme_program()
    (folder / "jobs.py").write_text(program, encoding="utf-8")
    if (output := step([str(inside), "jobs.py"], f"{python}: the README's program", cwd=folder)) != printed:
        raise Refused(f"{python}: the README's program printed {output!r} instead of {printed!r}")
    step([*install, f"{wheel}[server]"], f"{python}: installing the service", env=env)
    step([str(folder / "bin" / "holdfast"), "--version"], f"{python}: the command", cwd=folder)
    say(f"{python}: installs, and runs the README's program and the command")


def readme_program() -> tuple[str, str]:
    """The first Python block of the README, and what it prints."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.search(r"^```python\n(.*?)^```$\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if example is None:
        raise Refused("README.md has no Python program followed by what it prints")
    return example[1], example[2]


def publish(files: list[Path]) -> None:
    """Put the files and their checksums into `dist`."""
    fresh = DIST.with_name("dist.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for file in files:
        shutil.copyfile(file, fresh / file.name)
    sums = "".join(f"{digest(file)}  {file.name}\n" for file in sorted(files, key=lambda file: file.name))
    (fresh / "SHA256SUMS").write_text(sums, encoding="utf-8")
    shutil.rmtree(DIST, ignore_errors=True)
    fresh.rename(DIST)
    say(f"dist has:\n{sums.rstrip()}")


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def git(*arguments: str) -> str:
    """What git prints."""
    return step(["git", *arguments], f"git {arguments[0]}", cwd=ROOT).rstrip("\n")


def step(command: list[str], name: str, *, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a program that must succeed; what it prints."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{name} failed:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


def say(line: str) -> None:
    """Tell what has been done."""
    print(f"release: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
