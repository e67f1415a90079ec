"""The files below `deploy`, read.

Each reader is strict and raises at what it does not know, so that no line goes unseen.
"""

from __future__ import annotations

import configparser
import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "deploy"
COMPOSE: Final = ("compose.sqlite.yaml", "compose.postgres.yaml")
PASSWORD: Final = "example"
"""What stands in for a variable that compose is given by the user."""

_INSTRUCTION: Final = re.compile(r"([A-Z]+)\s+(.+)", re.DOTALL)
_KNOWN: Final = frozenset(
    {
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "RUN",
        "STOPSIGNAL",
        "USER",
        "VOLUME",
    }
    | {"WORKDIR"}
)
_ASKED: Final = re.compile(r"\$\{(\w+):\?[^}]+\}")


class Instruction(NamedTuple):
    """A line of a Dockerfile, with those that continue it."""

    name: str
    text: str


def dockerfile() -> list[list[Instruction]]:
    """Return the instructions of each stage."""
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    stages: list[list[Instruction]] = []
    for line in filter(None, map(str.strip, re.sub(r"\\\n\s*", " ", text).split("\n"))):
        found = _INSTRUCTION.fullmatch(line)
        assert found is not None, line
        assert found[1] in _KNOWN, line
        if found[1] == "FROM":
            stages.append([])
        stages[-1].append(Instruction(found[1], found[2]))
    return stages


def image() -> dict[str, str]:
    """Return the instructions of the last stage by name; none is given twice but RUN and COPY."""
    last = [one for one in dockerfile()[-1] if one.name not in ("RUN", "COPY")]
    found = {one.name: one.text for one in last}
    assert len(found) == len(last)
    return found


def image_variables() -> dict[str, str]:
    """Return the variables that the image sets."""
    return dict(word.split("=", 1) for word in image()["ENV"].split())


def health_command() -> list[str]:
    """Return the command that tells whether a container is well."""
    found = re.fullmatch(r"(?:--[a-z-]+=\w+\s+)+CMD\s+(\[.*\])", image()["HEALTHCHECK"])
    assert found is not None
    command: list[str] = json.loads(found[1])
    return command


def compose(name: str) -> dict[str, Any]:
    """Return a compose file, with a password in the place of what the user is asked for."""
    text = _ASKED.sub(PASSWORD, (DEPLOY / name).read_text(encoding="utf-8"))
    assert "${" not in text
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def unit() -> dict[str, dict[str, str]]:
    """Return the settings of the systemd unit by section; none is given twice."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "holdfast.service").read_text(encoding="utf-8"))
    return {section: dict(parser[section]) for section in parser.sections()}
