"""Commits that PostgreSQL confirms although no standby has them.

A commit that waits for a synchronous standby can be told to stop waiting, by `pg_cancel_backend` or a
timeout. The server then keeps the commit for itself, sends a warning and confirms. If it fails over now, the
commit is lost, so its caller must not be told that it was kept.

Law: such a warning is recognized by the function of the server that sends it, never by its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

from holdfast.engines.postgres.errors import unknown

if TYPE_CHECKING:
    import asyncpg

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

_WAITING: Final = "SyncRepWaitForLSN"
_doubted: Final[WeakSet[Connection]] = WeakSet()


def heed(connection: Connection) -> None:
    """Listen to the warnings of a connection."""
    connection.add_log_listener(_warned)


def require_replicated(connection: Connection) -> None:
    """Check that the server has not stopped waiting for a standby. Call this after each commit.

    Raises:
        OutcomeUnknown: It has: the commit is kept unless another server takes over.
    """
    if _doubted and connection in _doubted:
        raise unknown()


def _warned(connection: Any, message: asyncpg.PostgresLogMessage) -> None:
    # The driver schedules this call before it hands over the answer that follows the warning.
    if getattr(message, "server_source_function", None) == _WAITING:
        _doubted.add(connection)
