"""The maker of commands on dead letters."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import rules
from holdfast.commands import Append, Batch, KeyChange, Many, Set, WriteCommand
from holdfast.declare import DECLARED, missing
from holdfast.errors import MissingField, ValidationError, ValueTooLarge, error_classes
from holdfast.letter_commands import DropLetter, Escalate, LetterContent, RevealLetter
from holdfast.origin import Origin, origin_fields
from holdfast.verbs.caller import NamespaceCaller
from holdfast.verbs.fields import as_object

_CODES: Final = frozenset(error.code for error in error_classes())


class LetterVerbs(NamespaceCaller):
    """The part of a namespace's verbs that is about dead letters."""

    def escalate(
        self, given_up: WriteCommand, *, error_code: str, message: object, attempts: object, **provenance: Any
    ) -> Escalate:
        """Make a command that keeps an abandoned command as a dead letter."""
        return self._escalate(
            given_up,
            self.origin(**provenance),
            error_code=error_code,
            message=message,
            attempts=attempts,
        )

    def escalation(self, message: Any, origin: Origin) -> Escalate:
        """Make the same of a message, whose request must be legal and have a request id."""
        code = str(_required(message, "error_code")).upper()
        if code not in _CODES:
            raise ValidationError(f"there is no error code {rules.shown(code)}", field="error_code")
        return self._escalate(
            self._given_up(message),
            origin,
            error_code=code,
            message="" if message.message is None else message.message,
            attempts=_required(message, "attempts"),
        )

    def _given_up(self, message: Any) -> WriteCommand:
        verb, request = _required(message, "verb"), as_object(_required(message, "request"), field="request")
        declaration = DECLARED.get("set" if verb == "put" else verb) if isinstance(verb, str) else None
        if declaration is None or not declaration.in_order or declaration.kind is Escalate:
            raise ValidationError("verb must be one that writes", field="verb")
        kept = {name: field for name, field in request.items() if field is not None or name == "value"}
        call = declaration.of_fields(kept)
        # Without its deadline: that of a call that was given up has passed.
        made = declaration.make(self, call, self.origin_of(call, None))
        command: WriteCommand = made[0] if declaration.several else made
        if isinstance(command, Many) and not command.items:
            raise ValidationError("the request would write nothing", field="request")
        if not command.origin.repeatable:
            raise MissingField("the request has no request_id", field="request.request_id")
        return command

    def _escalate(
        self, given_up: WriteCommand, origin: Origin, *, error_code: str, message: object, attempts: object
    ) -> Escalate:
        key, value = about(given_up)
        declaration = given_up.declared
        attempts = rules.positive(attempts, field="attempts", most=rules.MAX_LIMIT)
        content = LetterContent(
            verb=declaration.name,
            request=declaration.fields_of(given_up) | origin_fields(given_up.origin),
            key=key,
            error_code=error_code,
            message=rules.reason(message),
            attempts=attempts,
        )
        letter = msgspec.json.encode(content).decode()
        size = len(letter.encode())
        if size > rules.MAX_LETTER_BYTES:
            raise ValueTooLarge(
                f"the dead letter holds {size} bytes; at most {rules.MAX_LETTER_BYTES} are allowed"
            )
        return Escalate(
            namespace=self.namespace,
            origin=origin,
            request=given_up.origin.request_id,
            key=key,
            letter=letter,
            code=error_code,
            attempts=attempts,
            value=value,
        )

    def reveal_letter(
        self, number: object, *, why: object, writer: object, deadline: int | None
    ) -> RevealLetter:
        """Make a command that reads a dead letter for a person, who says why."""
        return RevealLetter(
            namespace=self.namespace,
            origin=self.origin(writer=writer, deadline=deadline),
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
    """Return the key of a command, the first of several, and the JSON text that it would store.

    An item that is appended has no key yet: the name of its log stands for it.
    """
    match command:
        case KeyChange():
            return command.key, command.value if isinstance(command, Set) else None
        case Append():
            return command.name, command.value
        case Batch(writes=members) | Many(items=members):
            keys = [
                member.name if isinstance(member, Append) else member.key
                for member in members
                if isinstance(member, KeyChange | Append)
            ]
            values = [member.value for member in members if isinstance(member, Set | Append)]
            return keys[0] if keys else "", f"[{','.join(values)}]" if values else None
        case _:
            raise TypeError(f"{type(command).__name__} is no call of a client")


def _required(message: Any, name: str) -> Any:
    value = getattr(message, name)
    if value is None:
        raise missing(name)
    return value
