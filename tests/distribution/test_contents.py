"""Wheel and sdist: what a release contains and what it says of itself."""

from __future__ import annotations

import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from typing import TYPE_CHECKING, Any, Final

import holdfast
from holdfast.edges.cli.commands.up import example_toml
from holdfast.extras import DISTRIBUTION
from tests.distribution.environments import ROOT, Built, build

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path

EXTRAS: Final = {"all", "cli", "compat", "mcp", "migrate", "nats", "otel", "postgres", "server"}
INTEGRATIONS: Final = {
    *(
        "a2a",
        "adk",
        "agno",
        "django",
        "keyvalue",
        "langgraph",
        "limits",
        "openai-agents",
        "openfeature",
        "pydantic-ai",
        "starlette",
        "strands",
    ),
}
PYTHON: Final = "Programming Language :: Python :: 3."


def project() -> dict[str, Any]:
    """Return what `pyproject.toml` says of the project."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def metadata(wheel: Path) -> Message:
    """Return what a wheel says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode())


def test_the_wheel_says_what_it_is(built: Built) -> None:
    """An index and an installer find name, version, licence, authors, addresses and status."""
    said = metadata(built.wheel)
    assert (said["Name"], said["Version"]) == (DISTRIBUTION, holdfast.__version__)
    assert (said["License-Expression"], said["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert said["Author"]
    addresses = {line.partition(", ")[0] for line in said.get_all("Project-URL", [])}
    assert addresses == {"Changelog", "Documentation", "Homepage", "Issues", "Source"}
    kinds = said.get_all("Classifier", [])
    assert {"Development Status :: 4 - Beta", "Operating System :: POSIX :: Linux", "Typing :: Typed"} <= {
        *kinds
    }
    assert f"{PYTHON}{sys.version_info.minor}" in kinds


def test_the_extras_are_these() -> None:
    """The base needs msgspec alone, and `all` has every other extra in it but those of other projects."""
    extras = project()["optional-dependencies"]
    assert set(extras) == EXTRAS | INTEGRATIONS
    assert extras["all"] == [f"{DISTRIBUTION}[{','.join(sorted(EXTRAS - {'all'}))}]"]
    assert [one.partition(">")[0] for one in project()["dependencies"]] == ["msgspec"]


def test_the_wheel_has_all_that_a_store_needs(built: Built) -> None:
    """DDL, migrations, `py.typed` and the example of settings are there; tests are not."""
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
        shipped = archive.read("holdfast/holdfast.toml.dist").decode()
    assert shipped == example_toml() == (ROOT / "holdfast.toml.dist").read_text(encoding="utf-8")
    for name in (
        "py.typed",
        "engines/sql/ddl/sqlite.sql",
        "engines/sql/ddl/postgresql.sql",
        "engines/sql/migrations/env.py",
    ):
        assert f"holdfast/{name}" in names
    assert {name.partition("/")[0] for name in names} == {
        "holdfast",
        f"holdfast_kv-{holdfast.__version__}.dist-info",
    }


def test_the_sdist_is_enough_to_build_the_wheel(built: Built, tmp_path: Path) -> None:
    """A distributor who builds from the sdist gets the same wheel, and finds docs, tests and deploy files."""
    with tarfile.open(built.sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 has it
        archive.extractall(tmp_path)
    [source] = tmp_path.iterdir()
    for name in (
        "docs/index.md",
        "examples/README.md",
        "tests/conftest.py",
        "deploy/Dockerfile",
        "ops",
        "dev",
    ):
        assert (source / name).exists(), name
    [wheel] = build(source, tmp_path / "again", "wheel")
    with zipfile.ZipFile(wheel) as again, zipfile.ZipFile(built.wheel) as first:
        assert sorted(again.namelist()) == sorted(first.namelist())
    assert str(metadata(wheel)) == str(metadata(built.wheel))
