"""Task stores of the A2A SDK whose tasks are entries of a namespace.

Several processes may save one task at once. `HoldfastTaskStore` has the SDK's plain interface, which saves a
task whole: what other writers have added meanwhile is merged into it. `HoldfastVersionedTaskStore` has the
interface with versions, where the SDK itself reads a task again and repeats its change. In both, a task that
has ended stays as it ended. Tasks that do not fit into an entry are blobs of the same plugin.
"""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, TypeVar

from holdfast import seams
from holdfast.errors import ValidationError, VersionConflict
from holdfast.extras import imported
from holdfast.integrations.key_names import KeyNames
from holdfast.integrations.records import Record, Records
from holdfast.integrations.turns import Turn, fence_of, lock_name

with imported("a2a", "holdfast.integrations.a2a"):
    from a2a.server.cluster.task_store import ConcurrentTaskModificationError, StoredTask, VersionedTaskStore
    from a2a.server.cluster.version import TaskVersion
    from a2a.server.owner_resolver import OwnerResolver, resolve_user_scope
    from a2a.server.tasks.task_store import TaskStore
    from a2a.types.a2a_pb2 import (
        Artifact,
        ListTasksRequest,
        ListTasksResponse,
        Message,
        Part,
        Task,
        TaskState,
    )
    from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
    from a2a.utils.errors import InvalidParamsError
    from a2a.utils.task import (
        ListTasksCursor,
        decode_list_tasks_cursor,
        decode_page_token,
        encode_list_tasks_cursor,
    )
    from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from a2a.server.context import ServerCallContext
    from a2a.server.events.event_queue import Event

    from holdfast.handles.kv import KV

_TASKS: Final = KeyNames("task", parts=2)
_ENDED: Final = frozenset(
    (
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_REJECTED,
    )
)
_KNOWN: Final = "holdfast.tasks"
"""Where the context of a call remembers the tasks that were read or saved with it."""
_MOST_KNOWN: Final = 64
"""Tasks that a context remembers."""
T = TypeVar("T")
__all__ = ["HoldfastTaskStore", "HoldfastVersionedTaskStore", "TaskConflict"]


class TaskConflict(VersionConflict, ConcurrentTaskModificationError):
    """A task was saved that another writer has changed, ended or deleted meanwhile; nothing was written.

    The SDK knows this error: it reads the task again and goes on from there.
    """

    def __init__(self, task_id: str, reason: str) -> None:
        message = f"task {task_id!r} was not saved: {reason}"
        VersionConflict.__init__(self, message)
        # The SDK's error has made a message of its own from this one.
        self.args = (message,)
        self.task_id = task_id


class _Shown(TypedDict):
    """What an entry shows of its task; see `_fields`."""

    context: str
    state: int
    at: int | None


class _Tasks:
    """What both stores do."""

    def __init__(self, kv: KV, owner_resolver: OwnerResolver, owner: str | None) -> None:
        self.kv = kv
        self.records = Records(kv, _TASKS, "a task", _fields, shown=_Shown)
        self.owner_of = owner_resolver
        self.writer = {} if owner is None else {"writer": owner}

    async def get(self, task_id: str, context: ServerCallContext) -> tuple[Task, int] | None:
        record = await self.records.get(self.owner_of(context), task_id)
        return None if record is None else (_task(record), record.version)

    def turn(self, task_id: str, ttl: float, wait: float | None) -> Turn:
        return Turn(self.kv, lock_name("task", task_id), ttl=ttl, wait=wait, owner=self.writer.get("writer"))

    def provenance(self, task_id: str) -> dict[str, Any]:
        return self.writer | fence_of(self.kv, lock_name("task", task_id))

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        every = self.records.listed(self.owner_of(context))
        summaries = (_Summary(one.parts, one.fields) async for one in every)
        listed = [one async for one in summaries if _is_asked_for(one, params)]
        listed.sort(key=_order, reverse=True)
        start = _start(listed, params.page_token) if params.page_token else 0
        size = params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
        page = listed[start : start + size]
        records = [await self.records.get(*one.parts) for one in page]
        more = start + size < len(listed)
        last = None if not more else ListTasksCursor(page[-1].fields["at"], page[-1].parts[1])
        return ListTasksResponse(
            tasks=[
                _task(record)
                for one, record in zip(page, records, strict=True)
                if record is not None
                and _is_asked_for(one._replace(fields=_fields_of(_task(record))), params)
            ],
            next_page_token=None if last is None else encode_list_tasks_cursor(last),
            total_size=len(listed),
            page_size=size,
        )

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        await self.records.delete(self.owner_of(context), task_id, **self.provenance(task_id))


class HoldfastTaskStore(TaskStore):
    """A task store that several servers share.

    Args:
        kv: The handle of the namespace to keep tasks in, from `Store.kv`.
        owner_resolver: Returns the owner of a call's tasks; each owner sees only its own.
        owner: Name of the worker. It is the `last_writer` of what this store writes.

    Example:
        `handler = DefaultRequestHandler(agent, HoldfastTaskStore(store.kv("agents")), card)`
    """

    def __init__(
        self, kv: KV, *, owner_resolver: OwnerResolver = resolve_user_scope, owner: str | None = None
    ) -> None:
        self._tasks = _Tasks(kv, owner_resolver, owner)
        self._name = seams.token(8)

    def turn(self, task_id: str, *, ttl: float = 30, wait: float | None = None) -> Turn:
        """Get the turn of a task, to work on it in: another worker that asks for it waits.

        Tasks of several owners that have the same id share their turn, and nothing else.

        Args:
            task_id: The task.
            ttl: Seconds after which the turn of a worker that has stopped is over. It is renewed meanwhile.
            wait: Seconds to wait before `Busy` is raised; None waits for ever.

        Returns:
            A context manager for `async with`.

        Example:
            `async with tasks.turn("t-1"): await work_on("t-1")`
        """
        return self._tasks.turn(task_id, ttl, wait)

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Save a task, together with what others have added to it.

        If the stored task is the one that was last read or saved with this context, it is replaced.
        Otherwise messages, artifacts and metadata that others have added stay, and so does the status if
        `task` has the one that this context has seen.

        Args:
            task: The task.
            context: The call that it is saved for.

        Raises:
            TaskConflict: The stored task has ended, in another state than that of `task`, or the task was
                deleted since this context has seen it.
            Fenced: Another worker has taken the turn that this call was made in.
        """
        owner = self._tasks.owner_of(context)
        known = self._known(context).get((owner, task.id))
        saved = Task()
        saved.CopyFrom(task)

        def change(record: Record | None) -> Any:
            if record is None:
                if known is not None:
                    raise TaskConflict(task.id, "it was deleted")
                return MessageToDict(saved)
            stored = _task(record)
            if stored.status.state in _ENDED and stored.status.state != saved.status.state:
                raise TaskConflict(task.id, f"it has ended as {TaskState.Name(stored.status.state)}")
            if known is not None and known.version == record.version:
                return MessageToDict(saved)
            return MessageToDict(_merged(Task() if known is None else known.task, stored, saved))

        value, version = await self._tasks.records.update(
            owner, task.id, change=change, **self._tasks.provenance(task.id)
        )
        # What the caller has seen is its own task, not what others have added to it.
        replaced = value == MessageToDict(saved)
        self._remember(context, owner, saved, version if replaced else None)

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """Get a task of the call's owner, or None."""
        read = await self._tasks.get(task_id, context)
        if read is None:
            return None
        task, version = read
        copy = Task()
        copy.CopyFrom(task)
        self._remember(context, self._tasks.owner_of(context), copy, version)
        return task

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """List tasks of the call's owner, the latest first, as the SDK's own stores do."""
        return await self._tasks.list(params, context)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Remove a task of the call's owner."""
        await self._tasks.delete(task_id, context)
        self._known(context).pop((self._tasks.owner_of(context), task_id), None)

    def _known(self, context: ServerCallContext) -> dict[tuple[str, str], _Known]:
        """Return the tasks that were read or saved with a context. They end with the call."""
        known: dict[tuple[str, str], _Known] = context.state.setdefault(f"{_KNOWN}.{self._name}", {})
        return known

    def _remember(self, context: ServerCallContext, owner: str, task: Task, version: int | None) -> None:
        known = self._known(context)
        known.pop((owner, task.id), None)
        known[owner, task.id] = _Known(task, version)
        if len(known) > _MOST_KNOWN:
            del known[next(iter(known))]


class HoldfastVersionedTaskStore(VersionedTaskStore):
    """A task store with versions, for servers that share tasks through an event stream of the SDK.

    A task's version is that of its entry. Arguments are those of `HoldfastTaskStore`, and both stores
    may use the same namespace.

    Example:
        `DefaultRequestHandler(agent, HoldfastVersionedTaskStore(store.kv("agents")), card)`
    """

    def __init__(
        self, kv: KV, *, owner_resolver: OwnerResolver = resolve_user_scope, owner: str | None = None
    ) -> None:
        self._tasks = _Tasks(kv, owner_resolver, owner)

    def turn(self, task_id: str, *, ttl: float = 30, wait: float | None = None) -> Turn:
        """Get the turn of a task as `HoldfastTaskStore.turn` does."""
        return self._tasks.turn(task_id, ttl, wait)

    async def save(
        self,
        task: Task,
        *,
        event: Event | None = None,
        prev: Task | None = None,
        prev_version: TaskVersion,
        context: ServerCallContext,
    ) -> TaskVersion:
        """Save a task if the stored one has the version that it was made from.

        A cancelled task needs no version: it replaces any task that has not ended.

        Args:
            task: The task.
            event: The event that it was made by, which is not stored.
            prev: The task that it was made from, which is not used.
            prev_version: The version of that, or `TaskVersion.MISSING` for a new task.
            context: The call that it is saved for.

        Raises:
            TaskConflict: The stored task has another version, or has ended in another state.
            Fenced: Another worker has taken the turn that this call was made in.
        """
        cancels = task.status.state == TaskState.TASK_STATE_CANCELED

        def change(record: Record | None) -> Any:
            state = None if record is None else _task(record).status.state
            if state in _ENDED and (cancels or state != task.status.state):
                raise TaskConflict(task.id, f"it has ended as {TaskState.Name(state)}")
            if cancels and record is None:
                raise TaskConflict(task.id, "there is no such task to cancel")
            version = 0 if record is None else record.version
            if not cancels and prev_version != TaskVersion(version):
                raise TaskConflict(task.id, f"its version is {version}, not that of {prev_version}")
            return MessageToDict(task)

        owner = self._tasks.owner_of(context)
        _, version = await self._tasks.records.update(
            owner, task.id, change=change, **self._tasks.provenance(task.id)
        )
        return TaskVersion(version)

    async def get(self, task_id: str, context: ServerCallContext) -> StoredTask | None:
        """Get a task of the call's owner with its version, or None."""
        read = await self._tasks.get(task_id, context)
        return None if read is None else StoredTask(read[0], TaskVersion(read[1]))

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """List tasks of the call's owner, the latest first, as the SDK's own stores do."""
        return await self._tasks.list(params, context)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Remove a task of the call's owner."""
        await self._tasks.delete(task_id, context)


class _Summary(NamedTuple):
    """What a listing keeps of a task, whose entry may be large."""

    parts: tuple[str, ...]
    fields: dict[str, Any]


class _Known(NamedTuple):
    """A task as a call has seen it last."""

    task: Task
    version: int | None
    """The version of the entry that holds exactly this; None if the entry holds more."""


def _task(record: Record) -> Task:
    try:
        task: Task = ParseDict(record.value, Task())
    except (ParseError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise ValidationError(
            f"the entry {record.entry.key!r} is not a task: {error}", field="value"
        ) from None
    return task


def _fields(value: Any) -> dict[str, Any]:
    """Return what a listing needs to know of a task, from its JSON."""
    return _fields_of(ParseDict(value, Task()))


def _fields_of(task: Task) -> dict[str, Any]:
    has_time = task.HasField("status") and task.status.HasField("timestamp")
    return {
        "context": task.context_id,
        "state": task.status.state,
        "at": task.status.timestamp.ToNanoseconds() if has_time else None,
    }


def _order(listed: _Summary) -> tuple[bool, int, str]:
    at = listed.fields.get("at")
    return at is not None, at or 0, listed.parts[1]


def _is_asked_for(listed: _Summary, params: ListTasksRequest) -> bool:
    fields = listed.fields
    if params.HasField("status_timestamp_after"):
        at = fields.get("at")
        if at is None or at < params.status_timestamp_after.ToNanoseconds():
            return False
    return (not params.context_id or fields.get("context") == params.context_id) and (
        not params.status or fields.get("state") == params.status
    )


def _start(listed: Sequence[_Summary], token: str) -> int:
    """Return where the page of a token begins. Tokens of older releases of the SDK name a task."""
    cursor = decode_list_tasks_cursor(token)
    if cursor is not None:
        after = cursor.sort_key()
        return next((place for place, one in enumerate(listed) if _order(one) < after), len(listed))
    task_id = decode_page_token(token)
    for place, one in enumerate(listed):
        if one.parts[1] == task_id:
            return place
    raise InvalidParamsError(f"Invalid page token: {token}")


def _merged(known: Task, stored: Task, task: Task) -> Task:
    """Return a task with what others have added to it since it was known.

    Args:
        known: The task that the caller has seen; an empty one if that is not known.
        stored: The task that is there.
        task: The task that the caller saves.
    """
    merged = Task()
    merged.CopyFrom(task)
    messages = _united(known.history, stored.history, task.history, _message_id)
    if task.status == known.status:
        merged.status.CopyFrom(stored.status)
    elif stored.status not in (known.status, task.status) and stored.status.HasField("message"):
        # The SDK moves the message of a status into the history when another status follows.
        ids = {_message_id(message) for message in messages}
        if _message_id(stored.status.message) not in ids:
            messages.append(stored.status.message)
    del merged.history[:]
    merged.history.extend(messages)
    artifacts = _united(known.artifacts, stored.artifacts, task.artifacts, _artifact_id)
    old, theirs, ours = ({one.artifact_id: one for one in each.artifacts} for each in (known, stored, task))
    del merged.artifacts[:]
    merged.artifacts.extend(
        _artifact(old.get(one.artifact_id), theirs[one.artifact_id], ours[one.artifact_id])
        if one.artifact_id in theirs and one.artifact_id in ours
        else one
        for one in artifacts
    )
    for name, value in stored.metadata.fields.items():
        mine = task.metadata.fields.get(name)
        before = known.metadata.fields.get(name)
        if (mine is None and before is None) or (mine is not None and mine == before):
            merged.metadata.fields[name].CopyFrom(value)
    return merged


def _united(known: Iterable[T], stored: Iterable[T], ours: Iterable[T], name: Callable[[T], str]) -> list[T]:
    """Return what others have left in a list, in its order, and then what the caller has added to it."""
    before = {name(one) for one in known}
    mine = {name(one): one for one in ours}
    kept = [mine.pop(name(one), one) for one in stored if name(one) in mine or name(one) not in before]
    return kept + [one for one in mine.values() if name(one) not in before]


def _message_id(message: Message) -> str:
    return message.message_id or message.SerializeToString(deterministic=True).hex()


def _artifact_id(artifact: Artifact) -> str:
    return artifact.artifact_id


def _artifact(known: Artifact | None, theirs: Artifact, ours: Artifact) -> Artifact:
    """Return an artifact that two writers have: with the parts that either has added to those known."""
    if theirs in (ours, known):
        return ours
    if ours == known:
        return theirs
    merged = Artifact()
    merged.CopyFrom(ours)
    if known is not None:
        old, added, new = _numbered(known.parts), _numbered(theirs.parts), _numbered(ours.parts)
        parts = _united(old, added, new, itemgetter(0))
        del merged.parts[:]
        merged.parts.extend(part for _, part in parts)
    elif list(theirs.parts[: len(ours.parts)]) == list(ours.parts):
        merged.parts.extend(theirs.parts[len(ours.parts) :])
    return merged


def _numbered(parts: Iterable[Part]) -> list[tuple[str, Part]]:
    """Give each part a name: what it holds, and how many parts before it hold the same."""
    counts: Counter[str] = Counter()
    numbered = []
    for part in parts:
        text = part.SerializeToString(deterministic=True).hex()
        numbered.append((f"{counts[text]} {text}", part))
        counts[text] += 1
    return numbered
