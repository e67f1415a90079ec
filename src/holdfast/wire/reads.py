"""Calls of the verbs that read keys, on both sides of the wire.

A service makes the command of a message, has it answered and shows the result; a client sends the message of
a command and reads the result from the reply. There is one pair of functions for each kind of reply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from holdfast.commands import Command, Done, Got, Listed, Measured, Present, Records, Remaining, Result, Rows
from holdfast.cursors import cursor_after, last_seen
from holdfast.declare import Declaration
from holdfast.errors import HoldfastError
from holdfast.model import Policy, Stats
from holdfast.pace import in_turns
from holdfast.replies import (
    ChangesReply,
    DeletePrefixReply,
    EntryReply,
    ExistsReply,
    GetManyReply,
    GetTtlReply,
    HistoryReply,
    ListReply,
    ReadyReply,
    StatsReply,
)
from holdfast.rows import Row
from holdfast.verbs.caller import NamespaceCaller
from holdfast.verbs.fields import Several
from holdfast.wire.errors import error_fields, error_of
from holdfast.wire.replies import (
    default_fields,
    record_fields,
    record_of,
    row_fields,
    row_of,
    stats_fields,
)


class ReadCodec(msgspec.Struct, frozen=True):
    """How the reply to a read is made and read.

    Args:
        show: Takes a command, its result and, where keys are judged one by one, those; returns the fields of
            the reply. It is awaited, since a page may be large.
        read: Takes the command and the fields of its reply, and returns the result.
    """

    show: Callable[[Any, Any, Any], Awaitable[dict[str, Any]]]
    read: Callable[[Any, Mapping[str, Any]], Any]


async def reply_to(
    declaration: Declaration,
    call: Callable[[Command], Awaitable[Result]],
    caller: NamespaceCaller,
    message: Any,
    deadline: int | None,
) -> dict[str, Any]:
    """Return the fields of the reply to a message that reads.

    Args:
        declaration: The verb.
        call: Executes a command.
        caller: Who sent the message.
        message: The message.
        deadline: The deadline that the service computed.
    """
    made = declaration.make(caller, message, declaration.origin_of(caller, message, deadline))
    command, several = made if declaration.several else (made, None)
    return await READS[declaration.reply].show(command, await call(command), several)


async def _show_entry(command: Any, result: Got, several: None) -> dict[str, Any]:
    return row_fields(command.key, result.row)


def _read_entry(command: Any, reply: Mapping[str, Any]) -> Got:
    return Got(row_of(reply) if reply["exists"] else None)


async def _show_entries(command: Any, result: Rows, several: Several[str]) -> dict[str, Any]:
    pairs = list(zip(command.keys, result.rows, strict=True))
    results = await in_turns(lambda pair: _member(*pair), pairs, _size)
    return {
        "results": [
            {"success": False, **error_fields(one)} if isinstance(one, HoldfastError) else one
            for one in several.merge(results)
        ]
    }


def _member(key: str, row: Row | HoldfastError | None) -> dict[str, Any]:
    try:
        if isinstance(row, HoldfastError):
            raise row
        return {"success": True, **row_fields(key, row)}
    except HoldfastError as error:
        return {"success": False, **error_fields(error)}


def _size(pair: tuple[str, Row | HoldfastError | None]) -> int:
    row = pair[1]
    return len(row.value or "") if isinstance(row, Row) else 0


def _read_entries(command: Any, reply: Mapping[str, Any]) -> Rows:
    return Rows(
        [
            (row_of(member) if member["exists"] else None) if member["success"] else error_of(member)
            for member in reply["results"]
        ]
    )


async def _show_exists(command: Any, result: Present, several: None) -> dict[str, Any]:
    return {"exists": result.exists}


async def _show_remaining(command: Any, result: Remaining, several: None) -> dict[str, Any]:
    return {"ttl": result.seconds}


def _read_remaining(command: Any, reply: Mapping[str, Any]) -> Remaining:
    return Remaining(reply["ttl"])


async def _show_page(command: Any, result: Listed, several: None) -> dict[str, Any]:
    return {
        "keys": result.keys,
        "count": len(result.keys),
        "truncated": result.last is not None,
        "cursor": None if result.last is None else cursor_after(result.last),
    }


async def _show_listed(command: Any, result: Listed, several: None) -> dict[str, Any]:
    fields = await _show_page(command, result, several)
    if command.values:
        pairs = list(zip(result.keys, result.rows, strict=True))
        fields["entries"] = await in_turns(lambda pair: {"key": pair[0], **row_fields(*pair)}, pairs, _size)
    return fields


def _read_page(command: Any, reply: Mapping[str, Any]) -> Listed:
    cursor = reply["cursor"]
    return Listed(
        reply["keys"],
        [row_of(entry) for entry in reply.get("entries", ())],
        None if cursor is None else last_seen(cursor, command.prefix),
    )


async def _show_changes(command: Any, result: Records, several: None) -> dict[str, Any]:
    """Show the changes and the bounds of the journal, which a client needs to continue without a gap."""
    fields: dict[str, Any] = {
        "changes": await in_turns(record_fields, result.records),
        "next": result.next,
        "gap": result.gap,
    }
    if result.oldest is not None:
        fields["oldest"] = result.oldest
    return fields | {"floor": result.floor, "head": result.head, "epoch": result.epoch}


def _read_changes(command: Any, reply: Mapping[str, Any]) -> Records:
    return Records(
        [record_of(command.namespace, change) for change in reply["changes"]],
        next=reply["next"],
        gap=reply["gap"],
        floor=reply["floor"],
        head=reply["head"],
        epoch=reply["epoch"],
    )


async def _show_history(command: Any, result: Records, several: None) -> dict[str, Any]:
    return {"changes": await in_turns(record_fields, result.records)}


def _read_history(command: Any, reply: Mapping[str, Any]) -> Records:
    return Records([record_of(command.namespace, change) for change in reply["changes"]])


async def _show_ready(command: Any, result: Done, several: None) -> dict[str, Any]:
    return {"ready": True}


async def _show_stats(command: Any, result: Measured, several: None) -> dict[str, Any]:
    return stats_fields(result.stats) | {
        "policy": msgspec.structs.asdict(result.policy),
        "defaults": default_fields(result.defaults),
    }


def _read_stats(command: Any, reply: Mapping[str, Any]) -> Measured:
    """Read the reply to `stats`. A service of an earlier version sends fewer fields."""
    return Measured(
        stats=msgspec.convert(reply, Stats),
        policy=msgspec.convert(reply.get("policy", {}), Policy),
        defaults=msgspec.convert(reply.get("defaults", {}), Policy),
    )


READS: Final[Mapping[Any, ReadCodec]] = {
    EntryReply: ReadCodec(_show_entry, _read_entry),
    GetManyReply: ReadCodec(_show_entries, _read_entries),
    ExistsReply: ReadCodec(_show_exists, lambda command, reply: Present(reply["exists"])),
    GetTtlReply: ReadCodec(_show_remaining, _read_remaining),
    ListReply: ReadCodec(_show_listed, _read_page),
    DeletePrefixReply: ReadCodec(_show_page, _read_page),
    ChangesReply: ReadCodec(_show_changes, _read_changes),
    HistoryReply: ReadCodec(_show_history, _read_history),
    ReadyReply: ReadCodec(_show_ready, lambda command, reply: Done()),
    StatsReply: ReadCodec(_show_stats, _read_stats),
}
"""How each kind of reply to a read is made and read."""
