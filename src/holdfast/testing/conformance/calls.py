"""One call of every verb, by its name, for rules that hold for all of them.

Law: rules for all verbs are not tested on a verb that is missing here, so every verb of the handle is here
once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.handles.kv import KV


def on_key(kv: KV) -> dict[str, Callable[[Any], Awaitable[object]]]:
    """Return every verb that takes one key, as a call with only that key."""
    return {
        "set": lambda key: kv.set(key, 1),
        "get": kv.get,
        "exists": kv.exists,
        "delete": kv.delete,
        "incr": kv.incr,
        "get_ttl": kv.get_ttl,
        "set_ttl": lambda key: kv.set_ttl(key, 60),
        "touch": lambda key: kv.touch(key, 60),
        "remove_ttl": kv.remove_ttl,
        "history": kv.history,
        "restore": kv.restore,
        "batch, a write": lambda key: kv.batch(writes=[{"key": key, "value": 1}]),
        "batch, a delete": lambda key: kv.batch(writes=[{"key": key, "delete": True}]),
        "batch, an incr": lambda key: kv.batch(writes=[{"key": key, "incr": 1}]),
        "batch, a check": lambda key: kv.batch(checks=[{"key": key, "version": 0}], writes=[]),
    }


def conditional(kv: KV, key: str) -> dict[str, Callable[..., Awaitable[object]]]:
    """Return every verb that takes an expected version, as a call with keyword arguments."""
    return {
        "set": lambda **given: kv.set(key, "new", **given),
        "delete": lambda **given: kv.delete(key, **given),
        "incr": lambda **given: kv.incr(key, **given),
        "set_ttl": lambda **given: kv.set_ttl(key, 60, **given),
        "touch": lambda **given: kv.touch(key, 60, **given),
        "remove_ttl": lambda **given: kv.remove_ttl(key, **given),
        "restore": lambda **given: kv.restore(key, **given),
    }


def writing(kv: KV, key: str) -> dict[str, Callable[..., Awaitable[Any]]]:
    """Return every verb that writes, as a call with only provenance, such as `request_id` and `timeout`."""
    return {
        **conditional(kv, key),
        "set_many": lambda **given: kv.set_many([{"key": key, "value": "new"}], **given),
        "delete_many": lambda **given: kv.delete_many([key], **given),
        "batch": lambda **given: kv.batch(writes=[{"key": key, "value": "new"}], **given),
    }
