"""The life of the audit's key as an operator meets it: made by `up`, missed by a copy, and mended."""

from __future__ import annotations

import json
import os
import shutil
import stat
from typing import TYPE_CHECKING, Any

from tests.edges.running import Up, ask, holdfast_up, plain_client
from tests.forking import ForkedProcess

if TYPE_CHECKING:
    from pathlib import Path

PUT = "db.semantic.acme.web.put"


async def put(up: Up, subject: str = PUT, **fields: Any) -> dict[str, Any]:
    """Write an audited entry as a plain NATS client does it."""
    async with plain_client(up.url) as client:
        return await ask(client, subject, **{"key": "k", "value": 1} | fields)


async def doctor(up: Up, url: object) -> dict[str, dict[str, str]]:
    """What `holdfast doctor` finds with the settings of a service, by check."""
    words = ("doctor", "--json", "--url", str(url))
    process = await ForkedProcess.start("holdfast", *words, env=up._environment(), cwd=up.home)
    found, _ = await process.communicate()
    return {one["check"]: one for one in json.loads(found)["checks"]}


async def ready(up: Up) -> tuple[int, dict[str, Any]]:
    """What `/readyz` says."""
    status, text = await up.http("/readyz")
    return status, json.loads(text)


async def assert_mended(up: Up, made: Path, missed: Path, url: object) -> None:
    """A service without the key refuses what is audited, says so everywhere, and goes on when it is there."""
    refused = await put(up, value=2)
    name = refused["message"].partition("signed with the key ")[2][:16]
    assert (refused["success"], refused["errorCode"]) == (False, "unsupported")
    assert str(missed) in refused["message"]
    assert "install -m 600" in refused["message"]
    other = await put(up, "db.semantic.acme.never-written.put")
    assert other["message"] == refused["message"], "no second key is made for a new namespace"
    assert missed.name not in os.listdir(missed.parent)
    assert (await put(up, "db.kv.trivia.set"))["success"], "what is not audited is written"
    [said] = [line for line in up.said if line.startswith("Key ")]
    assert said == f"Key   audited writes are refused: {refused['message']}"
    status, report = await ready(up)
    assert (status, report["ready"], report["degraded"], report["store"]) == (200, True, True, "ok")
    assert report["audit"] == f"UNSUPPORTED: {refused['message']}"
    found = (await doctor(up, url))["signing"]
    assert (found["level"], name in found["message"], str(missed) in found["message"]) == ("fail", True, True)
    shutil.copy(made, missed)
    assert (await put(up, value=3))["success"]
    assert (await doctor(up, url))["signing"]["message"] == f"the key in force, {name}, is available"


async def test_postgresql_is_audited_out_of_the_box(tmp_path: Path, pg_url: str) -> None:
    """`up` makes a key on first need and says what to copy where; a second service without it refuses."""
    made, missed = (tmp_path / home / "holdfast" / "audit-key" for home in ("one", "two"))
    async with holdfast_up(tmp_path / "one", "--db", pg_url) as up:
        assert (await ready(up))[1]["audit"] == "ok"
        assert not made.exists()
        assert (await doctor(up, pg_url))["signing"]["level"] == "ok"
        assert (await put(up))["success"]
        assert (await put(up, "db.semantic.acme.other.put"))["success"]
        assert stat.S_IMODE(made.stat().st_mode) == 0o600
        async with holdfast_up(tmp_path / "two", "--db", pg_url) as second:
            await assert_mended(second, made, missed, pg_url)
        assert (await put(up, value=4))["success"]
        assert (await doctor(up, pg_url))["key"]["level"] == "ok"
        await up.stop()
    [said] = [line for line in up.said if line.startswith("Key ")]
    assert said.startswith(f"Key   {made} was made and signs the audit: copy it to every other machine")


async def test_a_copied_sqlite_file_without_its_key(tmp_path: Path) -> None:
    """A restored copy refuses what is audited until the key is copied too, and makes no second one."""
    original, copy = tmp_path / "one" / "store.db", tmp_path / "two" / "store.db"
    async with holdfast_up(tmp_path / "one", "--db", original) as up:
        assert (await put(up))["success"]
        await up.stop()
    made, missed = (one.with_name("store.db.audit-key") for one in (original, copy))
    assert any(line.startswith(f"Key   {made} was made") for line in up.said)
    copy.parent.mkdir()
    shutil.copy(original, copy)
    async with holdfast_up(tmp_path / "two", "--db", copy) as second:
        await assert_mended(second, made, missed, copy)
