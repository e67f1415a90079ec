"""The tools that are recipes: locks, checkpoints, flags and counters, as steps of verbs.

A lock is the entry and the guard that `holdfast.handles.recipes.lock` writes, so that agents and programs
exclude each other. An agent renews its lease itself, because a server that renewed it would keep the lock of
an agent that has stopped. Its token is the fence of every step: the store refuses a renewal or a release as
soon as a newer holder has taken the lock.

Law: the batch that takes a lock, and its fence, decide who holds it. Everything read before is a courtesy.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Fenced, KeyNotFound, ValidationError, VersionConflict
from holdfast.handles.recipes.names import WAITING, entry_key, lock_key
from holdfast.rules import kind_of
from holdfast.verbs.fields import required

if TYPE_CHECKING:
    from holdfast.edges.mcp.callers import ToolCaller
    from holdfast.handles.kv import KV

LEASE_SECONDS: Final = 60
"""Seconds of a lease if the caller names none: agents take longer over a step than programs."""
_TRY_LATER: Final = "Do other work, or try again after expires_at; it may be released earlier."
_LOST: Final = (
    "You no longer hold the lock. Stop working on what it protects, write nothing more for it, and acquire "
    "the lock again if there is still something to do."
)


async def lock_acquire(caller: ToolCaller, given: dict[str, Any]) -> dict[str, Any]:
    """Take a lock if it is free and has no waiters."""
    name = required(given, "name")
    key = lock_key(caller.kv, name)
    holder = given.get("request_id") or secrets.token_hex(8)
    held = await caller.call("get", {"key": key})
    if held["exists"]:
        if holder_of(held) != holder:
            return _held_by(held)
    elif (await caller.call("list", {"prefix": f"{key}/{WAITING}/", "limit": 1}))["keys"]:
        return {"acquired": False, "waiting": True, "next": "Programs wait for this lock. Try again later."}
    try:
        taken = await caller.call("batch", _claim(given, key, holder))
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


async def lock_renew(caller: ToolCaller, given: dict[str, Any]) -> dict[str, Any]:
    """Extend the lease of a lock that the caller still holds."""
    key = lock_key(caller.kv, required(given, "name"))
    fields = {"key": key, "ttl": given.get("ttl", LEASE_SECONDS), **_fenced(given)}
    try:
        renewed = await caller.call("set_ttl", fields)
    except (Fenced, KeyNotFound):
        return {"renewed": False, "next": _LOST}
    return {
        "renewed": True,
        "expires_at": renewed["expires_at"],
        "next": "Go on, and renew again well before expires_at.",
    }


async def lock_release(caller: ToolCaller, given: dict[str, Any]) -> dict[str, Any]:
    """Release a lock that the caller still holds; one that another holder has taken stays."""
    key = lock_key(caller.kv, required(given, "name"))
    try:
        released = await caller.call("delete", {"key": key, **_fenced(given)})
    except Fenced:
        return {"released": False}
    return {"released": released["deleted"]}


def _claim(given: dict[str, Any], key: str, holder: str) -> dict[str, Any]:
    """Return the fields of the batch that takes a lock. Its request id makes it safe to repeat."""
    owner = given.get("last_writer")
    lock = {
        "key": key,
        "value": {"holder": holder},
        "ttl": given.get("ttl", LEASE_SECONDS),
        "semantics": {"purpose": "lock", "producer": owner},
    }
    return {
        "checks": [{"key": key, "version": 0}],
        "writes": [lock, {"guard": given["name"]}],
        "request_id": given.get("request_id") or f"lock-{holder}",
        **({} if owner is None else {"last_writer": owner}),
    }


def _fenced(given: dict[str, Any]) -> dict[str, Any]:
    fence = {"lock": given["name"], "token": required(given, "token")}
    owner = given.get("last_writer")
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


async def checkpoint_load(caller: ToolCaller, given: dict[str, Any]) -> dict[str, Any]:
    """Return a checkpoint, or version 0 if there is none."""
    key = entry_key(caller.kv, "checkpoint", required(given, "name"))
    return {"version": 0, **await caller.call("get", {"key": key})}


def checkpoint_fields(kv: KV, given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the set that moves a checkpoint on from the version that the caller has loaded."""
    required(given, "expected_version")
    required(given, "value")
    key = entry_key(kv, "checkpoint", required(given, "name"))
    rest = {name: field for name, field in given.items() if name != "name"}
    semantics = {"purpose": "checkpoint", "producer": given.get("last_writer")}
    return {"key": key, "semantics": semantics, **rest}


async def flag_read(caller: ToolCaller, given: dict[str, Any]) -> dict[str, Any]:
    """Return a flag's value, or the default."""
    key = entry_key(caller.kv, "flag", required(given, "name"))
    found = await caller.call("get", {"key": key})
    if not found["exists"]:
        return {"set": False, "value": given.get("default")}
    shown = ("value", "version", "expires_at", "last_writer", "updated_at")
    return {"set": True, **{name: found[name] for name in shown}}


async def counter_read(caller: ToolCaller, given: dict[str, Any]) -> dict[str, Any]:
    """Return the sum of a counter."""
    key = entry_key(caller.kv, "counter", required(given, "name"))
    found = await caller.call("get", {"key": key})
    value = found["value"] if found["exists"] else 0
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValidationError(f"counter {given['name']!r} holds {kind_of(value)}, not a number", field="name")
    return {"value": value}


async def counter_add(caller: ToolCaller, given: dict[str, Any]) -> dict[str, Any]:
    """Add to a counter."""
    rest = {name: field for name, field in given.items() if name != "name"}
    key = entry_key(caller.kv, "counter", required(given, "name"))
    return {"value": (await caller.call("incr", {"key": key, **rest}))["value"]}
