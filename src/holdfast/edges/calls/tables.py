"""The verbs on tables, which every door answers for the items of a plugin.

An `answer` takes the tables of a plugin and the fields of a call. The classes of commands declare the verbs,
see `holdfast.tables.commands`, and `holdfast.handles.table_calls` knows what each means.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.edges.calls.catalogue import Verb, catalogue
from holdfast.edges.calls.keys import stats_and_policy
from holdfast.forms import CallFields
from holdfast.replies import StatsReply
from holdfast.tables import commands
from holdfast.wire.tables import shown

if TYPE_CHECKING:
    from holdfast.declare import Declaration
    from holdfast.handles.table_calls import TableCaller
    from holdfast.store import Store


class PluginTables(NamedTuple):
    """The tables of a plugin: their store, their namespace, and what executes commands on them."""

    store: Store
    namespace: str
    caller: TableCaller


async def _answer(
    declaration: Declaration, tables: PluginTables, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Answer a call. Each of several independent writes has its own reply, a success or an error."""
    caller = tables.caller
    made = caller.verbs.made(declaration, fields)
    if not declaration.several:
        return shown(made, await caller.call(made))
    command, several = made
    return shown(command, several.merge(await caller.call(command) if several.legal else ()))


async def _stats(tables: PluginTables, fields: Mapping[str, Any]) -> dict[str, Any]:
    return await stats_and_policy(tables.store.pipeline, tables.namespace)


VERBS: Final = catalogue(
    *(Verb.of(declaration, partial(_answer, declaration)) for declaration in commands.VERBS.values()),
    Verb(
        name="stats",
        help="Return what all tables of the plugin hold, their policy and default limits.",
        fields=CallFields,
        reply=StatsReply,
        answer=_stats,
    ),
)
"""The verbs on tables."""
