"""`holdfast cluster status`, `verify` and `snapshot`, as an operator uses them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import holdfast
from tests.jetstream import servers_running
from tests.moves.contents import fill

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli


async def test_an_operator_looks_compares_and_makes_a_snapshot(cli: Cli, tmp_path: Path) -> None:
    """The commands name nodes, log and snapshots, in lines and as JSON, and exit with 1 on trouble."""
    async with servers_running(1) as servers:
        url = servers.url("cli", tmp_path / "1")
        missing = await asyncio.to_thread(cli, "cluster", "status", "--url", url)
        assert (missing.code, "keep no store cli" in missing.err) == (2, True)
        async with holdfast.open(url, reap=False) as store:
            await store.kv("trivia").set("key", 1)
            seen = await asyncio.to_thread(cli, "cluster", "status", "--url", url, "--json")
            [node] = seen.json["nodes"]
            assert (seen.code, node["report"]["shards"][0]["leads"]) == (0, True)
            compared = await asyncio.to_thread(cli, "cluster", "verify", "--url", url, "--json")
            assert (compared.code, compared.json["equal"], len(compared.json["contents"])) == (0, True, 1)
            made = await asyncio.to_thread(cli, "cluster", "snapshot", "--url", url, "--json")
            assert (made.code, made.json["snapshots"][0]["shard"]) == (0, 0)
            checked = await asyncio.to_thread(cli, "doctor", "--url", url, "--json")
            levels = {one["check"]: one["level"] for one in checked.json["checks"]}
            assert (checked.code, levels["sync"], levels["log"]) == (0, "ok", "warn")
            lines = await asyncio.to_thread(cli, "cluster", "status", "--url", url)
            assert lines.out.startswith("log of cli: messages 1 to ")
            assert "leads" in lines.out
        alone = await asyncio.to_thread(cli, "cluster", "status", "--url", url)
        assert (alone.code, "no node answers" in alone.err) == (1, True)
        checked = await asyncio.to_thread(cli, "doctor", "--url", url)
        assert (checked.code, "no node answers" in checked.out) == (1, True)


def test_a_cluster_is_named_by_its_url(cli: Cli, tmp_path: Path) -> None:
    """The commands refuse another kind of store, and say how to name a cluster."""
    refused = cli("cluster", "status", "--url", tmp_path / "store.db")
    assert (refused.code, "cluster://HOST,HOST,HOST/NAME" in refused.err) == (2, True)
    assert cli("cluster", "verify", "--wait", "0", "--url", "cluster://h/a").code == 2


async def test_a_cluster_is_backed_up_copied_and_compared(cli: Cli, tmp_path: Path) -> None:
    """A backup holds everything that was acknowledged, from all shards; nothing is left behind by reading."""
    async with servers_running(1) as servers:
        url = servers.url("moves", tmp_path / "1", shards=2)
        nowhere = await asyncio.to_thread(cli, "backup", "none", "--url", url)
        assert (nowhere.code, "there is no store moves" in nowhere.err) == (5, True)
        await fill(url)
        for command in (("backup", "b", "--url", url), ("restore", "b", "--url", tmp_path / "two.db")):
            done = await asyncio.to_thread(cli, *command, "--json")
            assert (done.code, done.json["namespaces"], done.json["parts"]) == (0, 6, 2), done.err
        same = await asyncio.to_thread(cli, "diff", url, tmp_path / "two.db", "--json")
        assert same.json == {"equal": True, "namespaces": []}
        copied = await asyncio.to_thread(cli, "copy", url, tmp_path / "three.db", "--json")
        assert copied.code == 0, copied.err
