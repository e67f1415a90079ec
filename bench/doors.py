"""How a client asks each side over a connection: as that side's users do.

Every NATS side is asked with nats-py's own `request`, so that a ratio compares services and no clients;
the others through their own libraries, and Holdfast once more through its own. A door gives `get` and `set`
of a plugin's key and nothing more, and raises when it was refused.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import nats

import holdfast

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js.kv import KeyValue

PATIENCE: Final = 30.0
KEYS: Final = 200
"""How many keys each plugin has, unless somebody says otherwise."""


def value(number: int) -> dict[str, object]:
    """About 100 bytes, others for each call: a database need not write what it has already."""
    return {"turn": number, "score": [3, 1, 4], "pad": "x" * 60}


def key_of(number: int) -> str:
    """A plugin's key."""
    return f"key:{number:08}"


class Door(Protocol):
    """What a caller needs of a side."""

    async def open(self, url: str, plugins: list[str]) -> None:
        """Connect as each of the plugins."""
        ...

    async def get(self, plugin: int, key: str) -> None:
        """Read a key."""
        ...

    async def set(self, plugin: int, key: str, number: int) -> None:
        """Write a key."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class Refused(Exception):
    """A service's refusal."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


NOTHING_THERE: Final = "NOTHING_THERE"
"""A get that finds nothing is no get: it costs less."""


def _decoded(found: bytes | None) -> object:
    if found is None:
        raise Refused(NOTHING_THERE)
    return msgspec.json.decode(found)


class _Reply(msgspec.Struct):
    """What is looked at in a reply; what only echoes has none of it."""

    success: bool = True
    exists: bool = True
    error_code: str = ""


class NatsDoor:
    """Holdfast, the bare echo and the naive service: plain requests with JSON in them."""

    def __init__(self) -> None:
        self._clients: list[tuple[Client, str]] = []
        self._replies = msgspec.json.Decoder(_Reply)

    async def open(self, url: str, plugins: list[str]) -> None:
        """Give every plugin a connection of its own."""
        for plugin in plugins:
            self._clients.append((await nats.connect(url), plugin))

    async def get(self, plugin: int, key: str) -> None:
        """Read a key."""
        await self.ask(plugin, "get", {"key": key})

    async def set(self, plugin: int, key: str, number: int) -> None:
        """Write a key."""
        await self.ask(plugin, "set", {"key": key, "value": value(number)})

    async def ask(self, plugin: int, verb: str, fields: dict[str, Any]) -> bytes:
        """Any verb of the plugin dialect."""
        return await self.ask_as(plugin, self._clients[plugin][1], verb, fields)

    async def ask_as(self, connection: int, name: str, verb: str, fields: dict[str, Any]) -> bytes:
        """Any verb, over one of the connections as any plugin."""
        client, _ = self._clients[connection]
        payload = msgspec.json.encode(fields)
        answer = await client.request(f"db.kv.{name}.{verb}", payload, timeout=PATIENCE)
        reply = self._replies.decode(answer.data)
        if not reply.success or not reply.exists:
            raise Refused(reply.error_code or NOTHING_THERE)
        return answer.data

    async def close(self) -> None:
        """Disconnect."""
        for client, _ in self._clients:
            await client.close()


class JetStreamDoor:
    """JetStream's key-value buckets through nats-py: one for each plugin, in files, with the quicker gets.

    Args:
        replicas: The number of servers that keep each bucket.
    """

    def __init__(self, *, replicas: int = 1) -> None:
        self._replicas = replicas
        self._clients: list[Client] = []
        self._buckets: list[KeyValue] = []

    async def open(self, url: str, plugins: list[str]) -> None:
        """Give every plugin a connection and a bucket of its own."""
        from nats.js.errors import BucketNotFoundError

        for plugin in plugins:
            client = await nats.connect(url)
            context = client.jetstream(timeout=PATIENCE)
            try:
                bucket = await context.key_value(plugin)
            except BucketNotFoundError:
                bucket = await context.create_key_value(bucket=plugin, direct=True, replicas=self._replicas)
            self._clients.append(client)
            self._buckets.append(bucket)

    async def get(self, plugin: int, key: str) -> None:
        """Read a key, as JSON."""
        entry = await self._buckets[plugin].get(_bucket_key(key))
        _decoded(entry.value)

    async def set(self, plugin: int, key: str, number: int) -> None:
        """Write a key, as JSON."""
        await self._buckets[plugin].put(_bucket_key(key), msgspec.json.encode(value(number)))

    async def close(self) -> None:
        """Disconnect."""
        for client in self._clients:
            await client.close()


def _bucket_key(key: str) -> str:
    """A bucket takes no colon in a key."""
    return key.replace(":", ".")


class RedisDoor:
    """Redis through redis-py's asyncio client, with its compiled parser and its own pool for each plugin."""

    def __init__(self) -> None:
        self._clients: list[Any] = []
        self._plugins: list[str] = []

    async def open(self, url: str, plugins: list[str]) -> None:
        """Give every plugin a pool of its own."""
        from redis.asyncio import Redis

        self._plugins = plugins
        self._clients = [Redis.from_url(url) for _ in plugins]
        await asyncio.gather(*(client.ping() for client in self._clients))

    async def get(self, plugin: int, key: str) -> None:
        """Read a key, as JSON."""
        _decoded(await self._clients[plugin].get(f"{self._plugins[plugin]}:{key}"))

    async def set(self, plugin: int, key: str, number: int) -> None:
        """Write a key, as JSON."""
        await self._clients[plugin].set(f"{self._plugins[plugin]}:{key}", msgspec.json.encode(value(number)))

    async def close(self) -> None:
        """Disconnect."""
        for client in self._clients:
            await client.aclose()


class OwnDoor:
    """Holdfast through its own client: entries with their envelope, deadlines, errors that tell apart."""

    def __init__(self) -> None:
        self._stores: list[holdfast.Store] = []
        self._handles: list[holdfast.KV] = []

    async def open(self, url: str, plugins: list[str]) -> None:
        """Give every plugin a store of its own."""
        for plugin in plugins:
            store = holdfast.open(url)
            await store.start()
            self._stores.append(store)
            self._handles.append(store.kv(plugin))

    async def get(self, plugin: int, key: str) -> None:
        """Read a key."""
        if await self._handles[plugin].get(key) is None:
            raise Refused(NOTHING_THERE)

    async def set(self, plugin: int, key: str, number: int) -> None:
        """Write a key."""
        await self._handles[plugin].set(key, value(number))

    async def close(self) -> None:
        """Disconnect."""
        for store in self._stores:
            await store.aclose()


class DiskCacheDoor:
    """diskcache in this process, which has no asynchronous calls."""

    def __init__(self) -> None:
        self._plugins: list[str] = []

    async def open(self, url: str, plugins: list[str]) -> None:
        """Open the folder, which all plugins share."""
        # late: a client of another side does without it
        from bench.peers.diskcache import DiskCache

        self._cache = DiskCache(Path(url))
        self._plugins = plugins

    async def get(self, plugin: int, key: str) -> None:
        """Read a key."""
        await self._cache.get(f"{self._plugins[plugin]}:{key}")

    async def set(self, plugin: int, key: str, number: int) -> None:
        """Write a key."""
        await self._cache.set(f"{self._plugins[plugin]}:{key}", value(number))

    async def close(self) -> None:
        """Close it."""
        self._cache.__exit__(None, None, None)


DOORS: Final[dict[str, type[Door]]] = {
    "nats": NatsDoor,
    "own": OwnDoor,
    "diskcache": DiskCacheDoor,
    "jetstream": JetStreamDoor,
    "redis": RedisDoor,
}
