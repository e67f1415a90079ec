"""The conversation store of pydantic-ai, beside the one in memory that the project ships, on every ground."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryContent,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests

from holdfast.integrations.pydantic_ai import HoldfastConversationStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from holdfast.handles.kv import KV
    from holdfast.store import Store
    from tests.integrations.grounds import Ground

NAMES = ["ada", "bob/%#", "x" * 400]


def turn(text: str) -> list[Any]:
    """A question with a document, and its answer."""
    document = BinaryContent(data=b"\x00\xff" + text.encode(), media_type="application/pdf")
    return [
        ModelRequest(parts=[UserPromptPart(content=[text, document])]),
        ModelResponse(parts=[TextPart(content=f"{text}, indeed")]),
    ]


async def outcome(call: Any) -> Any:
    """What a call gives, without the ids that a store makes up, or its error."""
    try:
        result = await call
    except UserError as error:
        return type(error)
    match result:
        case Conversation():
            return list(result.messages), result.usage
        case list():
            return [getattr(one, "conversation_id", None) or one.message for one in result]
        case _:
            return result


class Both:
    """Drives two stores with the same calls and compares all that they answer."""

    def __init__(self, ours: ConversationStore, theirs: ConversationStore, seed: int) -> None:
        self.stores = (ours, theirs)
        self.dice = random.Random(seed)
        self.held: dict[str, tuple[Conversation, Conversation]] = {}
        self.turns = 0

    async def step(self) -> None:
        """Do one thing to both."""
        name, at = self.dice.choice(NAMES), self.dice.randint(0, 4)
        match self.dice.randint(0, 7):
            case 0 | 1 | 2:
                await self.save(name)
            case 3:
                await self.save(name, rewrite=True)
            case 4:
                await self.same(
                    lambda store, side: store.fork(
                        name, at=at, new_conversation_id=self.dice_name(name), source_scope=None
                    )
                )
            case 5:
                await self.same(
                    lambda store, side: store.branch(
                        name, at=at, expected_revision=self.revision(name, side), scope=None
                    )
                )
            case 6:
                await self.same(lambda store, side: store.delete(name))
            case 7:
                self.held.pop(name, None)
        await self.compare()

    def dice_name(self, name: str) -> str:
        """The conversation that a fork of this one becomes."""
        return NAMES[(NAMES.index(name) + 1) % len(NAMES)]

    def revision(self, name: str, side: int) -> str | None:
        """The revision that a side has loaded."""
        return self.held[name][side].revision if name in self.held else None

    async def save(self, name: str, *, rewrite: bool = False) -> None:
        """Add a turn to what was loaded, or to a new conversation, or replace all turns by one."""
        if name not in self.held:
            loaded = [await store.load(name) for store in self.stores]
            self.held[name] = tuple(one or Conversation(conversation_id=name) for one in loaded)  # type: ignore[assignment]
        self.turns += 1
        messages = turn(f"turn {self.turns}")
        for conversation in self.held[name]:
            conversation.messages = messages if rewrite else [*conversation.messages, *messages]
        await self.same(lambda store, side: store.save(self.held[name][side]))

    async def same(self, call: Any) -> None:
        """Make a call of both stores, which have to answer alike."""
        ours, theirs = [await outcome(call(store, side)) for side, store in enumerate(self.stores)]
        assert ours == theirs

    async def compare(self) -> None:
        """Compare everything that can be read."""
        await self.same(lambda store, side: store.list_conversations())
        for name in NAMES:
            await self.same(lambda store, side, name=name: store.load(name))
            await self.same(lambda store, side, name=name: store.load(name, limit=3))
            await self.same(lambda store, side, name=name: store.load_entries(name, limit=20))


@pytest.mark.parametrize("seed", range(2))
async def test_store_behaves_like_the_one_in_memory(store: Store, seed: int) -> None:
    """Saves, rewrites, forks, branches, deletions and stale copies have the same results, and nothing unused
    is left.
    """
    kv = store.kv("desk")
    ours, theirs = HoldfastConversationStore(kv), InMemoryConversationStore()
    both = Both(ours, theirs, seed)
    for _ in range(15):
        await both.step()
    messages = (await kv.list("message/")).keys
    assert len(messages) == len(theirs._entries)
    for name in NAMES:
        await ours.delete(name)
    assert (await kv.list("message/")).keys == []


async def test_histories_longer_than_a_batch_are_saved_whole(store: Store) -> None:
    """A history longer than a batch is saved whole, read in order, and deleted whole."""
    conversations = HoldfastConversationStore(store.kv("desk"))
    messages = [message for number in range(510) for message in turn(str(number))]
    await conversations.save(Conversation(conversation_id="long", messages=messages))
    loaded = await conversations.load("long")
    assert loaded is not None
    assert loaded.messages == messages
    last = await conversations.load("long", limit=40)
    assert last is not None
    assert last.messages == messages[-40:]
    await conversations.delete("long")
    assert (await store.kv("desk").list()).keys == []


async def test_large_messages_are_saved_forked_and_deleted(store: Store) -> None:
    """Messages and records far beyond the size of an entry are saved, forked and deleted as small ones."""
    conversations = HoldfastConversationStore(store.kv("desk"))
    messages = [*turn("small"), *turn("x" * 200_000), *turn("small again")]
    waiting = DeferredToolRequests(calls=[ToolCallPart("send", {"text": "y" * 100_000})])
    talk = Conversation(conversation_id="c", messages=messages, deferred_tool_requests=waiting)
    await conversations.save(talk)
    loaded = await conversations.load("c")
    assert loaded is not None
    assert (loaded.messages, loaded.deferred_tool_requests) == (messages, waiting)
    await conversations.fork("c", new_conversation_id="d")
    await conversations.save(loaded)
    with pytest.raises(ConversationConflict):
        await conversations.save(talk)
    assert len((await store.blobs("desk").list()).blobs) == 4
    await conversations.delete("c")
    forked = await conversations.load("d")
    assert forked is not None
    assert forked.messages == messages
    await conversations.delete("d")
    assert (await store.blobs("desk").list()).blobs == []
    assert (await store.kv("desk").list()).keys == ["forks"]


async def test_scopes_keep_conversations_apart(store: Store) -> None:
    """A conversation of one scope is not there for a caller of another."""
    conversations = HoldfastConversationStore(store.kv("desk"))
    await conversations.save(Conversation(conversation_id="c", messages=turn("hello")), scope="ada")
    assert await conversations.load("c", scope="bob") is None
    assert await conversations.load("c", scope="ada") is not None
    assert [one.conversation_id for one in await conversations.list_conversations(scope="ada")] == ["c"]
    assert await conversations.list_conversations(scope="bob") == []


@contextlib.asynccontextmanager
async def two(ground: Ground) -> AsyncIterator[tuple[Store, Store]]:
    """Two instances of the store; on SQLite the same one twice."""
    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(ground.open())
        yield one, one if ground.kind == "sqlite" else await stack.enter_async_context(ground.open())


async def test_two_writers_lose_nothing(ground: Ground) -> None:
    """Of two that save the same revision one gets a conflict; who loads again and retries loses no turn."""
    async with two(ground) as stores:

        async def talk(store: Store, name: str) -> None:
            conversations = HoldfastConversationStore(store.kv("desk"))
            for number in range(6):
                while True:
                    conversation = await conversations.load("c") or Conversation(conversation_id="c")
                    conversation.messages = [*conversation.messages, *turn(f"{name} {number}")]
                    with contextlib.suppress(ConversationConflict):
                        await conversations.save(conversation)
                        break

        await asyncio.gather(talk(stores[0], "one"), talk(stores[1], "two"))
        entries = await HoldfastConversationStore(stores[0].kv("desk")).load_entries("c")
        assert entries is not None
        assert len(entries) == 24


async def test_fork_during_a_deletion_is_whole_or_refused(ground: Ground) -> None:
    """A fork that is made while its source is deleted has its whole history, or is refused."""
    async with two(ground) as stores:
        one, other = (HoldfastConversationStore(store.kv("desk")) for store in stores)
        for number in range(8):
            name = f"c{number}"
            messages = [*turn("a"), *turn("b")]
            await one.save(Conversation(conversation_id=name, messages=messages))
            forked, _ = await asyncio.gather(
                other.fork(name, new_conversation_id=f"{name} fork"), one.delete(name), return_exceptions=True
            )
            kept = await other.load(f"{name} fork")
            assert (kept is None) == isinstance(forked, UserError), forked
            assert kept is None or kept.messages == messages


class Interrupted(HoldfastConversationStore):
    """A store in which something else happens once, in the middle of a save and of a deletion."""

    def __init__(self, kv: KV, meanwhile: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(kv)
        self._meanwhile: Callable[[], Coroutine[Any, Any, Any]] | None = meanwhile

    async def _happen(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()

    async def _write(self, *given: Any) -> None:
        await self._happen()
        await super()._write(*given)

    async def _reach(self, *given: Any) -> dict[str, int]:
        reached = await super()._reach(*given)
        await self._happen()
        return reached


async def test_fork_of_a_deleted_source_is_refused(store: Store) -> None:
    """A fork is refused if its source goes while it is made, and keeps its history if it was there first."""
    kv = store.kv("desk")
    plain, messages = HoldfastConversationStore(kv), [*turn("a"), *turn("b")]
    await plain.save(Conversation(conversation_id="c", messages=messages))
    with pytest.raises(ConversationConflict):
        await Interrupted(kv, lambda: plain.delete("c")).fork("c", new_conversation_id="late")
    assert (await kv.list("message/")).keys == []

    await plain.save(Conversation(conversation_id="d", messages=messages))
    await Interrupted(kv, lambda: plain.fork("d", at=2, new_conversation_id="first")).delete("d")
    kept = await plain.load("first")
    assert kept is not None
    assert kept.messages == messages[:2]
    assert await plain.load("d") is None
    assert len((await kv.list("message/")).keys) == 2


async def test_agent_continues_a_saved_conversation(store: Store) -> None:
    """A run continues the conversation that an earlier run has saved."""
    agent = Agent(TestModel(custom_output_text="noted"))
    for turns in (1, 2):
        conversations = HoldfastConversationStore(store.kv("desk"))
        conversation = await conversations.load("c") or Conversation(conversation_id="c")
        await conversations.save(await agent.run("remember this", conversation=conversation))
        entries = await conversations.load_entries("c")
        assert entries is not None
        assert len(entries) == 2 * turns
