"""What has to be there before a command of a page: the store, the service or the file that the page tells of.

A page's scene makes what a reader has who follows the page, and nothing that the command itself is to
make. Every hook runs right before the commands that its expression matches.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats
import nkeys  # type: ignore[import-untyped]
import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.handles.recipes.retry import Retry
from tests.docs.shell import Command
from tests.edges.running import ask
from tests.nats import lasting_nats_server

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Coroutine

    from tests.docs.shell import Shell

STORE: Final = "holdfast.db"
"""The store of a command that names none."""
KEPT: Final = "kept.db"


class Scene:
    """The folder of a page, with the shell that runs its commands.

    Args:
        folder: The folder.
        shell: Runs the commands.
        database: Makes an empty PostgreSQL database: its address.
        lent: Ends what hooks have started.
    """

    def __init__(
        self, folder: Path, shell: Shell, database: Callable[[], str], lent: contextlib.ExitStack
    ) -> None:
        self.folder = folder
        self.shell = shell
        self.database = database
        self.lent = lent

    def keep(self) -> None:
        """Keep the store as it is now."""
        shutil.copy(self.folder / STORE, self.folder / KEPT)

    def restore(self) -> None:
        """Put the store back as it was kept."""
        shutil.copy(self.folder / KEPT, self.folder / STORE)

    def sql(self, statement: str, *values: object, file: str = STORE) -> None:
        """Change the store outside of Holdfast."""
        with closing(sqlite3.connect(self.folder / file)) as connection, connection:
            assert connection.execute(statement, values).rowcount > 0

    def try_sql(self, script: str) -> None:
        """Run statements of a page on a copy of the store."""
        shutil.copy(self.folder / STORE, self.folder / "tried.db")
        with closing(sqlite3.connect(self.folder / "tried.db")) as connection, connection:
            connection.executescript(script)

    def run(self, work: Callable[[holdfast.Store], Coroutine[Any, Any, None]], file: str = STORE) -> None:
        """Do something with the store."""

        async def opened() -> None:
            async with holdfast.open(self.folder / file, reap=False) as store:
                await work(store)

        asyncio.run(opened())

    def asked(self, *requests: tuple[str, dict[str, Any]]) -> None:
        """Send requests to the page's service."""

        async def sent() -> None:
            client = await nats.connect(self.shell.services.url)
            for subject, fields in requests:
                await ask(client, subject, **fields)
            await client.close()

        asyncio.run(sent())


Hook = Callable[[Scene, Command], None]


def _rates(scene: Scene, _: Command) -> None:
    async def written(store: holdfast.Store) -> None:
        for value, writer in ((0.19, "alice"), (0.21, "bob")):
            await store.kv("billing").set("rate:eu", value, writer=writer)

    scene.run(written)


def _record_removed(scene: Scene, _: Command) -> None:
    scene.keep()
    number = (2).to_bytes(8, "big")
    scene.sql("DELETE FROM holdfast_rows WHERE space = 'audit' AND key = ?", number)


def _value_changed(scene: Scene, _: Command) -> None:
    scene.restore()
    scene.sql("UPDATE plugin_kv_storage SET value_json = '0.5' WHERE key = 'rate:eu'")


def _head(scene: Scene, _: Command) -> None:
    """Give the page's head the value that it has in this store, and log it where the page looks for it."""

    async def noted(store: holdfast.Store) -> None:
        head = (await store.audit("kv/billing").verify()).head
        scene.shell.places["3:9f2c…"] = str(head)
        log = scene.folder / "var/log/holdfast.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"audit head of kv/billing is {head}\n")

    scene.restore()
    scene.run(noted)


def _key_kept(scene: Scene, _: Command) -> None:
    (scene.folder / "backup").mkdir(exist_ok=True)
    shutil.copy(scene.folder / f"{STORE}.audit-key", scene.folder / "backup/audit-key")


def _letter(scene: Scene, _: Command) -> None:
    """A dead letter with the number 7, whose cause is gone."""

    async def at_once(_: float) -> None:
        pass

    async def given_up(store: holdfast.Store) -> None:
        kv = store.kv("billing")
        for number in range(6):
            await kv.set("report", number)
        with pytest.raises(holdfast.Escalated) as escalated:
            await Retry(kv, sleep=at_once).set("report", "mine", expected_version=0)
        assert escalated.value.letter == 7
        await kv.delete("report")

    scene.run(given_up)
    scene.keep()


def _ahead(scene: Scene, _: Command) -> None:
    """A store that a machine wrote to whose clock was 366 days ahead, in three namespaces."""

    async def written() -> None:
        clock = ManualClock(start=int((time.time() + 366 * 86400 + 60) * 1000))
        async with holdfast.open(scene.folder / "state.db", clock=clock, reap=False) as store:
            for plugin in ("a", "b", "c"):
                await store.kv(plugin).set("k", 1)

    asyncio.run(written())


def _jobs(scene: Scene, _: Command) -> None:
    """A store with a game and a checkpoint, and a program to run under a lock."""

    async def played(store: holdfast.Store) -> None:
        kv = store.kv("jobs")
        await kv.set("game:42", {"turn": "carol"})
        progress = kv.checkpoint("nightly-import", order=int)
        await progress.load()
        await progress.advance(1)

    scene.run(played, "state.db")
    program = scene.folder / "import.sh"
    program.write_text('#!/bin/sh\ntest -n "$HOLDFAST_LOCK_TOKEN"\n')
    program.chmod(0o755)


def _busy(scene: Scene, _: Command) -> None:
    """A service that logs a walk from a millisecond on, with twelve writes and a walk over them."""
    store = str(scene.folder / STORE)
    scene.shell.services.start("--db", store, HOLDFAST_SLOW_MS="60000", HOLDFAST_SLOW_LIST_MS="1")
    texts = ({"key": f"k{number}", "value": "x" * 40_000} for number in range(12))
    scene.asked(
        *(("db.kv.trivia.set", fields) for fields in texts),
        ("db.kv.trivia.list", {"values": True, "request_id": "r-93"}),
    )


def _bus(scene: Scene, command: Command) -> None:
    """A NATS server and a database of the reader's own."""
    scene.shell.services.stop()
    scene.shell.places["nats://bus.example:4222"] = scene.lent.enter_context(lasting_nats_server())
    (scene.shell.services.home / "service.creds").write_text(_creds())
    if "db.example" in command.text:
        scene.shell.places["postgresql://holdfast@db.example/holdfast"] = scene.database()


def _creds() -> str:
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode()
    return (
        "-----BEGIN NATS USER JWT-----\ne30.e30.e30\n------END NATS USER JWT------\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def _tried(scene: Scene, _: Command) -> None:
    """The key that the line to try has set."""
    scene.asked(("db.kv.demo.set", {"key": "greeting", "value": "hello"}))


def _operator(scene: Scene, _: Command) -> None:
    """A service elsewhere, and an operator's credentials for it."""
    (scene.folder / "ops.creds").write_text(_creds())
    scene.shell.places["nats://bus.example:4222"] = scene.shell.services.url


def _secret(scene: Scene, _: Command) -> None:
    (scene.folder / "secret.json").write_text('{"name": "Ada"}')


def _settings(scene: Scene, command: Command) -> None:
    """The file of settings that the page shows, where the page's service starts."""
    (scene.folder / "holdfast.toml").write_text(
        command.shown.replace("/var/lib/holdfast", f"{scene.folder}/var/lib/holdfast")
    )
    shutil.copy(scene.folder / "holdfast.toml", scene.shell.services.home)


SCENES: Final[dict[str, tuple[tuple[str, Hook], ...]]] = {
    "docs/howto/audit.md": (
        (r"holdfast audit log .*--writer", _rates),
        (r"holdfast audit verify kv/billing$", _record_removed),
        (r"holdfast audit verify --values", _value_changed),
        (r"holdfast audit anchor", _head),
        (r"install -m 600 /backup/audit-key", _key_kept),
    ),
    "docs/howto/migrate.md": ((r"holdfast doctor", _ahead),),
    "docs/howto/monitor.md": ((r"curl -s \S+/readyz", _busy),),
    "docs/howto/retry-safely.md": (
        (r"holdfast deadletter list", _letter),
        (r"holdfast deadletter drop", lambda scene, _: scene.restore()),
    ),
    "docs/howto/run-the-service.md": (
        (r"nats req \S+\.set", _tried),
        (r"holdfast up .*bus\.example", _bus),
        (r"cat \./holdfast\.toml", _settings),
    ),
    "docs/howto/sensitive-data.md": ((r"cat secret\.json", _secret),),
    "docs/howto/use-the-command-line.md": (
        (r"export HOLDFAST_URL", _jobs),
        (r"holdfast context add", _operator),
    ),
}
"""The hooks of each page, by the command before which they run."""
