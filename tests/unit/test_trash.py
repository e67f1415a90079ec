"""Looking through the trash, as far as it does not depend on an engine."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.engines.memory import MemoryEngine
from holdfast.rows import KV, Address
from holdfast.store import Store


async def test_what_can_not_be_read_hides_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """An entry that somebody broke from outside is left out with an ERROR, and the others are shown."""
    engine = MemoryEngine()
    async with Store(engine, reap=False) as store:
        kv = store.kv("trivia")
        for key in ("a", "broken", "c"):
            await kv.set(key, key, semantics={"purpose": "config"})
        address = Address("kv/trivia", KV, "broken")
        engine._rows[address] = msgspec.structs.replace(engine._rows[address], value="{")
        await kv.delete_many(["a", "broken", "c"])
        page = await store.trash("kv/trivia", values=True)
    assert [(entry.key, entry.value) for entry in page.entries] == [("a", "a"), ("c", "c")]
    [line] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "'broken'" in line.getMessage()
