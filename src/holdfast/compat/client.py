"""The Rosey plugin's client: the plugin's own keys, over a NATS connection that it already has.

Law: the client uses only `request` of the connection, which may be one of nats-py. The service decides.
Errors are raised as `BotDatabase` raises them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import msgspec

from holdfast import rules
from holdfast.engines.sql.orm import builtin_errors, json_text
from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable, ValidationError, ValueTooLarge
from holdfast.verbs.fields import ttl_field
from holdfast.wire.dialects import PLUGIN
from holdfast.wire.errors import error_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOBODY: Final = frozenset({"NoRespondersError", "ConnectionError"})
"""Names of the errors by which connections report that no service is listening.

One is that of nats-py, which need not be installed; the other is ours.
"""
_READS: Final = frozenset({"get", "list", "get_ttl"})


class Reply(Protocol):
    """The reply to a request."""

    @property
    def data(self) -> bytes:
        """The payload."""
        ...


class Requests(Protocol):
    """The part of a NATS connection that a client uses."""

    async def request(
        self,
        subject: str,
        payload: bytes = ...,
        timeout: float = ...,  # noqa: ASYNC109 - as in nats-py
    ) -> Reply:
        """Send a request and wait for its reply."""
        ...


class DatabaseClient:
    """The database of one plugin: `client.kv` has its keys.

    Args:
        nats: A connection, such as one of nats-py. Its owner closes it.
        plugin_name: The plugin that owns the keys.
        prefix: The beginning of the service's subjects.
        timeout: Seconds to wait for a reply.

    Raises:
        ValueError: The plugin's name is not valid.
    """

    def __init__(self, nats: Requests, plugin_name: str, *, prefix: str = "db", timeout: float = 5.0) -> None:
        with builtin_errors():
            rules.plugin_name(plugin_name)
        self.plugin_name = plugin_name
        self.kv: PluginKeys = PluginKeys(nats, f"{prefix}.kv.{plugin_name}", timeout)


class PluginKeys:
    """The keys of a plugin. Every call raises what those of `BotDatabase` raise, and also:

    Raises:
        Unavailable: No service answers; nothing was done.
        OutcomeUnknown: A write was not answered in time: it may or may not have been done.
    """

    def __init__(self, nats: Requests, subject: str, timeout: float) -> None:
        self._nats = nats
        self._subject = subject
        self._timeout = timeout

    async def set(self, key: str, value: Any, ttl_seconds: int | None = None, ttl: int | None = None) -> int:
        """Set a key to a JSON value, which expires after the ttl if one is given. Returns its version."""
        with builtin_errors():
            seconds = ttl_field({"ttl": ttl, "ttl_seconds": ttl_seconds})
            raw = msgspec.Raw(json_text(value).encode())
        reply = await self._ask("set", {"key": key, "value": raw, "ttl": seconds})
        version: int = reply["version"]
        return version

    async def get(self, key: str, default: Any = None) -> Any:
        """Get the value of a key. Returns the default if the key does not exist or has expired."""
        reply = await self._ask("get", {"key": key})
        return reply["value"] if reply["exists"] else default

    async def delete(self, key: str) -> bool:
        """Remove a key. Returns True if it was there."""
        return bool((await self._ask("delete", {"key": key}))["deleted"])

    async def list(self, prefix: str = "", limit: int = 1000) -> list[str]:
        """List the first `limit` keys that begin with a prefix, in the order of their bytes."""
        reply = await self._ask("list", {"prefix": prefix, "limit": limit})
        keys: list[str] = reply["keys"]
        while reply["cursor"] is not None and len(keys) < limit:
            more = {"prefix": prefix, "limit": limit - len(keys), "cursor": reply["cursor"]}
            reply = await self._ask("list", more)
            keys += reply["keys"]
        return keys

    async def incr(self, key: str, by: float = 1, ttl: int | None = None) -> int | float:
        """Add to a number, starting from 0 if the key does not exist. Returns the sum."""
        value: int | float = (await self._ask("incr", {"key": key, "by": by, "ttl": ttl}))["value"]
        return value

    async def _ask(self, verb: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        given = {name: field for name, field in fields.items() if field is not None}
        subject = f"{self._subject}.{verb}"
        payload = PLUGIN.request({**given, "deadline_ms": int(self._timeout * 1000)})
        try:
            reply = PLUGIN.answer((await self._nats.request(subject, payload, timeout=self._timeout)).data)
        except TimeoutError:
            raise _late(verb, subject, self._timeout) from None
        except Exception as error:
            if type(error).__name__ not in _NOBODY:
                raise
            raise Unavailable(f"no Holdfast service answers at {subject}") from error
        if not reply["success"]:
            _raise(error_of(reply))
        return reply


def _raise(error: HoldfastError) -> NoReturn:
    if isinstance(error, (ValidationError, ValueTooLarge)):
        raise ValueError(error.message) from error
    raise error


def _late(verb: str, subject: str, seconds: float) -> Unavailable | OutcomeUnknown:
    if verb in _READS:
        return Unavailable(f"no reply from {subject} came within {seconds:g} s")
    return OutcomeUnknown(f"no reply to {verb} came within {seconds:g} s: it may or may not have been done")
