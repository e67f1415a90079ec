"""A write beside a running service of one's own, and commands that destroy something."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
from typing import TYPE_CHECKING

import pytest

from holdfast.edges.nats.server_config import SERVICE, Permissions, new_credentials
from tests.edges.cli.conftest import fill
from tests.edges.cli.test_terminal import Terminal, read
from tests.edges.running import ask, holdfast_up, plain_client

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.msg import Msg

    from tests.edges.cli.conftest import Cli, Program


async def test_writes_beside_a_service(cli: Cli, tmp_path: Path) -> None:
    """A file that a service has open is read and written as it is, and the service sees it at once."""
    file = tmp_path / "up" / "holdfast" / "holdfast.db"
    on = ("--url", file)
    async with holdfast_up(tmp_path / "up") as up, plain_client(up.url) as client:
        events: asyncio.Queue[Msg] = asyncio.Queue()
        await client.subscribe("db.event.>", cb=events.put)
        await client.flush()
        for command, out in (
            ("set k 1", "1\n"),
            ("incr n 5", "5\n"),
            ("get k", "1\n"),
            ("ttl set k 1h", "3\n"),
            ("delete k -y", "deleted\n"),
            ("table create t --partition-key id:string --json", None),
        ):
            outcome = await asyncio.to_thread(cli.did, *command.split(), *on)
            assert out is None or outcome.out == out
        assert (await asyncio.to_thread(cli, "ping", *on)).code == 0
        assert (await ask(client, "db.kv.jobs.incr", key="n"))["value"] == 6
        async with asyncio.timeout(60):
            subjects = [(await events.get()).subject for _ in range(5)]
        assert [name.rpartition(".")[2] for name in subjects] == [*("set", "set", "set", "deleted", "set")]
    assert (await asyncio.to_thread(cli.did, "incr", "n", *on)).out == "7\n"


async def test_the_audit_names_the_local_user(cli: Cli, tmp_path: Path) -> None:
    """A write beside a service that tells its callers apart needs no credentials, and names who made it."""
    permissions = Permissions(["jobs"], mode="permissions")
    credentials = {user: new_credentials(user, "nkeys") for user in permissions.users}
    config, seed = tmp_path / "nats.conf", tmp_path / "service.nk"
    config.write_text(permissions.configuration(credentials))
    seed.write_text(credentials[SERVICE].secret)
    home = tmp_path / "up"
    variables = {"HOLDFAST_REPLY_MODE": "permissions"}
    on = ("--url", home / "holdfast" / "holdfast.db")
    async with holdfast_up(home, "--nats-config", config, "--nats-nkey", seed, **variables) as up:
        await asyncio.to_thread(cli, "namespace", "set", "kv/jobs", "--audit", *on)
        await asyncio.to_thread(cli.did, "set", "k", "1", *on)
        log = (await asyncio.to_thread(cli.did, "audit", "log", "--json", *on)).jsons
        outcome = await asyncio.to_thread(cli, "slowlog", *on, "--json")
    me = f"local:{pwd.getpwuid(os.geteuid()).pw_name}"
    assert [(record["writer"], record["principal"]) for record in log[-1:]] == [("cli", me)]
    assert outcome.error["error_code"] == "PERMISSION_DENIED"
    assert f"--url '{up.url}?creds=FILE'" in outcome.error["message"]


def test_destroying_needs_yes(cli: Cli) -> None:
    """A script that does not say --yes destroys nothing, and is told what would be lost."""
    cli.did("table", "create", "t", "--partition-key", "id:string")
    for command in ("table drop t", "table index drop t i", "deadletter drop 1", "migrate down base"):
        outcome = cli(*command.split())
        assert (outcome.code, "add --yes" in outcome.err) == (2, True), command
    assert cli.did("table", "list").out == "t\n"
    cli.did("table", "drop", "t", "-y")
    assert cli.did("table", "list").out == ""


@pytest.mark.parametrize(("answer", "left"), [(b"y\n", ""), (b"YES\n", ""), (b"\n", "t\n"), (b"n\n", "t\n")])
def test_a_person_is_asked(program: Program, url: str, answer: bytes, left: str) -> None:
    """On a terminal a question is put, and only a yes goes on."""
    fill(url, ("k", 1, {}))
    assert program("table", "create", "t", "--partition-key", "id:string").returncode == 0
    process, terminal = Terminal(program).start("table", "drop", "t")
    shown = b""
    while b"[y/N]" not in shown:
        shown += read(terminal)
    os.write(terminal, answer)
    while part := read(terminal):
        shown += part
    os.close(terminal)
    assert process.wait(timeout=60) == (2 if left else 0)
    assert program("table", "list").stdout == left


def test_ctrl_c_at_a_question_destroys_nothing(program: Program) -> None:
    """Who is startled by the question can leave."""
    assert program("table", "create", "t", "--partition-key", "id:string").returncode == 0
    process, terminal = Terminal(program).start("table", "drop", "t")
    shown = b""
    while b"[y/N]" not in shown:
        shown += read(terminal)
    process.send_signal(signal.SIGINT)
    while read(terminal):
        pass
    os.close(terminal)
    assert process.wait(timeout=60) == 130
    assert program("table", "list").stdout == "t\n"
