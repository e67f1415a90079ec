"""Log lines about commands, written after they have taken effect.

Logs name namespaces, keys, versions and request ids, never values. A conflict (a lost race) is a WARNING, and
so is a request that was given up. A write of the semantic family is an INFO line with its directive, and so
is the expiry of an entry that has semantics. A defect is an ERROR. A repeated request is logged as a replay,
never as a second write.

Each line also carries its contents as fields, for logs that are read by programs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import UnsetType

from holdfast import rules
from holdfast.commands import (
    Append,
    Batch,
    Command,
    Deleted,
    Guard,
    KeyChange,
    LetterStored,
    Result,
    Set,
    Stored,
    Versions,
    WriteCommand,
)
from holdfast.errors import Defect, HoldfastError, VersionConflict, peek
from holdfast.families import is_semantic, owner
from holdfast.letter_commands import Escalate
from holdfast.rows import Record
from holdfast.stored import purpose_of

_log = logging.getLogger("holdfast.writes")
_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def report(command: Command, result: Result | Exception) -> None:
    """Log the result of a command."""
    if isinstance(result, HoldfastError):
        _report_error(command, result)
    elif command.parts is not None:
        for part, outcome in zip(command.parts, getattr(result, "items", ()), strict=True):
            report(part, outcome)
    elif isinstance(command, Escalate) and isinstance(result, LetterStored) and not result.replayed:
        _report_letter(command, result.number)
    elif is_semantic(command.namespace) and isinstance(command, WriteCommand):
        replayed = not isinstance(result, Exception) and result.replayed
        for change, key, version, purpose in _written(command, result):
            _report_write(command, change, key, version, purpose, replayed=replayed)


def report_expired(journal: Sequence[Record]) -> None:
    """Log each entry that a commit expired, if it belongs to the semantic family or has semantics."""
    for record in journal:
        if record.op == "expired" and (record.purpose or is_semantic(record.namespace)):
            _report_expired(record)


def _report_expired(record: Record) -> None:
    fields = {
        "namespace": record.namespace,
        "operation": "expired",
        "key": record.key,
        "purpose": record.purpose,
        "last_writer": record.last_writer,
        "lag_ms": record.lag_ms,
        "version": record.version,
    }
    shown = _pairs(fields, "key", "purpose", "last_writer", "lag_ms", "version")
    _log.info("expired %s", shown, extra=fields)


def _report_error(command: Command, error: HoldfastError) -> None:
    fields = _fields_of(command) | {"code": error.code, "field": error.field}
    if isinstance(error, VersionConflict):
        _log.warning(
            "conflict in %s, request %s: %s",
            command.namespace,
            fields.get("request_id"),
            error.message,
            extra=fields | _met(command, error),
        )
    elif isinstance(error, Defect):
        _log.error(
            "%s in %s, request %s: %s",
            error.code,
            command.namespace,
            fields.get("request_id"),
            error.message,
            exc_info=error,
            extra=fields,
        )


def _report_letter(command: Escalate, number: int) -> None:
    _log.warning(
        "gave up in %s, request %s: %s after %d attempts, stored as dead letter %d",
        command.namespace,
        command.request,
        command.code,
        command.attempts,
        number,
        extra=_fields_of(command) | {"request_id": command.request},
    )


def _fields_of(command: Command) -> dict[str, Any]:
    """Return the log fields that identify a command and its writer."""
    verb = _CAPITAL.sub("_", type(command).__name__).lower()
    plugin = owner(command.namespace)
    fields = {"namespace": command.namespace, "plugin": plugin, "operation": verb, "verb": verb}
    if not isinstance(command, WriteCommand):
        return fields
    writer = command.origin.writer
    return fields | {
        "directive": writer.partition(":")[2] or writer,
        "last_writer": writer,
        "request_id": command.origin.request_id,
        **({} if isinstance(command.origin.trace, UnsetType) else command.origin.trace.fields),
    }


def _met(command: Command, error: VersionConflict) -> dict[str, Any]:
    """Return the log fields of what a command met when it lost a race: keys, and the current version."""
    if conflicts := peek(error, "conflicts"):
        return {"keys": [conflict.key for conflict in conflicts]}
    table = getattr(command, "table", None)
    met = peek(error, "current" if table is None else "item")
    version = None if met is None else met.version
    if table is not None:
        return {"table": table, "version": version}
    return {"key": command.key if isinstance(command, KeyChange) else None, "version": version}


def _written(
    command: WriteCommand, result: Result | Exception
) -> Iterator[tuple[KeyChange | Append, str, int, str | None]]:
    """Yield the changes that a command made, each with its key and version and the purpose of the entry."""
    match command, result:
        case KeyChange() | Append(), Stored():
            yield command, result.key, result.row.version, purpose_of(result.row.semantics)
        case KeyChange(), Deleted(version=int(version)):
            yield command, command.key, version, result.purpose
        case Batch(), Versions():
            numbers = result.numbers or (None,) * len(result.versions)
            for write, made, purpose, number in zip(
                command.writes, result.versions, result.purposes, numbers, strict=True
            ):
                if made is None or isinstance(write, Guard):
                    continue
                if isinstance(write, Append):
                    assert number is not None
                    yield write, rules.item_key(write.name, number), made, purpose
                else:
                    yield write, write.key, made, purpose
        case _:
            return


def _report_write(
    command: WriteCommand,
    change: KeyChange | Append,
    key: str,
    version: int,
    purpose: str | None,
    *,
    replayed: bool,
) -> None:
    if not _log.isEnabledFor(logging.INFO):
        return
    about = {"key": key, "purpose": purpose, "version": version, "replayed": replayed}
    fields = _fields_of(command) | about
    if isinstance(change, Set | Append):
        fields["ttl"] = change.ttl
    _log.info(
        "%s%s %s",
        "replayed " if replayed else "",
        fields["operation"],
        _pairs(fields, "directive", "key", "purpose", "ttl", "request_id", "version"),
        extra=fields,
    )


def _pairs(fields: dict[str, Any], *names: str) -> str:
    """Return fields as text for people, without those that have no value."""
    return " ".join(f"{name}={fields[name]}" for name in names if fields.get(name) is not None)
