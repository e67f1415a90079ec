"""Wheel, sdist and empty environments into which they are installed.

What is installed has the versions of the lock file, so that a test does not depend on what was released
today. Nothing here is seen by the programs of an environment but the environment itself.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tools.environments import find_uv, uv_env

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE: Final = 100.0
_HATCHLING: Final = """
import gzip, functools, sys
gzip.GzipFile = functools.partial(gzip.GzipFile, compresslevel=1)
from hatchling.cli import hatchling
sys.exit(hatchling())
"""
"""The builder, which makes an sdist quickly instead of small."""
_PIN: Final = re.compile(r"^([a-z0-9][^ ]*==[^\\\n]*)", re.MULTILINE)


class Built(NamedTuple):
    """What a release consists of."""

    wheel: Path
    sdist: Path


class Environment(NamedTuple):
    """An environment with nothing but Holdfast, an extra and what they need."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / "bin" / "python"

    def run(self, *command: object, where: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in a folder, to its end."""
        program, *arguments = map(str, command)
        return subprocess.run(
            [self.folder / "bin" / program, *arguments],
            cwd=where,
            env=clean(where),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def does(self, code: str, *, where: Path) -> str:
        """Run code that must succeed; return what it prints."""
        done = self.run("python", "-c", code, where=where)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def packages(self) -> set[str]:
        """Return the names of everything that is installed."""
        sites = [str(site) for site in self.folder.glob("lib/python*/site-packages")]
        return {found.metadata["Name"].lower() for found in distributions(path=sites)}


def clean(home: Path) -> dict[str, str]:
    """Return an environment in which no setting and no path of the developer's is left."""
    unwanted = ("HOLDFAST_", "NATS_", "PYTHON", "COV", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return kept | {"XDG_DATA_HOME": str(home)}


def pins(extras: str) -> list[str]:
    """Return the packages of the lock file with their versions.

    The lock overrides what some projects allow, see `pyproject.toml`. An environment with one of them gets
    what that allows instead.
    """
    pinned = _PIN.findall((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    if extras not in ("adk", "strands"):
        return pinned
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    overridden = {one.partition(">")[0] for one in project["tool"]["uv"]["override-dependencies"]}
    # The packages of opentelemetry have versions that belong together.
    loose = (*overridden, "opentelemetry-")
    return [pin for pin in pinned if not pin.startswith(loose)]


def build(source: Path, folder: Path, *targets: str) -> list[Path]:
    """Build what a release consists of, from a folder with the sources."""
    chosen = [word for target in targets for word in ("--target", target)]
    command = [sys.executable, "-c", _HATCHLING, "build", "--directory", str(folder), *chosen]
    subprocess.run(command, cwd=source, capture_output=True, timeout=PATIENCE, check=True)
    return sorted(folder.iterdir())


def built_in(folder: Path) -> Built:
    """Return wheel and sdist of the repository, built once for all processes that ask for this folder."""
    with _alone(folder.with_suffix(".lock")):
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            build(ROOT, unfinished, "sdist", "wheel")
            unfinished.rename(folder)
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def interpreter(version: str) -> str | None:
    """Return a Python of this version: on the PATH, or among those of pyenv; None if there is none."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for program in (f"python{version}", *map(str, installed.glob(f"{version}.*/bin/python"))):
        with contextlib.suppress(OSError):
            if subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0:
                return program
    return None


class Uv:
    """The installer that `./dev` uses, with its settings."""

    def __init__(self) -> None:
        self._program = find_uv()
        self._environment = uv_env()
        self._made: list[Path] = []

    def __call__(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            [self._program, *map(str, arguments)],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def silence(self, folder: Path) -> str | None:
        """Return why no registry answers; None if one does."""
        self("venv", "--python", sys.executable, folder)
        asking = ("--dry-run", "--no-deps", "--refresh-package", "msgspec", "msgspec")
        asked = self("pip", "install", "--python", folder / "bin" / "python", *asking)
        return asked.stderr.strip() if asked.returncode else None

    def environment(
        self, folder: Path, wheel: Path, extras: str, python: str = sys.executable
    ) -> Environment:
        """Make an empty environment and install a wheel with these extras."""
        made = self("venv", "--python", python, folder)
        assert made.returncode == 0, made.stderr
        file = folder / "pins.txt"
        file.write_text("\n".join(pins(extras)))
        wanted = f"holdfast-kv{f'[{extras}]' if extras else ''} @ {wheel.as_uri()}"
        into = ("--python", folder / "bin" / "python", "--constraint", file)
        # What was installed before is there: versions are fixed, so that asking the registry tells nothing.
        installed = self("pip", "install", "--offline", *into, wanted)
        if installed.returncode:
            installed = self("pip", "install", *into, wanted)
        assert installed.returncode == 0, installed.stderr
        _share_bytecode(folder, self._made)
        self._made.append(folder)
        return Environment(folder)


def _share_bytecode(folder: Path, earlier: Iterable[Path]) -> None:
    """Give an environment the compiled modules of this one and of others.

    Otherwise each environment compiles every library anew, which takes longer than what is tested. A
    compiled module names the time and the size of its source, so Python does not use one of another file.
    """
    for site in folder.glob("lib/python*/site-packages"):
        _link_bytecode(Path(sys.prefix) / "lib" / site.parent.name / "site-packages", site)
        for other in earlier:
            _link_bytecode(other / site.relative_to(folder) / "holdfast", site / "holdfast")


def _link_bytecode(source: Path, target: Path) -> None:
    """Link the compiled modules of a folder into another one, wherever that has the package."""
    for place, folders, _ in os.walk(target):
        folders[:] = [name for name in folders if name != "__pycache__"]
        compiled = source / os.path.relpath(place, target) / "__pycache__"
        if not compiled.is_dir():
            continue
        cache = os.path.join(place, "__pycache__")
        os.makedirs(cache, exist_ok=True)
        for name in os.listdir(compiled):
            with contextlib.suppress(FileExistsError):
                try:
                    os.link(compiled / name, os.path.join(cache, name))
                except OSError as error:
                    if error.errno != errno.EXDEV:
                        raise
                    shutil.copy2(compiled / name, cache)
