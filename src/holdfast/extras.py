"""Optional packages: the sentence that says which extra brings one that is missing.

Law: the name of the distribution stands here alone. A module that is missing from Holdfast itself is a fault
of ours and is never blamed on an extra.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from holdfast.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

DISTRIBUTION: Final = "holdfast-kv"
"""The name to install: `holdfast` alone is another project's."""


def install(extra: str) -> str:
    """Return the command that installs Holdfast with an extra, for a shell."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def sentence(package: str, extra: str, purpose: str) -> str:
    """Return what to tell a user who lacks a package."""
    return f"{purpose} needs the package {package}: {install(extra)}"


@contextlib.contextmanager
def needed(extra: str, purpose: str) -> Iterator[None]:
    """Import packages of an extra within this block, as part of a call.

    Raises:
        Unsupported: One of them is not installed; the message names the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise Unsupported(sentence(_package(error), extra, purpose)) from None


@contextlib.contextmanager
def imported(extra: str, purpose: str) -> Iterator[None]:
    """Import packages of an extra within this block, at the top of a module.

    Raises:
        ModuleNotFoundError: One of them is not installed; the message names the extra. It is the error that
            programs expect of an import.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(sentence(_package(error), extra, purpose), name=error.name) from None


def _package(error: ModuleNotFoundError) -> str:
    """Return the package that is missing, unless it is Holdfast: then the error goes on as it is."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "holdfast"):
        raise error
    return package
