"""Optional packages, and the message that names the extra for a missing one.

A missing module of Holdfast itself is a defect and is never blamed on an extra.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from holdfast.errors import Unsupported

DISTRIBUTION: Final = "holdfast-kv"
"""The name to install. The package named `holdfast` belongs to another project."""


def install(extra: str) -> str:
    """Return the shell command that installs Holdfast with an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def sentence(package: str, extra: str, purpose: str) -> str:
    """Return the message for a user who lacks a package."""
    return f"{purpose} needs the package {package}: {install(extra)}"


@contextlib.contextmanager
def needed(extra: str, purpose: str) -> Iterator[None]:
    """Import packages of an extra within this block, during a call.

    Raises:
        Unsupported: A package is not installed; the message names the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise Unsupported(sentence(_package(error), extra, purpose)) from None


@contextlib.contextmanager
def imported(extra: str, purpose: str) -> Iterator[None]:
    """Import packages of an extra within this block, at the top of a module.

    Raises:
        ModuleNotFoundError: A package is not installed; the message names the extra. Programs expect this
            error from an import.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(sentence(_package(error), extra, purpose), name=error.name) from None


def _package(error: ModuleNotFoundError) -> str:
    """Return the missing package. If Holdfast's own module is missing, re-raise the error."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "holdfast"):
        raise error
    return package
