"""The commands on dead letters: failed writes, kept until an operator deals with them.

A letter is stored in its call's wire format, since that format is public and outlives every version of the
commands.
"""

# Annotations are not postponed: verbs are derived from them.

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from holdfast import rules
from holdfast.commands import LEAST_COST, WriteCommand
from holdfast.declare import DECLARED, Wire, verb
from holdfast.errors import error_classes
from holdfast.forms import TEXT, KeyWriteFields, unsaid
from holdfast.replies import EscalateReply


class LetterContent(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a letter: the call and its failure."""

    verb: str
    request: dict[str, Any]
    key: str
    error_code: str
    message: str
    attempts: int


def _escalated(command: "Escalate") -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(command.letter)
    del fields["key"]
    return fields


@verb(
    "escalate",
    help="Keep a write that was given up as a dead letter.",
    reply=EscalateReply,
    options=KeyWriteFields,
    in_order=True,
    maker="escalation",
    sent=_escalated,
    wires=(
        Wire(
            "verb",
            Annotated[
                str,
                Meta(
                    description="The verb of the write that was given up.",
                    extra_json_schema={"enum": [name for name, one in DECLARED.items() if one.in_order]},
                ),
            ],
            required=True,
        ),
        Wire(
            "request",
            Annotated[
                dict[str, Any],
                Meta(
                    description="Its fields, with a `request_id`.",
                    extra_json_schema={
                        "required": ["request_id"],
                        **unsaid("a `request` that would write nothing"),
                    },
                ),
            ],
            required=True,
        ),
        Wire(
            "error_code",
            Annotated[
                str,
                Meta(
                    description="The code of the last error.",
                    extra_json_schema={"enum": sorted(error.code for error in error_classes())},
                ),
            ],
            required=True,
        ),
        Wire(
            "attempts",
            Annotated[int, Meta(description="How often it was tried.", ge=1, le=rules.MAX_LIMIT)],
            required=True,
        ),
        Wire(
            "message",
            Annotated[
                str,
                Meta(
                    description="What went wrong, in at most 500 characters.",
                    max_length=rules.MAX_REASON_CHARACTERS,
                    pattern=TEXT,
                ),
            ],
        ),
    ),
)
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
