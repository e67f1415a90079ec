"""Databases of agno that keep sessions, runs and memories in a namespace.

A session is saved only over the one that it was read as, or merged with what others have saved meanwhile: the
object that agno reads and saves carries what it was read as. A run is an entry of its own beside its session.
Values that do not fit into an entry are blobs of the same plugin.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

from msgspec import structs

from holdfast import rules, seams
from holdfast.errors import (
    HoldfastError,
    KeyNotFound,
    OutcomeUnknown,
    Refused,
    Unsupported,
    ValidationError,
    VersionConflict,
)
from holdfast.extras import imported
from holdfast.integrations.entries import SENDS, Races, checked, sent
from holdfast.integrations.json_merge import MergeConflict, merged, same, summed
from holdfast.integrations.key_names import KeyNames
from holdfast.integrations.overflow_values import CHANGES
from holdfast.integrations.records import Listed, Record, Records
from holdfast.integrations.stores import SyncBridge
from holdfast.integrations.turns import Turn, fence_of, lock_name

with imported("agno", "holdfast.integrations.agno"):
    from agno.db.base import AsyncBaseDb, BaseDb, SessionType
    from agno.db.schemas import UserMemory
    from agno.db.utils import (
        HISTORY_SKIP_STATUSES,
        build_single_run_row,
        deserialize_run,
        deserialize_session,
        get_sort_value,
        json_serializer,
        validate_pagination,
    )
    from agno.run.base import RunStatus
    from agno.session import TeamSession, WorkflowSession

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from agno.session import Session

    import holdfast.sync
    from holdfast.handles.kv import KV
    from holdfast.store import Store

_SESSIONS: Final = KeyNames("session", parts=1)
_KNOWN: Final = "_holdfast_known"
"""The attribute of a session that has what it was read as."""
_Text: TypeAlias = str | None
_Object: TypeAlias = dict[str, Any] | None
_Number: TypeAlias = int | float | None
_BROKEN: Final = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
"""What agno raises when it makes an object of something that no object of its has become."""
OnConflict = Literal["refuse", "merge"]
__all__ = ["AsyncHoldfastDb", "HoldfastDb", "NotSaved"]


class NotSaved(BaseException):
    """A session or a run was not saved; `__cause__` is the error that says why.

    This is no `Exception`, because agno logs every `Exception` of a save and then reports the run as
    completed. So this one reaches whoever has called `run`, and no run is acknowledged whose state is not
    there.
    """


class _SessionShown(TypedDict):
    """What the entry of a session shows of it."""

    session_id: str
    session_name: Any
    session_type: str
    agent_id: _Text
    team_id: _Text
    workflow_id: _Text
    user_id: _Text
    created_at: _Number
    updated_at: _Number
    life: str


class _SessionRow(TypedDict):
    """A session, without its runs."""

    session_id: str
    session_type: str
    agent_id: _Text
    team_id: _Text
    workflow_id: _Text
    user_id: _Text
    workflow_name: _Text
    session_data: _Object
    metadata: _Object
    agent_data: _Object
    team_data: _Object
    workflow_data: _Object
    summary: _Object
    created_at: _Number
    updated_at: _Number
    life: str


class _RunShown(TypedDict):
    """What the entry of a run shows of it."""

    run_id: str
    session_id: str
    run_type: str
    agent_id: _Text
    team_id: _Text
    workflow_id: _Text
    user_id: _Text
    parent_run_id: _Text
    status: _Text
    run_index: _Number
    created_at: _Number
    updated_at: _Number


class _RunRow(_RunShown):
    """A run."""

    run_data: dict[str, Any]


class _MemoryShown(TypedDict):
    """What the entry of a memory shows of it."""

    memory_id: str
    topics: list[str] | None
    user_id: _Text
    agent_id: _Text
    team_id: _Text
    created_at: _Number
    updated_at: _Number


class _MemoryRow(_MemoryShown):
    """A memory."""

    memory: Any
    input: Any
    feedback: Any


class _Unsupported(Unsupported, NotImplementedError):
    """What agno knows as a part that a database does not have."""


class _Known:
    """What the holder of a session knows of the stored one. Copies of the session share it."""

    def __init__(self, place: tuple[int, str], version: int, value: dict[str, Any] | None) -> None:
        self.place = place
        self.version = version
        """The version of the entry that holds exactly what the holder has; 0 if there is no such entry."""
        self.value = value
        """The session that the holder had then; None if it has read none."""
        self._pending: tuple[dict[str, Any], str] | None = None

    def intention(self, row: dict[str, Any]) -> tuple[str, bool]:
        """Return the id of a save, and whether it was tried before with no known end."""
        if self._pending is not None and same(self._pending[0], row):
            return self._pending[1], True
        self._pending = row, f"agno.{seams.token(16)}"
        return self._pending[1], False

    def saved(self, row: dict[str, Any], version: int) -> None:
        """Remember what was saved."""
        self.version, self.value, self._pending = version, row, None


class _Owned:
    """Records that belong to a session or to a user, and are found by their own name alone too.

    Beside each record there is an entry that says whose it is. One without a record means nothing.
    """

    def __init__(
        self,
        kv: KV,
        root: str,
        noun: str,
        fields: Callable[[Any], dict[str, Any]],
        *,
        form: type,
        shown: type,
    ) -> None:
        self._kv = kv
        self._names = KeyNames(root, parts=2)
        self._owners = KeyNames(f"{root}-of", parts=1)
        self.records = Records(kv, self._names, noun, fields, form=form, shown=shown)

    async def get(self, name: str) -> tuple[str, Record] | None:
        """Return a record and its owner."""
        owner, _ = await self._owner(name)
        record = None if owner is None else await self.records.get(owner, name)
        return None if owner is None or record is None else (owner, record)

    async def put(
        self,
        owner: str,
        name: str,
        change: Callable[[Record | None], Coroutine[Any, Any, Any]],
        **provenance: Any,
    ) -> tuple[Any, int]:
        """Set a record to what a function makes of it, and return that and its version.

        A new one belongs to this owner.
        """
        races = Races()
        while True:
            named, version = await self._owner(name)
            record = None if named is None else await self.records.get(named, name)
            if record is None and races.lost:
                # Another program may have changed the entry that says whose it is.
                named, record = owner, await self.records.get(owner, name)
            value = await change(record)
            once = {**provenance, "once": f"agno.{seams.token(16)}"}
            if named is None or record is None:
                send = functools.partial(self._create, owner, name, value, version, once)
            else:
                send = functools.partial(
                    self.records.set, named, name, value=value, before=record.entry, **once
                )
            try:
                return value, await sent(send)
            except VersionConflict as conflict:
                await races.lose(conflict)

    async def delete(self, owner: str, name: str, **provenance: Any) -> bool:
        """Remove a record and return whether it was there."""
        [was_there] = await self._delete([(owner, name)], **provenance)
        return was_there

    async def delete_all(self, *owner: str) -> None:
        """Remove all records of an owner, or of all."""
        names = [listed.parts async for listed in self.records.listed(*owner)]
        for start in range(0, len(names), CHANGES // 2):
            await self._delete(names[start : start + CHANGES // 2])

    async def _delete(self, names: Sequence[tuple[str, ...]], **provenance: Any) -> list[bool]:
        """Remove records with the entries that say whose they are, since new ones may be made right after."""
        owners = [self._owners.key(name) for _, name in names]
        return await self.records.delete_each(names, owners, **provenance)

    async def _owner(self, name: str) -> tuple[str | None, int]:
        key = self._owners.key(name)
        entry = await self._kv.get(key)
        if entry is None:
            return None, 0
        owner = self._owners.unwrapped(key, entry.value)
        if not isinstance(owner, str):
            raise ValidationError(f"the entry {key!r} does not say whose it is", field="value")
        return owner, entry.version

    async def _create(
        self, owner: str, name: str, value: Any, version: int, provenance: dict[str, Any]
    ) -> int:
        """Create a record, if the entry that says whose it is still has this version."""
        change = await self.records.change(owner, name, value=value)
        checks, writes = self.records.batch_parts([change], [None])
        key = self._owners.key(name)
        checks += [{"key": change.key, "version": 0}, {"key": key, "version": version}]
        writes.append({"key": key, "value": self._owners.wrapped(owner, name)})
        try:
            result = await self._kv.batch(checks=checks, writes=writes, **provenance)
        except (Refused, VersionConflict):
            await self.records.drop([change])
            raise
        made = result.versions[0]
        assert made is not None
        return made


class _Storage:
    """What both databases do, with `await`. The methods have the names and arguments of agno's."""

    def __init__(self, kv: KV, on_conflict: OnConflict, owner: str | None) -> None:
        self.kv = kv
        self._merges = on_conflict == "merge"
        self._sessions = Records(
            kv, _SESSIONS, "a session", _session_fields, form=_SessionRow, shown=_SessionShown
        )
        self._runs = _Owned(kv, "run", "a run", _run_fields, form=_RunRow, shown=_RunShown)
        self._memories = _Owned(kv, "memory", "a memory", _memory_fields, form=_MemoryRow, shown=_MemoryShown)
        self._writer = {} if owner is None else {"writer": owner}

    # Sessions

    async def get_session(
        self,
        session_id: str,
        session_type: SessionType | None = None,
        user_id: str | None = None,
        deserialize: bool | None = True,
        runs_limit: int | None = None,
    ) -> Any:
        """Get a session with its runs, or with the latest that count as history, or None."""
        record = await self._sessions.get(session_id)
        if record is None or (user_id is not None and record.value["user_id"] != user_id):
            return None
        return await self._session(record, session_type, deserialize, runs_limit)

    async def get_sessions(
        self,
        session_type: SessionType | None = None,
        user_id: str | None = None,
        component_id: str | None = None,
        session_name: str | None = None,
        *,
        start_timestamp: int | None = None,
        end_timestamp: int | None = None,
        limit: int | None = None,
        page: int | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        deserialize: bool | None = True,
        include_runs: bool = True,
    ) -> Any:
        """List sessions, the oldest first unless `sort_by` says otherwise."""
        validate_pagination(limit, page)
        kind = None if session_type is None else session_type.value
        component = f"{kind}_id"
        name = None if session_name is None else session_name.lower()
        listed = [
            one
            async for one in self._sessions.listed()
            if kind in (None, (fields := one.fields)["session_type"])
            and user_id in (None, fields["user_id"])
            and (
                component_id is None
                or (
                    component_id in (fields["agent_id"], fields["team_id"], fields["workflow_id"])
                    if kind is None
                    else fields[component] == component_id
                )
            )
            and (name is None or name in str(fields["session_name"]).lower())
            and (start_timestamp is None or (fields["created_at"] or 0) >= start_timestamp)
            and (end_timestamp is None or (fields["created_at"] or 0) <= end_timestamp)
        ]
        listed.sort(key=_age)
        records = await _read(self._sessions, _sorted(listed, sort_by, sort_order)[_slice(limit, page)])
        most = None if include_runs else 0
        sessions = [await self._session(record, session_type, deserialize, most) for record in records]
        return sessions if deserialize else (sessions, len(listed))

    async def upsert_session(self, session: Session, deserialize: bool | None = True) -> Any:
        """Save a session, without its runs.

        Returns:
            The session as it was saved; None if there is one of this id that belongs to another user.

        Raises:
            NotSaved: Another worker has saved the session since this one was read, and what both have changed
                can't be merged; or another one has taken the turn; or the store could not save it.
        """
        return await self._upsert(session, deserialize, None)

    async def upsert_sessions(
        self, sessions: Sequence[Session], deserialize: bool | None = True, preserve_updated_at: bool = False
    ) -> list[Any]:
        """Save sessions one after the other."""
        return [
            saved
            for session in sessions
            if (
                saved := await self._upsert(
                    session, deserialize, session.updated_at if preserve_updated_at else None
                )
            )
        ]

    async def rename_session(
        self,
        session_id: str,
        session_type: SessionType | None,
        session_name: str,
        user_id: str | None = None,
        deserialize: bool | None = True,
    ) -> Any:
        """Set the name of a session, whoever else saves it at the same time."""

        def change(row: dict[str, Any]) -> None:
            row["session_data"] = {**(row["session_data"] or {}), "session_name": session_name}

        try:
            await self._change_session(session_id, change, user_id)
        except KeyNotFound:
            return None
        return await self.get_session(session_id, session_type, user_id, deserialize)

    async def update_session_state(
        self, session_id: str, change: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        """Set the state of a session to what a function makes of it.

        Nothing is lost, since the function is called again if another worker was faster. A run that has read
        the session before has an older one, which `on_conflict` is about.

        Args:
            session_id: The session.
            change: Takes the state and returns the new one.

        Raises:
            KeyNotFound: There is no such session.
        """

        def set_state(row: dict[str, Any]) -> None:
            data = row["session_data"] or {}
            state = checked(data.get("session_state") or {}, dict[str, Any], "the state of a session")
            row["session_data"] = {**data, "session_state": _json(change(state))}

        row = await self._change_session(session_id, set_state, None)
        state: dict[str, Any] = row["session_data"]["session_state"]
        return state

    async def delete_session(self, session_id: str, user_id: str | None = None) -> bool:
        """Remove a session and its runs; with a user, only one of theirs. Returns whether it was there."""
        listed = await self._sessions.find(session_id)
        if listed is None or (user_id is not None and listed.fields["user_id"] != user_id):
            return False
        was_there = await self._sessions.delete(session_id, **self._provenance(session_id))
        await self._runs.delete_all(listed.fields["life"])
        return was_there

    async def delete_sessions(self, session_ids: Sequence[str], user_id: str | None = None) -> None:
        """Remove sessions as `delete_session` does."""
        for session_id in session_ids:
            await self.delete_session(session_id, user_id)

    # Runs

    async def get_run(self, run_id: str, deserialize: bool | None = True) -> Any:
        """Get a run, or None."""
        there = await self._runs.get(run_id)
        if there is None:
            return None
        life, record = there
        session = await self._sessions.find(record.value["session_id"])
        if session is None or session.fields["life"] != life:
            return None
        return _run(record.value) if deserialize else record.value

    async def get_runs(
        self,
        session_id: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        workflow_id: str | None = None,
        *,
        status: RunStatus | None = None,
        limit: int | None = None,
        page: int | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        deserialize: bool | None = True,
    ) -> Any:
        """List runs, in the order of their sessions unless `sort_by` says otherwise."""
        validate_pagination(limit, page)
        wanted = {
            "user_id": user_id,
            "agent_id": agent_id,
            "team_id": team_id,
            "workflow_id": workflow_id,
            "status": status.value if isinstance(status, RunStatus) else status,
        }
        if session_id is None:
            lives = {one.fields["life"] async for one in self._sessions.listed()}
            everything = [one async for one in self._runs.records.listed() if one.parts[0] in lives]
        else:
            session = await self._sessions.find(session_id)
            life = None if session is None else session.fields["life"]
            everything = [] if life is None else [one async for one in self._runs.records.listed(life)]
        listed = [
            one
            for one in sorted(everything, key=_run_order)
            if all(value in (None, one.fields[name]) for name, value in wanted.items())
        ]
        records = await _read(self._runs.records, _sorted(listed, sort_by, sort_order)[_slice(limit, page)])
        if deserialize:
            return [_run(record.value) for record in records]
        return [record.value for record in records], len(listed)

    async def upsert_run(
        self, run: Any, session_id: str, user_id: str | None = None, run_index: int | None = None
    ) -> None:
        """Save a run of a session. A run that is there already keeps its place.

        Raises:
            NotSaved: There is no such session; or another worker has taken the turn; or the store could not
                save it.
        """
        row = _json(build_single_run_row(run, session_id, user_id, run_index))
        try:
            session = await self._sessions.find(session_id)
            if session is None:
                raise KeyNotFound(f"there is no session {session_id!r}")
            life = session.fields["life"]

            async def change(record: Record | None) -> dict[str, Any]:
                if record is None:
                    index = row["run_index"]
                    return {**row, "run_index": await self._next_index(life) if index is None else index}
                there = record.value
                kept = {name: there[name] for name in ("session_id", "run_type", "run_index", "created_at")}
                return {**row, **kept}

            await self._runs.put(life, row["run_id"], change, **self._provenance(session_id))
        except HoldfastError as error:
            raise NotSaved(f"run {row['run_id']!r} was not saved: {error}") from error

    async def delete_run(self, run_id: str) -> bool:
        """Remove a run and return whether it was there."""
        there = await self._runs.get(run_id)
        if there is None:
            return False
        life, record = there
        return await self._runs.delete(life, run_id, **self._provenance(record.value["session_id"]))

    async def delete_runs(self, run_ids: Sequence[str]) -> None:
        """Remove runs."""
        for run_id in run_ids:
            await self.delete_run(run_id)

    # Memories

    async def get_user_memory(
        self, memory_id: str, deserialize: bool | None = True, user_id: str | None = None
    ) -> Any:
        """Get a memory, or None."""
        there = await self._memories.get(memory_id)
        if there is None or (user_id is not None and there[1].value["user_id"] != user_id):
            return None
        return self._memory(there[1].value, there[1].version) if deserialize else there[1].value

    async def get_user_memories(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        topics: Sequence[str] | None = None,
        search_content: str | None = None,
        *,
        limit: int | None = None,
        page: int | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        deserialize: bool | None = True,
    ) -> Any:
        """List memories, the oldest first unless `sort_by` says otherwise."""
        validate_pagination(limit, page)
        listed = [
            one
            async for one in self._memories.records.listed(*(() if user_id is None else (user_id,)))
            if user_id in (None, one.fields["user_id"])
            and agent_id in (None, one.fields["agent_id"])
            and team_id in (None, one.fields["team_id"])
            and set(topics or ()) <= set(one.fields["topics"] or ())
        ]
        if search_content is not None:
            text = search_content.lower()
            found = await _read(self._memories.records, listed)
            named = {r.value["memory_id"] for r in found if text in str(r.value["memory"]).lower()}
            listed = [one for one in listed if one.parts[1] in named]
        listed.sort(key=_age)
        chosen = _sorted(listed, sort_by, sort_order)[_slice(limit, page)]
        records = await _read(self._memories.records, chosen)
        if deserialize:
            return [self._memory(record.value, record.version) for record in records]
        return [record.value for record in records], len(listed)

    async def get_all_memory_topics(self, user_id: str | None = None) -> list[str]:
        """List the topics of a user's memories, or of all."""
        of_user = () if user_id is None else (user_id,)
        topics: Counter[str] = Counter()
        async for one in self._memories.records.listed(*of_user):
            if user_id in (None, one.fields["user_id"]):
                topics.update(one.fields["topics"] or ())
        return list(topics)

    async def get_user_memory_stats(
        self, limit: int | None = None, page: int | None = None, user_id: str | None = None
    ) -> tuple[list[dict[str, Any]], int]:
        """Count the memories of each user; users whose memories were changed last come first."""
        validate_pagination(limit, page)
        counts: Counter[str] = Counter()
        latest: dict[str, int] = {}
        async for one in self._memories.records.listed(*(() if user_id is None else (user_id,))):
            user = one.fields["user_id"]
            if user is not None and user_id in (None, user):
                counts[user] += 1
                latest[user] = max(latest.get(user, 0), one.fields["updated_at"] or 0)
        stats = [
            {"user_id": user, "total_memories": counts[user], "last_memory_updated_at": latest[user]}
            for user in sorted(counts, key=lambda user: -latest[user])
        ]
        return stats[_slice(limit, page)], len(stats)

    async def upsert_user_memory(self, memory: UserMemory, deserialize: bool | None = True) -> Any:
        """Save a memory, in place of the one of its id if there is one.

        Raises:
            VersionConflict: The memory was read from here and another worker has changed or deleted it since.
        """
        return await self._save_memory(memory, deserialize, None)

    async def upsert_memories(
        self,
        memories: Sequence[UserMemory],
        deserialize: bool | None = True,
        preserve_updated_at: bool = False,
    ) -> list[Any]:
        """Save memories one after the other."""
        return [
            await self._save_memory(memory, deserialize, memory.updated_at if preserve_updated_at else None)
            for memory in memories
        ]

    async def delete_user_memory(self, memory_id: str, user_id: str | None = None) -> None:
        """Remove a memory; with a user, only one of theirs."""
        there = await self._memories.get(memory_id)
        if there is not None and (user_id is None or there[1].value["user_id"] == user_id):
            await self._memories.delete(there[0], memory_id, **self._writer)

    async def delete_user_memories(self, memory_ids: Sequence[str], user_id: str | None = None) -> None:
        """Remove memories as `delete_user_memory` does."""
        for memory_id in memory_ids:
            await self.delete_user_memory(memory_id, user_id)

    async def clear_memories(self) -> None:
        """Remove the memories of all users."""
        await self._memories.delete_all()

    # What agno asks for on the way

    async def table_exists(self, table_name: str) -> bool:
        """Return True: there are no tables to make."""
        del table_name
        return True

    async def get_latest_schema_version(self, table_name: str = "") -> None:
        """Return None: there are no tables to migrate."""
        del table_name

    async def upsert_schema_version(self, table_name: str = "", version: str = "") -> None:
        """Do nothing: there are no tables to migrate."""
        del table_name, version

    def turn(self, session_id: str, ttl: float, wait: float | None, bridge: SyncBridge) -> Turn:
        """Return the turn of a session."""
        lock, owner = lock_name("agno", session_id), self._writer.get("writer")
        return Turn(self.kv, lock, ttl=ttl, wait=wait, owner=owner, bridge=bridge)

    def _provenance(self, session_id: str) -> dict[str, Any]:
        return self._writer | fence_of(self.kv, lock_name("agno", session_id))

    @property
    def _place(self) -> tuple[int, str]:
        return id(self.kv.store), self.kv.namespace

    def _known(self, session: Session) -> _Known:
        """Return what is known of a session that is about to be saved."""
        known = getattr(session, _KNOWN, None)
        if not isinstance(known, _Known) or known.place != self._place:
            known = _Known(self._place, 0, None)
            setattr(session, _KNOWN, known)
        return known

    async def _upsert(self, session: Session, deserialize: bool | None, now: int | None) -> Any:
        try:
            row = await self._save(session, now)
        except HoldfastError as error:
            raise NotSaved(f"session {session.session_id!r} was not saved: {error}") from error
        if row is None:
            return None
        if not deserialize:
            runs = [run if isinstance(run, dict) else run.to_dict() for run in session.runs or ()]
            return {**_shown(row), "runs": runs}
        saved = self._deserialized(None, row, self._known(session).version, None)
        saved.runs = session.runs
        return saved

    async def _save(self, session: Session, now: int | None) -> dict[str, Any] | None:
        """Save a session and return what is there now; None if it belongs to another user."""
        row = _session_row(session)
        known = self._known(session)
        once, sent_before = known.intention(row)
        provenance = {**self._provenance(session.session_id), "once": once}
        races, unanswered = Races(), 0
        while True:
            record = await self._sessions.get(session.session_id)
            user = None if record is None else record.value["user_id"]
            if user is not None and user != row["user_id"]:
                return None
            if sent_before and record is not None:
                # If the save was carried out, this returns its result. If not, it writes nothing, as no entry
                # has this version.
                sent_before = False
                nowhere = structs.replace(record.entry, version=rules.MAX_VERSION)
                with contextlib.suppress(VersionConflict):
                    version = await self._sessions.set(
                        session.session_id, value=record.value, before=nowhere, **provenance
                    )
                    exact = version == record.version and not self._merges
                    known.saved(_comparable(row), version if exact else 0)
                    return dict(record.value)
            new = self._next(row, known, record, now)
            before = None if record is None else record.entry
            try:
                version = await self._sessions.set(session.session_id, value=new, before=before, **provenance)
            except VersionConflict as conflict:
                await races.lose(conflict)
            except OutcomeUnknown:
                unanswered += 1
                if unanswered == SENDS:
                    raise
                sent_before = True
            else:
                exact = same(_comparable(new), _comparable(row))
                known.saved(_comparable(row), version if exact else 0)
                return new

    def _next(
        self, row: dict[str, Any], known: _Known, record: Record | None, now: int | None
    ) -> dict[str, Any]:
        """Return the session to store in place of the one that is there."""
        if record is None:
            if known.value is not None:
                raise VersionConflict(f"session {row['session_id']!r} was deleted since it was read")
            created = row["created_at"] or int(seams.wall())
            return {**row, "created_at": created, "updated_at": now or created, "life": seams.token(16)}
        there = record.value
        if known.version != record.version:
            if not self._merges:
                raise VersionConflict(
                    f"session {row['session_id']!r} was saved by another worker since it was read. Read it "
                    "again, let workers wait for each other with turn(), or merge with on_conflict='merge'",
                    current=record.entry,
                )
            row = _merged(known.value, there, row)
        own = {
            "created_at": there["created_at"],
            "updated_at": now or int(seams.wall()),
            "life": there["life"],
        }
        return {**row, **own}

    async def _change_session(
        self, session_id: str, change: Callable[[dict[str, Any]], None], user_id: str | None
    ) -> dict[str, Any]:
        """Change a session that is there, and return it."""

        def changed(record: Record | None) -> dict[str, Any]:
            if record is None or (user_id is not None and record.value["user_id"] != user_id):
                raise KeyNotFound(f"there is no session {session_id!r}")
            row = {**record.value, "updated_at": int(seams.wall())}
            change(row)
            return row

        row, _ = await self._sessions.update(session_id, change=changed, **self._provenance(session_id))
        return dict(row)

    async def _session(
        self, record: Record, kind: SessionType | None, deserialize: bool | None, runs_limit: int | None
    ) -> Any:
        runs = None
        if runs_limit != 0:
            of_session = self._runs.records.listed(record.value["life"])
            listed = sorted([one async for one in of_session], key=_run_order)
            if runs_limit is not None:
                listed = [one for one in listed if _is_history(one)][-runs_limit:]
            runs = [record.value["run_data"] for record in await _read(self._runs.records, listed)]
        if not deserialize:
            return {**_shown(record.value), "runs": runs}
        return self._deserialized(kind, record.value, record.version, runs)

    def _deserialized(
        self, kind: SessionType | None, row: dict[str, Any], version: int, runs: list[Any] | None
    ) -> Any:
        try:
            session: Any = deserialize_session(kind, {**_shown(_copy(row)), "runs": runs})
        except _BROKEN as error:
            raise _broken("a session", error) from None
        if session is None:
            raise _broken("a session", ValueError("it has no id"))
        setattr(session, _KNOWN, _Known(self._place, version, _comparable(row) if self._merges else {}))
        return session

    async def _next_index(self, life: str) -> int:
        indexes = [one.fields["run_index"] async for one in self._runs.records.listed(life)]
        return max((index for index in indexes if index is not None), default=-1) + 1

    async def _save_memory(self, memory: UserMemory, deserialize: bool | None, now: int | None) -> Any:
        if memory.memory_id is None:
            memory.memory_id = seams.token(16)
        known = getattr(memory, _KNOWN, None)
        row = _json({name: getattr(memory, name) for name in _MEMORY_NAMES})

        async def change(record: Record | None) -> dict[str, Any]:
            read = known if isinstance(known, _Known) and known.place == self._place else None
            if record is None:
                if read is not None:
                    raise VersionConflict(f"memory {memory.memory_id!r} was deleted since it was read")
                return {**row, "updated_at": now or row["created_at"]}
            if read is not None and read.version != record.version:
                raise VersionConflict(
                    f"memory {memory.memory_id!r} was changed by another worker since it was read",
                    current=record.entry,
                )
            there = {name: record.value[name] for name in ("user_id", "created_at")}
            return {**row, **there, "updated_at": now or int(seams.wall())}

        saved, version = await self._memories.put(
            memory.user_id or "", memory.memory_id, change, **self._writer
        )
        setattr(memory, _KNOWN, _Known(self._place, version, None))
        return self._memory(saved, version) if deserialize else saved

    def _memory(self, row: dict[str, Any], version: int) -> UserMemory:
        try:
            memory = UserMemory.from_dict({name: row[name] for name in _MEMORY_NAMES})
        except _BROKEN as error:
            raise _broken("a memory", error) from None
        setattr(memory, _KNOWN, _Known(self._place, version, None))
        return memory


def _served(name: str) -> Any:
    """Return a method that calls the one of this name of the storage."""
    method = getattr(_Storage, name)

    @functools.wraps(method)
    def call(self: _Methods, *arguments: Any, **named: Any) -> Any:
        return self._do(getattr(self._storage, name)(*arguments, **named))

    return call


def _refused(name: str) -> Any:
    """Return a method for a part of agno's interface that is not kept here."""

    def refuse(self: _Methods, *_: Any, **__: Any) -> Any:
        raise _Unsupported(
            f"{type(self).__name__} keeps sessions, runs and memories, and has no {name}; use another "
            "database of agno beside it for what needs that"
        )

    refuse.__name__ = name
    return refuse


class _Methods:
    """The methods that both databases have; those of the second have to be awaited."""

    _storage: _Storage
    _do: Callable[[Coroutine[Any, Any, Any]], Any]

    get_session: Any = _served("get_session")
    get_sessions: Any = _served("get_sessions")
    upsert_session: Any = _served("upsert_session")
    upsert_sessions: Any = _served("upsert_sessions")
    rename_session: Any = _served("rename_session")
    update_session_state: Any = _served("update_session_state")
    delete_session: Any = _served("delete_session")
    delete_sessions: Any = _served("delete_sessions")
    get_run: Any = _served("get_run")
    get_runs: Any = _served("get_runs")
    upsert_run: Any = _served("upsert_run")
    delete_run: Any = _served("delete_run")
    delete_runs: Any = _served("delete_runs")
    get_user_memory: Any = _served("get_user_memory")
    get_user_memories: Any = _served("get_user_memories")
    get_all_memory_topics: Any = _served("get_all_memory_topics")
    get_user_memory_stats: Any = _served("get_user_memory_stats")
    upsert_user_memory: Any = _served("upsert_user_memory")
    upsert_memories: Any = _served("upsert_memories")
    delete_user_memory: Any = _served("delete_user_memory")
    delete_user_memories: Any = _served("delete_user_memories")
    clear_memories: Any = _served("clear_memories")
    table_exists: Any = _served("table_exists")
    get_latest_schema_version: Any = _served("get_latest_schema_version")
    upsert_schema_version: Any = _served("upsert_schema_version")

    # The abstract ones of the rest; the others are set below.
    get_metrics: Any = _refused("get_metrics")
    calculate_metrics: Any = _refused("calculate_metrics")
    get_knowledge_content: Any = _refused("get_knowledge_content")
    get_knowledge_contents: Any = _refused("get_knowledge_contents")
    upsert_knowledge_content: Any = _refused("upsert_knowledge_content")
    delete_knowledge_content: Any = _refused("delete_knowledge_content")
    create_eval_run: Any = _refused("create_eval_run")
    get_eval_run: Any = _refused("get_eval_run")
    get_eval_runs: Any = _refused("get_eval_runs")
    rename_eval_run: Any = _refused("rename_eval_run")
    delete_eval_runs: Any = _refused("delete_eval_runs")
    upsert_trace: Any = _refused("upsert_trace")
    get_trace: Any = _refused("get_trace")
    get_traces: Any = _refused("get_traces")
    get_trace_stats: Any = _refused("get_trace_stats")
    create_span: Any = _refused("create_span")
    create_spans: Any = _refused("create_spans")
    get_span: Any = _refused("get_span")
    get_spans: Any = _refused("get_spans")
    get_learning: Any = _refused("get_learning")
    get_learnings: Any = _refused("get_learnings")
    upsert_learning: Any = _refused("upsert_learning")
    delete_learning: Any = _refused("delete_learning")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """Refuse: a description of a database has no store. Register the database to find it by its id."""
        raise _Unsupported(
            f"{cls.__name__} is made with a store; put it into agno's registry, where it is found by its id"
        )


_AGNOS_OWN: Final = frozenset(
    (
        *("to_dict", "from_dict", "close", "update_approval_run_status"),
        # agno asks whether these are its own, to learn what a database has.
        *("upsert_compaction", "create_mcp_oauth_client"),
    )
)
for _name in {*vars(BaseDb), *vars(AsyncBaseDb)}:
    _is_method = callable(getattr(BaseDb, _name, getattr(AsyncBaseDb, _name, None)))
    if _is_method and not (_name.startswith("_") or _name in _AGNOS_OWN or hasattr(_Methods, _name)):
        setattr(_Methods, _name, _refused(_name))


class HoldfastDb(_Methods, BaseDb):
    """A database of agno, for `run` and for `arun`.

    Args:
        store: The store, which is open: one of `holdfast.sync.open`.
        plugin: The plugin whose namespace has the sessions, runs and memories.
        on_conflict: What happens to a session that another worker has saved since it was read: `"refuse"`
            raises `NotSaved`; `"merge"` unites what both have changed, and raises it if both have changed
            the same value.
        owner: Name of the worker. It is the `last_writer` of what this database writes.
        id: The id by which agno's registry finds it.

    Example:
        `Agent(model=model, db=HoldfastDb(store, on_conflict="merge"))`
    """

    def __init__(
        self,
        store: holdfast.sync.Store,
        *,
        plugin: str = "agno",
        on_conflict: OnConflict = "refuse",
        owner: str | None = None,
        id: str | None = None,
    ) -> None:
        BaseDb.__init__(self, id=id)
        self._bridge = SyncBridge(store, "HoldfastDb")
        if self._bridge.asynchronous:
            raise ValidationError(
                "this needs a store of holdfast.sync.open; AsyncHoldfastDb takes one of holdfast.open",
                field="store",
            )
        self._storage = _Storage(self._bridge.store.kv(plugin), _checked(on_conflict), owner)
        self._do = self._bridge.run

    def turn(self, session_id: str, *, ttl: float = 30, wait: float | None = None) -> Turn:
        """Get the turn of a session, to run an agent in: another worker that asks for it waits.

        What is saved of the session in the block is refused by the store once another worker has taken the
        turn, which happens if this one was stopped for longer than `ttl`.

        Args:
            session_id: The session.
            ttl: Seconds after which the turn of a worker that has stopped is over. It is renewed meanwhile.
            wait: Seconds to wait before `Busy` is raised; None waits for ever.

        Returns:
            A context manager, for `with` and for `async with`.

        Example:
            `with db.turn("s-1"): agent.run("Hello", session_id="s-1")`
        """
        return self._storage.turn(session_id, ttl, wait, self._bridge)

    def update_approval_run_status(self, run_id: str, run_status: RunStatus) -> int:
        """Return 0: agno asks this after each run, and there are no approvals."""
        del run_id, run_status
        return 0


class AsyncHoldfastDb(_Methods, AsyncBaseDb):
    """A database of agno, for `arun` alone. Its methods have to be awaited.

    Arguments are those of `HoldfastDb`, with a store of `holdfast.open`.

    Example:
        `Agent(model=model, db=AsyncHoldfastDb(store, on_conflict="merge"))`
    """

    def __init__(
        self,
        store: Store,
        *,
        plugin: str = "agno",
        on_conflict: OnConflict = "refuse",
        owner: str | None = None,
        id: str | None = None,
    ) -> None:
        AsyncBaseDb.__init__(self, id=id)
        self._bridge = SyncBridge(store, "AsyncHoldfastDb")
        self._storage = _Storage(self._bridge.store.kv(plugin), _checked(on_conflict), owner)
        self._do = self._bridge.wait

    def turn(self, session_id: str, *, ttl: float = 30, wait: float | None = None) -> Turn:
        """Get the turn of a session as `HoldfastDb.turn` does, for `async with`."""
        return self._storage.turn(session_id, ttl, wait, self._bridge)

    async def update_approval_run_status(self, run_id: str, run_status: RunStatus) -> int:
        """Return 0: agno asks this after each run, and there are no approvals."""
        del run_id, run_status
        return 0


_SESSION_NAMES: Final = (
    *("session_id", "session_type", "agent_id", "team_id", "workflow_id", "user_id"),
    *("workflow_name", "session_data", "metadata", "agent_data", "team_data", "workflow_data", "summary"),
    *("created_at", "updated_at"),
)
_MEMORY_NAMES: Final = (
    *("memory_id", "memory", "topics", "user_id", "agent_id", "team_id", "input", "feedback"),
    *("created_at", "updated_at"),
)
_OF_THE_STORE: Final = ("created_at", "updated_at", "life")
"""What a session has of its entry, whoever saves it."""


def _checked(on_conflict: str) -> Any:
    if on_conflict not in ("refuse", "merge"):
        raise ValidationError("it is 'refuse' or 'merge'", field="on_conflict")
    return on_conflict


def _json(value: Any) -> Any:
    """Return a value as JSON, as agno's own databases store it."""
    try:
        return json.loads(json_serializer(value))
    except (RecursionError, TypeError, ValueError) as error:
        raise ValidationError(f"this can't be stored as JSON: {error}", field="value") from None


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _session_row(session: Session) -> dict[str, Any]:
    """Return a session as it is stored: without runs, and with the type that agno finds it by."""
    data = session.to_dict(include_runs=False)
    kind = SessionType.AGENT
    if isinstance(session, TeamSession):
        kind = SessionType.TEAM
    elif isinstance(session, WorkflowSession):
        kind = SessionType.WORKFLOW
    row: dict[str, Any] = _json(
        {name: data.get(name) for name in _SESSION_NAMES} | {"session_type": kind.value}
    )
    return row


def _session_fields(row: dict[str, Any]) -> dict[str, Any]:
    names = ("session_type", "agent_id", "team_id", "workflow_id", "user_id", *_OF_THE_STORE)
    name = (row["session_data"] or {}).get("session_name")
    return {"session_id": row["session_id"], "session_name": name} | {name: row[name] for name in names}


def _run_fields(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "run_data"}


def _memory_fields(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("memory", "input", "feedback")}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "life"}


def _comparable(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _OF_THE_STORE}


def _merged(base: dict[str, Any] | None, theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Return a session with what two workers have changed.

    Metrics are totals, to which both have added. Of two summaries of the same runs the later one stays.
    """
    known = base or {}
    metrics = _metrics(known), _metrics(theirs), _metrics(ours)
    summary = theirs["summary"] if same(ours["summary"], known.get("summary")) else ours["summary"]
    try:
        row: dict[str, Any] = merged(_for_merge(known), _for_merge(theirs), _for_merge(ours))
    except MergeConflict as conflict:
        raise VersionConflict(
            f"session {ours['session_id']!r} was saved by another worker since it was read, and both have "
            f"changed {conflict}"
        ) from None
    row["summary"] = summary
    if any(one is not None for one in metrics):
        row["session_data"] = {**(row["session_data"] or {}), "session_metrics": summed(*metrics)}
    return row


def _metrics(row: dict[str, Any]) -> Any:
    return (row.get("session_data") or {}).get("session_metrics")


def _for_merge(row: dict[str, Any]) -> dict[str, Any]:
    data = row.get("session_data")
    if isinstance(data, dict):
        row = {**row, "session_data": {name: data[name] for name in data if name != "session_metrics"}}
    return {name: value for name, value in _comparable(row).items() if name != "summary"}


def _run(row: dict[str, Any]) -> Any:
    try:
        return deserialize_run(row["run_type"], _copy(row["run_data"]))
    except _BROKEN as error:
        raise _broken("a run", error) from None


def _run_order(listed: Listed) -> tuple[bool, int, int, str]:
    fields = listed.fields
    index = fields["run_index"]
    return index is None, index or 0, fields["created_at"] or 0, listed.parts[1]


def _is_history(listed: Listed) -> bool:
    return listed.fields["parent_run_id"] is None and listed.fields["status"] not in HISTORY_SKIP_STATUSES


async def _read(records: Records, listed: Sequence[Listed]) -> list[Record]:
    """Read the values of what was listed and is still there."""
    read = [await records.read(one.entry) for one in listed]
    return [record for record in read if record is not None]


def _age(listed: Listed) -> tuple[int, str]:
    return listed.fields["created_at"] or 0, listed.parts[-1]


def _sorted(listed: list[Listed], sort_by: str | None, sort_order: str | None) -> list[Listed]:
    """Sort by a field as agno's databases do: the largest first unless `sort_order` is `asc`."""
    if sort_by is None or not all(sort_by in one.fields for one in listed):
        return listed

    def value(one: Listed) -> tuple[bool, Any]:
        held = get_sort_value(one.fields, sort_by)
        return held is not None, "" if held is None else held

    with_value = [one for one in listed if value(one)[0]]
    without = [one for one in listed if not value(one)[0]]
    if sort_order == "asc":
        return without + sorted(with_value, key=value)
    return sorted(with_value, key=value, reverse=True) + without


def _slice(limit: int | None, page: int | None) -> slice:
    if limit is None:
        return slice(None)
    start = ((page or 1) - 1) * limit
    return slice(start, start + limit)


def _broken(noun: str, error: BaseException) -> ValidationError:
    return ValidationError(f"what is stored is not {noun} of agno: {error}", field="value")
