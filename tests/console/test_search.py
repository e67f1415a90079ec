"""Search over namespaces and keys: bounded, and only over what the visitor may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.edges.console import search as searching
from tests.console.visiting import log_in, page

if TYPE_CHECKING:
    import pytest

    from tests.edges.http.ground import Served


async def find(here: Served, text: str) -> dict[str, Any]:
    """Search for a text."""
    return await page(here, f"/ui/search?q={text}")


async def test_namespaces_and_keys_are_found(here: Served) -> None:
    """Keys that begin with the text come first, then those that contain it, whatever the case."""
    for key in ("ada", "player:Ada", "player:ben"):
        await here.store.kv("trivia").set(key, 1)
    await here.store.kv("other").set("x", 1)
    await here.store.semantic("acme", "web").set("adapter", 1)
    await here.store.blobs("trivia").put("a", b"1")
    found = await find(here, "ada")
    keys = [(one["namespace"], one["name"]) for one in found["keys"]]
    assert keys == [("semantic/acme/web", "adapter"), ("kv/trivia", "ada"), ("kv/trivia", "player:Ada")]
    assert (found["namespaces"], found["whole"]) == ([], True)
    names = [one["href"] for one in (await find(here, "TRIVIA"))["namespaces"]]
    assert names == ["/ui/blobs/trivia", "/ui/kv/trivia"]
    for text in ("kv/trivia/player", "kv/trivia%20player"):
        assert [one["name"] for one in (await find(here, text))["keys"]] == ["player:Ada", "player:ben"]
    assert (await find(here, "%20"))["keys"] == []


async def test_a_search_is_bounded(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks through a bounded number of keys, says so, and still finds what a key begins with."""
    monkeypatch.setattr(searching, "STEP", 10)
    monkeypatch.setattr(searching, "MOST_READ", 20)
    for number in range(50):
        await here.store.kv("many").set(f"k{number:02}:end", 1)
    found = await find(here, "49:end")
    assert (found["keys"], found["whole"]) == ([], False)
    found = await find(here, "k49")
    assert ([one["name"] for one in found["keys"]], found["whole"]) == (["k49:end"], False)
    found = await find(here, "k")
    assert (len(found["keys"]), found["whole"]) == (searching.MOST_KEYS, False)


async def test_a_token_finds_its_own_keys_alone(closed: Served) -> None:
    """The token of a plugin finds nothing of others, and one without `list` finds no keys."""
    await closed.store.kv("trivia").set("secret:mine", 1)
    await closed.store.kv("other").set("secret:theirs", 1)
    made = await closed.store.tokens().create(plugin="trivia")
    await log_in(closed, token=made.token)
    assert [one["name"] for one in (await find(closed, "secret"))["keys"]] == ["secret:mine"]
    assert "other" not in str((await find(closed, "other"))["namespaces"])
    few = await closed.store.tokens().create(plugin="trivia", verbs=["get", "stats"])
    await log_in(closed, token=few.token)
    found = await find(closed, "secret")
    assert (found["keys"], found["whole"]) == ([], False)
