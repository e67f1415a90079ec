"""Contexts: short names for stores, in a file of the user.

The file is read only when a command names a context or no store. Only its owner can read it, because a URL
may contain a password.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from holdfast import private
from holdfast.edges.cli.files import whole_file
from holdfast.edges.cli.output import file_trouble
from holdfast.errors import ValidationError

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A store and its default namespace."""

    url: str
    plugin: str | None = None
    tenant: str | None = None
    project: str | None = None
    default: bool = False
    """Whether commands use it that name no store. At most one context is the default."""


def default_context() -> str | None:
    """Return the name of the default context, if there is one."""
    return next((name for name, context in read_contexts().items() if context.default), None)


def context_of(name: str) -> Context:
    """Return the context with this name.

    Raises:
        ValidationError: There is none of that name.
    """
    known = read_contexts()
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        raise ValidationError(
            f"there is no context {name!a}; the contexts are: {names}. Add one with holdfast context add",
            field="context",
        )
    return known[name]


def contexts_path() -> Path:
    """Return the path of the file: `$XDG_CONFIG_HOME/holdfast/contexts.json`, following the XDG rules."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".config"
    return base / "holdfast" / "contexts.json"


def read_contexts() -> dict[str, Context]:
    """Return all contexts by name.

    Raises:
        ValidationError: The file cannot be read.
    """
    path = contexts_path()
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Context])
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise file_trouble(error, path, field="context") from None
    except msgspec.MsgspecError as error:
        raise ValidationError(f"{path} is not a file of contexts: {error}", field="context") from None


def write_contexts(contexts: dict[str, Context]) -> None:
    """Replace the file atomically, so that no reader ever sees a part of it."""
    path = contexts_path()
    try:
        private.make_folder(path.parent)
    except OSError as error:
        raise file_trouble(error, path, field="context") from None
    with whole_file(path, field="context") as file:
        file.write(msgspec.json.format(msgspec.json.encode(contexts), indent=2) + b"\n")


def require_name(name: str) -> str:
    """Return the name if it is valid for a context."""
    if not _NAME.fullmatch(name):
        raise ValidationError(
            "the name of a context must be 1 to 63 of the characters a-z, 0-9, ., _ and -", field="name"
        )
    return name
