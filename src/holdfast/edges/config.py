"""The settings of a running Holdfast, read once.

Law: this is the only module that looks at the environment. A flag outweighs a variable, a variable outweighs
the default.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Where the data is, and what is told about it."""

    db: str
    log_level: str


def read_config(
    *, db: str | None, log_level: str | None, environment: Mapping[str, str] = os.environ
) -> Config:
    """The settings: flags first, then `HOLDFAST_DB` and `HOLDFAST_LOG_LEVEL`, then the defaults."""
    return Config(
        db=db or environment.get("HOLDFAST_DB") or str(default_folder(environment) / "holdfast.db"),
        log_level=(log_level or environment.get("HOLDFAST_LOG_LEVEL") or "info").upper(),
    )


def default_folder(environment: Mapping[str, str]) -> Path:
    """The folder of the user's own store: `$XDG_DATA_HOME/holdfast`, as the XDG rules have it."""
    home = environment.get("XDG_DATA_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share"
    return base / "holdfast"
