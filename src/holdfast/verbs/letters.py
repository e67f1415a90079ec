"""The maker of commands on dead letters.

Law: as in `holdfast.verbs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast import rules
from holdfast.commands import Batch, KeyChange, Many, Set
from holdfast.errors import ValueTooLarge
from holdfast.letter_commands import DropLetter, Escalate, RevealLetter
from holdfast.verbs.caller import NamespaceCaller

if TYPE_CHECKING:
    from holdfast.commands import WriteCommand


class LetterVerbs(NamespaceCaller):
    """The part of a namespace's verbs that is about dead letters."""

    def escalate(
        self, given_up: WriteCommand, *, letter: str, error_code: str, attempts: object, **provenance: Any
    ) -> Escalate:
        """Make a command that keeps an abandoned command as a dead letter. `letter` is its full text."""
        key, value = about(given_up)
        size = len(letter.encode())
        if size > rules.MAX_LETTER_BYTES:
            raise ValueTooLarge(
                f"the dead letter holds {size} bytes; at most {rules.MAX_LETTER_BYTES} are allowed"
            )
        return Escalate(
            namespace=self.namespace,
            origin=self.origin(**provenance),
            request=given_up.origin.request_id,
            key=key,
            letter=letter,
            code=error_code,
            attempts=rules.positive(attempts, field="attempts", most=rules.MAX_LIMIT),
            value=value,
        )

    def reveal_letter(
        self,
        number: object,
        *,
        why: object = None,
        writer: object = None,
        timeout: object = None,
        deadline: int | None = None,
    ) -> RevealLetter:
        """Make a command that reads a dead letter for a person, who says why."""
        return RevealLetter(
            namespace=self.namespace,
            origin=self.origin(writer=writer, timeout=timeout, deadline=deadline),
            number=rules.positive(number, field="number"),
            why=rules.why(why),
        )

    def drop_letter(self, number: object, **provenance: Any) -> DropLetter:
        """Make a command that removes a dead letter."""
        return DropLetter(
            namespace=self.namespace,
            origin=self.origin(**provenance),
            number=rules.positive(number, field="number"),
        )


def about(command: WriteCommand) -> tuple[str, str | None]:
    """Return the key of a command, the first of several, and the JSON text that it would store."""
    match command:
        case KeyChange():
            return command.key, command.value if isinstance(command, Set) else None
        case Batch(writes=members) | Many(items=members):
            keys = [member.key for member in members if isinstance(member, KeyChange)]
            values = [member.value for member in members if isinstance(member, Set)]
            return keys[0] if keys else "", f"[{','.join(values)}]" if values else None
        case _:
            raise TypeError(f"{type(command).__name__} is no call of a client")
