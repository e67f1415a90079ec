"""A checkpointer of LangGraph: the state of a graph after each step, and the writes of the step under way.

Everything is written once, with `await`; the methods without it run the same coroutines.

Each namespace of a thread has a head, an entry that names its latest checkpoint. A checkpoint and the head
are written in one batch that names the head's version, so of two runs that began at the same checkpoint one
is refused. A run is told from a fork by its config: a read of the latest checkpoint returns a config whose
thread's id is a `FollowedThread`, and LangGraph carries that to every checkpoint of the run. A run that
begins at a checkpoint that its config names has a plain id, and forks as it was meant to.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypedDict

from holdfast import seams
from holdfast.bounded import Bounded
from holdfast.errors import KeyNotFound, OutcomeUnknown, Refused, ValidationError, VersionConflict
from holdfast.extras import imported
from holdfast.integrations.entries import (
    AT_ONCE,
    SENDS,
    Races,
    checked,
    compare_and_set,
    delete_all,
    entries_below,
    get_all,
    names_of,
    pages,
    sent,
    unless_error,
)
from holdfast.integrations.key_names import KeyNames
from holdfast.integrations.langgraph_store import HoldfastGraphStore
from holdfast.integrations.stores import SyncBridge
from holdfast.integrations.turns import Turn, fence_of, lock_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        DeltaChannelHistory,
        PendingWrite,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

    import holdfast.sync
    from holdfast.handles.kv import KV
    from holdfast.model import Entry
    from holdfast.store import Store

with imported("langgraph", "holdfast.integrations.langgraph"):
    import ormsgpack
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
        writes_sort_key,
    )
    from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
    from langgraph.checkpoint.serde.jsonplus import (
        EXT_CONSTRUCTOR_KW_ARGS,
        EXT_CONSTRUCTOR_POS_ARGS,
        EXT_CONSTRUCTOR_SINGLE_ARG,
        EXT_DELTA_SNAPSHOT,
        EXT_METHOD_SINGLE_ARG,
        EXT_NUMPY_ARRAY,
        EXT_PYDANTIC_V1,
        EXT_PYDANTIC_V2,
        JsonPlusSerializer,
    )


_OF_A_CLASS: Final = {
    EXT_CONSTRUCTOR_SINGLE_ARG,
    EXT_CONSTRUCTOR_POS_ARGS,
    EXT_CONSTRUCTOR_KW_ARGS,
    EXT_PYDANTIC_V1,
    EXT_PYDANTIC_V2,
}
_OF_NO_CLASS: Final = {EXT_NUMPY_ARRAY, EXT_DELTA_SNAPSHOT}
_PLAIN: Final = {"null", "bytes", "bytearray"}
_STORED: Final = "The stored checkpoint is refused"


Typed: TypeAlias = tuple[str, bytes]
"""The name of a form and the bytes in it."""
Place: TypeAlias = tuple[str, str, str]
"""A thread, a namespace in it, and a checkpoint in that."""
_KNOWN_HEADS: Final = 1_024
"""Heads of which a saver remembers the version."""
_HEADS: Final = KeyNames("head", parts=2)
_CHECKPOINTS: Final = KeyNames("checkpoint", parts=3)
_WRITES: Final = KeyNames("write", parts=4)
_BLOBS: Final = KeyNames("checkpoint", parts=3)
_INLINE: Final = 32_768
"""Bytes up to which a checkpoint, or the writes of a task together, are kept in their entry, as text. The
text takes a third more, and names and metadata have the rest of the 65,536 bytes of an entry."""
_METADATA_INLINE: Final = 8_192
_GRACE: Final = timedelta(hours=1)
"""A blob of this age that no entry names belongs to a writer that was killed."""
_OF_A_RUN: Final = "__pregel_"
"""Begins members of a config that LangGraph makes for a run. It carries them along and shows them nowhere."""
_BEGUN: Final = f"{_OF_A_RUN}holdfast_begun"
"""The member that names the thread and the namespace that were empty when the run began."""
__all__ = ["CheckpointSerializer", "HoldfastGraphStore", "HoldfastSaver", "ThreadAdvanced"]


class ThreadAdvanced(VersionConflict):
    """Another run has advanced the thread since this one has read it; nothing was written.

    `thread` is the thread's id, `parent` the checkpoint that the refused one was to follow, None if there was
    none, and `tip` the checkpoint that is the latest now, None if the thread was deleted. Run the turn again,
    or use `HoldfastSaver.turn` to wait for it.
    """

    def __init__(self, thread: str, *, parent: str | None, tip: str | None) -> None:
        begun = "the run began when it was empty" if parent is None else f"the run is at checkpoint {parent}"
        now = "it was deleted" if tip is None else f"it is at checkpoint {tip}"
        super().__init__(f"thread {thread!r} was advanced by another run: {begun}, and now {now}")
        self.thread = thread
        self.parent = parent
        self.tip = tip


class CheckpointSerializer(JsonPlusSerializer):
    """LangGraph's serializer, for the types that LangGraph calls safe and for those that you name.

    Stored bytes name classes, and whoever may write to the namespace chooses the bytes. So every class that
    they name is checked before any object is made.

    The safe ones are numbers, texts, bytes, times and collections, the messages and documents of LangChain,
    and LangGraph's own types. A state that holds objects of other classes is refused when it is stored.
    Stored bytes that name other classes, or that are a pickle, are refused when they are read, and nothing in
    them is run.

    Args:
        types: Classes of yours that a state may hold: dataclasses, pydantic models, enums, named tuples.
            Their constructors run with what is stored, so name only those that may get any arguments.

    Example:
        `HoldfastSaver(store, serde=CheckpointSerializer([Order, Customer]))`
    """

    def __init__(self, types: Iterable[type] = ()) -> None:
        super().__init__(allowed_msgpack_modules=list(types))

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the form of an object and its bytes.

        Raises:
            ValidationError: It holds an object of a class that could not be read again.
        """
        form, data = super().dumps_typed(obj)
        if form == "msgpack":
            self._check(data, "This state can't be stored")
        return form, data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the object of a form and its bytes.

        Raises:
            ValidationError: The bytes name a class that is not allowed, or are not what the form says.
        """
        form, stored = data
        if form == "json":
            return _parsed(stored)
        if form == "msgpack":
            self._check(stored, _STORED)
        elif form not in _PLAIN:
            raise _refusal(
                f"{_STORED}: it has the form {form!r}, and CheckpointSerializer reads msgpack alone. If"
                " another serializer has written it, pass that one to HoldfastSaver as serde"
            )
        return super().loads_typed(data)

    def _check(self, data: bytes, refusal: str) -> None:
        """Look at every class that some bytes name, without making an object of it."""
        refused: list[str] = []

        def look(code: int, inner: bytes) -> None:
            # What a hook raises does not leave the decoder, so refusals are collected.
            named = ormsgpack.unpackb(inner, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
            if code in _OF_NO_CLASS:
                return
            if not isinstance(named, list) or len(named) not in (3, 4):
                refused.append("it has an extension of an unknown form")
            elif code == EXT_METHOD_SINGLE_ARG:
                if (method := _texts(named[0], named[1], named[-1])) not in SAFE_MSGPACK_METHODS:
                    refused.append(f"it calls {'.'.join(method)}, which can't be allowed")
            elif code not in _OF_A_CLASS:
                refused.append(f"it has an extension of the unknown kind {code}")
            elif (path := _texts(*named[:2])) not in SAFE_MSGPACK_TYPES | (self._named or set()):
                refused.append(
                    f"it holds a {'.'.join(path)}. If that is a class of yours, import it and pass"
                    f" serde=CheckpointSerializer([{path[-1]}]) to HoldfastSaver"
                )

        try:
            ormsgpack.unpackb(data, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
        except ValueError as error:
            refused.append(f"it is no msgpack that LangGraph writes ({error})")
        if refused:
            raise _refusal(f"{refusal}: {refused[0]}")

    @property
    def _named(self) -> set[tuple[str, ...]] | None:
        """The classes that the program has named, and those that LangGraph has found in its graph."""
        named = self._allowed_msgpack_modules
        return None if named is True else named


def _texts(*parts: Any) -> tuple[str, ...]:
    return tuple(one if isinstance(one, str) else repr(one)[:100] for one in parts)


def _parsed(stored: bytes) -> Any:
    """Return what JSON holds. Versions of LangGraph before 3 wrote states as JSON that names constructors."""

    def look(value: dict[str, Any]) -> dict[str, Any]:
        if "lc" in value and "type" in value:
            named = value.get("id")
            path = ".".join(map(str, named)) if isinstance(named, list) else "nothing"
            raise _refusal(
                f"{_STORED}: it is JSON that names the constructor {path[:200]}. If an old version of"
                " LangGraph has written it, pass its serializer to HoldfastSaver:"
                " serde=JsonPlusSerializer(allowed_json_modules=[…])"
            )
        return value

    try:
        return json.loads(stored, object_hook=look)
    except (ValueError, RecursionError) as error:
        raise _refusal(f"{_STORED}: it is no JSON that can be read ({error})") from None


def _refusal(message: str) -> ValidationError:
    return ValidationError(message, field="value")


class FollowedThread(str):
    """The id of a thread in the config of a run that has read the latest checkpoint of a namespace of it.

    It is a text like any other, so that whoever sees the config sees nothing unusual.
    """

    __slots__ = ("namespace",)
    namespace: str

    def __new__(cls, thread: str, namespace: str) -> Self:
        """Make one of the id and the namespace."""
        made = super().__new__(cls, thread)
        made.namespace = namespace
        return made

    def __eq__(self, other: object) -> bool:
        # As for a plain text, the other side may say what it equals.
        return bool(str(self) == other)

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        # A config that was stored or sent belongs to no run.
        return str, (str(self),)


class _StoredCheckpoint(TypedDict):
    """What the entry of a checkpoint holds."""

    checkpoint: Any
    metadata: Any
    parent: str | None
    run: str | int | None


class _StoredWrite(TypedDict):
    """A pending write."""

    index: int
    task: str
    path: str
    channel: str
    value: Any


class _StoredWrites(TypedDict):
    """What the entry of a task's pending writes holds."""

    writes: list[_StoredWrite]


class _Stored(NamedTuple):
    """An entry that is about to be deleted."""

    key: str
    version: int
    blobs: list[str]


class Checkpoints:
    """The checkpoints of all threads in a plugin's namespaces."""

    def __init__(self, store: Store, plugin: str) -> None:
        self._kv = store.kv(plugin)
        self._blobs = store.blobs(plugin)
        self._known: Bounded[str, tuple[int, str]] = Bounded(_KNOWN_HEADS)
        """The version and the tip of heads, by key, as they were last seen. A put relies on them without
        reading, and reads if they are out of date."""

    @property
    def kv(self) -> KV:
        """The namespace of the entries."""
        return self._kv

    async def latest(self, thread: str, namespace: str) -> dict[str, Any] | None:
        """Return the latest checkpoint as `read` does, with its place as `place`."""
        tip: str | None = None
        while True:
            head = await self._kv.get(_HEADS.key(thread, namespace))
            if head is None or (named := _tip(head)) == tip:
                break
            tip = named
            self._known.keep(head.key, (head.version, tip))
            if (stored := await self.read((thread, namespace, tip))) is not None:
                return stored
        # A thread of an older version, a copied one, or one whose latest checkpoint was deleted.
        for place in reversed(await self.places(thread, namespace)):
            if (stored := await self.read(place)) is not None:
                return stored
        return None

    async def places(self, *parts: str) -> list[Place]:
        """Return where there are checkpoints below a thread, or below a namespace of it, sorted."""
        places: list[Place] = []
        async for page in pages(self._kv, _CHECKPOINTS.prefix(*parts), limit=10_000):
            places += await names_of(self._kv, _CHECKPOINTS, page.keys)
        return sorted(places)

    async def read(self, place: Place) -> dict[str, Any] | None:
        """Return what `write` has stored, with `checkpoint` and `metadata` in their forms."""
        key = _CHECKPOINTS.key(*place)
        entry = await self._kv.get(key)
        if entry is None:
            return None
        stored = _checkpoint_in(entry)
        unpacked = {part: await self._unpacked(stored[part]) for part in ("checkpoint", "metadata")}
        return stored | unpacked | {"place": place}

    async def write(
        self,
        place: Place,
        *,
        checkpoint: Typed,
        metadata: Typed,
        parent: str | None,
        run: str | None,
        follows: bool = False,
    ) -> None:
        """Store a checkpoint, replacing an earlier one of that id.

        Args:
            place: The thread, the namespace and the checkpoint's id.
            checkpoint: The checkpoint.
            metadata: Its metadata.
            parent: The id of the checkpoint before it, if there is one.
            run: The id of the run that has made it, if it has one.
            follows: Whether the parent must be the latest checkpoint. If not, this one becomes the latest if
                its id is the greatest.

        Raises:
            ThreadAdvanced: It must be, and is not.
        """

        async def send() -> Entry | None:
            # Each attempt has blobs of its own, since what it replaces may be an earlier one.
            value: dict[str, Any] = {"parent": parent, "run": run}
            try:
                value["checkpoint"] = await self._packed(place[0], checkpoint, _INLINE)
                value["metadata"] = await self._packed(place[0], metadata, _METADATA_INLINE)
                return await self._write(place, value, follows=follows)
            except (Refused, VersionConflict):
                await self._drop_blobs(value)
                raise

        before = await sent(send)
        if before is not None:
            await self._drop_blobs(before.value)

    async def _write(self, place: Place, value: dict[str, Any], *, follows: bool) -> Entry | None:
        """Write a checkpoint and the head, and return the entry that was replaced."""
        thread, namespace, checkpoint = place
        key, head_key = _CHECKPOINTS.key(*place), _HEADS.key(thread, namespace)
        written = {"key": key, "value": _CHECKPOINTS.wrapped(value, *place)}
        races = Races()
        known = self._known.pop(head_key, None)
        while True:
            tip: str | None
            if known is not None and (not follows or known[1] == value["parent"]):
                (version, tip), before = known, None
            else:
                head, before = await get_all(self._kv, [head_key, key])
                version = 0 if head is None else head.version
                if head is not None:
                    tip = _tip(head)
                else:
                    tip = next((other[2] for other in reversed(await self.places(thread, namespace))), None)
            known = None
            if before is not None:
                newest = checkpoint if tip is None else tip  # sent again: others may have gone on from it
            elif not follows:
                newest = checkpoint if tip is None else max(tip, checkpoint)
            elif tip == value["parent"]:
                newest = checkpoint
            else:
                raise ThreadAdvanced(thread, parent=value["parent"], tip=tip)
            try:
                result = await self._kv.batch(
                    checks=[
                        {"key": head_key, "version": version},
                        {"key": key, "version": 0 if before is None else before.version},
                    ],
                    writes=[
                        written,
                        {"key": head_key, "value": _HEADS.wrapped({"tip": newest}, thread, namespace)},
                    ],
                    **self._fence(thread),
                )
            except VersionConflict as conflict:
                await races.lose(conflict)
            else:
                if result.versions[1] is not None:
                    self._known.keep(head_key, (result.versions[1], newest))
                return before

    async def writes(self, place: Place) -> list[dict[str, Any]]:
        """Return the pending writes of a checkpoint, each with its `value` in its form."""
        every: list[dict[str, Any]] = []
        for _, writes in await self._tasks(place):
            every += writes
        return [write | {"value": await self._unpacked(write["value"])} for write in every]

    async def add_writes(self, place: Place, task: str, writes: Sequence[dict[str, Any]]) -> None:
        """Store the writes of a task, all or none. One with an index of 0 or more is kept if it exists."""
        unanswered: list[dict[str, Any]] = []
        for left in range(SENDS - 1, -1, -1):
            packed: list[dict[str, Any]] = []
            try:
                for write in writes:
                    value = await self._packed(place[0], write["value"], _INLINE // len(writes))
                    packed.append(write | {"value": value})
                kept = await self._merge_writes(place, task, packed)
            except (Refused, VersionConflict):
                await self._drop_blobs(packed)
                raise
            except OutcomeUnknown:
                if not left:
                    raise
                unanswered += packed
            else:
                return await self._drop_blobs([one for one in unanswered + packed if one not in kept])
        raise AssertionError

    async def _merge_writes(
        self, place: Place, task: str, packed: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Add writes to those that a task has stored, and return all."""
        key = _WRITES.key(*place, task)

        def merged(stored: Any) -> Any:
            known = {write["index"]: write for write in _writes_in(key, stored)["writes"]}
            for write in packed:
                if write["index"] < 0 or write["index"] not in known:
                    known[write["index"]] = write
            return _WRITES.wrapped({"writes": [*known.values()]}, *place, task)

        empty = _WRITES.wrapped({"writes": []}, *place, task)
        fence = self._fence(place[0])
        entry = await compare_and_set(self._kv, key, merged, default=empty, ttl=None, **fence)
        writes: list[dict[str, Any]] = _writes_in(key, entry.value)["writes"]
        return writes

    async def forget(self, place: Place) -> None:
        """Remove a checkpoint and its writes. If it was the latest, the greatest id of the others is that."""
        key, head_key, fence = _CHECKPOINTS.key(*place), _HEADS.key(*place[:2]), self._fence(place[0])
        head = await self._kv.get(head_key)
        if head is not None and _tip(head) == place[2]:
            with suppress(VersionConflict):
                await self._kv.delete(head_key, expected_version=head.version, **fence)
        entry = await self._kv.get(key)
        there = [] if entry is None else [entry]
        there += [task async for task in self._below(_WRITES.prefix(*place))]
        deleted = await self._kv.delete_many([one.key for one in there], **fence) if there else ()
        for result in deleted:
            unless_error(result)
        for one in there:
            await self._drop_blobs(one.value)

    async def forget_thread(self, thread: str) -> None:
        """Remove everything of a thread, its heads first."""
        fence = self._fence(thread)
        await delete_all(self._kv, _HEADS.prefix(thread), **fence)
        # A run that begins from here on may have entries and blobs already, which stay.
        there = [
            _Stored(entry.key, entry.version, _blob_names(entry.value))
            for names in (_CHECKPOINTS, _WRITES)
            async for entry in self._below(names.prefix(thread))
        ]
        for start in range(0, len(there), AT_ONCE):
            for name in await self._deleted(there[start : start + AT_ONCE], fence):
                if name.startswith(_BLOBS.prefix(thread)):  # another program may have written the entry
                    await self._blobs.delete(name)
        await self._sweep(thread)
        # A run that went on meanwhile has made a head again, whose checkpoint may be gone.
        for namespace, head in await self._heads(thread):
            if await self._kv.get(_CHECKPOINTS.key(thread, namespace, _tip(head))) is None:
                with suppress(VersionConflict):
                    await self._kv.delete(head.key, expected_version=head.version, **fence)

    def _below(self, prefix: str) -> AsyncIterator[Entry]:
        return entries_below(self._kv, prefix, limit=AT_ONCE)

    async def _deleted(self, entries: Sequence[_Stored], fence: Mapping[str, Any]) -> list[str]:
        """Delete entries, as they are now if they have changed, and return the blobs that they have named."""
        races = Races()
        while True:
            try:
                await self._kv.batch(
                    checks=[{"key": one.key, "version": one.version} for one in entries],
                    writes=[{"key": one.key, "delete": True} for one in entries],
                    **fence,
                )
            except VersionConflict as conflict:
                await races.lose(conflict)
                now = await get_all(self._kv, [one.key for one in entries])
                entries = [_Stored(one.key, one.version, _blob_names(one.value)) for one in now if one]
                if not entries:
                    return []
            else:
                return [name for one in entries for name in one.blobs]

    async def _sweep(self, thread: str) -> None:
        """Remove the blobs of a deleted thread that killed writers have left behind."""
        before, cursor = datetime.fromtimestamp(seams.wall(), UTC) - _GRACE, None
        while True:
            page = await self._blobs.list(_BLOBS.prefix(thread), cursor=cursor)
            for blob in page.blobs:
                if blob.updated_at < before:
                    await self._blobs.delete(blob.name)
            if (cursor := page.cursor) is None:
                return

    async def tips(self, thread: str) -> dict[tuple[str, str], Place]:
        """Return the places of the latest checkpoints of a thread's namespaces, as far as there are heads."""
        return {
            (thread, namespace): (thread, namespace, _tip(head))
            for namespace, head in await self._heads(thread)
        }

    async def _heads(self, thread: str) -> list[tuple[str, Entry]]:
        """Return the heads of a thread with their namespaces."""
        return [
            (_HEADS.parts_of(head.key, head.value)[1], head)
            async for head in self._below(_HEADS.prefix(thread))
        ]

    def _fence(self, thread: str) -> dict[str, Any]:
        return fence_of(self._kv, lock_name("thread", thread))

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy everything of a thread to another one, in which the greatest id becomes the latest."""
        copied = await self.places(source)
        for thread, namespace, checkpoint in copied:
            stored = await self.read((thread, namespace, checkpoint))
            if stored is None:
                continue
            place = target, namespace, checkpoint
            for entry, kept in await self._tasks((thread, namespace, checkpoint)):
                writes = [write | {"value": await self._unpacked(write["value"])} for write in kept]
                await self.add_writes(place, _WRITES.parts_of(entry.key, entry.value)[-1], writes)
            await self.write(
                place,
                checkpoint=stored["checkpoint"],
                metadata=stored["metadata"],
                parent=stored["parent"],
                run=stored["run"],
            )
        for namespace in dict.fromkeys(place[1] for place in copied):
            await self._kv.delete(_HEADS.key(target, namespace), **self._fence(target))

    async def select(self, wanted: Callable[[dict[str, Any]], bool]) -> list[Place]:
        """Return the places of all checkpoints whose entries, unread blobs aside, are wanted."""
        places = await self.places()
        entries = await get_all(self._kv, [_CHECKPOINTS.key(*place) for place in places])
        return [
            place
            for place, entry in zip(places, entries, strict=True)
            if entry is not None and wanted(_checkpoint_in(entry))
        ]

    async def _tasks(self, place: Place) -> list[tuple[Entry, list[dict[str, Any]]]]:
        """Return the entries of a checkpoint's tasks, with the writes in them."""
        tasks = self._below(_WRITES.prefix(*place))
        return [(entry, _writes_in(entry.key, entry.value)["writes"]) async for entry in tasks]

    async def _packed(self, thread: str, typed: Typed, most: int) -> dict[str, str]:
        form, data = typed
        if len(data) <= most:
            return {"form": form, "data": b64encode(data).decode()}
        name = _BLOBS.key(thread, "", seams.token(16))
        await self._blobs.put(name, data)
        return {"form": form, "blob": name}

    async def _unpacked(self, packed: Any) -> Typed:
        match packed:
            case {"form": str(form), "data": str(data)}:
                try:
                    return form, b64decode(data, validate=True)
                except (binascii.Error, ValueError):  # the latter for text beyond ASCII
                    raise ValidationError("a checkpoint's bytes are not base64", field="value") from None
            case {"form": str(form), "blob": str(name)}:
                reader = await self._blobs.get(name)
                if reader is None:
                    raise KeyNotFound(f"the blob {name!r}, which has a part of a checkpoint, is missing")
                return form, await reader.read()
        raise ValidationError("a checkpoint has neither bytes nor a blob", field="value")

    async def _drop_blobs(self, stored: Any) -> None:
        for name in _blob_names(stored):
            if name.startswith(_BLOBS.prefix()):  # another program may have written the entry
                await self._blobs.delete(name)


class _Loaded(TypedDict):
    """What every checkpoint of LangGraph has."""

    id: str
    channel_values: dict[str, Any]
    channel_versions: dict[str, Any]
    versions_seen: dict[str, Any]


def _checkpoint_in(entry: Entry) -> dict[str, Any]:
    """Return what `Checkpoints.write` has stored."""
    stored: dict[str, Any] = checked(
        _CHECKPOINTS.unwrapped(entry.key, entry.value),
        _StoredCheckpoint,
        f"a checkpoint, in the entry {entry.key!r}",
    )
    return stored


def _writes_in(key: str, value: Any) -> dict[str, Any]:
    """Return what `Checkpoints.add_writes` has stored."""
    stored: dict[str, Any] = checked(
        _WRITES.unwrapped(key, value), _StoredWrites, f"the writes of a task, in the entry {key!r}"
    )
    return stored


def _tip(head: Entry) -> str:
    match _HEADS.unwrapped(head.key, head.value):
        case {"tip": str(tip)}:
            return tip
    raise ValidationError(f"the entry {head.key!r} is not the head of a thread", field="value")


def _blob_names(stored: Any) -> list[str]:
    """Return the names of all blobs that something stored names, whatever its form."""
    names: list[str] = []
    rest = [stored]
    while rest:
        match rest.pop():
            case {"blob": str(name)}:
                names.append(name)
            case dict(members):
                rest += members.values()
            case list(items):
                rest += items
    return names


class HoldfastSaver(BaseCheckpointSaver[int]):
    """Keeps the checkpoints of graphs in a plugin's keys, and large ones in its blobs.

    With a store of `holdfast.open`, run graphs with `ainvoke` and `astream`. With one of
    `holdfast.sync.open`, `invoke` and `stream` work too.

    Args:
        store: The store, which is open.
        plugin: The namespaces to use in it.
        serde: The serializer; `CheckpointSerializer()` if not given, which runs nothing that stored bytes
            name. LangGraph's own, `JsonPlusSerializer()`, calls whatever they name: whoever may write to the
            namespace then runs code in this process.

    Of two runs that go on from the same checkpoint of a thread, one is refused with `ThreadAdvanced`. To let
    the second one wait for the first instead, run each in a `turn`.

    Example:
        `graph = builder.compile(checkpointer=HoldfastSaver(store))`
    """

    def __init__(
        self,
        store: Store | holdfast.sync.Store,
        plugin: str = "langgraph",
        *,
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=CheckpointSerializer() if serde is None else serde)
        self._bridge = SyncBridge(store, "HoldfastSaver")
        self._checkpoints = Checkpoints(self._bridge.store, plugin)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the version of a channel after this one: the next number.

        In checkpoints that another checkpointer has made and that were copied here, versions are texts that
        begin with the number. They go on as such texts, since versions of one thread are compared.
        """
        if not isinstance(current, str):
            return super().get_next_version(current, channel)
        number, _, rest = current.partition(".")
        return f"{int(number) + 1:0{len(number)}}.{rest}"

    def turn(
        self, thread_id: str, *, ttl: float = 30, wait: float | None = None, owner: str | None = None
    ) -> Turn:
        """Get the turn of a thread, to run a graph in: another worker that asks for it waits.

        Everything that this saver writes to the thread in the block is refused by the store once another
        worker has taken the turn, or once it has run out because this worker was stopped for longer than
        `ttl`.

        Args:
            thread_id: The thread.
            ttl: Seconds after which the turn of a worker that has stopped is over. It is renewed meanwhile.
            wait: Seconds to wait before `Busy` is raised; None waits for ever.
            owner: Name of the worker, for whoever looks at the lock.

        Returns:
            A context manager, for `async with`; on a store of `holdfast.sync.open` also for `with`.

        Example:
            `async with saver.turn("t"): await graph.ainvoke(said, {"configurable": {"thread_id": "t"}})`
        """
        name = lock_name("thread", str(thread_id))
        return Turn(self._checkpoints.kv, name, ttl=ttl, wait=wait, owner=owner, bridge=self._bridge)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Get a checkpoint with its pending writes: the one that the config names, or the latest."""
        return await self._bridge.wait(self._get(config))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Get a checkpoint as `aget_tuple` does."""
        return self._bridge.run(self._get(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """List checkpoints, of each thread the latest first."""
        for place in await self._bridge.wait(self._places(config, before)):
            if limit is not None and limit <= 0:
                return
            saved = await self._bridge.wait(self._read(place))
            if saved is not None and _matches(saved, filter):
                limit = None if limit is None else limit - 1
                yield saved

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints as `alist` does."""
        for place in self._bridge.run(self._places(config, before)):
            if limit is not None and limit <= 0:
                return
            saved = self._bridge.run(self._read(place))
            if saved is not None and _matches(saved, filter):
                limit = None if limit is None else limit - 1
                yield saved

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint."""
        return await self._bridge.wait(self._put(config, checkpoint, metadata))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint."""
        return self._bridge.run(self._put(config, checkpoint, metadata))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task, all or none."""
        await self._bridge.wait(self._put_writes(config, writes, task_id, task_path))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task, all or none."""
        self._bridge.run(self._put_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all of a thread."""
        await self._bridge.wait(self._checkpoints.forget_thread(thread_id))

    def delete_thread(self, thread_id: str) -> None:
        """Delete all of a thread."""
        self._bridge.run(self._checkpoints.forget_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that runs have made, with their writes. This looks at every checkpoint."""
        await self._bridge.wait(self._delete_runs(run_ids))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs as `adelete_for_runs` does."""
        self._bridge.run(self._delete_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all of a thread to another one."""
        await self._bridge.wait(self._checkpoints.copy_thread(source_thread_id, target_thread_id))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all of a thread to another one."""
        self._bridge.run(self._checkpoints.copy_thread(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints of threads but the latest of each namespace, or all with `delete`.

        Raises:
            ValidationError: The strategy is neither `keep_latest` nor `delete`.
        """
        await self._bridge.wait(self._prune(thread_ids, strategy))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints as `aprune` does."""
        self._bridge.run(self._prune(thread_ids, strategy))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Get the writes to channels since the last checkpoint that has their value, and that value."""
        return await self._bridge.wait(self._delta_history(config, channels))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Get the writes to channels as `aget_delta_channel_history` does."""
        return self._bridge.run(self._delta_history(config, channels))

    async def _get(self, config: RunnableConfig) -> CheckpointTuple | None:
        named = config["configurable"]
        thread, namespace = _thread(config), named.get("checkpoint_ns", "")
        if checkpoint := get_checkpoint_id(config):
            return await self._read((thread, namespace, checkpoint))
        stored = await self._checkpoints.latest(thread, namespace)
        if stored is not None:
            return await self._tuple(stored, FollowedThread(thread, namespace))
        if any(name.startswith(_OF_A_RUN) for name in named):
            # There is no config to return. This dictionary is the run's own, and stays with it.
            named[_BEGUN] = f"{thread} {namespace}"
        return None

    async def _read(self, place: Place) -> CheckpointTuple | None:
        stored = await self._checkpoints.read(place)
        return None if stored is None else await self._tuple(stored, place[0])

    async def _tuple(self, stored: dict[str, Any], thread: str) -> CheckpointTuple:
        place = stored["place"]
        writes = await self._checkpoints.writes(place)
        writes.sort(key=lambda write: writes_sort_key(write["path"], write["task"], write["index"]))
        loads, parent = self.serde.loads_typed, stored["parent"]
        return CheckpointTuple(
            config=_config((thread, *place[1:])),
            checkpoint=checked(loads(stored["checkpoint"]), _Loaded, "a checkpoint of LangGraph"),
            metadata=checked(loads(stored["metadata"]), dict[str, Any], "the metadata of a checkpoint"),
            parent_config=None if parent is None else _config((*place[:2], parent)),
            pending_writes=[(write["task"], write["channel"], loads(write["value"])) for write in writes],
        )

    async def _delta_history(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Walk from the checkpoint before the one that a config names towards the first."""
        writes: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        saved = await self._get(config) if channels else None
        seen: set[str] = set()
        while saved is not None and saved.parent_config is not None and len(seeds) < len(writes):
            seen.add(saved.checkpoint["id"])
            saved = await self._get(saved.parent_config)
            if saved is None:
                break
            if saved.checkpoint["id"] in seen:
                raise ValidationError("a checkpoint is among those that precede it", field="parent")
            values = saved.checkpoint["channel_values"]
            for write in reversed(saved.pending_writes or ()):
                if write[1] in writes and write[1] not in seeds:
                    writes[write[1]].append(write)
            seeds |= {channel: values[channel] for channel in writes.keys() - seeds if channel in values}
        seeded: dict[str, Any] = {channel: {"seed": value} for channel, value in seeds.items()}
        return {channel: {"writes": writes[channel][::-1]} | seeded.get(channel, {}) for channel in writes}

    async def _places(self, config: RunnableConfig | None, before: RunnableConfig | None) -> Sequence[Place]:
        named = {} if config is None else config["configurable"]
        parts = [] if config is None else [_thread(config)]
        namespace, wanted = named.get("checkpoint_ns"), get_checkpoint_id(config) if config else None
        limit = get_checkpoint_id(before) if before else None
        return [
            place
            for place in reversed(await self._checkpoints.places(*parts))
            if (namespace is None or place[1] == namespace)
            and (wanted is None or place[2] == wanted)
            and (limit is None or place[2] < limit)
        ]

    async def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> RunnableConfig:
        named = config["configurable"]
        place = _thread(config), named.get("checkpoint_ns", ""), checkpoint["id"]
        known: Any = get_checkpoint_metadata(config, metadata)
        parent: str | None = named.get("checkpoint_id")
        await self._checkpoints.write(
            place,
            checkpoint=self.serde.dumps_typed(checkpoint),
            metadata=self.serde.dumps_typed(known),
            parent=parent,
            run=known.get("run_id"),
            follows=known.get("source") != "fork"
            and (
                _follows(named["thread_id"], place[1])
                or named.get(_BEGUN) == f"{place[0]} {place[1]}"
                or (parent is None and known.get("source") == "update")
            ),
        )
        return _config(place)

    async def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        named = config["configurable"]
        place = _thread(config), named.get("checkpoint_ns", ""), named["checkpoint_id"]
        made = [
            {
                "index": WRITES_IDX_MAP.get(channel, index),
                "task": task_id,
                "path": task_path,
                "channel": channel,
                "value": self.serde.dumps_typed(value),
            }
            for index, (channel, value) in enumerate(writes)
        ]
        await self._checkpoints.add_writes(place, task_id, made)

    async def _delete_runs(self, run_ids: Sequence[str]) -> None:
        wanted = set(run_ids)
        for place in await self._checkpoints.select(lambda stored: stored["run"] in wanted):
            await self._checkpoints.forget(place)

    async def _prune(self, thread_ids: Sequence[str], strategy: str) -> None:
        if strategy not in ("keep_latest", "delete"):
            raise ValidationError(
                f"strategy must be 'keep_latest' or 'delete', not {strategy!r}", field="strategy"
            )
        for thread in thread_ids:
            if strategy == "delete":
                await self._checkpoints.forget_thread(thread)
                continue
            places = await self._checkpoints.places(thread)
            # Heads are read after the list, so that a checkpoint that was made meanwhile is not in it.
            latest = {place[:2]: place for place in places} | await self._checkpoints.tips(thread)
            for place in places:
                if latest.get(place[:2]) != place:
                    await self._checkpoints.forget(place)


def _thread(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


def _config(place: Place) -> RunnableConfig:
    thread, namespace, checkpoint = place
    named = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}
    return {"configurable": named}


def _follows(thread: Any, namespace: str) -> bool:
    """Return whether a run has read the latest checkpoint of this namespace; a subgraph has its own."""
    return isinstance(thread, FollowedThread) and thread.namespace == namespace


def _matches(saved: CheckpointTuple, fields: dict[str, Any] | None) -> bool:
    return all(saved.metadata.get(name) == value for name, value in (fields or {}).items())
