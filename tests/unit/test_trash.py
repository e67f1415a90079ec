"""Looking through the trash, as far as it does not depend on an engine."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.engines.memory import MemoryEngine
from holdfast.errors import DatabaseError
from holdfast.rows import KV, Address
from holdfast.store import Store
from holdfast.testing.exact import refusal


async def test_unreadable_trash_entry_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """A trashed entry that was damaged from outside can't be restored; it is left out, and the others are
    listed.
    """
    engine = MemoryEngine()
    async with Store(engine, reap=False) as store:
        kv = store.kv("trivia")
        for key in ("a", "broken", "c"):
            await kv.set(key, key, semantics={"purpose": "config"})
        address = Address("kv/trivia", KV, "broken")
        engine._rows[address] = msgspec.structs.replace(engine._rows[address], value="{")
        await kv.delete_many(["a", "broken", "c"])
        page = await store.trash("kv/trivia", values=True)
        with refusal(DatabaseError, field="key", says="'broken'"):
            await kv.restore("broken")
    assert [(entry.key, entry.value) for entry in page.entries] == [("a", "a"), ("c", "c")]
    for line in (record for record in caplog.records if record.levelname == "ERROR"):
        assert "'broken'" in line.getMessage()
    assert len(caplog.records) >= 2
