"""Tables from a shell: definitions, items, walks, indexes, deadlines and changes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.bus.connection import Connection
from holdfast.edges.nats.service import NatsService, Settings

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer
    from tests.edges.cli.conftest import Cli, Outcome

MAKE = ("create", "events", "--partition-key", "user:string", "--sort-key", "at:number")


class TableCli:
    """Runs `holdfast table` against one store."""

    def __init__(self, cli: Cli, *options: str) -> None:
        self.cli = cli
        self.options = options

    def __call__(self, *arguments: object, stdin: str = "") -> Outcome:
        """Run a command."""
        return self.cli("table", *arguments, *self.options, stdin=stdin)

    def did(self, *arguments: object, stdin: str = "") -> Outcome:
        """Run a command that must succeed without a word on stderr."""
        return self.cli.did("table", *arguments, *self.options, stdin=stdin)


@pytest.fixture
def table(cli: Cli) -> TableCli:
    """Commands about a store that has the table `events`."""
    table = TableCli(cli)
    table.did(*MAKE, "--ttl-attribute", "expires")
    return table


def test_tables_come_and_go(cli: Cli) -> None:
    """A table is made, described, listed and dropped; wrong definitions and twins are refused."""
    table = TableCli(cli)
    made = dict(line.split("\t") for line in table.did(*MAKE).out.splitlines())
    assert (made["partition_key"], made["sort_key"], made["ttl_attribute"]) == (
        "user:string",
        "at:number",
        "-",
    )
    assert table.did("describe", "events", "--json").json["sort_key"] == {"name": "at", "type": "number"}
    assert table.did("list").out == "events\n"
    assert table.did("list", "--json").json == {"tables": ["events"]}
    assert table(*MAKE).code == 4
    assert table("create", "t", "--partition-key", "user").code == 2
    assert table("create", "t", "--partition-key", "user:text").code == 2
    assert table.did("drop", "events", "--yes").out == "dropped\n"
    assert table("describe", "events").code == 3
    assert cli("table", "list", "--plugin", "").code == 2


def test_an_item_from_an_argument_stdin_or_a_file(table: TableCli, tmp_path: Path) -> None:
    """An item is JSON given in any of three ways; the answer is its version."""
    assert table.did("put", "events", '{"user": "alice", "at": 7}').out == "2\n"
    assert table.did("put", "events", "-", stdin='{"user": "alice", "at": 8}').out == "3\n"
    (tmp_path / "item.json").write_text('{"user": "alice", "at": -9.5}')
    put = table.did("put", "events", f"@{tmp_path / 'item.json'}", "--json")
    assert put.json == {"version": 4, "expires_at": None}
    assert table.did("get", "events", "alice", "-9.5").json == {"user": "alice", "at": -9.5}
    assert table("put", "events", "nonsense").code == 2
    assert table("put", "events", '{"user": "alice"}').code == 2


def test_keys_have_the_types_of_their_table(table: TableCli) -> None:
    """What is a number in the table is read as one, what is text stays text, and else it is refused."""
    table.did("create", "texts", "--partition-key", "id:string")
    table.did("put", "texts", '{"id": "7"}')
    assert table.did("get", "texts", "7").json == {"id": "7"}
    table.did("create", "blobs", "--partition-key", "id:binary")
    table.did("put", "blobs", '{"id": "AP8="}')
    assert table.did("get", "blobs", "AP8=").json == {"id": "AP8="}
    refused = table("get", "events", "alice", "seven", "--json")
    assert (refused.code, refused.error["field"]) == (2, "sort_key")
    assert table("get", "events", "alice").code == 2
    assert table("get", "texts", "7", "8").code == 2


def test_get_shows_an_item(table: TableCli) -> None:
    """The item alone, parts of it, or all that is known of it; none is exit code 3."""
    table.did("put", "events", '{"user": "alice", "at": 7, "meta": {"tag": "x"}}')
    assert table.did("get", "events", "alice", 7, "--show", "meta.tag").json == {"meta": {"tag": "x"}}
    whole = table.did("get", "events", "alice", 7, "--long", "--json").json
    assert (whole["item"]["at"], whole["version"], whole["expires_at"]) == (7, 2, None)
    assert "version\t2\n" in table.did("get", "events", "alice", 7, "--long").out
    gone = table("get", "events", "bob", 7, "--json")
    assert (gone.code, gone.error["error_code"]) == (3, "ITEM_NOT_FOUND")


def test_update_and_delete(table: TableCli) -> None:
    """An update prints the item as it is then; a delete says whether there was one."""
    table.did("put", "events", '{"user": "alice", "at": 7, "score": 1, "old": true}')
    change = ("--set", '{"meta": {"tag": "x"}}', "--add", '{"score": 2}', "--remove", "old")
    item = {"user": "alice", "at": 7, "score": 3, "meta": {"tag": "x"}}
    assert table.did("update", "events", "alice", 7, *change).json == item
    told = table.did("update", "events", "alice", 7, "--add", '{"score": 1}', "--json").json
    assert (told["item"]["score"], told["version"]) == (4, 4)
    assert table.did("delete", "events", "--yes", "alice", 7).out == "deleted\n"
    assert table.did("delete", "events", "--yes", "alice", 7, "--json").json == {"deleted": False}


def test_conditions_and_versions(table: TableCli) -> None:
    """A write that does not find what it expects is exit code 4 and shows the item that is there."""
    table.did("put", "events", '{"user": "alice", "at": 7}')
    current = {"item": {"user": "alice", "at": 7}, "version": 2, "expires_at": None}
    failed = table("delete", "events", "alice", 7, "--yes", "--where", '{"x": {"exists": true}}', "--json")
    assert (failed.code, failed.error["error_code"]) == (4, "CONDITION_FAILED")
    assert failed.error["current"] == current
    lost = table("put", "events", '{"user": "alice", "at": 7}', "--if-version", 0, "--json")
    assert (lost.code, lost.error["error_code"], lost.error["current"]) == (4, "VERSION_CONFLICT", current)
    assert table("delete", "events", "alice", 7, "--yes", "--where", "{").code == 2
    assert table.did("delete", "events", "--yes", "alice", 7, "--if-version", 2).out == "deleted\n"


def test_queries_and_scans(table: TableCli) -> None:
    """Items are lines of JSON, a page or all of them; --json has versions, and a page as one document."""
    for at in range(5):
        table.did("put", "events", f'{{"user": "alice", "at": {at}, "even": {str(at % 2 == 0).lower()}}}')
    ranged = ("--sort-key", '{"gte": 1}', "--reverse", "--where", '{"even": {"eq": true}}')
    assert [item["at"] for item in table.did("query", "events", "alice", *ranged).jsons] == [4, 2]
    page = table.did("query", "events", "alice", "--limit", 2, "--json").json
    assert ([one["item"]["at"] for one in page["items"]], page["truncated"]) == ([0, 1], True)
    rest = table.did("scan", "events", "--cursor", page["cursor"], "--show", "at", "--json", "--all").jsons
    assert [one["item"] for one in rest] == [{"at": 2}, {"at": 3}, {"at": 4}]
    assert rest[0]["version"] == 4
    more = table("scan", "events", "--limit", 1)
    assert (more.out.count("\n"), "--all" in more.err) == (1, True)
    assert table.did("scan", "events", "--limit", 1, "--all").out.count("\n") == 5
    assert table("scan", "nothing").code == 3


def test_indexes(table: TableCli) -> None:
    """An index is made, asked with a value of its type, checked and dropped."""
    for at, points in enumerate([5, 7, 5]):
        table.did("put", "events", f'{{"user": "alice", "at": {at}, "points": {points}}}')
    made = table.did("index", "create", "events", "by-points", "--key", "points:number").out
    assert "index\tby-points points:number ready\n" in made
    assert [item["at"] for item in table.did("index", "query", "events", "by-points", "5").jsons] == [0, 2]
    assert table("index", "query", "events", "by-points", "five").code == 2
    assert table("index", "query", "events", "nothing", "5").code == 3
    assert table.did("index", "check", "events", "by-points").out == "3\t3\t0\t0\n"
    assert table.did("index", "check", "events", "by-points", "--json").json["consistent"] is True
    assert table.did("index", "drop", "events", "by-points", "--yes").out == "dropped\n"


def test_deadlines_and_sweeps(table: TableCli) -> None:
    """A deadline is set, read and removed; what has expired is swept."""
    table.did("put", "events", '{"user": "alice", "at": 7}')
    assert table.did("ttl", "get", "events", "alice", 7).out == "never\n"
    assert table.did("ttl", "set", "events", "alice", 7, "--seconds", 1000).out == "3\n"
    assert 990 < table.did("ttl", "get", "events", "alice", 7, "--json").json["ttl"] <= 1001
    assert table.did("ttl", "remove", "events", "alice", 7).out == "4\n"
    table.did("put", "events", '{"user": "alice", "at": 8, "expires": 1}')
    assert table.did("sweep", "events", "--all").out == "1\n"
    assert table.did("sweep", "events", "--json").json == {"removed": 0}
    assert table("ttl", "set", "events", "bob", 7, "--seconds", 9).code == 3
    assert table("ttl", "set", "events", "alice", 7, "--seconds", 0).code == 2
    table.did("create", "plain", "--partition-key", "id:string")
    assert table("sweep", "plain").code == 1


def test_changes(table: TableCli) -> None:
    """Each change is a line with its time, op, version, key and writer; images are in the JSON."""
    table.did("put", "events", '{"user": "alice", "at": 7}', "--writer", "me")
    table.did("delete", "events", "--yes", "alice", 7)
    cells = [row.split("\t")[1:] for row in table.did("changes", "events").out.splitlines()]
    assert cells == [["set", "2", '["alice",7]', "me"], ["deleted", "3", '["alice",7]', "cli"]]
    told = table.did("changes", "events", "--since", 2, "--view", "both", "--json").json
    assert (told["changes"][0]["old"], told["next"]) == ({"user": "alice", "at": 7}, 3)
    lines = table.did("changes", "events", "--limit", 1, "--all", "--json").jsons
    assert [change["op"] for change in lines] == ["set", "deleted"]


async def test_the_same_over_nats(cli: Cli, nats_server: NatsServer) -> None:
    """Every command works through a service too."""
    async with holdfast.open("memory://") as store:
        connection = Connection()
        await connection.reach(nats_server.url)
        service = NatsService(store, connection, Settings())
        await service.start()
        try:
            await asyncio.to_thread(_every_kind, TableCli(cli, "--url", nats_server.url))
        finally:
            await service.stop()
            await connection.close()


def _every_kind(table: TableCli) -> None:
    table.did(*MAKE, "--ttl-attribute", "expires")
    assert table.did("put", "events", '{"user": "alice", "at": 7}').out == "2\n"
    assert table.did("update", "events", "alice", 7, "--set", '{"x": 1}').json["x"] == 1
    failed = table("delete", "events", "alice", 7, "--yes", "--where", '{"x": {"eq": 2}}', "--json")
    assert (failed.code, failed.error["current"]["version"]) == (4, 3)
    assert table("put", "events", '{"user": "alice", "at": 7}', "--if-version", 9).code == 4
    assert "created_at" in table.did("describe", "events").out
    table.did("index", "create", "events", "by-x", "--key", "x:number")
    assert table.did("index", "query", "events", "by-x", "1").out.count("\n") == 1
    assert table.did("query", "events", "alice", "--all").out.count("\n") == 1
    assert table.did("changes", "events").out.count("\n") == 2
    assert table.did("ttl", "get", "events", "alice", 7).out == "never\n"
    assert table.did("sweep", "events").out == "0\n"
    assert table.did("delete", "events", "--yes", "alice", 7).out == "deleted\n"
    assert table("get", "events", "alice", 7).code == 3
    assert table.did("drop", "events", "--yes").out == "dropped\n"


def test_several_items_at_once(table: TableCli) -> None:
    """Verbs that no command is written for have one of their own: items by their keys, and a transaction."""
    writes = [{"put": {"table": "events", "item": {"user": "ada", "at": at}}} for at in (1, 2)]
    assert table.did("transact-write", json.dumps(writes), "--yes").json == [2, 3]
    keys = json.dumps([{"partition_key": "ada", "sort_key": 2}, {"partition_key": "bob", "sort_key": 1}])
    assert table.did("batch-get", "events", keys).jsons == [{"user": "ada", "at": 2}, None]
    assert table("transact-write", "[]").code == 2
