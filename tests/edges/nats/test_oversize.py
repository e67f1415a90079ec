"""Requests that are too large to be served: they are refused before anybody reads them."""

from __future__ import annotations

import gc
import json
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.edges.intake import requests
from holdfast.edges.intake.requests import LONG, MOST_SINGLE
from holdfast.errors import ValueTooLarge
from tests.edges.nats.ground import serving
from tests.nats import nats_server

if TYPE_CHECKING:
    from tests.edges.nats.ground import Caller


UNREADABLE = b"{" * (MOST_SINGLE + 1)
"""A large request that whoever reads it finds not to be JSON."""


@pytest.mark.parametrize("verb", ["set", "get", "delete", "unheard_of"])
async def test_a_large_request_about_one_key_is_not_read(caller: Caller, verb: str) -> None:
    """It gets VALUE_TOO_LARGE at the price of its size, and whoever asks next is served."""
    refused = await caller.ask(f"db.kv.trivia.{verb}", UNREADABLE)
    assert (refused["error_code"], refused["retryable"]) == ("VALUE_TOO_LARGE", False)
    assert str(MOST_SINGLE) in refused["message"]
    assert (await caller.ask("db.kv.trivia.set", {"key": "k", "value": 1}))["success"]


async def test_control_a_service_that_reads_all(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the limit the request is read, and only then refused."""
    monkeypatch.setattr(requests, "MOST_SINGLE", 10**9)
    assert (await caller.ask("db.kv.trivia.set", UNREADABLE))["error_code"] == "INVALID_JSON"


async def test_a_value_at_its_limit_fits_however_it_is_spelled(caller: Caller) -> None:
    """Six bytes for each letter and as much white space are no reason to refuse a value of 64 KB."""
    request = b'{"key": "k",%b "value": "%b"}' % (b" " * 100_000, rb"\u0061" * 65_534)
    answer = json.loads((await caller.client.request("db.kv.trivia.set", request, timeout=60)).data)
    assert answer["success"]
    assert (await caller.ask("db.kv.trivia.get", {"key": "k"}))["value"] == "a" * 65_534


async def test_a_large_request_about_many_keys_is_read(caller: Caller) -> None:
    """Several values may have more than one could."""
    items = [{"key": f"k{number}", "value": "\u00e9" * 25_000} for number in range(5)]
    answer = await caller.ask("db.kv.trivia.set_many", {"items": items})
    assert [one["success"] for one in answer["results"]] == [True] * 5


async def test_a_value_at_the_limit_of_a_policy_fits(caller: Caller) -> None:
    """The largest value that a policy can allow passes in and out, beside the other fields of a request."""
    policy = {"namespace": "kv/trivia", "policy": {"max_value_bytes": 524_288}}
    assert (await caller.ask("db.admin.set_policy", policy))["success"]
    large = "x" * 524_286
    told = {"key": "k" * 255, "value": large, "spec_ref": "s" * 500, "request_id": "r" * 200}
    assert (await caller.ask("db.kv.trivia.set", told))["success"]
    assert (await caller.ask("db.kv.trivia.get", {"key": "k" * 255}))["value"] == large
    assert (await caller.ask("db.kv.trivia.get_many", {"keys": ["k" * 255]}))["results"][0]["value"] == large


async def test_no_garbage_is_collected_while_a_long_request_is_started(caller: Caller) -> None:
    """The lists of a value are not searched for garbage, and collecting goes on after each request."""
    collected: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        collected.append(phase)

    request = json.dumps({"key": "k", "value": [[]] * LONG}).encode()
    refused = json.dumps({"key": 1, "value": [[]] * LONG}).encode()
    gc.callbacks.append(note)
    try:
        await caller.ask("db.kv.trivia.set", request)
        assert (await caller.ask("db.kv.trivia.set", refused))["success"] is False
    finally:
        gc.callbacks.remove(note)
    assert collected.count("start") < 2 * LONG / gc.get_threshold()[0] / 2, "most lists came uncollected"
    assert gc.isenabled()


async def test_a_part_of_a_blob_that_is_larger_than_a_message_is_refused() -> None:
    """The server would end the connection of the service, and with it what others have asked."""
    async with nats_server("max_payload: 65536\n") as server, serving(server.url) as running:
        await running.store.blobs("trivia").put("large", b"x" * 200_000)
        async with holdfast.open(server.url) as store:
            blob = await store.blobs("trivia").get("large")
            assert blob is not None
            with pytest.raises(ValueTooLarge, match="max_payload"):
                await blob.read()
            assert (await store.kv("trivia").set("key", 1)).version
        assert running.service._client.reconnects == 0
