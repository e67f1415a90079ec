"""The message of `holdfast up`: it names every address at which the service answers, and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest

from holdfast.edges import greeting
from holdfast.edges.serve import _contents
from holdfast.edges.settings.read import read_config
from holdfast.edges.settings.table import Config
from holdfast.engines.memory import MemoryEngine
from holdfast.errors import Unavailable
from holdfast.store import Store

if TYPE_CHECKING:
    from pathlib import Path


def agents_line(tmp_path: Path, **settings: Any) -> list[str]:
    """The lines for agents of a service with these settings."""
    given = {"db": str(tmp_path / "state.db"), "nats": "nats://127.0.0.1:4222", **settings}
    config = read_config(environment={}, **given)
    return [line for line in greeting.greeting(config, str(config.nats), []) if line.startswith("MCP")]


def test_agents_are_told_their_address(tmp_path: Path) -> None:
    """The address is that of the HTTP port, with the path that needs no token where there is one."""
    [line] = agents_line(tmp_path, reply_mode="open", http_port=8420)
    assert line.startswith("MCP   http://127.0.0.1:8420/mcp, ")
    assert "/mcp/kv/demo needs none" in line
    [line] = agents_line(tmp_path, reply_mode="permissions", http_port=8420)
    assert line == "MCP   http://127.0.0.1:8420/mcp, for agents with the token of a plugin or project"


def test_agents_are_told_nothing_that_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without HTTP, or without the extra, no address is named."""
    assert agents_line(tmp_path, http_port=0) == []
    monkeypatch.setattr(greeting, "find_spec", lambda name: None)
    assert agents_line(tmp_path, http_port=8420) == []


async def test_a_store_that_can_not_be_read_just_now_is_served(tmp_path: Path) -> None:
    """A service whose storage goes away while it starts goes on, and says that the store can't be read."""
    engine = MemoryEngine()
    async with Store(engine, reap=False) as store:
        engine.totals = AsyncMock(side_effect=Unavailable("the servers are away"))  # type: ignore[method-assign]
        assert await _contents(store) == (None, None)
    config = read_config(environment={}, db=str(tmp_path / "state.db"))
    lines = list(greeting.greeting(config, "nats://127.0.0.1:4222", None))
    assert lines[0] == "Holdfast is up."
    assert "can't be read just now" in lines[1]


def test_callers_by_other_names_are_told_to_need_a_token(tmp_path: Path) -> None:
    """Who lists names for a proxy is told that callers by these names need a token in open mode."""

    def lines(**settings: Any) -> str:
        config = Config(db="", data_dir=str(tmp_path), http_port=8420, http_hosts=("kv.example",), **settings)
        return "\n".join(greeting.greeting(config, "nats://127.0.0.1:4222", []))

    assert "callers by the name kv.example need one too" in lines(reply_mode="open")
    assert "callers by the name" not in lines(reply_mode="permissions", nats="nats://127.0.0.1:4222")
