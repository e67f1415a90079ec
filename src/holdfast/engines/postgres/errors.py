"""Translation of the driver's errors to Holdfast's.

This is the engine's only translator. It goes by the type and SQLSTATE of an error, never by its text. No
text of the driver becomes part of a message; the original error is chained for the log.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

import asyncpg

from holdfast import masking
from holdfast.errors import (
    Busy,
    DatabaseError,
    HoldfastError,
    OutcomeUnknown,
    StorageFull,
    Unavailable,
    Unsupported,
    ValidationError,
)

DRIVER_ERRORS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""All exceptions that the driver itself raises. Timeouts are among the OSErrors."""

CLOSED: Final = "HFC01"
"""The SQLSTATE of the error that the triggers of a closed store raise."""

_LOST: Final = (Unavailable, "the connection to PostgreSQL was lost before anything was written")
_CONTENDED: Final = (Busy, "PostgreSQL gave way to another transaction")

_BY_STATE: Final[dict[str, tuple[type[HoldfastError], str]]] = {
    "25006": (Unavailable, "this PostgreSQL accepts no writes now"),
    "25P03": _LOST,
    "40001": _CONTENDED,
    "40P01": _CONTENDED,
    "53100": (StorageFull, "the disk of PostgreSQL is full"),
    "53300": (Unavailable, "PostgreSQL has no connection left"),
    "55P03": (Busy, "another transaction holds the namespace for too long"),
    "57014": (Unavailable, "PostgreSQL was told to cancel the statement"),
    "57P01": _LOST,
    "57P02": _LOST,
    "57P03": (Unavailable, "PostgreSQL is starting or stopping"),
    "57P04": _LOST,
    "57P05": _LOST,
    CLOSED: (Unavailable, "this PostgreSQL database accepts no writes"),
}
_REFUSED: Final = ("0A000", "25006", CLOSED)
"""States of errors raised before a statement has any effect. Another connection may succeed."""
_BY_CLASS: Final[dict[str, tuple[type[HoldfastError], str]]] = {"08": _LOST}
_DEFECT: Final = (DatabaseError, "PostgreSQL failed to do what was asked")

_CONNECTING: Final = {
    "28": "refuses the login",
    "3D": "has no such database",
    "53": "has no connection left",
    "57": "is starting or stopping",
}


def translate(error: BaseException) -> HoldfastError:
    """Return our error for a driver error that occurred before the commit was attempted."""
    kind, sentence = _meaning(error)
    if kind is Unavailable and getattr(error, "sqlstate", None) == CLOSED:
        return Unavailable(f"{sentence}: {error}")  # the text is our own: see `holdfast.engines.sql.sections`
    return kind(sentence)


def is_lost(error: BaseException) -> bool:
    """Return whether the same statement may succeed on a new connection."""
    return _meaning(error)[0] is Unavailable


def may_have_committed(error: BaseException) -> bool:
    """Return whether a self-committing statement may have been committed although it raised this error.

    It was not committed if the server refused the statement and kept the connection. A server that closes the
    connection, for whatever reason, may do so after the commit.
    """
    return is_lost(error) and getattr(error, "sqlstate", None) not in _REFUSED


def unknown() -> OutcomeUnknown:
    """Return the error for any failure during a commit."""
    return OutcomeUnknown("PostgreSQL did not confirm the commit: the write may or may not have been kept")


def unreachable(error: BaseException, dsn: str) -> HoldfastError:
    """Return our error for a failed attempt to connect.

    For an address that the driver can't parse it is a ValidationError: the driver's own error may quote a
    secret.
    """
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return ValidationError(
            "the address of the PostgreSQL server is not valid: in a user name or a password, write every "
            "character except letters and digits as % and its code, such as %23 for #",
            field="url",
        )
    state = getattr(error, "sqlstate", None) or ""
    if state == "42704":
        return Unsupported(f"PostgreSQL at {server(dsn)} does not know a setting that Holdfast relies on")
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return Unavailable(f"PostgreSQL at {server(dsn)} is a standby and accepts no writes")
    reason = _CONNECTING.get(state[:2], "can't be reached")
    return Unavailable(f"PostgreSQL at {server(dsn)} {reason}")


def server(dsn: str) -> str:
    """Return only host and port of the address: the rest may hold a password."""
    named = masking.hosts(dsn)
    if named:
        return named
    query = parse_qs(dsn.partition("?")[2])
    return ":".join([*query.get("host", ["the default address"])[:1], *query.get("port", [])[:1]])


def _meaning(error: BaseException) -> tuple[type[HoldfastError], str]:
    if isinstance(error, asyncpg.PostgresError):
        if isinstance(error, asyncpg.exceptions.InvalidCachedStatementError):
            return _LOST
        state = error.sqlstate or ""
        return _BY_STATE.get(state, _BY_CLASS.get(state[:2], _DEFECT))
    # The rest includes the errors that the driver raises when the server has closed an idle connection.
    return _LOST
