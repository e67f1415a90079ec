"""The tools: each is a verb of the catalogue, or a recipe that is made of verbs.

Law: a tool is declared here once. Its schemas, its annotations, the permission that it needs and its entry in
the reference are derived from the declaration and from the catalogue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, UnsetType

from holdfast.edges.calls import FAMILIES
from holdfast.edges.calls.catalogue import shape_of
from holdfast.edges.intake.large import MOST_READING, MOST_SINGLE
from holdfast.edges.mcp import fields as of
from holdfast.edges.mcp import recipes
from holdfast.edges.mcp.callers import SEMANTIC, TABLE, ToolCaller, family_of
from holdfast.errors import ValueTooLarge
from holdfast.forms import PageLimit
from holdfast.handles.kv import KV
from holdfast.verbs.unknown import plain, unknown_field
from holdfast.wire.payload import fields_of

if TYPE_CHECKING:
    from collections.abc import Mapping

Steps: TypeAlias = Callable[[ToolCaller, dict[str, Any]], Awaitable[dict[str, Any]]]
Fields: TypeAlias = Callable[[KV, dict[str, Any]], dict[str, Any]]

PAGE: Final = 100
"""The most that a page has if the caller does not say: all of it goes into an agent's context."""
RECENT: Final = 20
MOST_STEPS: Final = MOST_READING
"""Maximum number of bytes of the arguments of a tool that stores no value."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool.

    Args:
        name: Its name.
        title: Its name for people.
        help: What it does, what it returns and when to use it.
        verbs: The verbs that it uses; a caller that lacks one of them does not see the tool.
        arguments: A struct with its arguments. Those without a default are required.
        reply: A struct with the fields of a successful result.
        fields: For a tool that is one verb: takes the arguments, and returns the fields of the verb.
        steps: For a recipe: takes the caller and the arguments, and returns the fields of the result.
        writes: Whether it may change anything.
        destroys: Whether it may replace or remove data that the caller has not seen.
        idempotent: Whether repeating it with the same arguments changes nothing more.
        table: Whether it is about tables, which only plugins have.
    """

    name: str
    title: str
    help: str
    verbs: tuple[str, ...]
    arguments: type[msgspec.Struct]
    reply: type[msgspec.Struct]
    fields: Fields | None = None
    steps: Steps | None = None
    writes: bool = False
    destroys: bool = False
    idempotent: bool = False
    table: bool = False

    async def run(self, caller: ToolCaller, payload: bytes, writer: str | None) -> dict[str, Any]:
        """Do what the tool does, and return the fields of the result.

        Args:
            caller: Who calls it.
            payload: The arguments as JSON.
            writer: The name of the writer where the arguments give none.

        Raises:
            HoldfastError: The call was refused.
        """
        most = MOST_SINGLE if self.fields and not self.table else MOST_STEPS
        if len(payload) > most:
            raise ValueTooLarge(f"the arguments have {len(payload)} bytes, more than {most}")
        if self.steps is not None:
            return await self.steps(caller, self._given(payload, writer))
        return await caller.ask(
            self.verbs[0], payload, partial(self._spelled, caller, writer), table=self.table
        )

    def _spelled(self, caller: ToolCaller, writer: str | None, payload: bytes) -> dict[str, Any]:
        """Return the fields of the verb that the tool is."""
        assert self.fields is not None
        return self.fields(caller.kv, self._given(payload, writer))

    def _given(self, payload: bytes, writer: str | None) -> dict[str, Any]:
        """Decode the arguments, and refuse those that the tool does not have."""
        given = fields_of(payload)
        self.refuse_unknown(given)
        if self.writes and writer is not None:
            given.setdefault("last_writer", writer)
        return given

    def refuse_unknown(self, given: Mapping[str, Any]) -> None:
        """Refuse arguments that the tool does not have: a misspelled condition must not be ignored.

        Raises:
            ValidationError: There is one; the message names the closest known argument.
        """
        for path, shape in shape_of(self.arguments).unknown(given):
            raise unknown_field(plain(path), shape.names)


def allowed(caller: ToolCaller) -> dict[str, Tool]:
    """Return the tools that a caller may use, by name."""
    return {
        name: tool
        for name, tool in TOOLS.items()
        if all(map(caller.allows, tool.verbs)) and not (tool.table and family_of(caller.kv) == SEMANTIC)
    }


def _limit(usual: int) -> Any:
    return Annotated[
        PageLimit | UnsetType,
        Meta(description=f"The most to return, from 1 to 10,000; {usual} if not given."),
    ]


def _reading(
    name: str,
    verb: str,
    title: str,
    help: str,
    *,
    usual: int | None = None,
    table: bool = False,
) -> Tool:
    """Declare a tool that is one reading verb. `usual` is its limit if the caller gives none."""
    found = FAMILIES[TABLE if table else "kv"][verb]

    def fields(kv: KV, given: dict[str, Any]) -> dict[str, Any]:
        if usual is not None:
            given.setdefault("limit", usual)
        return given

    return Tool(
        name=name,
        title=title,
        help=help,
        verbs=(verb,),
        arguments=of.arguments_of(
            found.fields,
            name=_struct(name),
            instead=None if usual is None else {"limit": _limit(usual)},
        ),
        reply=found.reply,
        fields=fields,
        table=table,
    )


def _writing(
    name: str,
    verb: str,
    title: str,
    help: str,
    *,
    reply: type[msgspec.Struct] | None = None,
    idempotent: bool = False,
    **instead: Any,
) -> Tool:
    """Declare a tool that is one writing verb and may replace data. `instead` are arguments of its own."""
    found = FAMILIES["kv"][verb]

    def fields(kv: KV, given: dict[str, Any]) -> dict[str, Any]:
        if "purpose" in given:
            given["semantics"] = {"purpose": given.pop("purpose")}
        return given

    return Tool(
        name=name,
        title=title,
        help=help,
        verbs=(verb,),
        arguments=of.arguments_of(found.fields, name=_struct(name), instead={**of.COMMON, **instead}),
        reply=reply or found.reply,
        fields=fields,
        writes=True,
        destroys=True,
        idempotent=idempotent,
    )


def _struct(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_")) + "Arguments"


_DECLARED: Final = (
    _reading(
        "get",
        "get",
        "Get an entry",
        "Return the entry of a key: its value, version, deadline, who wrote it last and why. A key that is "
        "not there, or has expired, returns exists: false. Remember the version if you are going to change "
        "the entry.",
    ),
    _writing(
        "put",
        "set",
        "Put an entry",
        "Write a value under a key. To change an entry that you have read, pass its version as "
        "expected_version: if another writer was faster nothing is written, and the result has the current "
        "entry. Pass expected_version 0 to create a key only if it does not exist. Without expected_version "
        "the old entry is replaced, whatever it is. Say why with purpose, and name the governing document in "
        "spec_ref.",
        reply=of.PutReply,
        purpose=of.Purpose,
    ),
    _reading(
        "list",
        "list",
        "List keys",
        "List the keys that begin with a prefix, in order, a page at a time. With values, return their "
        "entries too. If truncated is true, call again with the cursor. Filters select by purpose, "
        "producer, writer, spec_ref or deadline.",
        usual=PAGE,
    ),
    _writing(
        "delete",
        "delete",
        "Delete an entry",
        "Remove a key. Pass the version that you have read as expected_version, so that a newer entry is not "
        "removed by mistake. A key that is not there returns deleted: false.",
        idempotent=True,
    ),
    _reading(
        "history",
        "history",
        "Show who changed a key",
        "Return the recent changes of one key, newest first: what happened, when, by whom, for which "
        "purpose and request. Use it to find out who wrote an entry and why. It shows no old values.",
        usual=RECENT,
    ),
    _reading(
        "changes",
        "changes",
        "Show what changed",
        "Return the changes of all keys, or of those with a prefix, after a version, oldest first. Call it "
        "again with next as since to go on where you stopped. If gap is true, older changes are no longer "
        "known: list the keys instead.",
        usual=PAGE,
    ),
    Tool(
        name="lock_acquire",
        title="Acquire a lock",
        help="Try to take a lock so that no other agent or program works on the same thing. It does not "
        "wait: if another caller holds the lock, the result says who and until when. The lock is yours "
        "until expires_at; call lock_renew before that if you need longer. Pass the token as the fence of "
        "every write that relies on the lock, so that a write after you have lost it is refused.",
        verbs=("get", "list", "batch"),
        arguments=of.LockAcquireArguments,
        reply=of.LockAcquireReply,
        steps=recipes.lock_acquire,
        writes=True,
    ),
    Tool(
        name="lock_renew",
        title="Renew a lock",
        help="Keep a lock that you hold for another ttl seconds from now. If renewed is false you have lost "
        "it: stop the work that it protects.",
        verbs=("set_ttl",),
        arguments=of.LockRenewArguments,
        reply=of.LockRenewReply,
        steps=recipes.lock_renew,
        writes=True,
    ),
    Tool(
        name="lock_release",
        title="Release a lock",
        help="Release a lock that you hold, when the work is done or handed over. A lock that another "
        "caller has taken since stays as it is.",
        verbs=("delete",),
        arguments=of.LockReleaseArguments,
        reply=of.LockReleaseReply,
        steps=recipes.lock_release,
        writes=True,
        idempotent=True,
    ),
    Tool(
        name="checkpoint_load",
        title="Load a checkpoint",
        help="Return how far some work has come, as it was saved last, with its version. Without a "
        "checkpoint exists is false and version is 0.",
        verbs=("get",),
        arguments=of.NamedArguments,
        reply=of.CheckpointReply,
        steps=recipes.checkpoint_load,
    ),
    Tool(
        name="checkpoint_save",
        title="Save a checkpoint",
        help="Record how far some work has come. Pass the version that checkpoint_load or your last "
        "checkpoint_save returned as expected_version. If another worker has moved on meanwhile nothing is "
        "written, and the result has its checkpoint.",
        verbs=("set",),
        arguments=of.CheckpointSaveArguments,
        reply=of.PutReply,
        fields=recipes.checkpoint_fields,
        writes=True,
    ),
    Tool(
        name="flag_read",
        title="Read a feature flag",
        help="Return the value of a feature flag, or the default if it is not set.",
        verbs=("get",),
        arguments=of.FlagArguments,
        reply=of.FlagReply,
        steps=recipes.flag_read,
    ),
    Tool(
        name="counter_read",
        title="Read a counter",
        help="Return the sum of a counter that many callers add to.",
        verbs=("get",),
        arguments=of.NamedArguments,
        reply=of.CounterReply,
        steps=recipes.counter_read,
    ),
    Tool(
        name="counter_add",
        title="Add to a counter",
        help="Add to a counter and return the new sum. No addition is lost, however many callers add at "
        "once.",
        verbs=("incr",),
        arguments=of.CounterAddArguments,
        reply=of.CounterReply,
        steps=recipes.counter_add,
        writes=True,
    ),
    _reading(
        "table_list",
        "list_tables",
        "List tables",
        "List the tables of the plugin, with the keys and indexes that table_query needs.",
        table=True,
    ),
    _reading(
        "table_query",
        "query",
        "Query a table",
        "Return the items of a table that have a partition key, in the order of their sort key, a page at a "
        'time. sort_key_condition selects a range, such as {"gte": 5} or {"begins_with": "2026-"}; filter is '
        "a condition on other attributes. If truncated is true, call again with the cursor.",
        usual=PAGE,
        table=True,
    ),
)

TOOLS: Final[dict[str, Tool]] = {tool.name: tool for tool in _DECLARED}
"""Every tool by its name."""
