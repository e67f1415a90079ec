"""The command line against a service over HTTP: the same commands and answers, with a token or without."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.edges.http.ground import served

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer
    from tests.edges.cli.conftest import Cli


async def test_commands_over_http(cli: Cli, nats_server: NatsServer, tmp_path: Path) -> None:
    """Nothing depends on where a store is: every kind of command works through a service over HTTP."""
    async with served(tmp_path / "state.db", nats_server.url) as here:
        await asyncio.to_thread(_every_kind, cli, here.url)


async def test_a_token_in_the_address(cli: Cli, nats_server: NatsServer, tmp_path: Path) -> None:
    """A command shows the token of its URL or of the file that its URL names, and says why it is refused."""
    async with served(tmp_path / "state.db", nats_server.url, open_mode=False) as here:
        made = await here.store.tokens().create(plugin="jobs", verbs=["get", "set"])
        (tmp_path / "token").write_text(made.token + "\n")
        await asyncio.to_thread(_with_token, cli, here.url, tmp_path / "token", made.token)


def _every_kind(cli: Cli, url: str) -> None:
    on = ["--url", url]
    assert cli.did("set", "k", '{"a":1}', *on).out == "1\n"
    assert cli("set", "k", "2", "--if-version", "9", "--json", *on).error["current"]["value"] == {"a": 1}
    assert cli.did("list", "--long", *on).out.startswith("k\t7\t1\t-\t")
    assert cli.did("history", "k", *on).out.count("\n") == 1
    assert cli.did("stats", *on).out.startswith("kv/jobs\t1\t")
    assert cli.did("ping", *on).out.startswith("ready in ")
    copied = cli("import", "-", "--plugin", "copy", *on, stdin=cli.did("export", *on).out)
    assert copied.err == "holdfast: 1 entry imported into kv/copy\n"
    assert cli.did("get", "k", "--plugin", "copy", *on).json == {"a": 1}
    assert cli.did("counter", "add", "hits", *on).out == "1\n"
    cli.did("table", "create", "t", "--partition-key", "id:string", *on)
    assert cli.did("table", "list", *on).out == "t\n"
    assert cli.did("namespace", "list", *on).out.startswith("kv/copy\t1\t")
    made = cli.did("token", "create", "--plugin", "jobs", "--expires", "30d", "--json", *on).json["about"]
    assert cli.did("token", "list", *on).out.startswith(f"{made['id']}\tjobs\t")
    cli.did("token", "revoke", made["id"], "--yes", *on)
    assert cli.did("token", "list", "--json", *on).jsons == []
    assert cli("get", "nothing", *on).code == 3
    refused = cli("migrate", "current", "--db", url)
    assert (refused.code, "run this where the storage is" in refused.err) == (1, True)
    assert "ok    writing" in cli.did("doctor", *on).out


def _with_token(cli: Cli, url: str, file: Path, token: str) -> None:
    cli.did("set", "k", "1", "--url", f"{url}?token={token}")
    assert cli.did("get", "k", "--url", f"{url}?token_file={file}").out == "1\n"
    for address, said in (
        (url, "this needs a token"),
        (f"{url}?token={token[:-1]}x", "the token is not valid"),
    ):
        refused = cli("get", "k", "--url", address)
        assert (refused.code, said in refused.err) == (6, True)
    other = cli("list", "--url", f"{url}?token={token}")
    assert (other.code, "allows get, set" in other.err, token in other.err) == (6, True, False)
