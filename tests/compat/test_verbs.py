"""What a bot's database answers when a key is set, read, deleted and listed.

Each rule holds on SQLite in memory and in a file, and on PostgreSQL. Expiry has its own module.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.compat.rosey import BotDatabase, PluginKVStorage
from holdfast.engines.sql import orm
from holdfast.errors import Unavailable
from tests.compat.conftest import add

if TYPE_CHECKING:
    from pathlib import Path

VALUES = [
    {"theme": "dark", "sizes": [1, 2, 3], "nested": {"on": True}},
    {},
    [1, [2, [3]]],
    [],
    "Zoë's 'quoted' \"text\"\n",
    "",
    42,
    -7,
    2**80,
    3.14,
    True,
    False,
    None,
]


async def test_every_kind_of_json_value_comes_back(db: BotDatabase) -> None:
    """What is set is read back equal and of the same type, whatever JSON it is; null is a value too."""
    for number, value in enumerate(VALUES):
        await db.kv_set("trivia", f"value{number}", value)
    for number, value in enumerate(VALUES):
        found = await db.kv_get("trivia", f"value{number}")
        assert found == {"exists": True, "value": value}
        assert type(found["value"]) is type(value)


async def test_a_missing_key_has_no_value(db: BotDatabase) -> None:
    """The answer for a key that is not there says so and holds nothing else."""
    assert await db.kv_get("trivia", "nothing") == {"exists": False}


async def test_a_set_replaces(db: BotDatabase) -> None:
    """A key that is set again has the last value, once."""
    await db.kv_set("trivia", "round", 1)
    await db.kv_set("trivia", "round", {"number": 2})
    assert (await db.kv_get("trivia", "round"))["value"] == {"number": 2}
    assert (await db.kv_list("trivia"))["count"] == 1


async def test_delete_says_whether_the_key_was_there(db: BotDatabase) -> None:
    """Deleting is idempotent: True takes the key away, False finds nothing to take."""
    await db.kv_set("trivia", "round", 1)
    assert await db.kv_delete("trivia", "round") is True
    assert await db.kv_get("trivia", "round") == {"exists": False}
    assert await db.kv_delete("trivia", "round") is False


async def test_list_is_complete_and_sorted(db: BotDatabase) -> None:
    """A plugin's keys come in the order of their bytes, with their count; one without keys has none."""
    assert await db.kv_list("trivia") == {"keys": [], "count": 0, "truncated": False}
    for key in ("pear", "Quince", "apple", "über", "fig"):
        await db.kv_set("trivia", key, 1)
    expected = ["Quince", "apple", "fig", "pear", "über"]
    assert await db.kv_list("trivia") == {"keys": expected, "count": 5, "truncated": False}


async def test_list_by_prefix_takes_it_literally(db: BotDatabase) -> None:
    """A prefix selects what begins with it; `%`, `_` and `*` stand for themselves, and case counts."""
    for key in ("user:ann", "user:bob", "User:eve", "user_x", "userqx", "50%", "50 cents", "config"):
        await db.kv_set("trivia", key, 1)
    assert (await db.kv_list("trivia", prefix="user:"))["keys"] == ["user:ann", "user:bob"]
    assert (await db.kv_list("trivia", prefix="user_"))["keys"] == ["user_x"]
    assert (await db.kv_list("trivia", prefix="50%"))["keys"] == ["50%"]
    assert (await db.kv_list("trivia", prefix="*"))["keys"] == []


async def test_a_limit_cuts_the_list_and_says_so(db: BotDatabase) -> None:
    """`truncated` is true exactly if there are more keys than the limit, and the first ones are shown."""
    keys = [f"key{number:02}" for number in range(15)]
    for key in keys:
        await db.kv_set("trivia", key, 1)
    assert await db.kv_list("trivia", limit=10) == {"keys": keys[:10], "count": 10, "truncated": True}
    assert await db.kv_list("trivia", limit=15) == {"keys": keys, "count": 15, "truncated": False}
    assert (await db.kv_list("trivia", "key1", limit=2))["keys"] == ["key10", "key11"]


async def test_a_list_is_not_cut_by_its_size(db: BotDatabase) -> None:
    """A limit alone cuts a list: keys that take several pages of the store come in one answer."""
    keys = sorted(f"{number:04}{'ü' * 251}" for number in range(1500))
    await add(db, [PluginKVStorage(plugin_name="trivia", key=key, value_json="1") for key in keys])
    assert await db.kv_list("trivia", limit=10_000) == {"keys": keys, "count": 1500, "truncated": False}
    assert await db.kv_list("trivia", limit=1499) == {"keys": keys[:-1], "count": 1499, "truncated": True}


async def test_plugins_do_not_see_each_other(db: BotDatabase) -> None:
    """The same key of two plugins is two keys: to read, to list and to delete."""
    await db.kv_set("plugin-a", "secret", "a")
    assert await db.kv_get("plugin-b", "secret") == {"exists": False}
    assert await db.kv_delete("plugin-b", "secret") is False
    await db.kv_set("plugin-b", "secret", "b")
    await db.kv_set("plugin-b", "other", "b")
    assert (await db.kv_get("plugin-a", "secret"))["value"] == "a"
    assert (await db.kv_get("plugin-b", "secret"))["value"] == "b"
    assert (await db.kv_list("plugin-a"))["keys"] == ["secret"]
    assert (await db.kv_list("plugin-b"))["keys"] == ["other", "secret"]


async def test_sql_in_names_and_values_is_only_text(db: BotDatabase) -> None:
    """Text that would be SQL is stored and found as it is, as a key, a value or a prefix."""
    text = "x'; DROP TABLE plugin_kv_storage; --"
    await db.kv_set("trivia", text, text)
    assert await db.kv_get("trivia", text) == {"exists": True, "value": text}
    assert (await db.kv_list("trivia", prefix=text))["keys"] == [text]
    with pytest.raises(ValueError, match="Plugin name"):
        await db.kv_get(text, "key")


async def test_a_value_of_more_than_64_kb_is_refused(db: BotDatabase) -> None:
    """Of a value in its compact form 65,536 bytes fit; one more is a ValueError and changes nothing."""
    await db.kv_set("trivia", "big", "x" * 65_534)
    with pytest.raises(ValueError, match=r"Value size \(65537 bytes\) exceeds 64KB limit"):
        await db.kv_set("trivia", "big", "x" * 65_535)
    assert len((await db.kv_get("trivia", "big"))["value"]) == 65_534


@pytest.mark.parametrize("value", [object(), {(1, 2): "a"}, {"a": {1, 2}}, b"bytes", float("nan"), "\ud800"])
async def test_a_value_that_is_not_json_is_refused(db: BotDatabase, value: Any) -> None:
    """A value that is not JSON is a TypeError that says so, and nothing is kept."""
    with pytest.raises(TypeError, match="not JSON-serializable"):
        await db.kv_set("trivia", "bad", value)
    assert await db.kv_get("trivia", "bad") == {"exists": False}


@pytest.mark.parametrize("name", ["", "Upper", "a.b", "a/b", "../x", "x" * 101, None])
async def test_illegal_plugin_names_are_refused(db: BotDatabase, name: Any) -> None:
    """A name that no subject could carry is a ValueError at every verb."""
    for call in (
        db.kv_set(name, "key", 1),
        db.kv_get(name, "key"),
        db.kv_delete(name, "key"),
        db.kv_list(name),
    ):
        with pytest.raises(ValueError, match="Plugin name"):
            await call


async def test_illegal_keys_and_limits_are_refused(db: BotDatabase) -> None:
    """Keys have 1 to 255 characters and limits are from 1 to 10,000; anything else is a ValueError."""
    await db.kv_set("trivia", "k" * 255, 1)
    for key in ("", "k" * 256, "nul\x00"):
        for call in (db.kv_set("trivia", key, 1), db.kv_get("trivia", key), db.kv_delete("trivia", key)):
            with pytest.raises(ValueError, match="key"):
                await call
    for limit in (0, -1, 10_001):
        with pytest.raises(ValueError, match="limit"):
            await db.kv_list("trivia", limit=limit)


async def test_a_value_that_cannot_be_read_does_not_exist(
    db: BotDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """A broken value in the table is answered as no value and logged as an error that names the key."""
    await add(db, [PluginKVStorage(plugin_name="trivia", key="broken", value_json="{not json")])
    with caplog.at_level(logging.ERROR, logger="holdfast.compat"):
        assert await db.kv_get("trivia", "broken") == {"exists": False}
    [record] = caplog.records
    assert (record.levelname, "broken" in record.getMessage()) == ("ERROR", True)
    await db.kv_set("trivia", "broken", 1)
    assert await db.kv_get("trivia", "broken") == {"exists": True, "value": 1}


async def test_the_writer_is_the_plugin(db: BotDatabase) -> None:
    """What a bot writes carries its plugin's name, as what a plugin writes over NATS does."""
    await db.kv_set("trivia", "key", 1)
    entry = await (await db.store()).kv("trivia").get("key")
    assert entry is not None
    assert entry.last_writer == "trivia"


async def test_the_first_call_opens_the_store(empty_url: str) -> None:
    """`create_tables` may be left out: the first call of any kind makes the tables."""
    db = BotDatabase(empty_url)
    assert await db.kv_list("trivia") == {"keys": [], "count": 0, "truncated": False}
    await db.close()


async def test_calls_that_come_first_together_open_one_store(empty_url: str) -> None:
    """Many calls at once on a database that is not open yet are all done, on one store."""
    db = BotDatabase(empty_url)
    await asyncio.gather(*(db.kv_set("trivia", f"key{number}", number) for number in range(20)))
    assert (await db.kv_list("trivia"))["count"] == 20
    await db.close()


async def test_a_closed_database_says_so(url: str) -> None:
    """After closing, which may be done twice and without ever opening, a call is refused with the reason."""
    db = BotDatabase(url)
    await db.close()
    await db.close()
    with pytest.raises(Unavailable, match="closed"):
        await db.kv_get("trivia", "key")


async def test_a_file_keeps_its_keys_between_runs(tmp_path: Path) -> None:
    """A file keeps its keys from one run of the bot to the next, by path or by URL."""
    first = BotDatabase(tmp_path / "bot.db")
    await first.kv_set("trivia", "key", 1)
    await first.close()
    second = BotDatabase(f"sqlite+aiosqlite:///{tmp_path / 'bot.db'}")
    assert await second.kv_get("trivia", "key") == {"exists": True, "value": 1}
    await second.close()


async def test_opening_can_be_tried_again(tmp_path: Path) -> None:
    """A database that could not be opened opens once what was wrong has been put right."""
    folder = tmp_path / "later"
    db = BotDatabase(folder / "bot.db")
    with pytest.raises(Unavailable):
        await db.create_tables()
    folder.mkdir()
    await db.create_tables()
    await add(db, [PluginKVStorage(plugin_name="trivia", key="key", value_json="1")])
    assert await db.kv_get("trivia", "key") == {"exists": True, "value": 1}
    await db.close()


@pytest.mark.parametrize("url", ["memory://", "nats://127.0.0.1:4222", "mysql://host/db", ""])
def test_only_sqlite_and_postgresql_have_sessions(url: str) -> None:
    """A URL on which no session could work is refused at once, with a ValueError."""
    with pytest.raises(ValueError, match=r"url|SQLite or PostgreSQL"):
        BotDatabase(url)


def test_the_model_is_the_stores_own() -> None:
    """The exported model is the one that the schema is made from, so that there is one metadata."""
    from holdfast.compat.rosey import Base

    assert PluginKVStorage is orm.PluginKVStorage
    assert Base is orm.Base


async def test_every_call_is_logged_with_its_key(db: BotDatabase, caplog: pytest.LogCaptureFixture) -> None:
    """Each call leaves a line at DEBUG with plugin and key; a refused one leaves a warning with them."""
    caplog.set_level(logging.DEBUG, "holdfast.compat")
    await db.kv_set("trivia", "game_123", {"a": 1})
    await db.kv_get("trivia", "game_123")
    await db.kv_get("trivia", "line\nbreak")
    await db.kv_list("trivia", prefix="game")
    await db.kv_delete("trivia", "game_123")
    with pytest.raises(ValueError, match="64KB"):
        await db.kv_set("trivia", "big", "x" * 70_000)
    lines = [record.getMessage() for record in caplog.records if record.name == "holdfast.compat"]
    assert lines[:5] == [
        "KV set: plugin=trivia key=game_123 size=7",
        "KV get: plugin=trivia key=game_123 hit=true",
        "KV get: plugin=trivia key='line\\nbreak' hit=false",
        "KV list: plugin=trivia prefix=game count=1",
        "KV delete: plugin=trivia key=game_123 deleted=true",
    ]
    assert lines[5].startswith("KV set refused: plugin=trivia key=big: Value size (70002 bytes)")


@pytest.mark.parametrize("name", ["kv_set", "kv_get", "kv_delete", "kv_list"])
def test_calls_explain_their_arguments(name: str) -> None:
    """`help(db.kv_set)` explains each argument and shows a call."""
    call = getattr(BotDatabase, name)
    assert "Args:" in call.__doc__
    assert "Example:" in call.__doc__
    for argument in inspect.signature(call).parameters:
        assert argument == "self" or f"{argument}: " in call.__doc__
