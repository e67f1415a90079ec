"""The servers that keep a log: more of them, or another one instead of one that is gone.

Law: JetStream moves the messages, and the log can be used meanwhile. A change is done when every server that
keeps the log has all of it. Nothing is changed that would leave fewer copies than there are.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.bus.errors import BusError
from holdfast.engines.cluster import servers
from holdfast.engines.cluster.jetstream import FOR_A_WHILE, NO_PEERS, NO_STREAM, ApiRefusal
from holdfast.errors import Unavailable, Unsupported, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.engines.cluster.address import ClusterAddress
    from holdfast.engines.cluster.jetstream import JetStream

MOST_SERVERS: Final = 5
"""The number of servers that JetStream lets keep a stream."""
CALL_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.25
_ALONE: Final = 10074
"""The server is not part of a NATS cluster."""
_NO_MEMBER: Final = 10040
"""The server that is to be removed does not keep the stream."""
_NO_OTHER: Final = frozenset({10075, NO_PEERS})
"""No server is there that could keep the stream instead."""


class LogServers(msgspec.Struct, frozen=True, kw_only=True):
    """The servers that keep the log, by name, and whether something had to be changed.

    `spare` are those that are there and do not keep it, `gone` those that keep it and are not there.
    `forgotten` says that a removed server no longer counts for the majority of the servers.
    """

    servers: list[str]
    changed: bool
    spare: list[str] = []
    gone: list[str] = []
    forgotten: bool = False


class Membership:
    """The servers of one store's log and of its snapshots.

    Args:
        address: The address of the cluster.
        jetstream: JetStream.
    """

    def __init__(self, address: ClusterAddress, jetstream: JetStream) -> None:
        self._address = address
        self._jetstream = jetstream

    async def kept(self) -> LogServers:
        """Return the servers that keep the log."""
        return LogServers(servers=_names(await self._info(self._address.stream)), changed=False)

    async def grow(self, number: int, *, seconds: float) -> LogServers:
        """Have the log kept by so many servers.

        Raises:
            ValidationError: That is fewer than now, or more than JetStream allows.
            Unsupported: The server runs alone.
            Unavailable: There are too few servers, or they did not get the log in time.
        """
        if not 1 <= number <= MOST_SERVERS:
            raise ValidationError(f"the log is kept by 1 to {MOST_SERVERS} servers", field="to")
        now = int((await self._info(self._address.stream))["config"]["num_replicas"])
        if now > number:
            raise ValidationError(f"the log is kept by {now} servers already: name no fewer", field="to")
        changed = False
        for stream in await self._streams():
            config = (await self._info(stream))["config"]
            if config["num_replicas"] < number:
                changed = True
                await self._change(f"STREAM.UPDATE.{stream}", {**config, "num_replicas": number}, number)
        return await self._whole(lambda names: len(names) >= number, seconds, changed=changed)

    async def add(self, *, seconds: float, told: Callable[[], None] = lambda: None) -> LogServers:
        """Have servers that have joined keep the log too, as far as that makes it survive more losses.

        Of an even number of servers no more may be lost than of one fewer. So a single server that joins
        three is kept in reserve: to take the place of another, or to make five together with a further one.

        Args:
            seconds: The time for servers to join and to get the log.
            told: Called once if none has joined by now.

        Raises:
            Unavailable: No server joined in time, or none can be asked who has.
        """
        end = asyncio.get_running_loop().time() + seconds
        kept = _names(await self._info(self._address.stream))
        spare = await self._spare(kept)
        if not spare:
            told()
        while not spare:
            if asyncio.get_running_loop().time() > end:
                raise Unavailable(f"no further server has joined {', '.join(kept)} in {seconds:g} s")
            await asyncio.sleep(LOOK_SECONDS)
            spare = await self._spare(kept)
        most = min(MOST_SERVERS, len(kept) + len(spare))
        number = most - (most + 1) % 2
        gone = _gone(await self._info(self._address.stream))
        if number <= len(kept) or gone:
            return LogServers(servers=kept, changed=False, spare=sorted(spare), gone=gone)
        while True:  # JetStream places nothing on a server for some seconds after its start
            left = end - asyncio.get_running_loop().time()
            try:
                done = await self.grow(number, seconds=max(1.0, left))
                break
            except Unavailable:
                if left < 0:
                    raise
            await asyncio.sleep(LOOK_SECONDS)
        return msgspec.structs.replace(done, spare=sorted(spare - set(done.servers)))

    async def _spare(self, kept: list[str]) -> set[str]:
        """Return the servers that have joined and do not keep the log."""
        there = await servers.names(self._address)
        if not there:
            raise Unavailable(
                f"no server of {self._address.shown} says at its monitoring port which servers have joined: "
                "run this on a machine of the cluster, or name the port as monitor=PORT in the URL"
            )
        return there - set(kept)

    async def remove(self, server: str, *, seconds: float) -> LogServers:
        """Have another server keep the log instead of one.

        Raises:
            ValidationError: That server does not keep it, or it is the only one.
            Unavailable: No other server of the URL is there, or it did not get the log in time.
        """
        names = _names(await self._info(self._address.stream))
        if server not in names:
            raise ValidationError(
                f"no server {server!r} keeps the log; those that do are {', '.join(names)}", field="server"
            )
        if len(names) == 1:
            raise ValidationError(
                f"{server} alone keeps the log: have others keep it first, with holdfast cluster grow",
                field="server",
            )
        if not await servers.names(self._address) - set(names):
            raise Unavailable(
                "no other server is there to keep the log: start one, name it in the URL, and try again"
            )
        for stream in await self._streams():
            if server in _names(await self._info(stream)):
                await self._change(f"STREAM.PEER.REMOVE.{stream}", {"peer": server}, len(names))
        return await self._whole(
            lambda found: server not in found and len(found) >= len(names), seconds, changed=True
        )

    async def _streams(self) -> list[str]:
        """Return the names of the log and, if there is one, of the stream of snapshots."""
        streams = [self._address.stream]
        try:
            await self._asked(f"STREAM.INFO.{streams[0]}_SNAPSHOTS", None)
        except ApiRefusal as refused:
            if refused.code == NO_STREAM:
                return streams
        return [*streams, f"{streams[0]}_SNAPSHOTS"]

    async def _whole(
        self, right: Callable[[list[str]], bool], seconds: float, *, changed: bool
    ) -> LogServers:
        """Wait until the right servers keep the log and the snapshots, all of them whole."""
        waits: list[str] = []
        try:
            async with asyncio.timeout(seconds):
                for stream in await self._streams():
                    while True:
                        told = await self._info(stream)
                        waits = _lacking(told)
                        if told["cluster"].get("leader") and right(_names(told)) and not waits:
                            break
                        await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            behind = ", ".join(waits) or "a further server"
            raise Unavailable(
                f"the change is under way, but not done after {seconds:g} s: {behind} has not got all of the "
                "log; see holdfast cluster status"
            ) from None
        return LogServers(servers=_names(await self._info(self._address.stream)), changed=changed)

    async def _info(self, stream: str) -> Any:
        try:
            return await self._asked(f"STREAM.INFO.{stream}", None)
        except ApiRefusal as refused:
            if refused.code != NO_STREAM:
                raise Unavailable(f"JetStream does not show the stream {stream}: {refused}") from None
            raise ValidationError(
                f"the NATS servers at {self._address.shown} keep no store {self._address.name}", field="url"
            ) from None

    async def _change(self, call: str, body: Mapping[str, Any], number: int) -> None:
        try:
            await self._asked(call, body)
        except ApiRefusal as refused:
            if refused.code == _ALONE:
                raise Unsupported(
                    "this NATS server is not part of a cluster of servers. If holdfast up --cluster started "
                    "it, stop that, and start it again with --peers here and on two more machines: it brings "
                    "its log along. Otherwise start a cluster of three servers, and move the store there "
                    "with holdfast copy --switch"
                ) from None
            if refused.code in _NO_OTHER:
                raise Unavailable(
                    f"the log needs {number} servers with JetStream and room for it, and too few are there"
                ) from None
            if refused.code != _NO_MEMBER:  # an earlier attempt without an answer has done it
                raise Unavailable(f"JetStream refuses: {refused}") from None

    async def _asked(self, call: str, body: Mapping[str, Any] | None) -> Any:
        """Make a call of JetStream's API, again and again while servers elect a leader."""
        end = asyncio.get_running_loop().time() + self._address.timeout
        while True:
            try:
                return await self._jetstream.api(call, body, seconds=CALL_SECONDS)
            except ApiRefusal as refused:
                if refused.code not in FOR_A_WHILE:
                    raise
            except (TimeoutError, BusError):
                pass
            if asyncio.get_running_loop().time() > end:
                what = f"the servers of {self._address.name} can't be changed"
                raise Unavailable(await servers.no_quorum(self._address, what))
            await asyncio.sleep(LOOK_SECONDS)


def _names(told: Any) -> list[str]:
    """Return the names of the servers that keep a stream."""
    cluster = told.get("cluster") or {}
    peers = [peer["name"] for peer in cluster.get("replicas") or []]
    return sorted([*([cluster["leader"]] if cluster.get("leader") else []), *peers])


def _gone(told: Any) -> list[str]:
    """Return the names of the servers that keep a stream and are not there."""
    peers = (told.get("cluster") or {}).get("replicas") or []
    return [peer["name"] for peer in peers if peer.get("offline")]


def _lacking(told: Any) -> list[str]:
    """Return the names of the servers that lack a part of a stream."""
    peers = (told.get("cluster") or {}).get("replicas") or []
    return [peer["name"] for peer in peers if peer.get("offline") or not peer.get("current")]
