"""What is stored or sent because of a write stays what it was, byte for byte, whatever makes it.

`golden.json` holds short digests, taken once and never made anew without a reason: a remembered request, a
group that a node forwards, and a dead letter are read by other versions of Holdfast, and a client's message
by any of them. To write the file again: `python -m tests.wire.test_golden`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from itertools import chain, product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.commands import WriteCommand
from holdfast.declare import DECLARED
from holdfast.engines.cluster.forwarding import can_carry, group_as_bytes
from holdfast.errors import HoldfastError
from holdfast.letter_commands import Escalate
from holdfast.wire.payload import fields_of
from holdfast.wire.writes import Write, message_of, write_of, written
from tests.verbs import Verbs

GOLDEN = Path(__file__).with_name("golden.json")

ORIGINS: list[dict[str, Any]] = [
    {},
    {"request_id": "r-1"},
    {"request_id": "r-2", "last_writer": "ann", "spec_ref": "doc/1", "fence": {"lock": "l", "token": 3}},
    {"spec_ref": "é", "deadline": 5_000},
]
VALUES: list[Any] = [None, 0, 1, 1.0, -0.0, True, "é\u2028", [1, {"a": None}], {"b": 10**25, "a": []}]
MEANINGS: list[Any] = [
    {"purpose": "x"},
    {"purpose": "y", "producer": "p", "consumer_hints": ["a", "b"]},
    {"ttl_seconds": 9},
    {},
]
TTLS: list[dict[str, Any]] = [{}, {"ttl": 5}, {"ttl_seconds": 6}, {"ttl": 7, "ttl_seconds": 7}]
VERSIONS: list[dict[str, Any]] = [{}, {"expected_version": 0}, {"expected_version": 7}]
PARTS: list[dict[str, Any]] = [
    {"key": "a", "value": None},
    {"key": "b", "value": {"x": 1.0}, "ttl": 4, "semantics": {"purpose": "x"}},
    {"key": "c", "value": 2, "keep_ttl": True},
    {"key": "d", "incr": 1.0, "ttl": 4},
    {"key": "e", "incr": -2, "only_if_exists": True},
    {"key": "f", "incr": 2, "only_if_exists": False, "ttl_seconds": 8},
    {"key": "g", "delete": True},
    {"guard": "lock é"},
]
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("set", {}),
    ("set", {"value": 1}),
    ("set", {"key": "k"}),
    ("set", {"key": "", "value": 1}),
    ("set", {"key": 5, "value": 1}),
    ("set", {"key": "k", "value": 1, "ttl": 0}),
    ("set", {"key": "k", "value": 1, "ttl": "5"}),
    ("set", {"key": "k", "value": 1, "ttl": 5, "ttl_seconds": 6}),
    ("set", {"key": "k", "value": 1, "ttl": 5, "keep_ttl": True}),
    ("set", {"key": "k", "value": 1, "keep_ttl": 1}),
    ("set", {"key": "k", "value": 1, "ttl": 5, "semantics": {"ttl_seconds": 6}}),
    ("set", {"key": "k", "value": 1, "keep_ttl": True, "semantics": {"ttl_seconds": 6}}),
    ("set", {"key": "k", "value": 1, "semantics": []}),
    ("set", {"key": "k", "value": 1, "expected_version": -1}),
    ("set", {"key": "k", "value": 1, "request_id": ""}),
    ("set", {"key": "k", "value": 1, "fence": {"lock": "l"}}),
    ("incr", {"key": "k", "by": "x"}),
    ("incr", {"key": "k", "by": True}),
    ("incr", {"key": "k", "only_if_exists": 1}),
    ("incr", {"key": "k", "keep_ttl": True}),
    ("append", {"value": 1}),
    ("append", {"name": "log"}),
    ("append", {"name": "", "value": 1}),
    ("append", {"name": "log", "value": 1, "keep": 0}),
    ("append", {"name": "log", "value": 1, "keep_ttl": True}),
    ("delete", {}),
    ("set_ttl", {"key": "k"}),
    ("set_ttl", {"key": "k", "ttl_seconds": "x"}),
    ("set_ttl", {"key": "k", "keep_ttl": True}),
    ("touch", {"key": "k"}),
    ("touch", {"key": "k", "ttl": 0}),
    ("touch", {"ttl_seconds": 5}),
    ("remove_ttl", {}),
    ("restore", {"key": "k", "ttl": -1}),
    ("batch", {}),
    ("batch", {"writes": 5}),
    ("batch", {"writes": [5]}),
    ("batch", {"writes": [{}]}),
    ("batch", {"writes": [{"key": "a"}]}),
    ("batch", {"writes": [{"key": None, "value": 1}]}),
    ("batch", {"writes": [{"value": 1}]}),
    ("batch", {"writes": [{"key": "a", "value": 1, "incr": 2}]}),
    ("batch", {"writes": [{"key": "a", "delete": False}]}),
    ("batch", {"writes": [{"key": "a", "incr": None}]}),
    ("batch", {"writes": [{"key": "a", "incr": 1, "only_if_exists": None}]}),
    ("batch", {"writes": [{"key": "a", "value": 1, "expected_version": 1}]}),
    ("batch", {"writes": [{"guard": ""}]}),
    ("batch", {"writes": [], "checks": 1}),
    ("batch", {"writes": [], "checks": [{"key": "k"}]}),
    ("batch", {"writes": [], "checks": [{"key": "k", "version": -1}]}),
    ("set_many", {}),
    ("set_many", {"items": {}}),
    ("delete_many", {"keys": "k"}),
    ("escalate", {}),
    ("escalate", {"error_code": "NONSENSE"}),
    ("escalate", {"error_code": "BUSY", "verb": "get", "request": {}}),
    ("escalate", {"error_code": "BUSY", "verb": "set", "request": {"key": "k", "value": 1}, "attempts": 1}),
]
"""Calls that are refused. Their error is part of the file, too."""


def calls() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield calls of all verbs that write keys, as a service receives them."""
    for number, (value, version) in enumerate(product(VALUES, VERSIONS)):
        yield "set", {"key": f"k{number}", "value": value, **version, **ORIGINS[number % 4]}
    for number, (ttl, meaning) in enumerate(product(TTLS, [None, *MEANINGS])):
        if meaning is None or not ttl or "ttl_seconds" not in meaning:
            fields = {} if meaning is None else {"semantics": meaning}
            yield "set", {"key": "é", "value": number, **ttl, **fields, **ORIGINS[number % 4]}
    yield "set", {"key": "k", "value": 1, "keep_ttl": True, "request_id": "r"}
    yield "set", {"key": "k", "value": 1, "keep_ttl": False, "ttl": 5, "envelope": True}
    yield "set", {"key": "k", "value": 1, "ttl": 9, "semantics": {"ttl_seconds": 9}}
    numbers: list[dict[str, Any]] = [{}, {"by": 1}, {"by": 1.0}, {"by": -2}, {"by": 2.5}, {"by": 10**18}]
    only: list[dict[str, Any]] = [{}, {"only_if_exists": True}, {"only_if_exists": False}]
    for number, (by, ttl, exists) in enumerate(product(numbers, TTLS, only)):
        yield "incr", {"key": "n", **by, **ttl, **exists, **VERSIONS[number % 3], **ORIGINS[number % 4]}
    for version, origin in product(VERSIONS, ORIGINS):
        yield "delete", {"key": "k", **version, **origin}
        yield "remove_ttl", {"key": "k", **version, **origin}
    for ttl, version in product(TTLS, VERSIONS):
        yield "restore", {"key": "k", **ttl, **version, **ORIGINS[len(ttl)]}
        if ttl:
            yield "set_ttl", {"key": "k", **ttl, **version, **ORIGINS[len(ttl)]}
            yield "touch", {"key": "k", **ttl, **version, **ORIGINS[len(ttl)]}
    live = {"lock": "l", "token": 3, "live": True}
    for number, fence in enumerate(({}, {"fence": live}, {"fence": live | {"live": False}})):
        yield "set", {"key": "k", "value": number, "once": "o", **fence}
        yield "batch", {"writes": [{"append": "log", "value": number}], "once": "o", **fence}
    half = {"key": "lock/a", "value": 1, "ttl": 0.5, "semantics": {"purpose": "lock"}}
    yield "set", half
    yield "batch", {"writes": [half]}
    for number, (value, ttl) in enumerate(product(VALUES, TTLS)):
        keep: dict[str, Any] = {} if number % 2 else {"keep": number + 1}
        yield "append", {"name": "log é", "value": value, **ttl, **keep, **ORIGINS[number % 4]}
    yield "append", {"name": "log", "value": 1, "semantics": MEANINGS[1]}
    yield "batch", {"writes": [{"append": "log", "value": 1, "keep": 3, "ttl": 4}], "request_id": "r"}
    checks = [{"key": "a", "version": 0}, {"key": "b", "version": 9}]
    for number in range(len(PARTS)):
        origin = ORIGINS[number % 4]
        yield "batch", {"writes": PARTS[number:] + PARTS[:number], "checks": checks[: number % 3], **origin}
        yield "batch", {"writes": [PARTS[number]], **origin}
        yield "set_many", {"items": [one for one in PARTS[:number] if "value" in one], **origin}
    yield "batch", {"writes": [], "checks": checks}
    items = [{"key": "a", "value": 1, "expected_version": 3}, {"key": "", "value": 2}, 5, {"key": "b"}]
    yield "set_many", {"items": items, "request_id": "r"}
    yield "delete_many", {"keys": ["a", "", "é"], "request_id": "r"}
    yield "delete_many", {"keys": ["a"]}
    request = {"key": "k", "value": {"a": 1}, "ttl": 5, "request_id": "lost", "deadline": 1}
    for verb, error, attempts in (("set", "BUSY", 1), ("put", "timeout", 7)):
        fields = {"verb": verb, "request": request, "error_code": error, "attempts": attempts}
        yield "escalate", {**fields, "message": "gone", "request_id": "e"}


def _verbs() -> Verbs:
    return Verbs("kv/trivia", writer="trivia", new_id=lambda: "made-1", now=lambda: 0, principal="open:t")


def _short(data: bytes) -> str:
    return blake2b(data, digest_size=6).hexdigest()


def fingerprint(verb: str, fields: dict[str, Any]) -> dict[str, str]:
    """Return digests of everything that a call leads to, or the error that refuses it."""
    verbs = _verbs()
    try:
        write = write_of(verb, verbs, fields)
    except HoldfastError as error:
        return {"refused": f"{error.code} {error.field}: {error.message}"}
    assert write is not None
    if write.command is None:
        return {"shown": _short(msgspec.json.encode(write.show(None)))}
    return {name: _short(data) for name, data in _traces(verbs, write.command)}


def _traces(verbs: Verbs, command: WriteCommand) -> Iterator[tuple[str, bytes]]:
    yield "remembered", msgspec.json.encode(command.asked)
    if can_carry([command]):
        yield "forwarded", group_as_bytes("g", 1, [command])
    verb, sent = message_of(command)
    yield "message", verb.encode() + msgspec.json.encode(sent)
    if not isinstance(command, Escalate):
        letter = verbs.escalate(command, error_code="BUSY", message="later", attempts=5)
        yield "letter", letter.letter.encode()


def _name(verb: str, fields: dict[str, Any]) -> str:
    return f"{verb} {json.dumps(fields, ensure_ascii=False)}"


def _golden() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("verb", sorted({verb for verb, _ in chain(calls(), REFUSED)}))
def test_stored_and_sent_forms_of_writes_stay_the_same(verb: str) -> None:
    """Remembered requests, forwarded groups, messages, dead letters and refusals are those of the file."""
    golden = _golden()
    for called, fields in chain(calls(), REFUSED):
        if called == verb:
            name = _name(verb, fields)
            assert fingerprint(verb, fields) == golden[name], name


@pytest.mark.parametrize("verb", sorted({verb for verb, _ in calls()}))
def test_a_decoded_message_is_the_same_call(verb: str) -> None:
    """A payload that is decoded at once makes the command that its fields make, or is refused alike."""
    declaration = DECLARED[verb]
    for called, fields in chain(calls(), REFUSED):
        if called == verb:
            payload = msgspec.json.encode(fields)
            try:
                message = declaration.decode(payload)
            except msgspec.DecodeError:
                continue  # the door looks at its fields then
            at_once = _command(partial(written, declaration, _verbs(), message, fields.get("deadline")))
            assert at_once == _command(partial(write_of, verb, _verbs(), fields_of(payload))), fields


def _command(make: Callable[[], Write | None]) -> bytes:
    """Return the command of a write as JSON, or the error that refuses it."""
    try:
        write = make()
    except HoldfastError as error:
        return f"{error.code} {error.field}: {error.message}".encode()
    assert write is not None
    return msgspec.json.encode(write.command)


def test_every_call_of_the_file_is_compared() -> None:
    """No digest is left in the file that nothing is compared with."""
    assert set(_golden()) == {_name(verb, fields) for verb, fields in chain(calls(), REFUSED)}


def _write_golden() -> None:
    """Take the digests anew."""
    lines = []
    for verb, fields in chain(calls(), REFUSED):
        name, traces = _name(verb, fields), fingerprint(verb, fields)
        lines.append(f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(traces, ensure_ascii=False)}")
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    _write_golden()
