"""A write beside a running service of one's own, and commands that destroy something."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.edges.nats.server_config import SERVICE, Permissions, new_credentials
from tests.edges.cli.conftest import fill
from tests.edges.cli.test_terminal import Terminal, read
from tests.edges.running import holdfast_up

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli, Program


async def test_writes_go_through_the_service(cli: Cli, tmp_path: Path) -> None:
    """A file that a service has open is written to through that service, and read as it is."""
    file = tmp_path / "up" / "holdfast" / "holdfast.db"
    on = ("--url", file)
    async with holdfast_up(tmp_path / "up"):
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
        async with holdfast.open(file, reap=False) as store:
            assert (await store.kv("jobs").incr("n")).value == 6
    assert (await asyncio.to_thread(cli.did, "incr", "n", *on)).out == "7\n"


async def test_a_service_that_lets_nobody_in_is_named(cli: Cli, tmp_path: Path) -> None:
    """Where credentials are needed the command says which URL to use, and has no secret in it."""
    permissions = Permissions(["jobs"], mode="permissions")
    credentials = {user: new_credentials(user, "nkeys") for user in permissions.users}
    config, seed = tmp_path / "nats.conf", tmp_path / "service.nk"
    config.write_text(permissions.configuration(credentials))
    seed.write_text(credentials[SERVICE].secret)
    home = tmp_path / "up"
    variables = {"HOLDFAST_REPLY_MODE": "permissions"}
    async with holdfast_up(home, "--nats-config", config, "--nats-nkey", seed, **variables) as up:
        outcome = await asyncio.to_thread(
            cli, "set", "k", "1", "--url", home / "holdfast" / "holdfast.db", "--json"
        )
    assert outcome.error["error_code"] == "PERMISSION_DENIED"
    assert f"--url '{up.url}?creds=FILE'" in outcome.error["message"]


def test_what_destroys_wants_a_word(cli: Cli) -> None:
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
