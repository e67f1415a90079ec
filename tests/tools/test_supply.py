"""What Holdfast ships with is told in full, and the same on every machine."""

from __future__ import annotations

import hashlib
import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.tools.front_door import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

SUPPLY: Final[dict[str, Any]] = runpy.run_path(str(ROOT / "tools" / "supply.py"))
LOCK: Final = """\
direct==1.0 \\
    --hash=sha256:aa
    # via holdfast-kv (pyproject.toml)
inner==2.0 ; sys_platform != 'win32' \\
    --hash=sha256:bb \\
    --hash=sha256:cc
    # via
    #   direct
    #   linter
linter==3.0 \\
    --hash=sha256:dd
    # via holdfast-kv (pyproject.toml:dev)
parser==4.0 \\
    --hash=sha256:ee
    # via linter
"""
ADDRESS: Final = re.compile(r"https://[a-z0-9.-]+(/[A-Za-z0-9._-]*)*(#[a-z-]+)?")
"""What every address in the bill looks like; all that the schema asks is that it has no forbidden letter."""
SCHEMA: Final = """
import sys
sys.modules["rfc3987_syntax"] = None  # it takes seconds to judge addresses
from cyclonedx.schema import OutputFormat, SchemaVersion as V
from cyclonedx.validation import make_schemabased_validator as make
print(make(OutputFormat.JSON, V.V1_6).validate_str(sys.stdin.read()) or "valid")
"""


def test_tools_of_developers_are_not_shipped() -> None:
    """What only the tests or the linter need is left out; what a shipped package needs is not."""
    found = SUPPLY["shipped"](LOCK)
    assert [one.name for one in found] == ["direct", "inner"]
    assert found[1].pin == (
        "inner==2.0 ; sys_platform != 'win32' \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n"
    )
    assert found[1].wanted_by == {"direct", "linter"}


def test_every_dependency_of_the_project_is_shipped() -> None:
    """Each package that pyproject.toml asks for, extras included, is in the bill of materials."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(one for extra in extras for one in extra)]
    names = {one.split(">")[0].split("[")[0].strip() for one in wanted}
    found = {one.name for one in SUPPLY["shipped"]((ROOT / "requirements.lock").read_text())}
    assert names - {project["name"]} <= found
    assert not {"pytest", "mypy", "ruff", "hypothesis"} & found


def dev(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "dev"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def test_the_bill_of_materials(tmp_path: Path) -> None:
    """`./dev sbom` writes valid CycloneDX: every shipped package and script, with hashes and edges."""
    done = dev("sbom")
    if done.returncode and "installing" in done.stderr:
        pytest.skip(f"the tool can't be installed here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    bill = json.loads(done.stdout)
    shipped = {one.name: one for one in SUPPLY["shipped"]((ROOT / "requirements.lock").read_text())}
    [script] = [part for part in bill["components"] if part["purl"].startswith("pkg:npm/")]
    packages = [part for part in bill["components"] if part is not script]
    assert {part["name"] for part in packages} == set(shipped)
    held = (ROOT / "src/holdfast/edges/console/static/vendor/preact.js").read_bytes()
    assert script["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(held).hexdigest()}]
    assert [one["license"]["id"] for one in script["licenses"]] == ["Apache-2.0", "MIT"]
    assert any(script["bom-ref"] in edge["dependsOn"] for edge in bill["dependencies"])
    for part in packages:
        assert part["version"] in shipped[part["name"]].pin
        assert part["purl"].startswith(f"pkg:pypi/{part['name']}@")
    assert bill["metadata"]["component"]["name"] == "holdfast-kv"
    edges = {edge["ref"]: set(edge["dependsOn"]) for edge in bill["dependencies"]}
    refs = {part["name"]: part["bom-ref"] for part in bill["components"]}
    assert refs["msgspec"] in edges[bill["metadata"]["component"]["bom-ref"]]
    assert refs["mako"] in edges[refs["alembic"]]
    assert dev("sbom", str(tmp_path / "bill.json")).returncode == 0
    assert (tmp_path / "bill.json").read_text() == done.stdout
    addresses = [*_addresses(bill)]
    assert len(addresses) > len(packages)
    assert [one for one in addresses if ADDRESS.fullmatch(one) is None] == []
    python = ROOT / ".dev" / "supply" / "bin" / "python"
    command = [str(python), "-c", SCHEMA]
    judged = subprocess.run(command, input=json.dumps(bill), capture_output=True, text=True, check=False)
    assert judged.stdout == "valid\n", judged.stderr


def _addresses(part: Any) -> Iterator[str]:
    """Every address in a part of the bill."""
    if isinstance(part, list):
        for inner in part:
            yield from _addresses(inner)
    elif isinstance(part, dict):
        if "url" in part:
            yield part["url"]
        yield from _addresses([*part.values()])


@pytest.mark.parametrize("arguments", [["sbom", "one", "two"], ["sbom", "--help"], ["check", "--all"]])
def test_arguments_that_mean_nothing_are_refused(arguments: list[str]) -> None:
    """A verb that is given what it does not know does nothing, and says so."""
    done = dev(*arguments)
    assert done.returncode == 1
    assert "was given:" in done.stderr


def report(*parts: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], 1, json.dumps({"dependencies": parts, "fixes": []}), "")


SOUND: Final = {"name": "sound", "version": "1.0", "vulns": []}
UNKNOWN: Final = {"name": "unknown", "skip_reason": "not found"}
HARMFUL: Final = {
    "name": "harmful",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": [], "description": ""}],
}


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (report(SOUND), 0, "audited 1 packages; 0 are known to be vulnerable"),
        (report(SOUND, UNKNOWN), 0, "does not know them: unknown"),
        (report(SOUND, HARMFUL), 1, "harmful 2.0 has PYSEC-1, fixed in 2.1"),
        (report(UNKNOWN), 0, "NOTHING WAS AUDITED"),
        (subprocess.CompletedProcess([], 1, "", "ERROR: no route\n"), 0, "no route. NOTHING WAS AUDITED"),
        (subprocess.CompletedProcess([], 1, "", ""), 0, "printed nothing. NOTHING WAS AUDITED"),
    ],
)
def test_only_a_known_vulnerability_fails(
    answer: subprocess.CompletedProcess[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An audit fails if a package is vulnerable; if nobody answered it says so and does not fail."""
    audit = SUPPLY["audit"]
    monkeypatch.setitem(audit.__globals__, "run", lambda *arguments: answer)
    assert audit() == code
    assert said in capsys.readouterr().out
