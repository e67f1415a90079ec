"""Calls about tables as messages, on the client's side.

Law: what JSON has no form for is refused before it is sent, by the name of the field that holds it, as a
store of one's own refuses it: an encoder would make something else of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeGuard

import msgspec

from holdfast import rules
from holdfast.errors import HoldfastError
from holdfast.tables.items import MAX_ITEM_BYTES
from holdfast.verbs.fields import Several
from holdfast.wire.errors import error_of

_MOST: Final = {"item": MAX_ITEM_BYTES}
_ANY_SIZE: Final = 1 << 40
"""Whether other fields are too large is told by the service, or by the server on the way to it."""


def call_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a call as they are sent."""
    return {
        name: [_write(write) for write in field]
        if name == "writes" and _listed(field)
        else _json(name, field)
        for name, field in fields.items()
        if field is not None
    }


def writes_of(fields: Mapping[str, Any]) -> Several[Any] | None:
    """The writes of a call that stand each for themselves; None if they are no list of them."""
    given = fields.get("writes")
    if not _listed(given):
        return None
    return Several.of([partial(_write, write) for write in given])


def result_in(reply: Mapping[str, Any]) -> dict[str, Any] | HoldfastError:
    """What became of one of several writes."""
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
