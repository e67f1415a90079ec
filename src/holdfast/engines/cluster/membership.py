"""The servers that keep a log: more of them, others instead of those that are gone, or all of them at first.

JetStream moves the messages, and the log can be used meanwhile. A change is done when every server that keeps
the log has all of it. Nothing is changed that would leave fewer copies than there are.

A server that was removed still counts for the majority of the servers until they are told to forget it: five
servers of which two were removed need three that agree. Only a user of the system account may tell them. The
password of that user goes to this machine or through TLS, never over a network in plain text.

JetStream takes no stream of a server that ran alone into a cluster, but it makes a backup of a stream and
restores it elsewhere: with the same messages, sequences and settings. So replicas of the log stay as they
are. The source is only read. A stream is restored whole or not at all, and the log comes last. What was
exported in part, by a process that died, is exported again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

import msgspec

from holdfast.bus.connection import Requester
from holdfast.bus.errors import BusError
from holdfast.bus.protocol import Message
from holdfast.engines.cluster import servers
from holdfast.engines.cluster.address import ClusterAddress
from holdfast.engines.cluster.jetstream import (
    FOR_A_WHILE,
    NO_PEERS,
    NO_STREAM,
    ApiRefusal,
    Fault,
    JetStream,
    NodeConnection,
    NoMajority,
)
from holdfast.engines.cluster.log import EPOCH
from holdfast.engines.cluster.replica import Differs
from holdfast.errors import Unavailable, Unsupported, ValidationError

MOST_SERVERS: Final = 5
"""The number of servers that JetStream lets keep a stream."""
CALL_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.25
_ALONE: Final = 10074
"""The server is not part of a NATS cluster."""
_NOT_KEEPING: Final = 10040
"""The server that is to be removed does not keep the stream."""
_NO_OTHER: Final = frozenset({10075, NO_PEERS})
"""No server is there that could keep the stream instead."""
_NOT_COUNTED: Final = 10044
"""The servers do not count that one."""
_HERE: Final = frozenset({"127.0.0.1", "localhost", "::1"})
CHUNK_BYTES: Final = 128 * 1024
PART_SECONDS: Final = 20.0
"""How long a call of JetStream, or a part of a backup, may take."""
RESTORE_SECONDS: Final = 600.0
"""How long a cluster may take to unpack a backup, and to copy it to all its servers."""
_DONE: Final = ("", "204")
"""The status of parts of a backup that arrived, and of its end."""


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

    async def add(self, *, seconds: float, on_wait: Callable[[], None] = lambda: None) -> LogServers:
        """Have servers that have joined keep the log too, as far as that makes it survive more losses.

        Of an even number of servers no more may be lost than of one fewer. So a single server that joins
        three is kept in reserve: to take the place of another, or to make five together with a further one.

        Args:
            seconds: The time for servers to join and to get the log.
            on_wait: Called once if none has joined by now.

        Raises:
            Unavailable: No server joined in time, or none can be asked who has.
        """
        end = asyncio.get_running_loop().time() + seconds
        kept = _names(await self._info(self._address.stream))
        spare = await self._spare(kept)
        if not spare:
            on_wait()
        while not spare:
            if asyncio.get_running_loop().time() > end:
                raise Unavailable(f"no further server has joined {', '.join(kept)} in {seconds:g} s")
            await asyncio.sleep(LOOK_SECONDS)
            spare = await self._spare(kept)
        most = min(MOST_SERVERS, len(kept) + len(spare))
        number = most - (most + 1) % 2
        gone = offline(await self._info(self._address.stream))
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
            lambda keeping: server not in keeping and len(keeping) >= len(names), seconds, changed=True
        )

    async def _streams(self) -> list[str]:
        """Return the names of the log and, if there is one, of the stream of snapshots."""
        streams = [self._address.stream]
        try:
            await self._call(f"STREAM.INFO.{streams[0]}_SNAPSHOTS", None)
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
                        info = await self._info(stream)
                        waits = lacking(info)
                        if info["cluster"].get("leader") and right(_names(info)) and not waits:
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
            return await self._call(f"STREAM.INFO.{stream}", None)
        except ApiRefusal as refused:
            if refused.code != NO_STREAM:
                raise Unavailable(f"JetStream does not show the stream {stream}: {refused}") from None
            raise ValidationError(
                f"the NATS servers at {self._address.shown} keep no store {self._address.name}", field="url"
            ) from None

    async def _change(self, call: str, body: Mapping[str, Any], number: int) -> None:
        try:
            await self._call(call, body)
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
            if refused.code != _NOT_KEEPING:  # an earlier attempt without an answer has done it
                raise Unavailable(f"JetStream refuses: {refused}") from None

    async def _call(self, call: str, body: Mapping[str, Any] | None) -> Any:
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


def _names(info: Any) -> list[str]:
    """Return the names of the servers that keep a stream."""
    cluster = info.get("cluster") or {}
    peers = [peer["name"] for peer in cluster.get("replicas") or []]
    return sorted([*([cluster["leader"]] if cluster.get("leader") else []), *peers])


def offline(info: Any) -> list[str]:
    """Return the names of the servers that keep a stream and are not there."""
    peers = (info.get("cluster") or {}).get("replicas") or []
    return [peer["name"] for peer in peers if peer.get("offline")]


def lacking(info: Any) -> list[str]:
    """Return the names of the servers that lack a part of a stream."""
    peers = (info.get("cluster") or {}).get("replicas") or []
    return [peer["name"] for peer in peers if peer.get("offline") or not peer.get("current")]


class NotForgotten(Exception):
    """The servers still count one of them. The text says why."""


async def forget(address: ClusterAddress, server: str, *, user: str, password: str, seconds: float) -> bool:
    """Have the servers forget one of them. Return whether they counted it.

    Args:
        address: The address of the cluster.
        server: The name of the server that is gone, or is to go.
        user: A user of the system account.
        password: The password of that user.
        seconds: How long to try while the servers elect a leader.

    Raises:
        NotForgotten: They still count it.
    """
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    places = [place for place in map(_place, address.servers) if place is not None]
    if not places:
        raise NotForgotten("no server of the URL is on this machine or has TLS")
    connection = NodeConnection(name=f"holdfast operator {address.name}")
    try:
        await connection.reach(
            [f"{scheme}://{login}@{place}" for scheme, place in places], address.remote.login()
        )
        jetstream = JetStream(connection, Requester(connection))
        return await _forget(jetstream, server, seconds)
    except (OSError, BusError) as error:
        raise NotForgotten(str(error)) from error
    finally:
        await connection.close()


def _place(url: str) -> tuple[str, str] | None:
    """Return scheme and place of a server to which a password may go; None for another."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return (parts.scheme, place) if parts.scheme == "tls" or parts.hostname in _HERE else None


async def _forget(jetstream: JetStream, server: str, seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        try:
            await jetstream.api("SERVER.REMOVE", {"peer": server}, seconds=CALL_SECONDS)
        except ApiRefusal as refused:
            if refused.code == _NOT_COUNTED:
                return False
            why = str(refused)
            if refused.code not in FOR_A_WHILE:
                raise NotForgotten(why) from None
        except TimeoutError:
            why = "no server answers"
        else:
            return True
        if loop.time() > end:
            raise NotForgotten(why)
        await asyncio.sleep(LOOK_SECONDS)


class LogExporter:
    """A connection to the servers that keep, or will keep, the streams of a store: it backs up and restores.

    Args:
        address: The address of the store there.
    """

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        self.connection = NodeConnection(name=f"holdfast brings {address.name}")
        self.requests = Requester(self.connection)
        self.jetstream = JetStream(self.connection, self.requests)

    async def __aenter__(self) -> Self:
        await self.connection.reach(self.address.servers, self.address.remote.login())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.connection.close()

    async def info(self, stream: str) -> Any:
        """Return what JetStream says about a stream; None if there is none."""
        try:
            return await self.jetstream.settled(f"STREAM.INFO.{stream}", seconds=PART_SECONDS)
        except ApiRefusal as refused:
            if refused.code == NO_STREAM:
                return None
            raise

    async def backup(self, stream: str) -> AsyncGenerator[bytes, None]:
        """Yield the parts of a stream's backup. The server sends more as the former ones are taken."""
        inbox = self.connection.new_inbox()
        parts: asyncio.Queue[Message] = asyncio.Queue()
        subscription = self.connection.listen(inbox, parts.put_nowait)
        body = {"deliver_subject": inbox, "no_consumers": True, "chunk_size": CHUNK_BYTES}
        try:
            await self.jetstream.settled(f"STREAM.SNAPSHOT.{stream}", body, seconds=PART_SECONDS)
            while True:
                async with asyncio.timeout(PART_SECONDS):
                    part = await parts.get()
                if part.status not in _DONE:
                    raise Unavailable(f"the backup of {stream} ended with the status {part.status}")
                if not part.data:
                    return
                yield part.data
                if part.reply:
                    self.connection.send(part.reply, b"")
        finally:
            subscription.cancel()

    async def restore(self, info: Any, parts: AsyncIterator[bytes], replicas: int) -> None:
        """Make a stream from a backup, kept by so many servers."""
        stream = info["config"]["name"]
        body = {"config": {**info["config"], "num_replicas": replicas}, "state": info["state"]}
        reply = await self.jetstream.settled(f"STREAM.RESTORE.{stream}", body, seconds=PART_SECONDS)
        where = reply["deliver_subject"]
        async for part in parts:
            await self._send(where, part, PART_SECONDS)
        await self._send(where, b"", RESTORE_SECONDS)

    async def _send(self, where: str, part: bytes, seconds: float) -> None:
        reply = await self.requests.ask(where, part, seconds=seconds)
        if reply.data and "error" in (answer := msgspec.json.decode(reply.data)):
            raise ApiRefusal(msgspec.convert(answer["error"], Fault))


async def export_log(source: ClusterAddress, target: ClusterAddress) -> bool:
    """Bring the streams of a store from a server that ran alone to servers that form a cluster.

    Returns:
        Whether there was a log to bring.

    Raises:
        Differs: The cluster keeps another store of this name.
        Unavailable: The streams could not be brought; the same can be tried again.
    """
    try:
        async with LogExporter(source) as lone, LogExporter(target) as cluster:
            ours = await lone.info(source.stream)
            if ours is None:
                return False
            _require_same(ours, await cluster.info(target.stream), target)
            for stream in (f"{source.stream}_SNAPSHOTS", source.stream):
                await _export(stream, lone, cluster)
            await Membership(target, cluster.jetstream).grow(target.replicas, seconds=RESTORE_SECONDS)
    except (ApiRefusal, TimeoutError, BusError, OSError) as error:
        why = str(error) or "no answer in time"
        raise NoMajority(f"the log of {target.name} could not be brought to the cluster: {why}") from error
    return True


async def _export(stream: str, lone: LogExporter, cluster: LogExporter) -> None:
    """Bring a stream, unless the cluster has it."""
    ours, theirs = await lone.info(stream), await cluster.info(stream)
    if ours is None:
        return
    if theirs is not None:
        if theirs["state"]["last_seq"] >= ours["state"]["last_seq"]:
            return
        await cluster.jetstream.settled(f"STREAM.DELETE.{stream}", seconds=PART_SECONDS)
    async with contextlib.aclosing(lone.backup(stream)) as parts:
        await cluster.restore(ours, parts, cluster.address.replicas)
    kept = await cluster.info(stream)
    if kept is None or kept["state"]["last_seq"] != ours["state"]["last_seq"]:
        raise Unavailable(f"the cluster has not got all of the stream {stream}")


def _require_same(ours: Any, theirs: Any, target: ClusterAddress) -> None:
    epochs = [((info or {}).get("config", {}).get("metadata") or {}).get(EPOCH) for info in (ours, theirs)]
    if theirs is not None and epochs[0] != epochs[1]:
        raise Differs(
            f"this machine brings a store {target.name} with the epoch {epochs[0]}, but the others keep "
            f"another store of that name, with the epoch {epochs[1]}. Start those machines with empty data "
            "folders, or this one without its data folder"
        )
