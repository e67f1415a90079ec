"""The parts of a setting: types that several settings share, the description, and the readable form.

Law: nothing here names a setting; `holdfast.edges.settings.table` does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, inspect

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
Port = Annotated[int, Meta(ge=1, le=65_535)]
Milliseconds = Annotated[int, Meta(ge=1, le=3_600_000)]
Seconds = Annotated[float, Meta(ge=0.1, le=3_600)]
Amount = Annotated[int, Meta(ge=1, le=2**40)]
Prefix = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)*\Z")]
Plugin = Annotated[str, Meta(pattern=r"^[a-z0-9_-]{1,100}\Z")]
HostName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\Z")]
MetricName = Annotated[str, Meta(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*\Z")]


class About(msgspec.Struct, frozen=True):
    """The description of a setting beside its type.

    Args:
        path: Its place in a file: section and name.
        help: Its purpose, in one sentence.
        form: Its valid values, where the type alone does not describe them well.
        flag: Whether `holdfast up` takes it on the command line.
        also: A variable of NATS' own tools that is read if ours is not set.
        otherwise: The behaviour without the setting, where that is not a fixed value.
    """

    path: str
    help: str
    form: str = ""
    flag: bool = False
    also: str | None = None
    otherwise: str = ""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table."""

    name: str
    kind: Any
    default: Any
    about: About

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables for this setting, highest precedence first."""
        own = f"HOLDFAST_{self.name.upper()}"
        return (own,) if self.about.also is None else (own, self.about.also)

    @property
    def form(self) -> str:
        """The valid values in readable form."""
        return self.about.form or _form(inspect.type_info(self.kind))


def _form(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType():
            return _form(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
        case inspect.LiteralType():
            return "one of " + ", ".join(sorted(map(str, kind.values)))
        case inspect.IntType():
            return f"a whole number from {kind.ge:,} to {kind.le:,}"
        case inspect.FloatType():
            least = f"from {kind.ge:,}" if kind.gt is None else f"above {kind.gt:,}"
            return f"a number {least} to {kind.le:,.0f}"
        case inspect.BoolType():
            return "true or false"
        case _:
            return "text"
