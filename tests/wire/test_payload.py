"""A payload becomes fields, or the error that the embedded door would give for the same input."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.errors import HoldfastError, InvalidJson, MissingField, ValidationError, ValueTooLarge
from holdfast.testing.exact import refusal
from holdfast.wire.dialects import PAYLOAD, PLUGIN, SEMANTIC, Dialect
from holdfast.wire.payload import decode, fields_of
from holdfast.wire.writes import write_of
from tests.verbs import Verbs

VERBS = Verbs("kv/trivia", writer="trivia", new_id=lambda: "made-1", now=lambda: 0)


def nested(depth: int) -> str:
    """The JSON of a list in a list in a list, that many in all."""
    return "[" * depth + "]" * depth


def error_at_the_wire(text: str | bytes) -> HoldfastError:
    """What a set with this JSON as its value is refused with."""
    raw = text.encode() if isinstance(text, str) else text
    with pytest.raises(HoldfastError) as caught:
        write_of("set", VERBS, PLUGIN.fields(b'{"key":"k","value":' + raw + b"}"))
    return caught.value


def error_embedded(value: Any) -> HoldfastError:
    """What the same value is refused with when it comes from Python."""
    with pytest.raises(HoldfastError) as caught:
        VERBS.set("k", value)
    return caught.value


@pytest.mark.parametrize("dialect", [PLUGIN, PAYLOAD, SEMANTIC])
def test_an_empty_payload_has_no_fields(dialect: Dialect) -> None:
    """An empty payload is {}."""
    assert dialect.fields(b"") == {} == dialect.fields(b"{}")


def test_null_is_absent_but_as_a_value() -> None:
    """A null optional field is absent; null is a value like any other."""
    assert fields_of(b'{"key":"k","ttl":null,"value":null,"semantics":null}') == {"key": "k", "value": None}
    with refusal(MissingField, field="key", says="key"):
        write_of("set", VERBS, fields_of(b'{"key":null,"value":1}'))
    with refusal(MissingField, field="value", says="value"):
        write_of("set", VERBS, fields_of(b'{"key":"k"}'))


@pytest.mark.parametrize("payload", [b"[]", b"1", b'"text"', b"null", b"true", b"[{}]", b"1e400", b"1.5"])
def test_json_that_is_no_object_is_a_validation_error(payload: bytes) -> None:
    """JSON that is no object breaks a rule; it is not taken for bad JSON."""
    with refusal(ValidationError, says="object", about=payload):
        fields_of(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"}",
        b" ",
        b"{'key':1}",
        b'{"key":}',
        b'{"key":1,}',
        b'{"key":1}x',
        b'{"key" 1}',
        b"\x00",
        b"\xef\xbb\xbf{}",
        b'{"key":"\xff"}',
        b'{"key":"\xed\xa0\x80"}',
        b'{"key":"\xc0\xaf"}',
        b'{"key":"a\nb"}',
        b'{"key":"\\x41"}',
        b'{"value":NaN',
        b'{"value":nan}',
        b'{"value":-NaN}',
        b'{"value":[1,NaN,]}',
        b'{"value":+Infinity}',
        b"{NaN:1}",
        b'{"value":01}',
        b'{"value":.5}',
        b'{"value":+1}',
        b'{"value":undefined}',
        b'{"a":1}{"b":2}',
        "{}".encode("utf-16"),
    ],
)
def test_bytes_that_are_not_json_are_invalid_json(payload: bytes) -> None:
    """Bytes that are not JSON, invalid UTF-8 among them, are INVALID_JSON and not shown."""
    with refusal(InvalidJson, says="not valid JSON", about=payload) as caught:
        fields_of(payload)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NaN", float("nan")),
        ("Infinity", float("inf")),
        ("-Infinity", float("-inf")),
        ('{"a":[1,NaN]}', {"a": [1, float("nan")]}),
        ("1e400", float("inf")),
        ("-1e400", float("-inf")),
        ('{"a":[1e999]}', {"a": [float("inf")]}),
        (r'"\ud800"', "\ud800"),
        (r'["a\udfffb"]', ["a\udfffb"]),
        (r'{"\ud83d":1}', {"\ud83d": 1}),
        (nested(65), json.loads(nested(65))),
        ('"' + "x" * 655_359 + '"', "x" * 655_359),
        ('"' + "é" * 327_680 + '"', "é" * 327_680),
    ],
    ids=lambda given: str(given)[:20].encode("ascii", "replace").decode(),
)
def test_a_bad_value_gets_the_error_of_the_embedded_door(text: str, value: Any) -> None:
    """The same value is refused with the same class, field and words at the wire and in Python."""
    wire, embedded = error_at_the_wire(text), error_embedded(value)
    assert type(wire) is type(embedded)
    assert (wire.code, wire.field, wire.message) == (embedded.code, embedded.field, embedded.message)
    assert wire.field == "value"


@pytest.mark.parametrize("depth", [65, 200, 989, 2_000, 100_000])
def test_deep_nesting_is_a_validation_error_at_any_depth(depth: int) -> None:
    """More than 64 levels are refused with the limit, also where no decoder could follow."""
    for text in (nested(depth), '{"a":' * depth + "1" + "}" * depth):
        error = error_at_the_wire(text)
        assert (type(error), error.field) == (ValidationError, "value")
        assert "64" in error.message


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("form", ["{}", '{{"deep":[{}]}}'])
def test_integers_beyond_4300_digits_are_refused(sign: str, form: str) -> None:
    """4,301 digits are one too many, here as in Python; 4,300 come through exactly."""
    error = error_at_the_wire(form.format(sign + "1" + "0" * 4_300))
    assert (type(error), error.field) == (ValidationError, "value")
    assert type(error_embedded(int(sign + "1") * 10**4_300)) is ValidationError
    most = int(sign + "9" * 4_300)
    assert decode(f'{{"value":{most}}}'.encode()) == {"value": most}


def test_a_long_text_of_digits_is_no_number() -> None:
    """The limit on digits is for numbers: a text of digits is a text."""
    assert decode(b'{"value":"' + b"9" * 5_000 + b'"}') == {"value": "9" * 5_000}


def test_the_size_is_that_of_the_compact_form() -> None:
    """White space and escapes of the sender do not count; what is stored does."""
    spaced = b'{ "key" : "k" , "value" : [ ' + b"1 ,   " * 30_000 + b"1 ] }"
    write = write_of("set", VERBS, fields_of(spaced))
    assert write is not None
    assert write.command is not None
    assert write.command.value == "[" + "1," * 30_000 + "1]"  # type: ignore[attr-defined]
    with refusal(ValueTooLarge, field="value", says="exceeds 64KB limit (65536 bytes)"):
        write_of("set", VERBS, fields_of(b'{"key":"k","value":"' + b"\\u00e9" * 327_680 + b'"}'))


def test_the_last_of_duplicated_names_wins() -> None:
    """A name that comes twice in an object has its last value, in the request and in a value."""
    assert fields_of(b'{"key":"a","key":"b","value":{"x":1,"x":2}}') == {"key": "b", "value": {"x": 2}}


def test_unknown_fields_do_no_harm() -> None:
    """Unknown fields are ignored, whatever is in them."""
    for junk in (r'"\ud800"', "1e400", "NaN", nested(900), "1" * 4_300, "{}", "null"):
        fields = fields_of(b'{"key":"k","value":1,"junk":' + junk.encode() + b"}")
        write = write_of("set", VERBS, fields)
        assert write is not None
        assert write.command == VERBS.set("k", 1)
