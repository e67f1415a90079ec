"""Entries as resources, and notifications when they change."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp_types import ResourceUpdatedNotification

from holdfast.edges.mcp import resources
from holdfast.edges.mcp.callers import StoreCaller
from holdfast.edges.mcp.resources import ResourceUris
from holdfast.edges.mcp.server import Handlers
from holdfast.errors import DatabaseError
from holdfast.handles.kv import KV
from tests.edges.mcp.agents import LEGACY, REVISIONS, agent

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.store import Store

PATIENCE = 60.0


@pytest.mark.parametrize("mode", REVISIONS)
async def test_entries_are_listed_and_read(store: Store, mode: str) -> None:
    """Every key is a resource under the plugin's name; its content is the entry with its version."""
    kv = store.kv("trivia")
    for number in range(120):
        await kv.set(f"k{number:03}", number)
    async with agent(store, mode=mode) as one:
        page = await one.client.list_resources()
        assert page.next_cursor is not None
        rest = await one.client.list_resources(cursor=page.next_cursor)
        uris = [found.uri for found in page.resources + rest.resources]
        assert uris == ["holdfast://trivia/", *(f"holdfast://trivia/k{number:03}" for number in range(120))]
        [content] = (await one.client.read_resource("holdfast://trivia/k007")).contents
        entry = json.loads(content.text)  # type: ignore[union-attr]
        assert (entry["key"], entry["value"], entry["version"]) == ("k007", 7, 8)
        [keys] = (await one.client.read_resource("holdfast://trivia/")).contents
        assert json.loads(keys.text)["keys"][0] == "k000"  # type: ignore[union-attr]
        [template] = (await one.client.list_resource_templates()).resource_templates
        assert template.uri_template == "holdfast://trivia/{+key}"


async def test_a_project_is_addressed_by_tenant_and_project(store: Store) -> None:
    """The URIs of a project are those of its tenant and itself, and keys in them are relative."""
    kv = store.semantic("acme", "web")
    await kv.set("docs/cursor", 1)
    async with agent(store, kv) as one:
        found = [resource.uri for resource in (await one.client.list_resources()).resources]
        assert found == ["holdfast://acme/web/", "holdfast://acme/web/docs/cursor"]
        [content] = (await one.client.read_resource(found[1])).contents
        assert json.loads(content.text)["value"] == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "uri",
    [
        "holdfast://other/a",
        "holdfast://trivia/gone",
        "holdfast://trivia",
        "file:///etc/passwd",
        "holdfast://trivia/%ff",
        "",
    ],
)
async def test_a_missing_key_is_no_resource(store: Store, uri: str) -> None:
    """A URI of another plugin, of no entry or of no plugin is answered with the same words."""
    await store.kv("other").set("a", 1)
    async with agent(store) as one:
        with pytest.raises(MCPError, match=r"^there is no such resource$") as caught:
            await one.client.read_resource(uri)
        assert caught.value.code == -32602


@pytest.mark.parametrize("key", ["a b", "ä/ö:%?#[]", "../x", "//", "a%20b", "game:42", "%2F", " "])
def test_a_key_has_one_uri(key: str) -> None:
    """A URI leads back to the key that it was made of, however the key is spelled."""

    class Handle:
        namespace = "kv/trivia"

    address = ResourceUris(Handle())  # type: ignore[arg-type]
    uri = address.uri(key)
    assert (address.key(uri), address.canonical(uri)) == (key, uri)
    assert uri.isascii()
    assert not set(uri) & set(" ?#[]")


async def test_a_stream_tells_of_changes(store: Store, clock: ManualClock) -> None:
    """A subscriber hears of a set, a deletion and an expiry of its own resources, and of no others."""
    kv = store.kv("trivia")
    async with agent(store) as one:
        uri = "holdfast://trivia/game%3A42"
        async with one.client.listen(resource_subscriptions=[uri]) as events:
            assert events.honored.resource_subscriptions == ["holdfast://trivia/game:42"]
            await kv.set("other", 1)
            await kv.set("game:42", 1)
            async with asyncio.timeout(PATIENCE):
                assert await anext(events) == ResourceUpdated("holdfast://trivia/game:42")
                await kv.delete("game:42")
                assert await anext(events) == ResourceUpdated("holdfast://trivia/game:42")
                await kv.set("game:42", 1, ttl=5)
                assert await anext(events) == ResourceUpdated("holdfast://trivia/game:42")
                clock.advance(5)
                await store.sweep()
                assert await anext(events) == ResourceUpdated("holdfast://trivia/game:42")


async def test_the_list_of_keys_tells_of_every_change(store: Store) -> None:
    """A subscriber of the root, or of changes of the list, hears of every key."""
    async with agent(store) as one:
        async with one.client.listen(
            resource_subscriptions=["holdfast://trivia/"], resources_list_changed=True
        ) as events:
            await store.kv("trivia").set("any", 1)
            async with asyncio.timeout(PATIENCE):
                seen = {await anext(events), await anext(events)}
        assert seen == {ResourceUpdated("holdfast://trivia/"), ResourcesListChanged()}


async def test_another_plugin_is_not_heard(store: Store) -> None:
    """A subscription to a resource of another plugin is not honoured, and its changes are not told."""
    wanted = ["holdfast://other/a", "holdfast://trivia/b"]
    async with agent(store) as one, one.client.listen(resource_subscriptions=wanted) as events:
        assert events.honored.resource_subscriptions == ["holdfast://trivia/b"]
        await store.kv("other").set("a", 1)
        await store.kv("trivia").set("b", 1)
        async with asyncio.timeout(PATIENCE):
            assert await anext(events) == ResourceUpdated("holdfast://trivia/b")


async def test_the_journal_is_followed_only_for_subscribers(store: Store) -> None:
    """Without subscribers no task follows the journal, and a second subscriber shares the first one's."""

    def following() -> int:
        return sum(task.get_name() == "holdfast mcp subscriptions" for task in asyncio.all_tasks())

    async with agent(store) as one:
        wanted = ["holdfast://trivia/a"]
        async with (
            one.client.listen(resource_subscriptions=wanted),
            one.client.listen(resource_subscriptions=wanted) as second,
        ):
            assert following() == 1
            await store.kv("trivia").set("a", 1)
            async with asyncio.timeout(PATIENCE):
                assert await anext(second) == ResourceUpdated("holdfast://trivia/a")
    assert following() == 0


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
async def test_a_connection_with_a_handshake_subscribes_too(store: Store) -> None:
    """Clients of earlier revisions are told of changes of what they subscribed to, as they spelled it."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.put_nowait(message.params.uri)

    kv = store.kv("trivia")
    async with agent(store, mode=LEGACY, message_handler=hear) as one:
        capabilities = one.client.server_capabilities
        assert capabilities.resources is not None
        assert capabilities.resources.subscribe
        await one.client.subscribe_resource("holdfast://trivia/game%3A1")
        await one.client.subscribe_resource("holdfast://trivia/b")
        with pytest.raises(MCPError, match="no such resource"):
            await one.client.subscribe_resource("holdfast://other/b")
        async with asyncio.timeout(PATIENCE):
            await kv.set("game:1", 1)
            assert await heard.get() == "holdfast://trivia/game%3A1"
            await one.client.unsubscribe_resource("holdfast://trivia/game%3A1")
            await kv.set("game:1", 2)
            await kv.set("b", 2)
            assert await heard.get() == "holdfast://trivia/b"
    assert heard.empty()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("holdfast mcp")]


@pytest.mark.filterwarnings("ignore:resources/subscribe is removed")
async def test_a_refused_subscription_is_refused_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was refused is not told at its next attempt that it is subscribed, unless it is."""
    monkeypatch.setattr(resources, "MOST_STREAMS", 1)
    heard = asyncio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.set()

    caller = StoreCaller(store, store.kv("trivia"))
    server = Handlers(lambda ctx: caller).server()
    uri = "holdfast://trivia/a"
    async with Client(server, mode=LEGACY, message_handler=hear) as second:
        async with Client(server, mode=LEGACY) as first:
            await first.subscribe_resource(uri)
            for _ in range(2):
                with pytest.raises(MCPError, match="too many subscriptions"):
                    await second.subscribe_resource(uri)
        await second.subscribe_resource(uri)
        await store.kv("trivia").set("a", 1)
        async with asyncio.timeout(PATIENCE):
            await heard.wait()


@pytest.mark.filterwarnings("ignore:resources/subscribe is removed")
async def test_a_journal_that_could_not_be_followed_is_followed_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who subscribes after the storage has failed hears of changes, whoever was subscribed before."""
    heard, failed, watch = asyncio.Event(), asyncio.Event(), KV.watch

    async def hear(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.set()

    def fails(kv: KV, since: int) -> None:
        failed.set()
        raise DatabaseError("the disk failed to read")

    caller = StoreCaller(store, store.kv("trivia"))
    server = Handlers(lambda ctx: caller).server()
    uri = "holdfast://trivia/a"
    async with (
        Client(server, mode=LEGACY) as first,
        Client(server, mode=LEGACY, message_handler=hear) as second,
        asyncio.timeout(PATIENCE),
    ):
        monkeypatch.setattr(KV, "watch", fails)
        await first.subscribe_resource(uri)
        await failed.wait()
        monkeypatch.setattr(KV, "watch", watch)
        await second.subscribe_resource(uri)
        await store.kv("trivia").set("a", 1)
        await heard.wait()


@pytest.mark.parametrize("mode", REVISIONS)
async def test_prompts_name_their_task(store: Store, mode: str) -> None:
    """Prompts for claiming and handing over a task are offered, filled in, and refused without a task."""
    async with agent(store, mode=mode) as one:
        names = [prompt.name for prompt in (await one.client.list_prompts()).prompts]
        assert names == ["claim_task", "hand_over"]
        got = await one.client.get_prompt("hand_over", {"task": "docs/{x}", "notes": "ask Bob"})
        text = got.messages[0].content.text  # type: ignore[union-attr]
        assert '"task/docs/{x}"' in text
        assert "ask Bob" in text
        assert "{task}" not in text
        for arguments in ({}, {"task": " "}, {"task": "a", "other": "b"}):
            with pytest.raises(MCPError, match="argument"):
                await one.client.get_prompt("claim_task", arguments)
        with pytest.raises(MCPError, match="there is no prompt"):
            await one.client.get_prompt("nothing")
