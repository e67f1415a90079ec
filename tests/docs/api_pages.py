"""What the pages of the API reference show.

A page names each thing on a line that begins with `:::`, and nothing is listed a second time for tests.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, Final

API: Final = sorted((Path(__file__).resolve().parents[2] / "docs" / "reference" / "api").glob("*.md"))


def shown(page: Path) -> list[str]:
    """The full names of what a page of the API reference shows."""
    return re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)


def resolved(name: str) -> Any:
    """The object of a full name."""
    module, _, attribute = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), attribute)


def defined_in(module: Any) -> list[Any]:
    """The public classes and functions that a module defines."""
    return [
        part
        for name, part in vars(module).items()
        if name[0] != "_" and getattr(part, "__module__", None) == module.__name__
    ]
