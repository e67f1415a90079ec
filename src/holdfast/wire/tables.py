"""Encoding of calls about tables, on the client's side.

Law: a value that JSON can't represent is refused before it is sent, with the name of its field, just as a
local store refuses it. An encoder would convert it to something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

import msgspec

from holdfast import rules
from holdfast.errors import HoldfastError
from holdfast.tables.items import MAX_ITEM_BYTES
from holdfast.verbs.fields import Several
from holdfast.wire.errors import error_of

_MOST: Final = {"item": MAX_ITEM_BYTES}
_ANY_SIZE: Final = 1 << 40
"""The limit for other fields, in effect none: the service or the NATS server refuses larger ones."""


def call_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Encode the fields of a call."""
    return {
        name: [_write(write) for write in field]
        if name == "writes" and _listed(field)
        else _json(name, field)
        for name, field in fields.items()
        if field is not None
    }


def writes_of(fields: Mapping[str, Any]) -> Several[Any] | None:
    """Return the independent writes of a call, or None if its `writes` is not a list."""
    given = fields.get("writes")
    if not _listed(given):
        return None
    return Several.of(_write, given)


def result_in(reply: Mapping[str, Any]) -> dict[str, Any] | HoldfastError:
    """Return the result of one of several writes, or its error."""
    fields = dict(reply)
    return fields if fields.pop("success") else error_of(reply)


def _listed(field: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(field, Sequence) and not isinstance(field, (str, bytes))


def _write(write: Any) -> Any:
    if not isinstance(write, Mapping):
        return _json("writes", write)
    return {kind: _body(body) for kind, body in write.items()}


def _body(body: Any) -> Any:
    if not isinstance(body, Mapping):
        return _json("writes", body)
    return {name: _json(name, field) for name, field in body.items()}


def _json(name: str, field: Any) -> msgspec.Raw:
    if isinstance(field, msgspec.Raw):
        return field
    text, _ = rules.encode_value(field, most=_MOST.get(name, _ANY_SIZE), field=name)
    return msgspec.Raw(text.encode())
