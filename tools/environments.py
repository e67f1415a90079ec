"""The environments that `./dev` makes: `.venv`, and one in `.dev` for each set of tools with a lock file.

`./dev` imports this before anything is installed, so it needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PRIVATE = ROOT / ".dev"
TOOLS = ROOT / "tools"
LOCK = ROOT / "requirements.lock"
PROJECT = ROOT / "pyproject.toml"
SERVICE_LOCKS = (ROOT / "deploy" / "image.lock", ROOT / "deploy" / "build.lock")
UV_LOCK = TOOLS / "installer.lock"
PYTHON = VENV / "bin" / "python"
STAMP = "holdfast.stamp"


def say(line: str) -> None:
    print(f"dev: {line}", flush=True)


def fail(sentence: str) -> NoReturn:
    print(f"dev: {sentence}", file=sys.stderr, flush=True)
    raise SystemExit(1)


def quietly(
    what: str,
    command: list[str],
    env: dict[str, str] | None = None,
    *,
    where: str | Path = ROOT,
    stdin: str = "",
) -> None:
    """Run one step of a setup; its output is shown only when it fails."""
    say(what)
    done = subprocess.run(
        command, cwd=where, env=env, input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr, end="")
        fail(f"{what} failed with exit code {done.returncode}. The command was: {shlex.join(command)}")


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hold the lock that lets only one process at a time change the environment."""
    PRIVATE.mkdir(exist_ok=True)
    with (PRIVATE / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another setup to end")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def base_python() -> str:
    """Return the Python that this one was made from: an environment that uv has made has no pip."""
    return str(getattr(sys, "_base_executable", None) or sys.executable)


def find_uv() -> str:
    """Return the path of uv: the private copy, which is installed again when its lock file has changed.

    A uv elsewhere on the machine is used only if HOLDFAST_UV names it, since no hash vouches for it.
    """
    if named := os.environ.get("HOLDFAST_UV"):
        say(f"taking {named} for uv, because HOLDFAST_UV says so; its hash is not checked")
        return named
    place = PRIVATE / "uv"
    program, stamp, digest = place / "bin" / "uv", place / "stamp", digest_of(UV_LOCK)
    if not (program.exists() and is_stamped(stamp, digest)):
        shutil.rmtree(place, ignore_errors=True)
        pip = [base_python(), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        # A source distribution would be built with packages whose hashes nothing checks.
        strict = ["--require-hashes", "--only-binary", ":all:", "--no-deps"]
        where = ["--target", str(place), "--requirement", str(UV_LOCK)]
        quietly("installing uv into .dev/uv", [*pip, *strict, *where])
        stamp.write_text(digest)
    return str(program)


def uv_env() -> dict[str, str]:
    """Return the environment for uv: it takes over pip's index and certificates, which uv does not read."""
    env = {"UV_SYSTEM_CERTS": "1", **os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    command = [base_python(), "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    settings: dict[str, str] = {}
    for place in ("global", "install", ":env:"):  # the strongest last
        settings.update(re.findall(rf"^{place}\.(\S+?)='(.*)'$", listed, re.MULTILINE))
    for pip_name, uv_name in (("index-url", "UV_DEFAULT_INDEX"), ("cert", "SSL_CERT_FILE")):
        if pip_name in settings:
            env.setdefault(uv_name, settings[pip_name])
    return env


def digest_of(*paths: Path) -> str:
    """Return the hash of what files hold."""
    digest = hashlib.sha256()
    for path in paths:
        if not path.exists():
            fail(f"{path.relative_to(ROOT)} is missing; restore it with git.")
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_stamped(stamp: Path, digest: str) -> bool:
    return stamp.exists() and stamp.read_text() == digest


def fingerprint(*locks: Path) -> str:
    """Return what an environment was made from: the folder it serves and the files that describe it."""
    return hashlib.sha256(f"{ROOT} {digest_of(*locks, PROJECT)}".encode()).hexdigest()


def is_ready(place: Path = VENV, *locks: Path) -> bool:
    python, stamp = place / "bin" / "python", place / STAMP
    return python.exists() and is_stamped(stamp, fingerprint(*(locks or [LOCK])))


def ensure(place: Path = VENV, *locks: Path) -> None:
    """Make an environment when it is missing or older than the files it is made from."""
    if is_ready(place, *locks):
        return
    with alone():
        if not is_ready(place, *locks):
            make(place, *(locks or [LOCK]))


def ensure_for_service() -> Path:
    """Return an environment that can start a service.

    Until there is one for development, this makes a smaller one: 135 MB instead of 765 MB.
    """
    if VENV.exists():
        ensure()
        return VENV
    place = PRIVATE / "up"
    ensure(place, *SERVICE_LOCKS)
    return place


def make(place: Path, *locks: Path) -> None:
    """Make an environment with holdfast from this folder and the packages of lock files."""
    uv, env, digest = find_uv(), uv_env(), fingerprint(*locks)
    python, stamp = place / "bin" / "python", place / STAMP
    stamp.unlink(missing_ok=True)
    if not python.exists():
        base = os.environ.get("HOLDFAST_PYTHON") or base_python()
        name = os.path.relpath(place, ROOT)
        quietly(f"making {name}", [uv, "venv", "--clear", "--python", base, str(place)], env)
    into = ["--python", str(python)]
    # A machine may be set up to keep no compiled modules, and then every process would compile them again.
    form = ["--compile-bytecode", "--require-hashes"]
    quietly("installing the locked packages", [uv, "pip", "sync", *into, *form, *map(str, locks)], env)
    editable = ["--no-deps", "--no-build-isolation", "--editable", "."]
    quietly("installing holdfast from this folder", [uv, "pip", "install", *into, *editable], env)
    quietly("compiling holdfast", [str(python), "-m", "compileall", "-q", "src"])
    stamp.write_text(digest)
    say("the environment is ready")


def private_python(name: str, lock: Path, packages: str) -> str:
    """Return the Python of an environment in .dev with what a lock file names; it is made if need be."""
    place = PRIVATE / name
    python, stamp, digest = place / "bin" / "python", place / "stamp", digest_of(lock)
    with alone():
        if not (python.exists() and is_stamped(stamp, digest)):
            uv, env = find_uv(), uv_env()
            make_it = [uv, "venv", "--clear", "--python", sys.executable, str(place)]
            quietly(f"making .dev/{name}", make_it, env)
            form = ["--python", str(python), "--require-hashes", str(lock)]
            quietly(f"installing {packages}", [uv, "pip", "sync", *form], env)
            stamp.write_text(digest)
    return str(python)


def private_site(name: str, lock: Path, packages: str) -> Path:
    """Return a folder in .dev with the packages of a lock file, to be used beside those of `.venv`."""
    place = PRIVATE / name
    site, stamp, digest = place / "site", place / "stamp", digest_of(lock, LOCK)
    with alone():
        if not is_stamped(stamp, digest):
            shutil.rmtree(site, ignore_errors=True)
            into = ["--python", str(PYTHON), "--target", str(site), "--no-deps", "--require-hashes"]
            command = [find_uv(), "pip", "install", *into, "--requirement", str(lock)]
            quietly(f"installing {packages} into .dev/{name}", command, uv_env())
            stamp.write_text(digest)
    return site


def venv_env() -> dict[str, str]:
    path = os.pathsep.join([str(VENV / "bin"), os.environ.get("PATH", "")])
    return {**os.environ, "VIRTUAL_ENV": str(VENV), "PATH": path}


def run(*command: str) -> int:
    """Run a program of the environment from the root of the repository and return its exit code."""
    program = str(VENV / "bin" / command[0])
    return subprocess.run([program, *command[1:]], cwd=ROOT, env=venv_env(), check=False).returncode


def become(*command: str, where: Path | None = None) -> NoReturn:
    """Turn into a module of the environment, so that signals reach it."""
    if where is not None:
        os.chdir(where)
    os.execve(PYTHON, [str(PYTHON), "-m", *command], venv_env())
