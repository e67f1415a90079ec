"""A checkpointer of LangGraph: the state of a graph after each step, and the writes of the step under way.

Law: everything is written once, with `await`; the methods without it run the same coroutines. How checkpoints
are kept is `holdfast.integrations.checkpoints`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import ValidationError
from holdfast.extras import imported
from holdfast.integrations.checkpoints import Checkpoints, Place
from holdfast.integrations.langgraph_bytes import CheckpointSerializer
from holdfast.integrations.langgraph_store import HoldfastGraphStore
from holdfast.integrations.sides import Sides

with imported("langgraph", "holdfast.integrations.langgraph"):
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
        writes_sort_key,
    )

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
    from langgraph.checkpoint.serde.base import SerializerProtocol

    import holdfast.sync
    from holdfast.store import Store


__all__ = ["CheckpointSerializer", "HoldfastGraphStore", "HoldfastSaver"]


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
        self._sides = Sides(store, "HoldfastSaver")
        self._kept = Checkpoints(self._sides.store, plugin)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the version of a channel after this one: the next number.

        In checkpoints that another checkpointer has made and that were copied here, versions are texts that
        begin with the number. They go on as such texts, since versions of one thread are compared.
        """
        if not isinstance(current, str):
            return super().get_next_version(current, channel)
        number, _, rest = current.partition(".")
        return f"{int(number) + 1:0{len(number)}}.{rest}"

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Get a checkpoint with its pending writes: the one that the config names, or the latest."""
        return await self._sides.wait(self._get(config))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Get a checkpoint as `aget_tuple` does."""
        return self._sides.run(self._get(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """List checkpoints, of each thread the latest first."""
        for place in await self._sides.wait(self._places(config, before)):
            if limit is not None and limit <= 0:
                return
            found = await self._sides.wait(self._read(place))
            if found is not None and _matches(found, filter):
                limit = None if limit is None else limit - 1
                yield found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints as `alist` does."""
        for place in self._sides.run(self._places(config, before)):
            if limit is not None and limit <= 0:
                return
            found = self._sides.run(self._read(place))
            if found is not None and _matches(found, filter):
                limit = None if limit is None else limit - 1
                yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint."""
        return await self._sides.wait(self._put(config, checkpoint, metadata))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint."""
        return self._sides.run(self._put(config, checkpoint, metadata))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task, all or none."""
        await self._sides.wait(self._put_writes(config, writes, task_id, task_path))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task, all or none."""
        self._sides.run(self._put_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all of a thread."""
        await self._sides.wait(self._kept.forget_thread(thread_id))

    def delete_thread(self, thread_id: str) -> None:
        """Delete all of a thread."""
        self._sides.run(self._kept.forget_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that runs have made, with their writes. This looks at every checkpoint."""
        await self._sides.wait(self._delete_runs(run_ids))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs as `adelete_for_runs` does."""
        self._sides.run(self._delete_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all of a thread to another one."""
        await self._sides.wait(self._kept.copy_thread(source_thread_id, target_thread_id))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all of a thread to another one."""
        self._sides.run(self._kept.copy_thread(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints of threads but the latest of each namespace, or all with `delete`.

        Raises:
            ValidationError: The strategy is neither `keep_latest` nor `delete`.
        """
        await self._sides.wait(self._prune(thread_ids, strategy))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints as `aprune` does."""
        self._sides.run(self._prune(thread_ids, strategy))

    async def _get(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, namespace = _thread(config), config["configurable"].get("checkpoint_ns", "")
        if wanted := get_checkpoint_id(config):
            return await self._read((thread, namespace, wanted))
        places = await self._kept.places(thread, namespace)
        return await self._read(places[-1]) if places else None

    async def _read(self, place: Place) -> CheckpointTuple | None:
        stored = await self._kept.read(place)
        if stored is None:
            return None
        writes = await self._kept.writes(place)
        writes.sort(key=lambda write: writes_sort_key(write["path"], write["task"], write["index"]))
        loads, parent = self.serde.loads_typed, stored["parent"]
        return CheckpointTuple(
            config=_config(place),
            checkpoint=loads(stored["checkpoint"]),
            metadata=loads(stored["metadata"]),
            parent_config=None if parent is None else _config((*place[:2], parent)),
            pending_writes=[(write["task"], write["channel"], loads(write["value"])) for write in writes],
        )

    async def _places(self, config: RunnableConfig | None, before: RunnableConfig | None) -> Sequence[Place]:
        named = {} if config is None else config["configurable"]
        parts = [] if config is None else [_thread(config)]
        namespace, wanted = named.get("checkpoint_ns"), get_checkpoint_id(config) if config else None
        limit = get_checkpoint_id(before) if before else None
        return [
            place
            for place in reversed(await self._kept.places(*parts))
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
        await self._kept.write(
            place,
            checkpoint=self.serde.dumps_typed(checkpoint),
            metadata=self.serde.dumps_typed(known),
            parent=named.get("checkpoint_id"),
            run=known.get("run_id"),
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
        await self._kept.add_writes(place, task_id, made)

    async def _delete_runs(self, run_ids: Sequence[str]) -> None:
        wanted = set(run_ids)
        for place in await self._kept.select(lambda stored: stored["run"] in wanted):
            await self._kept.forget(place)

    async def _prune(self, thread_ids: Sequence[str], strategy: str) -> None:
        if strategy not in ("keep_latest", "delete"):
            raise ValidationError(
                f"strategy must be 'keep_latest' or 'delete', not {strategy!r}", field="strategy"
            )
        for thread in thread_ids:
            places = await self._kept.places(thread)
            latest = {place[:2]: place for place in places} if strategy == "keep_latest" else {}
            for place in places:
                if latest.get(place[:2]) != place:
                    await self._kept.forget(place)


def _thread(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


def _config(place: Place) -> RunnableConfig:
    thread, namespace, checkpoint = place
    named = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}
    return {"configurable": named}


def _matches(found: CheckpointTuple, wanted: dict[str, Any] | None) -> bool:
    return all(found.metadata.get(name) == value for name, value in (wanted or {}).items())
