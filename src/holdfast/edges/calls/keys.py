"""The verbs on keys, which every door answers for the entries of a plugin or of a tenant's project.

They are derived from the classes of commands that declare them; see `holdfast.declare`. An answer takes
fields and returns fields. The door decides who may call it, whether the deadline has passed, and how the
reply is spelled. The `answer` of a verb that is `in_order` takes the maker of commands and returns a
`holdfast.wire.writes.Write`, which the door hands over at once. The `answer` of any other verb takes a
handle, `holdfast.KV`, and is awaited.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.declare import DECLARED
from holdfast.edges.calls.catalogue import Verb
from holdfast.errors import ValidationError
from holdfast.wire.reads import reply_to
from holdfast.wire.writes import write_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.declare import Declaration
    from holdfast.handles.kv import KV


def declared(declaration: Declaration) -> Verb:
    """Return the entry of a declared verb."""
    answer = partial(write_of, declaration.name) if declaration.in_order else partial(_answer, declaration)
    return Verb.of(declaration, answer, at_once=True)


async def _answer(declaration: Declaration, kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    message, deadline = declaration.of_fields(fields), fields.get("deadline")
    return await reply_to(declaration, kv.store.call, kv.verbs, message, deadline)


def switch(fields: Mapping[str, Any], name: str) -> bool:
    """Return a boolean field; False if it is missing."""
    asked = fields.get(name, False)
    if not isinstance(asked, bool):
        raise ValidationError(f"{name} must be true or false", field=name)
    return asked


VERBS: Final = {name: declared(declaration) for name, declaration in DECLARED.items()}
"""The verbs on keys."""
