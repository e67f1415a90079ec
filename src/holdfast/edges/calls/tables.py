"""The verbs on tables, which every door answers for the items of a plugin.

An `answer` takes a handle, `holdfast.Tables`, a message and its deadline. The classes of commands declare the
verbs, see `holdfast.tables.commands`, and `holdfast.handles.table_answers` knows what each means.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from holdfast.declare import Declaration
from holdfast.edges.calls import keys
from holdfast.edges.calls.catalogue import Verb, catalogue
from holdfast.tables import commands
from holdfast.wire.tables import shown

if TYPE_CHECKING:
    from holdfast.handles.tables import Tables


async def _answer(
    declaration: Declaration, tables: Tables, message: Any, deadline: int | None
) -> dict[str, Any]:
    """Answer a call. Each of several independent writes has its own reply, a success or an error."""
    call, verbs = tables.store.call, tables.verbs
    made = declaration.make(verbs, message, declaration.origin_of(verbs, message, deadline))
    if not declaration.several:
        return shown(made, await call(made))
    command, several = made
    return shown(command, several.merge(await call(command) if several.legal else ()))


VERBS: Final = catalogue(
    *(Verb.of(declaration, partial(_answer, declaration)) for declaration in commands.VERBS.values()),
    replace(
        keys.VERBS["stats"],
        help="Return what all tables of the plugin hold, their policy and default limits.",
    ),
)
"""The verbs on tables."""
