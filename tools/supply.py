"""Tells what Holdfast ships with, and whether anything in it is known to be vulnerable.

Its law: what is locked is read from the lock files and nothing is resolved anew, so the answer is the same on
every machine. It runs in an environment that has cyclonedx-bom and pip-audit, which `./dev` makes; it needs
nothing else but the standard library.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
LOCKS = (LOCK, *(ROOT / "tools" / f"{name}.lock" for name in ("installer", "supply", "site")))
PROJECT = ROOT / "pyproject.toml"
ITSELF = "holdfast-kv (pyproject.toml)"
"""How the lock file names Holdfast where it, or one of its extras, asks for a package."""
VENDORED = ROOT / "src/holdfast/edges/console/static/vendor/VENDOR.md"
VENDOR_CELLS = ("file", "from", "version", "licence", "sha256")
"""The columns of the list of vendored files."""
SPEC = "1.6"
"""The version of CycloneDX that is written."""


class Package(NamedTuple):
    """A package of a lock file: its name, the lines that pin it, and which packages ask for it."""

    name: str
    pin: str
    wanted_by: frozenset[str]


def packages(lock: str) -> list[Package]:
    """Return the packages of a lock file, in its order."""
    found = []
    for entry in re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE):
        if named := re.match(r"([A-Za-z0-9._-]+)==", entry):
            notes = re.findall(r"^ +# +(?:via +)?(\S.*)$", entry, re.MULTILINE)
            pin = re.sub(r"^ +#.*\n", "", entry, flags=re.MULTILINE)
            found.append(Package(named[1], pin, frozenset(notes) - {"via"}))
    return found


def shipped(lock: str) -> list[Package]:
    """Return the packages that Holdfast or an extra of it needs, without the tools of its developers."""
    known = packages(lock)
    wanted = {ITSELF}
    while more := {one.name for one in known if one.wanted_by & wanted} - wanted:
        wanted |= more
    return [one for one in known if one.name in wanted]


def sbom() -> str:
    """Return the bill of materials as CycloneDX JSON; the same lock file always gives the same text."""
    ours = shipped(LOCK.read_text(encoding="utf-8"))
    if not ours:
        sys.exit(f"supply: {LOCK.name} names no package that {ITSELF} asks for; renew it with ./dev lock.")
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / LOCK.name
        listed.write_text("".join(one.pin for one in ours), encoding="utf-8")
        form = ["--output-format", "JSON", "--spec-version", SPEC, "--output-reproducible", "--no-validate"]
        command = ["requirements", *form, "--pyproject", str(PROJECT), str(listed)]
        written = run("cyclonedx_py", *command)
    if written.returncode:
        sys.exit(f"supply: cyclonedx-bom failed with exit code {written.returncode}:\n{written.stderr}")
    bill = with_scripts(with_dependencies(json.loads(written.stdout), ours), VENDORED.read_text("utf-8"))
    return json.dumps(bill, indent=2, sort_keys=True) + "\n"


def with_dependencies(bill: dict[str, Any], ours: list[Package]) -> dict[str, Any]:
    """Return the bill with the edges between packages, which the lock file knows and cyclonedx-bom does not.

    Its notes on lines of the lock file go: they repeat every hash, and name lines of a file that is gone.
    """
    parts = [part | {"bom-ref": part["purl"]} for part in bill["components"]]
    for part in parts:
        del part["description"]
    refs = {part["name"]: part["bom-ref"] for part in parts}
    refs[ITSELF] = bill["metadata"]["component"]["bom-ref"]
    wants = {name: sorted(refs[one.name] for one in ours if name in one.wanted_by) for name in refs}
    edges = [{"ref": refs[name], "dependsOn": wants[name]} for name in sorted(refs)]
    return bill | {"components": parts, "dependencies": edges}


def with_scripts(bill: dict[str, Any], listed: str) -> dict[str, Any]:
    """Return the bill with the scripts that the console ships, from the list of vendored files."""
    scripts = [script for line in listed.splitlines() if (script := scripted(line)) is not None]
    itself = bill["metadata"]["component"]["bom-ref"]
    refs = [script["bom-ref"] for script in scripts]
    edges = [
        edge | {"dependsOn": edge["dependsOn"] + refs} if edge["ref"] == itself else edge
        for edge in bill["dependencies"]
    ]
    own = [{"ref": ref, "dependsOn": []} for ref in refs]
    return bill | {"components": bill["components"] + scripts, "dependencies": edges + own}


def scripted(line: str) -> dict[str, Any] | None:
    """Return the component that a line of the list of vendored files tells of; None if it is no script."""
    cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
    if len(cells) != len(VENDOR_CELLS) or not cells[0].endswith(".js"):
        return None
    told = dict(zip(VENDOR_CELLS, cells, strict=True))
    named = re.match(r"npm package ([\w.@/-]+),", told["from"])
    if named is None:
        sys.exit(f"supply: {VENDORED.name} does not say from which npm package {told['file']} is.")
    purl = f"pkg:npm/{named[1]}@{told['version']}"
    return {
        "bom-ref": purl,
        "hashes": [{"alg": "SHA-256", "content": told["sha256"]}],
        "licenses": [{"license": {"id": one}} for one in re.findall(r"([\w.-]+) \(", told["licence"])],
        "name": named[1],
        "purl": purl,
        "type": "library",
        "version": told["version"],
    }


def audit() -> int:
    """Ask the package index about every locked package; 1 if one of them is known to be vulnerable."""
    files = [argument for lock in LOCKS for argument in ("--requirement", str(lock))]
    how = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json"]
    done = run("pip_audit", *how, *files)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        reason = (done.stderr.strip().splitlines() or ["pip-audit printed nothing"])[-1]
        return not_audited(f"the package index told of no advisories: {reason[:300]}")
    if all("skip_reason" in part for part in report["dependencies"]):
        return not_audited("the package index knows none of the locked packages")
    return judged(report)


def not_audited(why: str) -> int:
    """Say that there is no result; that is no failure, since a machine may have no network."""
    say(f"{why}. NOTHING WAS AUDITED: this is neither a failure nor an all-clear.")
    return 0


def judged(report: dict[str, Any]) -> int:
    """Say what a report holds; 1 if a package is known to be vulnerable."""
    parts = report["dependencies"]
    unknown = [part["name"] for part in parts if "skip_reason" in part]
    harmful = [part for part in parts if part.get("vulns")]
    for part in harmful:
        for vuln in part["vulns"]:
            fixed = ", ".join(vuln["fix_versions"]) or "no version yet"
            say(f"{part['name']} {part['version']} has {vuln['id']}, fixed in {fixed}")
    if unknown:
        say(f"not audited, because the package index does not know them: {', '.join(unknown)}")
    say(f"audited {len(parts) - len(unknown)} packages; {len(harmful)} are known to be vulnerable")
    return bool(harmful)


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def say(line: str) -> None:
    print(f"supply: {line}", flush=True)


def main(args: list[str]) -> int:
    match args:
        case ["sbom"]:
            print(sbom(), end="")
        case ["sbom", path]:
            Path(path).write_text(sbom(), encoding="utf-8")
        case ["audit"]:
            return audit()
        case _:
            sys.exit("supply: give one of: sbom, sbom FILE, audit")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
