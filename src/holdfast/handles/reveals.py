"""Revealing an entry, an item, a blob or a dead letter to a person, as handles and services do it.

Law: the command decides and records, here or in a service. This module writes the log line, which also names
the reason where a namespace has no audit.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.commands import Command, Got, Result, Reveal
    from holdfast.letter_commands import RevealLetter
    from holdfast.rows import Row
    from holdfast.tables.commands import RevealItem

_log = logging.getLogger("holdfast.reveals")


async def revealed(
    execute: Callable[[Command], Awaitable[Result]], command: Reveal | RevealItem | RevealLetter, what: str
) -> Row | None:
    """Read a row for a person.

    Args:
        execute: Executes a command.
        command: The command that reads it.
        what: Name of what is revealed, for the log.

    Returns:
        The row, or None if there is none.

    Raises:
        PermissionDenied: The policy never reveals values.
        MissingField: The policy wants a reason.
    """
    found = cast("Got", await execute(command))
    if found.row is not None:
        _log.info(
            "revealed %s of %s to %s: %s",
            what,
            command.namespace,
            command.origin.principal or command.origin.writer,
            command.why or "no reason was given",
        )
    return found.row
