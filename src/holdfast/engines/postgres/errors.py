"""What the driver's errors mean to Holdfast.

Law: the only translator of this engine. It goes by the type of an error and its SQLSTATE, never by its text,
and no text of the driver's becomes part of a message; the original is chained for the log.
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
"""Everything that the driver raises on its own account; timeouts are among the OSErrors."""

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
}
_REFUSED: Final = ("0A000", "25006")
"""States of errors that come before a statement has done anything; another connection may do."""
_BY_CLASS: Final[dict[str, tuple[type[HoldfastError], str]]] = {"08": _LOST}
_DEFECT: Final = (DatabaseError, "PostgreSQL failed to do what was asked")

_CONNECTING: Final = {
    "28": "refuses the login",
    "3D": "has no such database",
    "53": "has no connection left",
    "57": "is starting or stopping",
}


def translate(error: BaseException) -> HoldfastError:
    """The error of ours for one that ended a statement before its transaction was to be committed."""
    kind, sentence = _meaning(error)
    return kind(sentence)


def is_lost(error: BaseException) -> bool:
    """Whether the same statement may well succeed on a new connection."""
    return _meaning(error)[0] is Unavailable


def may_have_committed(error: BaseException) -> bool:
    """Whether a statement that is a transaction of its own may have been kept although it ended so.

    It was not if the server refused it and goes on. A server that takes its leave, for whatever reason, may
    do so after the commit.
    """
    return is_lost(error) and getattr(error, "sqlstate", None) not in _REFUSED


def unknown() -> OutcomeUnknown:
    """The error for whatever went wrong while a transaction was being committed."""
    return OutcomeUnknown("PostgreSQL did not confirm the commit: the write may or may not have been kept")


def unreachable(error: BaseException, dsn: str) -> HoldfastError:
    """The error of ours for one that came instead of a connection.

    It is a ValidationError for an address that the driver can't read, whose own error may quote a secret.
    """
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return ValidationError(
            "the address of the PostgreSQL server is not a legal one: in a user or a password, write what is "
            "no letter or digit as % and its code, such as %23 for #",
            field="url",
        )
    state = getattr(error, "sqlstate", None) or ""
    if state == "42704":
        return Unsupported(f"PostgreSQL at {server(dsn)} does not know a setting that Holdfast relies on")
    reason = _CONNECTING.get(state[:2], "can't be reached")
    return Unavailable(f"PostgreSQL at {server(dsn)} {reason}")


def server(dsn: str) -> str:
    """Host and port as the address gives them, and nothing else of it: it may hold a password."""
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
    # Among the rest is the driver's surprise at a connection that the server took leave of while it was idle.
    return _LOST
