"""The commands on dead letters: writes that were given up, kept until an operator deals with them.

Law: as in `holdfast.commands`.
"""

from __future__ import annotations

from typing import ClassVar

from holdfast.commands import LEAST_COST, WriteCommand


class Escalate(WriteCommand, frozen=True, kw_only=True, gc=False):
    """Keep an abandoned request as a dead letter, which is JSON text, and record that in the journal.

    `request` is its id, `key` its key, and `value` the JSON text that it would have stored, if any. The
    origin is that of the escalation, which is a request of its own.
    """

    request: str
    key: str
    letter: str
    code: str
    attempts: int
    value: str | None = None

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return len(self.letter) + LEAST_COST


class RevealLetter(WriteCommand, frozen=True, kw_only=True, gc=False):
    """Read a dead letter for a person who gives a reason, and record that in the audit."""

    limited: ClassVar[bool] = False

    number: int
    why: str | None = None


class DropLetter(WriteCommand, frozen=True, kw_only=True, gc=False):
    """Remove a dead letter."""

    limited: ClassVar[bool] = False

    number: int

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True
