"""The verbs on keys, which every door answers for the entries of a plugin or of a tenant's project.

They are derived from the classes of commands that declare them; see `holdfast.declare`. An `answer` takes a
handle, `holdfast.KV`, a message and its deadline. The door decides who may call it, whether the deadline has
passed, and how the reply is spelled. The `answer` of a verb that is `in_order` returns a
`holdfast.wire.writes.Write`, which the door hands over at once. That of any other verb is awaited and returns
the fields of the reply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any, Final

from holdfast.declare import DECLARED, Declaration
from holdfast.edges.calls.catalogue import Verb
from holdfast.errors import ValidationError
from holdfast.handles.kv import KV
from holdfast.wire.reads import reply_to
from holdfast.wire.writes import Write, written


def declared(declaration: Declaration) -> Verb:
    """Return the entry of a declared verb."""
    return Verb.of(declaration, partial(_write if declaration.in_order else _answer, declaration))


def _write(declaration: Declaration, kv: KV, message: Any, deadline: int | None) -> Write:
    return written(declaration, kv.verbs, message, deadline)


def _answer(
    declaration: Declaration, kv: KV, message: Any, deadline: int | None
) -> Awaitable[dict[str, Any]]:
    return reply_to(declaration, kv.store.call, kv.verbs, message, deadline)


def switch(fields: Mapping[str, Any], name: str) -> bool:
    """Return a boolean field; False if it is missing."""
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise ValidationError(f"{name} must be true or false", field=name)
    return value


VERBS: Final = {name: declared(declaration) for name, declaration in DECLARED.items()}
"""The verbs on keys."""
