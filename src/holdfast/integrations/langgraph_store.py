"""A store of LangGraph: what agents remember across threads, as entries of a namespace.

Everything is written once, with `await`; the methods without it run the same coroutines. The reads of a batch
see what was there before it. Its writes are one atomic batch, as long as they fit into one. Values that do
not fit into an entry are blobs of the same plugin (`holdfast.integrations.overflow_values`). The vectors of
an item are in its entry or in its blob, with its value (`holdfast.integrations.langgraph_vectors`).
"""

from __future__ import annotations

import asyncio
import heapq
import math
import operator
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, NotRequired, TypedDict

from msgspec import Meta, convert

from holdfast import rules, seams
from holdfast.errors import KeyNotFound, Refused, Unsupported, ValidationError, VersionConflict
from holdfast.extras import imported
from holdfast.integrations.entries import (
    Races,
    checked,
    cut_by_size,
    entries_below,
    get_all,
    names_of,
    pages,
    whole_seconds,
)
from holdfast.integrations.key_names import KeyNames
from holdfast.integrations.langgraph_vectors import VectorIndex
from holdfast.integrations.overflow_values import CHANGES, EntryChange, OverflowValues
from holdfast.integrations.stores import SyncBridge

if TYPE_CHECKING:
    from array import array
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from langchain_core.embeddings import Embeddings
    from langgraph.store.base import IndexConfig, Op, Result, TTLConfig

    import holdfast.sync
    from holdfast.integrations.langgraph_vectors import Fields
    from holdfast.model import Entry
    from holdfast.store import Store

_ORDER: Final = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_ANY: Final = "*"
_MISSING: Final = object()


_NAMES: Final = KeyNames("memory", parts=2)
"""The labels of a namespace, which have no dots, joined by dots; and a key."""
_PAGE: Final = 1_000
_INDEXED: Final = "indexed"
"""Names the value of an item together with its vectors; `value` names one without."""


def matches(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Return whether a value meets a filter, whose names may be paths with dots.

    Raises:
        ValueError: The filter has an unknown operator.
    """
    return all(_meets(_at(value, name), condition) for name, condition in (wanted or {}).items())


def meets(namespace: Sequence[str], kind: str, path: Sequence[str]) -> bool:
    """Return whether a namespace meets a condition of the kind `prefix` or `suffix`.

    Raises:
        ValueError: The kind is neither.
    """
    if kind == "prefix":
        return _begins(namespace, path)
    if kind == "suffix":
        return _begins(namespace[::-1], path[::-1])
    raise ValueError(f"a condition must be of the kind 'prefix' or 'suffix', not {kind!r}")


def literal(path: Sequence[str]) -> tuple[str, ...]:
    """Return the labels before the first `*` of a path."""
    labels = tuple(path)
    return labels[: labels.index(_ANY)] if _ANY in labels else labels


def _begins(namespace: Sequence[str], path: Sequence[str]) -> bool:
    """Return whether a namespace begins with a path, in which `*` stands for any label."""
    return len(namespace) >= len(path) and all(
        step in (_ANY, label) for label, step in zip(namespace, path, strict=False)
    )


def _at(value: Mapping[str, Any], name: str) -> Any:
    """Return the member of that name, or the one at that path; `_MISSING` if there is neither."""
    if name in value:
        return value[name]
    first, dot, rest = name.partition(".")
    inner = value.get(first)
    return _at(inner, rest) if dot and isinstance(inner, Mapping) else _MISSING


def _meets(value: Any, condition: Any) -> bool:
    if isinstance(condition, Mapping):
        if any(name.startswith("$") for name in condition):
            return all(_compared(value, name, other) for name, other in condition.items())
        return isinstance(value, Mapping) and all(
            _meets(value.get(name, _MISSING), other) for name, other in condition.items()
        )
    if isinstance(condition, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(condition)
            and all(map(_meets, value, condition))
        )
    return _same(value, condition)


def _compared(value: Any, name: str, other: Any) -> bool:
    if name == "$eq":
        return _meets(value, other)
    if name == "$ne":
        return not _meets(value, other)
    if name not in _ORDER:
        raise ValueError(f"unsupported operator {name!r}: use $eq, $ne, {', '.join(_ORDER)}")
    ordered = all(_is_number(one) for one in (value, other)) or all(
        isinstance(one, str) for one in (value, other)
    )
    return ordered and bool(_ORDER[name](value, other))


def _same(value: Any, condition: Any) -> bool:
    """Return whether two values are the same JSON, where true is not 1 and what is missing is null."""
    if value is _MISSING:
        return condition is None
    return bool(value == condition) and isinstance(value, bool) == isinstance(condition, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


with imported("langgraph", "holdfast.integrations.langgraph"):
    from langgraph.store.base import (
        NOT_PROVIDED,
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        NotProvided,
        PutOp,
        SearchItem,
        SearchOp,
        validate_op_namespace,
    )


class GraphItem(Item):
    """An item with its `version`, which changes with every put and never comes back."""

    __slots__ = ("version",)

    def __init__(self, *, version: int, **fields: Any) -> None:
        super().__init__(**fields)
        self.version = version


class FoundGraphItem(SearchItem):
    """An item that a search has found, with its `version`."""

    __slots__ = ("version",)

    def __init__(self, *, version: int, **fields: Any) -> None:
        super().__init__(**fields)
        self.version = version


class HoldfastGraphStore(BaseStore):
    """Keeps what graphs put into their store in a plugin's keys, and large values in its blobs.

    With a store of `holdfast.open`, use the methods that begin with `a`. With one of `holdfast.sync.open`,
    the others work too. Without an `index`, a search with a `query` raises `Unsupported`.

    Args:
        store: The store, which is open.
        plugin: The namespaces to use in it.
        index: For searches by meaning: `dims`, the length of a vector; `embed`, LangChain's Embeddings or a
            function of a list of texts, with or without `await`; and `fields`, the paths whose texts are
            embedded, by default the whole value. Vectors are compared exactly, by the cosine of their angle.
        ttl: `default_ttl` in minutes and `refresh_on_read`, as LangGraph defines them. The other settings
            mean nothing here: expired items are never returned, and Holdfast removes them by itself.

    Example:
        `graph = builder.compile(checkpointer=HoldfastSaver(store), store=HoldfastGraphStore(store))`
    """

    supports_ttl = True

    def __init__(
        self,
        store: Store | holdfast.sync.Store,
        plugin: str = "langgraph",
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        super().__init__()
        self.ttl_config = ttl
        self.index_config = None if index is None else index.copy()
        self._index = None if index is None else VectorIndex(index)
        self._bridge = SyncBridge(store, "HoldfastGraphStore")
        self._kv = self._bridge.store.kv(plugin)
        self._values = OverflowValues(self._kv, _stored)

    @property
    def embeddings(self) -> Embeddings | None:
        """What embeds texts, in the form of LangChain; None without an `index`."""
        return None if self._index is None else self._index.embeddings

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations: first the reads, then the writes, of which the last of each key counts.

        Raises:
            InvalidNamespaceError: A namespace is illegal. Nothing was done.
            Unsupported: A search has a `query`, and the store has no `index`. Nothing was done.
            ValidationError: The embedding function has not returned one vector of `dims` numbers for each
                text. Nothing was done.
        """
        return await self._bridge.wait(self._performed(list(ops), asyncio.get_running_loop()))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations as `abatch` does."""
        return self._bridge.run(self._performed(list(ops), None))

    async def aput(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Fields = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        expected_version: int | None = None,
    ) -> None:
        """Put an item, as LangGraph documents it, or only if it is still the one that was read.

        Args:
            namespace: The labels of the namespace.
            key: The key in it.
            value: A JSON object.
            index: The paths to embed instead of the store's `fields`; False for none.
            ttl: Minutes to live after the last use; the default of the store if not given.
            expected_version: The `version` of the item that this one replaces; 0 if there must be none.

        Raises:
            VersionConflict: There is another item, or none. Nothing was written.
        """
        if expected_version is None:
            await super().aput(namespace, key, value, index, ttl=ttl)
        else:
            op = self._put_op(namespace, key, value, index, ttl)
            await self._bridge.wait(self._put_if(op, expected_version, asyncio.get_running_loop()))

    def put(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Fields = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        expected_version: int | None = None,
    ) -> None:
        """Put an item as `aput` does."""
        if expected_version is None:
            super().put(namespace, key, value, index, ttl=ttl)
        else:
            op = self._put_op(namespace, key, value, index, ttl)
            self._bridge.run(self._put_if(op, expected_version, None))

    async def aupdate(
        self,
        namespace: tuple[str, ...],
        key: str,
        change: Callable[[dict[str, Any] | None], Mapping[str, Any]],
        *,
        index: Fields = None,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        once: str | None = None,
    ) -> GraphItem:
        """Put an item computed from the one that is there, again if another writer was faster: none is lost.

        Args:
            namespace: The labels of the namespace.
            key: The key in it.
            change: Takes the value, or None if there is no item, and returns the new one. It may be called
                often.
            index: The paths to embed instead of the store's `fields`; False for none.
            ttl: Minutes to live after the last use; the default of the store if not given.
            once: Names what the update is for. If a call of this id was made in the last 24 hours, nothing is
                put, so that a call whose answer was lost can be made again.

        Returns:
            The new item; the one that is there if the id is known.

        Raises:
            VersionConflict: Other writers were faster a thousand times in a row.

        Example:
            `await store.aupdate(("facts", "ada"), "plums", lambda value: {**(value or {}), "likes": True})`
        """
        op = self._put_op(namespace, key, {}, index, ttl)
        return await self._bridge.wait(self._updated(op, change, asyncio.get_running_loop(), once))

    def update(
        self,
        namespace: tuple[str, ...],
        key: str,
        change: Callable[[dict[str, Any] | None], Mapping[str, Any]],
        *,
        index: Fields = None,
        ttl: float | NotProvided | None = NOT_PROVIDED,
        once: str | None = None,
    ) -> GraphItem:
        """Put an item computed from the one that is there as `aupdate` does."""
        op = self._put_op(namespace, key, {}, index, ttl)
        return self._bridge.run(self._updated(op, change, None, once))

    def _put_op(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Fields,
        ttl: float | NotProvided | None,
    ) -> PutOp:
        minutes = (self.ttl_config or {}).get("default_ttl") if isinstance(ttl, NotProvided) else ttl
        op = PutOp(namespace, str(key), dict(value), index, ttl=minutes)
        self._check(op)
        return op

    async def _put_if(self, op: PutOp, version: int, loop: asyncio.AbstractEventLoop | None) -> None:
        def unchanged(memory: _Memory | None) -> Mapping[str, Any]:
            if (0 if memory is None else memory.version) != version:
                there = "there is none" if memory is None else f"its version is {memory.version}"
                raise VersionConflict(
                    f"the item {op.key!r} was expected at version {version}, and {there}",
                    current=None if memory is None else memory.entry,
                )
            return op.value or {}

        await self._swapped(op, unchanged, loop)

    async def _updated(
        self,
        op: PutOp,
        change: Callable[[dict[str, Any] | None], Mapping[str, Any]],
        loop: asyncio.AbstractEventLoop | None,
        once: str | None,
    ) -> GraphItem:
        return await self._swapped(
            op,
            lambda memory: change(None if memory is None else memory.value),
            loop,
            **({} if once is None else {"once": once}),
        )

    async def _swapped(
        self,
        op: PutOp,
        change: Callable[[_Memory | None], Mapping[str, Any]],
        loop: asyncio.AbstractEventLoop | None,
        **provenance: Any,
    ) -> GraphItem:
        """Put what a function makes of an item, again if the entry has changed meanwhile."""
        key, races = _key(op), Races()
        while True:
            read = await self._values.read(await self._kv.get(key))
            memory = None if read is None else _Memory.of(*read)
            value = dict(change(memory))
            put = op._replace(value=value)
            [vectors] = await self._embedded([put], loop)
            changed = await self._change(key, put, vectors)
            try:
                version = await self._values.swap(
                    changed, None if memory is None else memory.entry, **provenance
                )
            except VersionConflict as conflict:
                await races.lose(conflict)
                continue
            if memory is not None and version <= memory.entry.version:
                return GraphItem(**memory.fields())  # a known `once`
            # Should another writer have replaced it already, the times are that one's.
            entry = await self._kv.get(key)
            now = datetime.fromtimestamp(seams.wall(), UTC)
            times = (now, now) if entry is None else (entry.created_at, entry.updated_at)
            return GraphItem(
                version=version,
                namespace=op.namespace,
                key=op.key,
                value=value,
                created_at=times[0],
                updated_at=times[1],
            )

    def _check(self, op: Op) -> None:
        if not isinstance(op, GetOp | SearchOp | ListNamespacesOp | PutOp):
            raise ValueError(f"an operation of LangGraph's store is expected, not {type(op).__name__}")
        validate_op_namespace(op)
        if isinstance(op, SearchOp) and op.query and self._index is None:
            raise Unsupported(
                "this HoldfastGraphStore has no vector search, so a search can't have a query: make it with"
                " index={'dims': …, 'embed': …}, or search with a namespace and a filter"
            )

    async def _performed(self, ops: list[Op], loop: asyncio.AbstractEventLoop | None) -> list[Result]:
        for op in ops:
            self._check(op)
        puts = {_key(op): op for op in ops if isinstance(op, PutOp)}
        vectors = await self._embedded(list(puts.values()), loop)
        queries = await self._queried(ops, loop)
        gets = [op for op in ops if isinstance(op, GetOp)]
        items = iter(await self._gotten(gets))
        results: list[Result] = []
        for op in ops:
            match op:
                case GetOp():
                    results.append(next(items))
                case SearchOp():
                    query = queries.get(op.query or "")
                    results.append(await (self._searched(op) if query is None else self._ranked(op, query)))
                case ListNamespacesOp():
                    results.append(await self._listed(op))
                case _:
                    results.append(None)
        await self._put(puts, vectors)
        return results

    async def _embedded(
        self, puts: Sequence[PutOp], loop: asyncio.AbstractEventLoop | None
    ) -> list[dict[str, Any] | None]:
        """Return what to keep of the vectors of each put, None if it has none."""
        index = self._index
        if index is None:
            return [None] * len(puts)
        texts = [[] if put.value is None else index.texts(put.value, put.index) for put in puts]
        vectors = await index.documents((text for some in texts for text in some), loop)
        return [
            index.kept(put.value or {}, [vectors[text] for text in some]) if some else None
            for put, some in zip(puts, texts, strict=True)
        ]

    async def _queried(
        self, ops: Sequence[Op], loop: asyncio.AbstractEventLoop | None
    ) -> dict[str, array[float]]:
        """Return the vectors of the queries of searches."""
        index = self._index
        if index is None:
            return {}
        asked = list({op.query for op in ops if isinstance(op, SearchOp) and op.query})
        made = await asyncio.gather(*(index.query(text, loop) for text in asked))
        return dict(zip(asked, made, strict=True))

    async def _gotten(self, ops: Sequence[GetOp]) -> list[Item | None]:
        read = await self._values.read_all(await get_all(self._kv, [_key(op) for op in ops]))
        memories = [None if one is None else _Memory.of(*one) for one in read]
        wanted = [op.refresh_ttl for op in ops]
        await self._refresh([one for one, asked in zip(memories, wanted, strict=True) if one and asked])
        return [None if one is None else GraphItem(**one.fields()) for one in memories]

    async def _searched(self, op: SearchOp) -> list[SearchItem]:
        """Return the items below a namespace that meet the filter, those that were put last first."""
        entries = [
            entry
            async for entry in self._below(op.namespace_prefix)
            if not op.filter or await self._read([entry], op.filter)
        ]
        entries.sort(key=_put_at, reverse=True)
        memories = await self._read(entries[op.offset : op.offset + op.limit], op.filter)
        if op.refresh_ttl:
            await self._refresh(memories)
        return [FoundGraphItem(**memory.fields()) for memory in memories]

    async def _ranked(self, op: SearchOp, query: array[float]) -> list[SearchItem]:
        """Return the items below a namespace that meet the filter, those that are most like a query first.

        Items without vectors follow, those that were put last first.
        """
        assert self._index is not None
        best: list[tuple[float, datetime, int, _Memory]] = []
        number = 0
        async for entry in self._below(op.namespace_prefix):
            for memory in await self._read([entry], op.filter):
                score = self._index.score(query, memory.value, memory.vectors)
                number -= 1
                ranked = (-math.inf if score is None else score, _put_at(memory.entry), number, memory)
                if len(best) < op.offset + op.limit:
                    heapq.heappush(best, ranked)
                else:
                    heapq.heappushpop(best, ranked)
        found = sorted(best, reverse=True)[op.offset :]
        if op.refresh_ttl:
            await self._refresh([memory for *_, memory in found])
        return [
            FoundGraphItem(**memory.fields(), score=None if score == -math.inf else score)
            for score, _, _, memory in found
        ]

    async def _read(self, entries: Sequence[Entry], wanted: dict[str, Any] | None) -> list[_Memory]:
        """Return the items in entries that meet a filter."""
        read = await self._values.read_all(entries)
        memories = [_Memory.of(*one) for one in read if one is not None]
        return [memory for memory in memories if matches(memory.value, wanted)]

    async def _listed(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        first = next((one.path for one in conditions if one.match_type == "prefix"), ())
        namespaces = set()
        for beginning in _beginnings(literal(first)):
            async for page in pages(self._kv, beginning, limit=10 * _PAGE):
                namespaces |= {name[0] for name in await names_of(self._kv, _NAMES, page.keys)}
        labels = [tuple(namespace.split(".")) for namespace in namespaces]
        chosen = [one for one in labels if all(meets(one, *condition) for condition in conditions)]
        return sorted({one[: op.max_depth] for one in chosen})[op.offset : op.offset + op.limit]

    async def _below(self, namespace: Sequence[str]) -> AsyncIterator[Entry]:
        """Yield the entries of a namespace and of those below it."""
        for beginning in _beginnings(namespace):
            async for entry in entries_below(self._kv, beginning, limit=_PAGE):
                if _place(entry)[0][: len(namespace)] == tuple(namespace):
                    yield entry

    async def _put(self, puts: dict[str, PutOp], vectors: Sequence[dict[str, Any] | None]) -> None:
        changes: list[EntryChange] = []
        try:
            for (key, op), kept in zip(puts.items(), vectors, strict=True):
                changes += [await self._change(key, op, kept)]
        except Refused:
            await self._values.forget(changes)
            raise
        sizes = [0 if change.packed is None else change.packed.size for change in changes]
        for start, stop in cut_by_size(sizes, CHANGES):
            await self._values.replace(changes[start:stop])

    async def _change(self, key: str, op: PutOp, vectors: dict[str, Any] | None) -> EntryChange:
        if op.value is None:
            return EntryChange(key)
        ttl = None if op.ttl is None else whole_seconds(round(op.ttl * 60, 6))
        form: dict[str, Any] = dict(op.value)
        if vectors is not None:
            form = {"value": form, "vectors": vectors}
        packed = await self._values.pack(form, ttl=ttl)
        value = {"value" if vectors is None else _INDEXED: packed.stored} | (
            {} if ttl is None else {"ttl": ttl}
        )
        return EntryChange(key, packed, _NAMES.wrapped(value, ".".join(op.namespace), str(op.key)), ttl)

    async def _refresh(self, memories: Sequence[_Memory]) -> None:
        """Let the lifetimes of items that were read begin anew."""
        await asyncio.gather(*(self._prolong(one.entry, one.ttl) for one in memories if one.ttl is not None))

    async def _prolong(self, entry: Entry, ttl: int) -> None:
        value = _unwrapped(entry) | {"put_at": _put_at(entry).isoformat(), "put_version": _version(entry)}
        namespace, key = _place(entry)
        stored = _NAMES.wrapped(value, ".".join(namespace), key)
        await self._values.prolong(entry, ttl)
        # An item that was put or deleted meanwhile has a lifetime of its own, or none.
        with suppress(VersionConflict, KeyNotFound):
            await self._kv.set(entry.key, stored, ttl=ttl, expected_version=entry.version)


class _Memory(NamedTuple):
    """An entry, the value of the item in it, and what is kept of its vectors."""

    entry: Entry
    value: dict[str, Any]
    vectors: Any
    ttl: int | None

    @classmethod
    def of(cls, entry: Entry, form: dict[str, Any]) -> _Memory:
        content = _unwrapped(entry)
        is_plain = "value" in content
        checked(form, dict[str, Any] if is_plain else _Indexed, f"an item, in the entry {entry.key!r}")
        if is_plain:
            return cls(entry, form, None, content.get("ttl"))
        return cls(entry, form["value"], form["vectors"], content.get("ttl"))

    def fields(self) -> dict[str, Any]:
        """Return the fields of an item."""
        namespace, key = _place(self.entry)
        times = {"created_at": self.entry.created_at, "updated_at": _put_at(self.entry)}
        return {"namespace": namespace, "key": key, "value": self.value, **times, "version": self.version}

    @property
    def version(self) -> int:
        """The version of the item, which a read that prolongs its life does not change."""
        return _version(self.entry)


def _key(op: GetOp | PutOp) -> str:
    return _NAMES.key(".".join(op.namespace), str(op.key))


def _beginnings(namespace: Sequence[str]) -> list[str]:
    """Return the beginnings of the keys in a namespace and below it."""
    if not namespace:
        return _NAMES.beginnings("")
    exact, below = _NAMES.prefix(".".join(namespace)), _NAMES.beginnings(".".join([*namespace, ""]))
    return below if exact.startswith(tuple(below)) else [exact, *below]


def _place(entry: Entry) -> tuple[tuple[str, ...], str]:
    namespace, key = _NAMES.parts_of(entry.key, entry.value)
    return tuple(namespace.split(".")), key


class _Content(TypedDict):
    """What an entry holds beside the value of its item."""

    ttl: NotRequired[Annotated[int, Meta(ge=1, le=rules.MAX_TTL)]]
    put_at: NotRequired[Annotated[datetime, Meta(tz=True)]]
    put_version: NotRequired[Annotated[int, Meta(ge=0, le=rules.MAX_VERSION)]]


class _Indexed(TypedDict):
    """The value of an item together with its vectors."""

    value: dict[str, Any]
    vectors: Any


def _unwrapped(entry: Entry) -> dict[str, Any]:
    value: dict[str, Any] = checked(
        _NAMES.unwrapped(entry.key, entry.value), _Content, f"an item, in the entry {entry.key!r}"
    )
    return value


def _stored(entry: Entry) -> Any:
    content = _unwrapped(entry)
    if "value" not in content and _INDEXED not in content:
        raise ValidationError(f"the entry {entry.key!r} holds no item", field="value")
    return content["value"] if "value" in content else content[_INDEXED]


def _put_at(entry: Entry) -> datetime:
    """Return when an item was put. A read that prolongs its life changes the entry, but not the item."""
    put_at = _unwrapped(entry).get("put_at")
    return entry.updated_at if put_at is None else convert(put_at, datetime)


def _version(entry: Entry) -> int:
    """Return the version with which an item was put."""
    version = _unwrapped(entry).get("put_version")
    return entry.version if version is None else int(version)
