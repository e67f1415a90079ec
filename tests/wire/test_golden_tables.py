"""What calls on tables and blobs lead to stays what it was, whatever makes it.

`golden_tables.json` holds short digests, taken once and never made anew without a reason: of the command that
a service makes of a request, as its request id is remembered, or the error that refuses it; and of the
messages that a client sends. Messages are compared as objects, since the order of their fields means nothing;
of several writes, only the command counts that the service makes of them. To write the file again:
`python -m tests.wire.test_golden_tables`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import chain, product
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.blobs.commands import VERBS as BLOB_VERBS
from holdfast.blobs.manifest import checksum_of
from holdfast.bus.protocol import Message
from holdfast.commands import WriteCommand
from holdfast.errors import HoldfastError
from holdfast.handles.blobs import Blobs
from holdfast.handles.tables import Tables
from holdfast.tables.commands import VERBS
from holdfast.tables.conditions import attr
from holdfast.tables.updates import if_not_exists
from holdfast.verbs.tables import TableVerbs
from holdfast.wire.blobs import with_data
from holdfast.wire.payload import fields_of
from holdfast.wire.writes import written
from tests.nats import connection, nats_server
from tests.verbs import Verbs
from tests.verbs import made as made_by

GOLDEN = Path(__file__).with_name("golden_tables.json")
Call = tuple[str, str, dict[str, Any]]

ORIGINS: list[dict[str, Any]] = [
    {},
    {"request_id": "r-1"},
    {"request_id": "r-2", "last_writer": "ann", "spec_ref": "doc/1", "fence": {"lock": "l", "token": 3}},
    {"spec_ref": "é", "deadline": 5_000},
]
KEYS: list[dict[str, Any]] = [
    {"partition_key": "a"},
    {"partition_key": "é", "sort_key": 7},
    {"partition_key": 1.0, "sort_key": -2.5},
    {"partition_key": "YQ==", "sort_key": "b"},
]
CONDITIONS: list[Any] = [
    {"score": {"gt": 5}},
    {"a": {"gte": 1, "lt": 2.0}, "b.c[0]": {"eq": None}},
    {"or": [{"x": {"exists": True}}, {"not": {"path": ["y", 0], "begins_with": "é"}}]},
    {"and": [{"t": {"type": "string"}}, {"t": {"size": {"between": [1, 9]}}}, {"t": {"in": ["u", "v"]}}]},
]
EXPECTING: list[dict[str, Any]] = [
    {},
    {"expected_version": 0},
    {"expected_version": 7, "return_values": "old"},
    *({"condition": condition, "return_values": "new"} for condition in CONDITIONS),
    {"return_values": "none"},
]
ITEMS: list[dict[str, Any]] = [
    {"item": {"p": "a"}},
    {"item": {"p": "é\u2028", "s": 1.0, "n": [1, {"a": None}], "m": {"b": 10**25, "a": []}}},
    {"item": {"p": "YQ==", "s": -0.0, "x": True}, "binary": ["p"]},
]
CHANGES: list[dict[str, Any]] = [
    {"set": {"a": 1}},
    {"set": {"a.b[0]": {"x": None}}, "remove": ["c"], "add": {"n": 1.0}},
    {"set": [["a", 1], [["b", 0], "é"]], "remove": [["c", "d"]], "add": [["t", ["u", "v"]]]},
    {"add": {"n": -2}},
]
PARTS: list[dict[str, Any]] = [
    {"put": {"table": "t", "item": {"p": "a"}}},
    {"put": {"table": "u", "item": {"p": "b"}, "binary": ["p"], "condition": CONDITIONS[0]}},
    {"update": {"table": "t", "partition_key": "c", "set": {"a": 1}, "expected_version": 3}},
    {"delete": {"table": "t", "partition_key": "d", "sort_key": 1.0, "return_values": "old"}},
    {"check": {"table": "t", "partition_key": "e", "condition": CONDITIONS[1]}},
]
CHECKSUM = checksum_of(b"bytes")
REFUSED: list[Call] = [
    ("table", "create_table", {}),
    ("table", "create_table", {"table": "t"}),
    ("table", "create_table", {"table": "t/", "partition_key": {"name": "p", "type": "string"}}),
    ("table", "create_table", {"table": "t", "partition_key": "p"}),
    ("table", "create_table", {"table": "t", "partition_key": {"name": "p", "type": "text"}}),
    ("table", "create_table", {"table": "t", "partition_key": {"name": "p", "type": "string"}, "stream": 1}),
    ("table", "drop_table", {}),
    ("table", "drop_table", {"table": 5}),
    ("table", "create_index", {"table": "t"}),
    ("table", "create_index", {"table": "t", "index": "i"}),
    ("table", "create_index", {"table": "t", "index": "", "index_key": {"name": "a", "type": "string"}}),
    ("table", "create_index", {"table": "t", "index": "i", "index_key": 5}),
    ("table", "drop_index", {"table": "t"}),
    ("table", "put_item", {"table": "t"}),
    ("table", "put_item", {"table": "t", "item": 5}),
    ("table", "put_item", {"table": "t", "item": {}, "binary": "p"}),
    ("table", "put_item", {"table": "t", "item": {}, "binary": [5]}),
    ("table", "put_item", {"table": "t", "item": {"p": 1}, "return_values": "both"}),
    ("table", "put_item", {"table": "t", "item": {"p": 1}, "expected_version": -1}),
    ("table", "put_item", {"table": "t", "item": {"p": 1}, "condition": {}}),
    ("table", "put_item", {"table": "t", "item": {"p": 1}, "condition": {"a": {"near": 1}}}),
    ("table", "put_item", {"table": "t", "item": {"p": "x" * 409_600}}),
    ("table", "put_item", {"table": "t", "item": {"p": 1}, "request_id": ""}),
    ("table", "update_item", {"table": "t"}),
    ("table", "update_item", {"table": "t", "partition_key": True, "set": {"a": 1}}),
    ("table", "update_item", {"table": "t", "partition_key": "a", "sort_key": [], "set": {"a": 1}}),
    ("table", "delete_item", {"table": "t"}),
    ("table", "delete_item", {"partition_key": "a"}),
    ("table", "set_ttl", {"table": "t", "partition_key": "a"}),
    ("table", "set_ttl", {"table": "t", "partition_key": "a", "ttl_seconds": 0}),
    ("table", "remove_ttl", {"table": "t"}),
    ("table", "reveal_item", {"table": "t"}),
    ("table", "reveal_item", {"table": "t", "partition_key": "a", "why": 5}),
    ("table", "batch_write_item", {"table": "t"}),
    ("table", "batch_write_item", {"table": "t", "writes": {}}),
    ("table", "batch_write_item", {"table": "t", "writes": [{}] * 1001}),
    ("table", "transact_write", {}),
    ("table", "transact_write", {"writes": 5}),
    ("table", "transact_write", {"writes": [5]}),
    ("table", "transact_write", {"writes": [{}]}),
    ("table", "transact_write", {"writes": [{"put": 5}]}),
    ("table", "transact_write", {"writes": [{"put": {"item": {"p": 1}}}]}),
    ("table", "transact_write", {"writes": [{"put": {"table": "t"}}]}),
    ("table", "transact_write", {"writes": [{"patch": {"table": "t"}}]}),
    ("table", "transact_write", {"writes": [{"put": {}, "check": {}}]}),
    ("blob", "put", {"key": "k"}),
    ("blob", "put", {"data": b""}),
    ("blob", "put", {"key": "", "data": b""}),
    ("blob", "put", {"key": "k", "data": "é"}),
    ("blob", "put", {"key": "k", "data": 5}),
    ("blob", "put", {"key": "k", "data": b"", "checksum": "x"}),
    ("blob", "put", {"key": "k", "data": b"", "checksum": CHECKSUM}),
    ("blob", "put", {"key": "k", "data": b"", "content_type": ""}),
    ("blob", "put", {"key": "k", "data": b"", "metadata": {"a": 1}}),
    ("blob", "put", {"key": "k", "data": b"", "ttl": 5, "keep_ttl": True}),
    ("blob", "put", {"key": "k", "data": b"", "ttl": 5, "ttl_seconds": 6}),
    ("blob", "put", {"key": "k", "data": b"", "ttl": 0}),
    ("blob", "commit", {"key": "k", "size": 1, "checksum": CHECKSUM}),
    ("blob", "commit", {"key": "k", "upload": 1, "checksum": CHECKSUM}),
    ("blob", "commit", {"key": "k", "upload": 1, "size": 1}),
    ("blob", "commit", {"key": "k", "upload": 0, "size": 1, "checksum": CHECKSUM}),
    ("blob", "commit", {"key": "k", "upload": 1, "size": -1, "checksum": CHECKSUM}),
    ("blob", "put_part", {"upload": 1, "number": 0}),
    ("blob", "put_part", {"upload": 1, "data": b"a"}),
    ("blob", "put_part", {"number": 0, "data": b"a"}),
    ("blob", "put_part", {"upload": 1, "number": -1, "data": b"a"}),
    ("blob", "put_part", {"upload": 1, "number": 0, "data": b""}),
    ("blob", "put_part", {"upload": 1, "number": 0, "data": b"a", "checksum": CHECKSUM}),
    ("blob", "abort", {}),
    ("blob", "abort", {"upload": "1"}),
    ("blob", "copy", {"key": "k"}),
    ("blob", "copy", {"source": "", "key": "k"}),
    ("blob", "copy", {"source": "s"}),
    ("blob", "copy", {"source": "s", "key": "k", "keep_ttl": True}),
]
"""Calls that are refused. Their error is part of the file, too."""


def calls() -> Iterator[Call]:
    """Yield calls of all verbs that write items or blobs, as a service receives them."""
    key = {"name": "p", "type": "string"}
    definitions: list[dict[str, Any]] = [
        {},
        {"sort_key": {"name": "s", "type": "number"}},
        {"ttl_attribute": "e", "stream": "keys"},
        {"sort_key": {"name": "s", "type": "binary"}, "stream": "both"},
    ]
    for number, definition in enumerate(definitions):
        yield "table", "create_table", {"table": "t", "partition_key": key, **definition, **ORIGINS[number]}
    for origin in ORIGINS:
        yield "table", "drop_table", {"table": "t.-_9", **origin}
        yield "table", "create_index", {"table": "t", "index": "by", "index_key": key, **origin}
        yield "table", "drop_index", {"table": "t", "index": "by", **origin}
    for number, (item, expecting) in enumerate(product(ITEMS, EXPECTING)):
        yield "table", "put_item", {"table": "t", **item, **expecting, **ORIGINS[number % 4]}
    for number, (changes, expecting) in enumerate(product(CHANGES, EXPECTING)):
        fields = {"table": "t", **KEYS[number % 4], **changes, **expecting, **ORIGINS[number // 3 % 4]}
        yield "table", "update_item", fields
    for number, (named, expecting) in enumerate(product(KEYS, EXPECTING)):
        fields = {"table": "t", **named, **expecting, **ORIGINS[number // 2 % 4]}
        yield "table", ("delete_item", "remove_ttl")[number % 2], fields
        yield "table", "set_ttl", {**fields, "ttl_seconds": number + 1}
    yield "table", "reveal_item", {"table": "t", **KEYS[0]}
    yield "table", "reveal_item", {"table": "t", **KEYS[1], "why": "a reason", "last_writer": "ann"}
    for number in range(len(PARTS)):
        origin = ORIGINS[number % 4]
        yield "table", "transact_write", {"writes": PARTS[number:] + PARTS[:number], **origin}
        yield "table", "transact_write", {"writes": [PARTS[number]], **origin}
        independent = [part for part in PARTS[: number + 1] if "put" in part or "delete" in part]
        yield "table", "batch_write_item", {"writes": independent, **origin}
    bare = [{"put": {"item": {"p": 1}}}, {"delete": {"partition_key": 2, "table": "u"}}]
    yield "table", "batch_write_item", {"table": "t", "writes": bare}
    yield "table", "transact_write", {"table": "t", "writes": bare}
    odd = [*bare, 5, {}, {"put": {}}, {"put": None}, {"update": {}}, {"put": {"item": None}}]
    yield "table", "batch_write_item", {"table": "t", "writes": odd, "request_id": "r"}
    yield "table", "batch_write_item", {"table": "t", "writes": []}
    abouts: list[dict[str, Any]] = [
        {},
        {"content_type": "image/png", "metadata": {"a": "é"}},
        {"ttl": 5, "expected_version": 0},
        {"ttl_seconds": 6, "metadata": {}},
        {"keep_ttl": True, "expected_version": 7, "envelope": True},
    ]
    for number, about in enumerate(abouts):
        origin = ORIGINS[number % 4]
        yield "blob", "put", {"key": "k", "data": b"bytes", **about, **origin}
        yield "blob", "put", {"key": "é", "data": "Ynl0ZXM=", "checksum": CHECKSUM, **about, **origin}
        yield (
            "blob",
            "commit",
            {"key": "k", "upload": 3, "size": 5, "checksum": CHECKSUM, **about, **origin},
        )
        if "keep_ttl" not in about:
            lived = {name: about[name] for name in about if name not in ("content_type", "metadata")}
            yield "blob", "copy", {"source": "s", "key": "k", **lived, **origin}
    for origin in ORIGINS:
        yield "blob", "begin", origin
        yield "blob", "put_part", {"upload": 3, "number": 0, "data": b"bytes", **origin}
        yield (
            "blob",
            "put_part",
            {"upload": 3, "number": 9, "data": b"bytes", "checksum": CHECKSUM, **origin},
        )
        yield "blob", "abort", {"upload": 3, **origin}


PROVENANCE: list[dict[str, Any]] = [
    {},
    {"request_id": "r", "writer": "w", "spec_ref": "é", "fence": {"lock": "l", "token": 3}},
]
WHERE = attr("a").gt(1) & ~attr("b.c").exists() | attr("d").begins_with("é")
WALKS: list[dict[str, Any]] = [
    {},
    {"filter": WHERE, "projection": ["a", "b.c[0]"], "limit": 5, "reverse": True},
]


def table_messages(tables: Tables) -> Iterator[tuple[str, Callable[[], Awaitable[Any]]]]:
    """Yield calls of a handle on tables, each with a name."""
    for number, given in enumerate(PROVENANCE):
        yield (
            f"create_table {number}",
            lambda given=given: tables.create_table(  # type: ignore[misc]
                "t", partition_key=("p", "string"), sort_key=("s", "number"), ttl_attribute="e", **given
            ),
        )
        yield f"drop_table {number}", lambda given=given: tables.drop_table("t", **given)  # type: ignore[misc]
        yield (
            f"create_index {number}",
            lambda given=given: tables.create_index("t", "by", key=("p", "binary"), **given),  # type: ignore[misc]
        )
        yield f"drop_index {number}", lambda given=given: tables.drop_index("t", "by", **given)  # type: ignore[misc]
        expecting = given | ({} if number == 0 else {"condition": WHERE, "expected_version": 7})
        for returns in ("new", "old", "none"):
            options = expecting | {"return_values": returns}
            yield (
                f"put_item {number} {returns}",
                lambda options=options: tables.put_item("t", {"p": b"a", "s": 1.0}, **options),  # type: ignore[misc]
            )
            yield (
                f"update_item {number} {returns}",
                lambda options=options: tables.update_item(  # type: ignore[misc]
                    "t", "a", 7, set={"a": if_not_exists(1)}, remove=["b"], add={"c": 2}, **options
                ),
            )
            if returns != "new":
                yield (
                    f"delete_item {number} {returns}",
                    lambda options=options: tables.delete_item("t", b"a", **options),  # type: ignore[misc]
                )
        yield f"set_ttl {number}", lambda given=expecting: tables.set_ttl("t", "a", 7, 5, **given)  # type: ignore[misc]
        yield f"remove_ttl {number}", lambda given=expecting: tables.remove_ttl("t", "a", **given)  # type: ignore[misc]
        writes = [
            {"put": {"item": {"p": b"a"}, "condition": WHERE}},
            {"delete": {"partition_key": b"b", "sort_key": 1, "expected_version": 3}},
        ]
        yield (
            f"several {number} batch_write_item",
            lambda given=given, writes=writes: tables.batch_write_item("t", writes, **given),  # type: ignore[misc]
        )
        several = [
            {"put": {"table": "t", "item": {"p": b"a"}, "condition": {"a": {"gt": 1, "lt": 3}}}},
            {"update": {"table": "u", "partition_key": "b", "set": {"x": if_not_exists(1)}}},
            {"delete": {"table": "t", "partition_key": "c"}},
            {"check": {"table": "t", "partition_key": "d", "condition": WHERE}},
        ]
        yield (
            f"several {number} transact_write",
            lambda given=given, writes=several: tables.transact_write(writes, **given),  # type: ignore[misc]
        )
        walk = WALKS[number]
        yield f"query {number}", lambda walk=walk: tables.query("t", "a", sk={"gte": b"a"}, **walk)  # type: ignore[misc]
        yield f"scan {number}", lambda walk=walk: tables.scan("t", **walk)  # type: ignore[misc]
        yield f"query_index {number}", lambda walk=walk: tables.query_index("t", "by", b"a", **walk)  # type: ignore[misc]
    yield "get_item 0", lambda: tables.get_item("t", "a")
    yield "get_item 1", lambda: tables.get_item("t", b"a", 7, projection=["a", "b.c[0]"])
    yield "reveal_item 0", lambda: tables.reveal_item("t", "a")
    yield "reveal_item 1", lambda: tables.reveal_item("t", "a", 7, why="a reason", writer="ann")
    yield "batch_get_item", lambda: tables.batch_get_item("t", [("a", 1), ("b", b"c")])
    yield "get_ttl", lambda: tables.get_ttl("t", "a", 7)
    yield "describe_table", lambda: tables.describe_table("t")
    yield "list_tables", tables.list_tables
    yield "check_index", lambda: tables.check_index("t", "by")
    yield "sweep_expired_ttl", lambda: tables.sweep_expired_ttl("t")
    yield "changes 0", lambda: tables.changes("t")
    yield "changes 1", lambda: tables.changes("t", 5, limit=9, view="both")


def blob_messages(blobs: Blobs) -> Iterator[tuple[str, Callable[[], Awaitable[Any]]]]:
    """Yield calls of a handle on blobs, each with a name."""
    about: list[dict[str, Any]] = [
        {},
        {"content_type": "image/png", "metadata": {"a": "é"}, "ttl": 5, "expected_version": 7},
        {"ttl": holdfast.KEEP},
    ]
    for number, given in enumerate(about):
        options = given | PROVENANCE[number % 2]
        yield f"put {number}", lambda options=options: blobs.put("k", b"bytes", **options)  # type: ignore[misc]
    for number, given in enumerate(PROVENANCE):
        yield f"begin {number}", lambda given=given: blobs.put("k", b"x" * 300_000, **given)  # type: ignore[misc]
        yield f"copy {number}", lambda given=given: blobs.copy("s", "k", **given)  # type: ignore[misc]
        yield f"delete {number}", lambda given=given: blobs.delete("k", **given)  # type: ignore[misc]
        yield f"set_ttl {number}", lambda given=given: blobs.set_ttl("k", 5, **given)  # type: ignore[misc]
    yield "copy 2", lambda: blobs.copy("s", "k", ttl=5, expected_version=7)
    yield "head", lambda: blobs.head("k")
    yield "reveal", lambda: blobs.reveal("k", why="a reason", writer="ann")


def _verbs(namespace: str) -> Verbs:
    return Verbs(namespace, writer="trivia", new_id=lambda: "made-1", now=lambda: 0, principal="open:t")


def command_of(
    family: str, verb: str, fields: dict[str, Any]
) -> WriteCommand | tuple[WriteCommand, list[str]]:
    """Return the command that a service makes of a call and, of independent writes, the errors of others."""
    caller = _verbs(f"{family}/trivia")
    if family == "blob":
        declaration = BLOB_VERBS[verb]
        message = declaration.of_fields(fields)
        command = written(declaration, caller, message, fields.get("deadline")).command
        assert command is not None
        return command
    made = made_by(TableVerbs(caller), VERBS[verb], fields)
    if isinstance(made, tuple):
        command, several = made
        return command, [f"{at} {_refusal(error)}" for at, error in several.refused.items()]
    return made  # type: ignore[no-any-return]


def _refusal(error: HoldfastError) -> str:
    return f"{error.code} {error.field}: {error.message}"


def _short(data: bytes) -> str:
    return blake2b(data, digest_size=6).hexdigest()


def fingerprint(family: str, verb: str, fields: dict[str, Any]) -> str:
    """Return the digest of the command of a call, or the error that refuses it."""
    try:
        made = command_of(family, verb, fields)
    except HoldfastError as error:
        return _refusal(error)
    if isinstance(made, tuple):
        return f"{_short(msgspec.json.encode(made[0].asked))} {made[1]}"
    return _short(msgspec.json.encode(made.asked))


def _name(call: Call) -> str:
    family, verb, fields = call
    text = msgspec.json.encode(fields).decode()
    return f"{family} {verb} {text if len(text) < 1000 else _short(text.encode())}"


async def sent() -> dict[str, str]:
    """Return digests of the messages of a client, each by the name of its call."""
    heard: asyncio.Queue[Message] = asyncio.Queue()
    refusal = {"success": False, "error": "no", "error_code": "VALIDATION_ERROR"}
    found: dict[str, str] = {}
    async with nats_server() as server, connection(server.url) as service:

        def take(message: Message) -> None:
            heard.put_nowait(message)
            service.send(message.reply, json.dumps(refusal).encode())

        for family in ("table", "blob"):
            service.listen(f"db.{family}.trivia.*", take)
        await service.flush()
        async with holdfast.open(server.url) as store:
            tables, blobs = store.tables("trivia"), store.blobs("trivia")
            for name, call in chain(table_messages(tables), blob_messages(blobs)):
                with suppress(HoldfastError):
                    await call()
                message = await asyncio.wait_for(heard.get(), 60)
                found[f"{message.subject} {name}"] = _message(name, message)
                assert heard.empty(), name
    return found


def _message(name: str, message: Message) -> str:
    _, family, _, verb = message.subject.split(".")
    fields = with_data(message.head, message.data)
    del fields["deadline"]
    if name.startswith("several"):
        return fingerprint(family, verb, fields)
    return f"{verb} {_short(json.dumps(_plain(fields), sort_keys=True).encode())}"


def _plain(fields: dict[str, Any]) -> Any:
    return fields_of(msgspec.json.encode(fields))


def _golden() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("verb", sorted({call[:2] for call in chain(calls(), REFUSED)}), ids=" ".join)
def test_commands_of_requests_stay_the_same(verb: tuple[str, str]) -> None:
    """What is remembered of a request, and the error that refuses one, are those of the file."""
    golden = _golden()["commands"]
    for call in chain(calls(), REFUSED):
        if call[:2] == verb:
            assert fingerprint(*call) == golden[_name(call)], _name(call)


def test_every_call_of_the_file_is_compared() -> None:
    """No digest is left in the file that nothing is compared with."""
    assert set(_golden()["commands"]) == {_name(call) for call in chain(calls(), REFUSED)}


async def test_messages_of_a_client_stay_the_same() -> None:
    """A client sends the messages of the file."""
    assert await sent() == _golden()["messages"]


def _write_golden() -> None:
    """Take the digests anew."""
    commands = {_name(call): fingerprint(*call) for call in chain(calls(), REFUSED)}
    found = {"commands": commands, "messages": asyncio.run(sent())}
    GOLDEN.write_text(json.dumps(found, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _write_golden()
