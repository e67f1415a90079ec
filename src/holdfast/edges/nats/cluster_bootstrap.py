"""The first meeting of the machines of a cluster: one of them may bring the log that it kept alone.

A server that ran alone can't take its streams into a cluster. So its files are set aside, the machine starts
with the others, and the streams are brought to all of them.

No machine creates a log before every one has said that it brings none. The files that were set aside are
kept, and only read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote

import msgspec

from holdfast.bus.errors import BusError, LoginRefused
from holdfast.edges.nats.cluster_server import (
    is_new,
    login_file,
    lone_server_config,
    node_password,
    pause,
    server_name,
)
from holdfast.edges.nats.server import NatsServer
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.jetstream import ApiRefusal, NoMajority
from holdfast.engines.cluster.membership import LogExporter, export_log
from holdfast.engines.cluster.reports import Inbox
from holdfast.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from holdfast.bus.protocol import Message
    from holdfast.edges.settings.table import Config

ANSWER_SECONDS: Final = 1.0
"""How long the other machines are given to answer."""
ASIDE: Final = "jetstream-alone"
BROUGHT: Final = "jetstream-brought"


class MachineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine says to the others: its server's name, and whether it brings a log."""

    server: str
    brings: bool


def set_aside(config: Config, folder: Path) -> bool:
    """Set the files of a server that ran alone aside, if this machine has peers now.

    Returns:
        Whether there is a log to bring.
    """
    if not config.peers:
        return False
    store, aside = folder / "jetstream", folder / ASIDE
    kept = store / "jetstream"
    if any(kept.glob(f"*/streams/HF_{config.cluster}")) and not any(kept.glob("*/_js_/_meta_")):
        os.rename(store, aside)
    return aside.exists()


class ClusterBootstrap:
    """The answers of this machine to the others, and its questions to them.

    Args:
        config: The settings of this machine.
        folder: The folder of its NATS server.
        brings: Whether it brings a log.
        say: Prints a line for the person who started it.
        stop: Set when Holdfast is to stop.
    """

    def __init__(
        self, config: Config, folder: Path, *, brings: bool, say: Callable[[str], None], stop: asyncio.Event
    ) -> None:
        self._config = config
        self._folder = folder
        self._brings = brings
        self._say = say
        self._stop = stop
        self._address = cluster_address(config.db)
        self._subject = self._address.subject("machine", "all")
        self._server = server_name(config, folder)
        node_password(folder)
        self._exporter = LogExporter(self._address)
        self._last_line = ""

    async def __aenter__(self) -> Self:
        while True:
            try:
                await self._exporter.__aenter__()
                break
            except LoginRefused:
                raise PermissionDenied("the NATS server of this machine does not admit its node") from None
            except (OSError, BusError) as error:  # it is being started again
                self._tell(f"Waiting for the NATS server of this machine: {error}")
            await self._pause()
        self._exporter.connection.listen(self._subject, self._answer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exporter.__aexit__(kind, error, trace)

    async def end(self) -> None:
        """Bring the log that this machine kept alone, or wait until the one that does is done.

        Raises:
            HoldfastError: It can't be brought.
            StoppedEarly: Holdfast is to stop before that.
        """
        if not self._brings:
            if is_new(self._config):
                await self._agreed()
            return
        name = self._config.cluster
        self._say(f"Bringing the log of {name}, which this machine kept alone, to all machines")
        while self._brings:
            try:
                await self._bring()
            except NoMajority as error:
                self._tell(f"Waiting for the machines of {name}: {error.message}")
                await self._pause()

    async def _pause(self) -> None:
        await pause(
            self._stop, ANSWER_SECONDS, f"stopped before the machines of {self._config.cluster} agreed"
        )

    async def _bring(self) -> None:
        config = self._config
        aside = self._folder / ASIDE
        text = lone_server_config(self._folder, aside)
        async with NatsServer(self._folder / "alone", port=None, config=text, name=self._server) as server:
            login = quote(str(login_file(config)), safe="/")
            lone = cluster_address(f"cluster://127.0.0.1:{server.port}/{config.cluster}?login={login}")
            await export_log(lone, self._address)
        os.rename(aside, self._folder / BROUGHT)
        self._brings = False
        self._say(f"All machines have the log. What this one kept alone is in {self._folder / BROUGHT}")

    async def _agreed(self) -> None:
        """Wait until no machine brings a log: there is one, or all say so."""
        machines = len(self._config.peers) + 1
        while True:
            answers = await self._ask(machines)
            bringing = [one.server for one in answers if one.brings]
            if bringing:
                self._tell(f"Waiting for {bringing[0]}, which brings the log of {self._config.cluster}")
            elif len(answers) >= machines or await self._has_log():
                return
            else:
                self._tell(
                    f"Waiting for the machines of {self._config.cluster} to say whether they bring a log: "
                    f"{len(answers)} of {machines} have answered"
                )
            await self._pause()

    async def _ask(self, machines: int) -> set[MachineAnswer]:
        inbox = Inbox(self._exporter.connection)
        until = asyncio.get_running_loop().time() + ANSWER_SECONDS
        answers: set[MachineAnswer] = set()
        try:
            self._exporter.connection.send(self._subject, b"", reply=inbox.subject)
            while (
                len(answers) < machines
                and (reply := await inbox.next(MachineAnswer, until=until)) is not None
            ):
                answers.add(reply[1])
        finally:
            inbox.close()
        return answers

    async def _has_log(self) -> bool:
        with contextlib.suppress(ApiRefusal, TimeoutError, BusError):
            return await self._exporter.info(self._address.stream) is not None
        return False

    def _answer(self, message: Message) -> None:
        if message.reply:
            answer = MachineAnswer(server=self._server, brings=self._brings)
            self._exporter.connection.send(message.reply, msgspec.json.encode(answer))

    def _tell(self, line: str) -> None:
        if line != self._last_line:
            self._last_line = line
            self._say(line)
