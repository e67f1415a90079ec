"""What the log tells of a command, after it has taken effect.

Law: logs name namespaces, keys, versions and request ids, never values. A conflict is a WARNING, since
somebody lost a race; a write of the semantic family is an INFO line with its directive; a defect is an ERROR.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.commands import Change, Deleted, KeyChange, Stored
from holdfast.decide.keys import purpose_of
from holdfast.errors import Defect, HoldfastError, VersionConflict

if TYPE_CHECKING:
    from holdfast.commands import Command, Result

_log = logging.getLogger("holdfast.writes")


def report(command: Command, result: Result | HoldfastError) -> None:
    """Log what became of a command."""
    if isinstance(result, HoldfastError):
        _report_error(command, result)
    elif command.namespace.startswith("semantic/") and isinstance(command, KeyChange):
        _report_write(command, result)


def _report_error(command: Command, error: HoldfastError) -> None:
    request_id = command.origin.request_id if isinstance(command, Change) else None
    if isinstance(error, VersionConflict):
        _log.warning("conflict in %s, request %s: %s", command.namespace, request_id, error.message)
    elif isinstance(error, Defect):
        _log.error(
            "%s in %s, request %s: %s",
            error.code,
            command.namespace,
            request_id,
            error.message,
            exc_info=error,
        )


def _report_write(command: KeyChange, result: Result) -> None:
    if isinstance(result, Stored):
        version, purpose = result.row.version, purpose_of(result.row.semantics)
    elif isinstance(result, Deleted) and result.version is not None:
        version, purpose = result.version, None
    else:
        return
    _log.info(
        "%s directive=%s key=%s purpose=%s request_id=%s version=%d",
        type(command).__name__.lower(),
        command.origin.writer.partition(":")[2] or command.origin.writer,
        command.key,
        purpose,
        command.origin.request_id,
        version,
    )
