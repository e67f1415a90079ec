"""Requests to `/mcp` that were damaged at random: none does harm, and none shows another plugin's data.

`./dev soak attacks` sends many more.
"""

from __future__ import annotations

import json
import os
import random
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.ground import Served, served
from tests.edges.mcp.agents import MODERN
from tests.edges.mcp.http_agents import agent, token_for
from tests.nats import nats_server

if TYPE_CHECKING:
    from pathlib import Path

ATTACKS = int(os.environ.get("HOLDFAST_HTTP_ATTACKS", "60"))
SECRET = "do-not-show-this"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "attacker", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {}),
    ("tools/call", {"name": "get", "arguments": {"key": "a"}}),
    ("tools/call", {"name": "put", "arguments": {"key": "a", "value": {"n": [1, 2.5, None]}}}),
    ("tools/call", {"name": "lock_acquire", "arguments": {"name": "x", "ttl": 5}}),
    ("tools/call", {"name": "list", "arguments": {"prefix": "", "limit": 3}}),
    ("resources/read", {"uri": "holdfast://other/a"}),
    ("resources/list", {"cursor": "eA"}),
    ("prompts/get", {"name": "claim_task", "arguments": {"task": "x"}}),
]
STRANGE: list[Any] = [
    *(
        None,
        True,
        -1,
        2**70,
        1e308,
        "",
        "\x00",
        "\ud800",
        "other",
        "kv/other",
        "../other",
        "holdfast://other/a",
    ),
    *([], {}, [[]], {"key": "a"}, "x" * 5_000, "tenant/other/project/x/a", float("nan"), float("inf")),
]


def damaged(chance: random.Random) -> tuple[bytes, dict[str, str]]:
    """A request with some of its parts replaced, and sometimes some of its bytes."""
    method, params = json.loads(json.dumps(chance.choice(REQUESTS)))
    params["_meta"] = dict(ENVELOPE)
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": chance.randrange(9), "method": method, "params": params}
    for _ in range(chance.randrange(3)):
        place = chance.choice([body, params, params["_meta"], params.get("arguments") or params])
        if isinstance(place, dict) and place:
            place[chance.choice([*place, "extra"])] = deepcopy(chance.choice(STRANGE))
        params = body["params"] if isinstance(body.get("params"), dict) else {"_meta": {}}
        params.setdefault("_meta", {})
    text = bytearray(json.dumps(body).encode())
    for _ in range(chance.choice((0, 0, 0, 1, 5))):
        text[chance.randrange(len(text))] = chance.randrange(256)
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
    if "name" in params and isinstance(params["name"], str) and params["name"].isascii():
        headers["mcp-name"] = params["name"].replace("\x00", "") or "x"
    return bytes(text), headers


async def attack(here: Served, token: str, body: bytes, headers: dict[str, str]) -> Any:
    """Send a request."""
    known = {
        "authorization": f"Bearer {token}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
    }
    return await here.ask("POST", "/mcp", body, **known, **headers)


@pytest.mark.unmeasured
async def test_damaged_requests_are_answered_and_reveal_nothing(tmp_path: Path) -> None:
    """Whatever is sent with a plugin's token, the service answers, shows nothing else, and goes on."""
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    async with nats_server() as bus, served(tmp_path / "state.db", bus.url, open_mode=False) as here:
        await here.store.kv("other").set("a", SECRET)
        before = (await here.store.stats("kv/other")).version
        token = await token_for(here)
        statuses: dict[int, int] = {}
        for number in range(ATTACKS):
            body, headers = damaged(chance)
            told = await attack(here, token, body, headers)
            assert told.status_code < 500, (seed, number, body, told.text)
            assert SECRET not in told.text, (seed, number, body)
            statuses[told.status_code] = statuses.get(told.status_code, 0) + 1
        assert (await here.store.stats("kv/other")).version == before
        async with agent(here, token) as one:
            assert (await one.call("put", key="sound", value=1))["success"]
        print(f"seed {seed}: {ATTACKS} requests, {statuses}")
        assert ATTACKS < 50 or {200, 400} <= statuses.keys()
