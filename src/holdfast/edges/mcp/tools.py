"""The tools: each is a verb of the catalogue, or a recipe that is made of verbs.

A tool is declared here once. Its schemas, its annotations, the permission that it needs and its entry in the
reference are derived from the declaration and from the catalogue.

The lock of an agent is the entry and the guard that `holdfast.handles.recipes.lock` writes, so that agents
and programs exclude each other. An agent renews its lease itself, because a server that renewed it would keep
the lock of an agent that has stopped. Its token is the fence of every step: the store refuses a renewal or a
release as soon as a newer holder has taken the lock. The batch that takes a lock, and its fence, decide who
holds it. Everything read before is a courtesy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, UnsetType

from holdfast import seams
from holdfast.edges.calls import FAMILIES
from holdfast.edges.calls.catalogue import shape_of
from holdfast.edges.intake.requests import MOST_READING, MOST_SINGLE
from holdfast.edges.mcp import schemas
from holdfast.edges.mcp.callers import SEMANTIC, TABLE, ToolCaller
from holdfast.errors import Fenced, KeyNotFound, ValidationError, ValueTooLarge, VersionConflict
from holdfast.forms import PageLimit
from holdfast.handles.kv import KV
from holdfast.handles.recipes.names import WAITING, entry_key, lock_key
from holdfast.rules import kind_of
from holdfast.verbs.fields import required
from holdfast.verbs.unknown import plain, unknown_field
from holdfast.wire.payload import fields_of

Steps: TypeAlias = Callable[[ToolCaller, dict[str, Any]], Awaitable[dict[str, Any]]]
Fields: TypeAlias = Callable[[KV, dict[str, Any]], dict[str, Any]]

PAGE: Final = 100
"""The most that a page has if the caller does not say: all of it goes into an agent's context."""
RECENT: Final = 20
MOST_STEPS: Final = MOST_READING
"""Maximum number of bytes of the arguments of a tool that stores no value."""
LEASE_SECONDS: Final = 60
"""Seconds of a lease if the caller names none: agents take longer over a step than programs."""
_TRY_LATER: Final = "Do other work, or try again after expires_at; it may be released earlier."
_LOST: Final = (
    "You no longer hold the lock. Stop working on what it protects, write nothing more for it, and acquire "
    "the lock again if there is still something to do."
)


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
            return await self.steps(caller, self._arguments(payload, writer))
        return await caller.ask(
            self.verbs[0], payload, partial(self._spelled, caller, writer), table=self.table
        )

    def _spelled(self, caller: ToolCaller, writer: str | None, payload: bytes) -> dict[str, Any]:
        """Return the fields of the verb that the tool is."""
        assert self.fields is not None
        return self.fields(caller.kv, self._arguments(payload, writer))

    def _arguments(self, payload: bytes, writer: str | None) -> dict[str, Any]:
        """Decode the arguments, and refuse those that the tool does not have."""
        arguments = fields_of(payload)
        self.refuse_unknown(arguments)
        if self.writes and writer is not None:
            arguments.setdefault("last_writer", writer)
        return arguments

    def refuse_unknown(self, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments that the tool does not have: a misspelled condition must not be ignored.

        Raises:
            ValidationError: There is one; the message names the closest known argument.
        """
        for path, shape in shape_of(self.arguments).unknown(arguments):
            raise unknown_field(plain(path), shape.names)


def allowed(caller: ToolCaller) -> dict[str, Tool]:
    """Return the tools that a caller may use, by name."""
    return {
        name: tool
        for name, tool in TOOLS.items()
        if all(map(caller.allows, tool.verbs)) and not (tool.table and caller.family == SEMANTIC)
    }


async def lock_acquire(caller: ToolCaller, arguments: dict[str, Any]) -> dict[str, Any]:
    """Take a lock if it is free and has no waiters."""
    name = required(arguments, "name")
    key = lock_key(caller.kv, name)
    holder = arguments.get("request_id") or seams.token(8)
    held = await caller.call("get", {"key": key})
    if held["exists"]:
        if holder_of(held) != holder:
            return _held_by(held)
    elif (await caller.call("list", {"prefix": f"{key}/{WAITING}/", "limit": 1}))["keys"]:
        return {"acquired": False, "waiting": True, "next": "Programs wait for this lock. Try again later."}
    try:
        taken = await caller.call("batch", _claim(arguments, key, holder))
    except VersionConflict as conflict:
        if conflict.reason is not None:
            raise
        return _held_by(await caller.call("get", {"key": key}))
    held = await caller.call("get", {"key": key})
    if not held["exists"] or holder_of(held) != holder:
        return {
            "acquired": False,
            "next": "The lease of this request is over. Acquire with a new request_id.",
        }
    return {
        "acquired": True,
        "token": taken["versions"][1],
        "expires_at": held["expires_at"],
        "next": f'Give every write that relies on the lock fence={{"lock": "{name}", "token": '
        f"{taken['versions'][1]}}}, call lock_renew well before expires_at, and lock_release when done.",
    }


async def lock_renew(caller: ToolCaller, arguments: dict[str, Any]) -> dict[str, Any]:
    """Extend the lease of a lock that the caller still holds."""
    key = lock_key(caller.kv, required(arguments, "name"))
    ttl = arguments.get("ttl", LEASE_SECONDS)
    try:
        if isinstance(ttl, float):
            expires_at = await _renew_for_fractions(caller, key, ttl, _fenced(arguments))
        else:
            renewed = await caller.call("set_ttl", {"key": key, "ttl": ttl, **_fenced(arguments)})
            expires_at = renewed["expires_at"]
    except (Fenced, KeyNotFound, VersionConflict):
        return {"renewed": False, "next": _LOST}
    return {
        "renewed": True,
        "expires_at": expires_at,
        "next": "Go on, and renew again well before expires_at.",
    }


async def _renew_for_fractions(caller: ToolCaller, key: str, ttl: float, fenced: dict[str, Any]) -> Any:
    """Store a lock again, since only a set takes fractions of a second. Returns when it expires."""
    held = await caller.call("get", {"key": key})
    if not held["exists"]:
        raise KeyNotFound(f"key {key!r} does not exist", field="key")
    lock = {"key": key, "value": held["value"], "ttl": ttl, "semantics": held["semantics"]}
    # Only its holder changes the entry of a lock. The fence says who that is, and that the lease is not over.
    fence = fenced["fence"] | {"live": True}
    await caller.call("batch", {"checks": [], "writes": [lock], **fenced, "fence": fence})
    return (await caller.call("get", {"key": key})).get("expires_at")


async def lock_release(caller: ToolCaller, arguments: dict[str, Any]) -> dict[str, Any]:
    """Release a lock that the caller still holds; one that another holder has taken stays."""
    key = lock_key(caller.kv, required(arguments, "name"))
    try:
        released = await caller.call("delete", {"key": key, **_fenced(arguments)})
    except Fenced:
        return {"released": False}
    return {"released": released["deleted"]}


def _claim(arguments: dict[str, Any], key: str, holder: str) -> dict[str, Any]:
    """Return the fields of the batch that takes a lock. Its request id makes it safe to repeat."""
    owner = arguments.get("last_writer")
    lock = {
        "key": key,
        "value": {"holder": holder},
        "ttl": arguments.get("ttl", LEASE_SECONDS),
        "semantics": {"purpose": "lock", "producer": owner},
    }
    return {
        "checks": [{"key": key, "version": 0}],
        "writes": [lock, {"guard": arguments["name"]}],
        "request_id": arguments.get("request_id") or f"lock-{holder}",
        **({} if owner is None else {"last_writer": owner}),
    }


def _fenced(arguments: dict[str, Any]) -> dict[str, Any]:
    fence = {"lock": arguments["name"], "token": required(arguments, "token")}
    owner = arguments.get("last_writer")
    return {"fence": fence} | ({} if owner is None else {"last_writer": owner})


def holder_of(entry: dict[str, Any]) -> object:
    """Return what names the holder in a lock's entry. Any writer may have stored something else."""
    value = entry["value"]
    return value.get("holder") if isinstance(value, dict) else None


def _held_by(entry: dict[str, Any]) -> dict[str, Any]:
    if not entry["exists"]:
        return {"acquired": False, "next": "Another caller held the lock just now. Try again."}
    return {
        "acquired": False,
        "holder": entry["last_writer"],
        "expires_at": entry["expires_at"],
        "next": _TRY_LATER,
    }


async def checkpoint_load(caller: ToolCaller, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a checkpoint, or version 0 if there is none."""
    key = entry_key(caller.kv, "checkpoint", required(arguments, "name"))
    return {"version": 0, **await caller.call("get", {"key": key})}


def checkpoint_fields(kv: KV, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the set that moves a checkpoint on from the version that the caller has loaded."""
    required(arguments, "expected_version")
    required(arguments, "value")
    key = entry_key(kv, "checkpoint", required(arguments, "name"))
    rest = {name: field for name, field in arguments.items() if name != "name"}
    semantics = {"purpose": "checkpoint", "producer": arguments.get("last_writer")}
    return {"key": key, "semantics": semantics, **rest}


async def flag_read(caller: ToolCaller, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a flag's value, or the default."""
    key = entry_key(caller.kv, "flag", required(arguments, "name"))
    entry = await caller.call("get", {"key": key})
    if not entry["exists"]:
        return {"set": False, "value": arguments.get("default")}
    members = ("value", "version", "expires_at", "last_writer", "updated_at")
    return {"set": True, **{name: entry[name] for name in members}}


async def counter_read(caller: ToolCaller, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the sum of a counter."""
    key = entry_key(caller.kv, "counter", required(arguments, "name"))
    entry = await caller.call("get", {"key": key})
    value = entry["value"] if entry["exists"] else 0
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValidationError(
            f"counter {arguments['name']!r} holds {kind_of(value)}, not a number", field="name"
        )
    return {"value": value}


async def counter_add(caller: ToolCaller, arguments: dict[str, Any]) -> dict[str, Any]:
    """Add to a counter."""
    rest = {name: field for name, field in arguments.items() if name != "name"}
    key = entry_key(caller.kv, "counter", required(arguments, "name"))
    return {"value": (await caller.call("incr", {"key": key, **rest}))["value"]}


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
    declared = FAMILIES[TABLE if table else "kv"][verb]

    def fields(kv: KV, arguments: dict[str, Any]) -> dict[str, Any]:
        if usual is not None:
            arguments.setdefault("limit", usual)
        return arguments

    return Tool(
        name=name,
        title=title,
        help=help,
        verbs=(verb,),
        arguments=schemas.arguments_of(
            declared.fields,
            name=_struct(name),
            instead=None if usual is None else {"limit": _limit(usual)},
        ),
        reply=declared.reply,
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
    destroys: bool = True,
    idempotent: bool = False,
    without: tuple[str, ...] = (),
    **instead: Any,
) -> Tool:
    """Declare a tool that is one writing verb. `instead` are arguments of its own."""
    declared = FAMILIES["kv"][verb]

    def fields(kv: KV, arguments: dict[str, Any]) -> dict[str, Any]:
        if "purpose" in arguments:
            arguments["semantics"] = {"purpose": arguments.pop("purpose")}
        return arguments

    return Tool(
        name=name,
        title=title,
        help=help,
        verbs=(verb,),
        arguments=schemas.arguments_of(
            declared.fields, name=_struct(name), without=without, instead={**schemas.COMMON, **instead}
        ),
        reply=reply or declared.reply,
        fields=fields,
        writes=True,
        destroys=destroys,
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
        reply=schemas.PutReply,
        purpose=schemas.Purpose,
    ),
    _writing(
        "append",
        "append",
        "Append to a log",
        "Add an item to the end of a log, such as a conversation or a list of findings, and return its "
        "number. Nothing is lost or replaced, however many callers append at once. Read the items with list: "
        "the prefix is the name of the log and a slash, after is the last number that you have seen, and "
        "reverse begins with the newest.",
        reply=schemas.AppendedReply,
        destroys=False,
        without=("keep", "keep_ttl"),
        purpose=schemas.Purpose,
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
        arguments=schemas.LockAcquireArguments,
        reply=schemas.LockAcquireReply,
        steps=lock_acquire,
        writes=True,
    ),
    Tool(
        name="lock_renew",
        title="Renew a lock",
        help="Keep a lock that you hold for another ttl seconds from now. If renewed is false you have lost "
        "it: stop the work that it protects.",
        verbs=("set_ttl",),
        arguments=schemas.LockRenewArguments,
        reply=schemas.LockRenewReply,
        steps=lock_renew,
        writes=True,
    ),
    Tool(
        name="lock_release",
        title="Release a lock",
        help="Release a lock that you hold, when the work is done or handed over. A lock that another "
        "caller has taken since stays as it is.",
        verbs=("delete",),
        arguments=schemas.LockReleaseArguments,
        reply=schemas.LockReleaseReply,
        steps=lock_release,
        writes=True,
        idempotent=True,
    ),
    Tool(
        name="checkpoint_load",
        title="Load a checkpoint",
        help="Return the saved progress of a job, with its version. Without a checkpoint exists is false and "
        "version is 0.",
        verbs=("get",),
        arguments=schemas.NamedArguments,
        reply=schemas.CheckpointReply,
        steps=checkpoint_load,
    ),
    Tool(
        name="checkpoint_save",
        title="Save a checkpoint",
        help="Save the progress of a job. Pass the version that checkpoint_load or your last "
        "checkpoint_save returned as expected_version. If another worker has moved on meanwhile nothing is "
        "written, and the result has its checkpoint.",
        verbs=("set",),
        arguments=schemas.CheckpointSaveArguments,
        reply=schemas.PutReply,
        fields=checkpoint_fields,
        writes=True,
    ),
    Tool(
        name="flag_read",
        title="Read a feature flag",
        help="Return the value of a feature flag, or the default if it is not set.",
        verbs=("get",),
        arguments=schemas.FlagArguments,
        reply=schemas.FlagReply,
        steps=flag_read,
    ),
    Tool(
        name="counter_read",
        title="Read a counter",
        help="Return the sum of a counter that many callers add to.",
        verbs=("get",),
        arguments=schemas.NamedArguments,
        reply=schemas.CounterReply,
        steps=counter_read,
    ),
    Tool(
        name="counter_add",
        title="Add to a counter",
        help="Add to a counter and return the new sum. No addition is lost, however many callers add at "
        "once.",
        verbs=("incr",),
        arguments=schemas.CounterAddArguments,
        reply=schemas.CounterReply,
        steps=counter_add,
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
