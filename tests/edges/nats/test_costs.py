"""The cost of a request at the NATS door: an attacker is refused, and a quiet plugin is served meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.edges.nats.server import NatsServer
from holdfast.work import SLICE, Work
from tests.edges.nats.ground import Caller, calling, serving
from tests.edges.nats.test_tables import Ask, at_tables

MANY = [1] * 60_000
DEAR = {"or": [{"tags": {"contains": -number}} for number in range(1, 61)]}
"""Looks at a list sixty times."""
SLOW = {"or": [{"tags": {"contains": -number}} for number in range(1, 9)]}
"""Looks at it often enough to keep a page busy, and not so often that it is refused."""


@pytest.fixture
async def ask(caller: Caller) -> Ask:
    """Asks about a table with an item that has a long list."""
    ask = at_tables(caller)
    await ask("create_table", partition_key={"name": "user", "type": "string"})
    for number in range(4):
        await ask("put_item", item={"user": f"u{number}", "tags": MANY})
    return ask


@pytest.mark.parametrize("verb", ["scan", "put_item"])
async def test_a_dear_request_is_refused(ask: Ask, verb: str) -> None:
    """What looks at too much gets TOO_EXPENSIVE, with the part that cost most; nothing is written."""
    given: dict[str, Any] = (
        {"filter": DEAR} if verb == "scan" else {"item": {"user": "u0"}, "condition": DEAR}
    )
    refused = await ask(verb, **given)
    assert (refused["error_code"], refused["retryable"]) == ("TOO_EXPENSIVE", False)
    assert "contains at 'tags'" in refused["message"]
    assert "do not retry" in refused["message"]
    assert (await ask("get_item", partition_key="u0"))["item"]["tags"] == MANY


async def test_a_quiet_plugin_is_served_during_a_long_read(
    nats_server: NatsServer, ask: Ask, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that takes many slices of work lets others have their turns: they are answered before it is."""
    pauses: list[int] = []
    pausing = Work.pausing

    def counted(work: Work) -> bool:
        paused = pausing(work)
        if paused:
            pauses.append(work.spent)
        return paused

    monkeypatch.setattr(Work, "pausing", counted)
    await caller.ask("db.kv.quiet.set", {"key": "k", "value": 1})
    async with calling(nats_server.url) as other:
        scan = await caller.begin("db.table.trivia.scan", {"table": "events", "filter": SLOW})
        await caller.client.flush()
        quiet = [await other.ask("db.kv.quiet.get", {"key": "k"}) for _ in range(3)]
        page = (await scan).fields
    assert all(answer["value"] == 1 for answer in quiet)
    assert page["success"]
    assert len(pauses) >= 8
    steps = [after - before for before, after in zip([0, *pauses], pauses, strict=False)]
    assert max(steps) <= SLICE + 2 * len(MANY), (
        "between two turns is one slice, and what one look may add to it"
    )


async def test_conflicts_have_no_values_past_the_room_of_a_reply(caller: Caller) -> None:
    """A small batch with many failing checks on a large value gets a reply of bounded size."""
    put = await caller.ask("db.kv.trivia.set", {"key": "large", "value": "x" * 65_000})
    checks = [{"key": "large", "version": put["version"] + 1}] * 1_000
    refused = await caller.ask(
        "db.kv.trivia.batch", {"checks": checks, "writes": [{"key": "other", "value": 1}]}
    )
    assert refused["error_code"] == "VERSION_CONFLICT"
    conflicts = refused["conflicts"]
    assert [len(conflict["current"].get("value", "")) for conflict in conflicts] == [65_000] * 8 + [0] * 992
    assert {conflict["current"]["version"] for conflict in conflicts} == {put["version"]}
    assert "value" not in conflicts[-1]["current"]


async def test_items_are_answered_as_they_are_stored(nats_server: NatsServer) -> None:
    """Items go out as they are stored, in every verb that shows them."""
    item = {"user": "a", "n": 1.0, "big": 2**70, "deep": [[{"x": None}]]}
    async with serving(nats_server.url), calling(nats_server.url) as caller:
        ask = at_tables(caller)
        await ask("create_table", partition_key={"name": "user", "type": "string"})
        put = await ask("put_item", item=item, return_values="new")
        assert put["item"] == item
        assert (await ask("get_item", partition_key="a"))["item"] == item
        assert (await ask("scan"))["items"] == [item]
        assert (await ask("batch_get_item", keys=[{"partition_key": "a"}]))["items"] == [item]
        old = await ask("put_item", item={"user": "a"}, return_values="old")
        assert old["item"] == item
        changes = (await ask("changes", view="both"))["changes"]
        assert [(change["old"], change["new"]) for change in changes] == [(None, item), (item, {"user": "a"})]
