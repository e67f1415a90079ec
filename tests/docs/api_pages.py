"""What the pages of the API reference show.

Law: a page names each thing on a line that begins with `:::`, and nothing is listed a second time for tests.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, Final

import yaml

API: Final = sorted((Path(__file__).resolve().parents[2] / "docs" / "reference" / "api").glob("*.md"))
_SHOWN: Final = re.compile(r"^::: (?P<name>[\w.]+)\n(?P<settings>(?:    .*\n)*)", re.MULTILINE)


def shown(page: Path) -> list[str]:
    """The names that a page of the API reference shows, in full."""
    names: list[str] = []
    for found in _SHOWN.finditer(page.read_text(encoding="utf-8")):
        options = (yaml.safe_load(found["settings"]) or {}).get("options", {})
        members = options.get("members") or []
        names += [f"{found['name']}.{member}" for member in members] or [found["name"]]
    return names


def resolved(name: str) -> Any:
    """The object of a full name."""
    module, _, attribute = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), attribute)
