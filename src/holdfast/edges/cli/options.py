"""The declarations of shared options for the library that parses the command line.

Everything that this library must know about more than one command is here, so that `target` does not need it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import ArgumentCollection, Group, Parameter, Token

from holdfast.edges.cli.target import SHORT, Place, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.verbs.fields import Provenance


def number(_: object, tokens: Sequence[Token]) -> Any:
    """Parse a number as JSON, so that `1.5` reaches the rules unchanged and is not rounded."""
    text = tokens[0].value
    found = _number_in(text)
    if found is None:
        # An argument that may be negative accepts every word with a hyphen.
        raise ValueError(f"Unknown option: {text}." if text[:2] == "--" else f"{text!a} is not a number.")
    return found


def _number_in(text: str) -> float | None:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return found if type(found) in (int, float) else None


_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)


def seconds(_: object, tokens: Sequence[Token]) -> Any:
    """Parse seconds, as a number or with units: `30s`, `90m`, `1h`, `2d`, `1w`, and `1h30m` for a sum."""
    text = tokens[0].value
    if (found := _number_in(text)) is not None:
        return found
    if not text or _PART.sub("", text):
        raise ValueError(
            f"{text!a} is not a duration; give seconds, or write it as 30s, 5m, 1h, 2d, 1w or 1h30m."
        )
    total = sum(Decimal(amount) * _UNITS[unit] for amount, unit in _PART.findall(text))
    return int(total) if total == int(total) else float(total)


def one_namespace(arguments: ArgumentCollection) -> None:
    """Refuse a plugin together with a tenant or project."""
    given = {argument.name for argument in arguments if argument.tokens}
    if "--plugin" in given and given & {"--tenant", "--project"}:
        raise ValueError("Give --plugin, or --tenant and --project, but not both.")


EVERY: Final = Parameter(negative=(), show_default=False)
"""The defaults of every option."""
WHERE: Final = Group("Store", sort_key=10, validator=one_namespace)
WHO: Final = Group("Provenance", sort_key=5)

Whole = Annotated[int, Parameter(converter=number)]
Key = Annotated[str, Parameter(help="The key.")]
IfVersion = Annotated[
    int | None,
    Parameter(
        converter=number, help="Write only if the entry has this version; 0 means that it must not exist."
    ),
]
Seconds = Annotated[int, Parameter(converter=seconds)]
MaybeSeconds = Annotated[int | None, Parameter(converter=seconds)]
Ttl = Annotated[
    int | None,
    Parameter(converter=seconds, help="Expire the entry after this long: seconds, or 30s, 1h, 2d."),
]
Long = Parameter(alias="-l")


@Parameter(name="*", group=WHO)
@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The provenance of a write."""

    writer: str | None = None
    """Name to record as the entry's last writer; `cli` if not given."""

    request_id: str | None = None
    """Identifies this write. Sending it again with the same content returns the first answer
    and changes nothing."""

    spec_ref: str | None = None
    """Reference to the governing document."""

    @property
    def fields(self) -> Provenance:
        """The keyword arguments for the verbs."""
        return {"writer": self.writer, "request_id": self.request_id, "spec_ref": self.spec_ref}


UNNAMED: Final = WriteOptions()


def _are_options(kind: type[Place]) -> None:
    """Make the fields of a class options of every command that takes one."""
    Parameter(name="*", group=WHERE)(kind)
    for field in fields(kind):
        short = field.metadata.get(SHORT)
        if short is not None and field.name in kind.__annotations__:
            meant = bool if field.default is False else str | None
            kind.__annotations__[field.name] = Annotated[meant, Parameter(alias=short)]


_are_options(Place)
_are_options(Target)
