"""What the log tells of tables: which verb, whose and which table, and never what an item holds."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from holdfast.clock import ManualClock
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import Settings
from tests.edges.nats.ground import Caller, calling, serving
from tests.edges.nats.test_tables import at_tables, make_table

SECRET = "the-cat-is-called-Mittens"
KEY = {"partition_key": "alice", "sort_key": 7}
ITEM = {"user": "alice", "at": 7, "name": SECRET}


def requests() -> list[tuple[str, dict[str, Any]]]:
    """Every verb, done and refused, with the secret wherever a value can be."""
    one = {"name": {"eq": SECRET}}
    put = {"put": {"item": ITEM, "expected_version": 0}}
    return [
        ("put_item", {"item": ITEM}),
        ("put_item", {"item": ITEM, "expected_version": 9}),
        ("put_item", {"item": ITEM, "condition": {"name": {"exists": False}}}),
        ("put_item", {"item": SECRET}),
        ("put_item", {"item": {"user": "alice", "at": SECRET}}),
        ("put_item", {"item": {**ITEM, "name": SECRET * 20_000}}),
        ("put_item", {"item": ITEM, "condition": SECRET}),
        ("put_item", {"item": ITEM, "condition": {"name": {"eq": SECRET, "nonsense": SECRET}}}),
        ("put_item", {"item": ITEM, "condition": {"name": SECRET}}),
        ("put_item", {"item": ITEM, "return_values": "new", "request_id": "once"}),
        ("put_item", {"item": ITEM, "return_values": "new", "request_id": "once", "expected_version": 2}),
        ("put_item", {"item": ITEM, "deadline": 1}),
        ("update_item", {**KEY, "set": {"name": SECRET, "other": SECRET}}),
        ("update_item", {**KEY, "add": {"name": 1}}),
        ("update_item", {**KEY, "add": {"other": SECRET}}),
        ("update_item", {**KEY, "set": SECRET}),
        ("update_item", {**KEY, "set": {"name.deeper": SECRET}}),
        ("get_item", {**KEY, "projection": ["name"]}),
        ("query", {"partition_key": "alice", "filter": one}),
        ("query", {"partition_key": "alice", "filter": {"name": {"between": SECRET}}}),
        ("scan", {"filter": one}),
        ("create_index", {"index": "by-name", "index_key": {"name": "name", "type": "string"}}),
        ("query_index", {"index": "by-name", "key_value": SECRET}),
        ("check_index", {"index": "by-name"}),
        ("batch_get_item", {"keys": [KEY]}),
        ("batch_write_item", {"writes": [put, {"put": {"item": SECRET}}, {"put": SECRET}, SECRET]}),
        ("transact_write", {"writes": [put]}),
        ("transact_write", {"writes": [{"put": {"item": {"name": SECRET}}}]}),
        ("changes", {"view": "both"}),
        ("set_ttl", {**KEY, "ttl_seconds": 1}),
        ("remove_ttl", {**KEY, "condition": {"name": {"exists": False}}}),
        ("get_ttl", KEY),
        ("delete_item", {**KEY, "return_values": "old"}),
        ("drop_index", {"index": "by-name"}),
        ("drop_table", {}),
    ]


async def test_values_are_never_logged(
    nats_server: NatsServer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is asked and however it ends, at DEBUG too: nothing that an item holds is in the log."""
    caplog.set_level(logging.DEBUG)
    settings = Settings(slow_seconds=0, slow_walk_seconds=0)
    async with (
        serving(nats_server.url, clock=clock, settings=settings),
        calling(nats_server.url) as caller,
    ):
        ask = at_tables(caller)
        await make_table(ask)
        for verb, fields in requests():
            await ask(verb, **fields)
    assert len(caplog.records) > len(requests())
    told = [record.getMessage() for record in caplog.records if SECRET in f"{vars(record)}"]
    assert told == []


async def test_a_line_names_the_table(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """At DEBUG an operation has its plugin, its verb and as its key the table."""
    ask = at_tables(caller)
    await make_table(ask)
    caplog.set_level(logging.DEBUG, logger="holdfast.service")
    await ask("get_item", **KEY)
    [line] = [record for record in caplog.records if record.levelno == logging.DEBUG]
    told = vars(line)
    assert (told["plugin"], told["operation"], told["key"]) == ("trivia", "get_item", "events")
    assert "replayed" not in told


async def test_a_lost_race_is_told_once(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """A conflict of an item is one WARNING with the request id, of several writes one for each."""
    ask = at_tables(caller)
    await make_table(ask)
    await ask("put_item", item=ITEM)
    lost = {"item": ITEM, "expected_version": 9}
    for verb, fields in (("put_item", lost), ("batch_write_item", {"writes": [{"put": lost}]})):
        caplog.clear()
        await ask(verb, **fields, request_id=f"r-{verb}")
        [line] = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert (line.levelno, f"r-{verb}" in line.getMessage()) == (logging.WARNING, True)
        assert (vars(line)["table"], vars(line)["version"]) == ("events", 2)
