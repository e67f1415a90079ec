"""The operators' verb `rescue`: a copy may take longer than anybody waits for a reply."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.edges.nats.server import NatsServer
from holdfast.operators import rescues
from tests.edges.nats.ground import calling, serving
from tests.vanishing import entries

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_copy_that_takes_long(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller is told to ask again until it is complete; meanwhile nobody else begins another one."""
    storage, copy = str(tmp_path / "store.db"), str(tmp_path / "copy.db")
    monkeypatch.setattr(rescues, "WAIT", 0.001)
    async with serving(nats_server.url, storage=storage) as running, calling(nats_server.url) as caller:
        gate, rescue = asyncio.Event(), running.store.rescue

        async def slowly(path: str) -> Any:
            await gate.wait()
            return await rescue(path)

        monkeypatch.setattr(running.store, "rescue", slowly)
        await caller.ask("db.kv.p.set", {"key": "k", "value": 1})
        begun = await caller.ask("db.admin.rescue", {"path": copy})
        assert (begun["success"], begun["complete"], begun["rescued"]) == (True, False, None)
        busy = await caller.ask("db.admin.rescue", {"path": copy})
        assert (busy["error_code"], busy["retryable"]) == ("BUSY", True)
        again = {"number": begun["number"]}
        assert (await caller.ask("db.admin.rescue", again))["complete"] is False
        gate.set()
        while not (told := await caller.ask("db.admin.rescue", again))["complete"]:
            pass
        assert told["rescued"] == {
            "path": copy,
            "bytes": os.stat(copy).st_size,
            "pages": os.stat(copy).st_size // 4096,
            "namespaces": 1,
            "entries": 1,
            "trouble": None,
        }
        assert await caller.ask("db.admin.rescue", again) == told
        assert running.recorder.unknown == {}
    async with holdfast.open(copy) as store:
        assert await entries(store) == {"k": 1}


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({}, "MISSING_FIELD", "path"),
        ({"path": 5}, "VALIDATION_ERROR", "path"),
        ({"path": "store.db"}, "VALIDATION_ERROR", "path"),
        ({"path": "no/folder/copy.db"}, "VALIDATION_ERROR", "path"),
        ({"number": 5}, "VALIDATION_ERROR", "number"),
        ({"number": []}, "VALIDATION_ERROR", "number"),
    ],
)
async def test_a_wrong_question_is_refused(
    nats_server: NatsServer, tmp_path: Path, fields: dict[str, Any], code: str, field: str
) -> None:
    """What can't be meant is refused by name, and nothing is written."""
    async with (
        serving(nats_server.url, storage=str(tmp_path / "store.db")),
        calling(nats_server.url) as caller,
    ):
        reply = await caller.ask("db.admin.rescue", fields)
        assert (reply["success"], reply["error_code"], reply["field"]) == (False, code, field)


async def test_a_store_that_is_no_file(nats_server: NatsServer) -> None:
    """A service whose store is not a SQLite file says so."""
    async with serving(nats_server.url), holdfast.open(nats_server.url) as store:
        with pytest.raises(holdfast.Unsupported, match="SQLite"):
            await store.rescue("copy.db")
