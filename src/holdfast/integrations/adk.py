"""A session service of Google's Agent Development Kit whose sessions are entries of a namespace.

Each name of a state is an entry of its own, so that writers of different names, in `user:` and `app:` too,
lose nothing of each other's. An event is written in one batch with the state that it changes and with the
head of its session, and only if the head is the one that the session was read with. Events and values that
do not fit into an entry are blobs of the same plugin.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypedDict

from msgspec import Meta

from holdfast import rules, seams
from holdfast.errors import Refused, ValidationError, VersionConflict
from holdfast.extras import imported
from holdfast.integrations.entries import Races, checked, entries_below, get_all
from holdfast.integrations.key_names import KeyNames
from holdfast.integrations.records import Records
from holdfast.integrations.turns import Turn, fence_of, lock_name
from holdfast.model import number_in

with imported("adk", "holdfast.integrations.adk"):
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.platform import time as platform_time
    from google.adk.platform import uuid as platform_uuid
    from google.adk.sessions.base_session_service import (
        BaseSessionService,
        GetSessionConfig,
        ListSessionsResponse,
    )
    from google.adk.sessions.session import Session
    from google.adk.sessions.state import State
    from pydantic_core import to_jsonable_python

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.handles.kv import KV
    from holdfast.model import Entry

_SESSIONS: Final = KeyNames("session", parts=3)
_EVENTS: Final = KeyNames("event", parts=2)
_STATES: Final = KeyNames("state", parts=2)
_USERS: Final = KeyNames("user", parts=3)
_APPS: Final = KeyNames("app", parts=2)
_DIGITS: Final = 12
__all__ = ["HoldfastSessionService", "StaleSessionError"]


class _StoredHead(TypedDict):
    """What the entry of a session holds."""

    run: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    events: Annotated[int, Meta(ge=0, le=rules.MAX_LOG_NUMBER)]
    updated: float


class _Head(NamedTuple):
    """The entry of a session: where its state and its events are, and how many events there are."""

    version: int
    run: str
    """The prefix of the session's state and events, another one for each session that had its name."""
    events: int
    updated: float

    def value(self) -> dict[str, Any]:
        return {"run": self.run, "events": self.events, "updated": self.updated}


class _Scope(NamedTuple):
    """Where the values of some names of a state are."""

    records: Records
    parts: tuple[str, ...]

    async def values(self) -> dict[str, Any]:
        read = {}
        async for listed in self.records.listed(*self.parts):
            record = await self.records.read(listed.entry)
            if record is not None:
                read[listed.parts[-1]] = record.value
        return read


class HoldfastSessionService(BaseSessionService):
    """Sessions that several processes share.

    Args:
        kv: The handle of the namespace to keep sessions in, from `Store.kv`.
        owner: Name of the worker. It is the `last_writer` of what this service writes.

    Example:
        `Runner(app_name="desk", agent=agent, session_service=HoldfastSessionService(store.kv("desk")))`
    """

    def __init__(self, kv: KV, *, owner: str | None = None) -> None:
        self._kv = kv
        self._owner = owner
        self._events = Records(kv, _EVENTS, "an event of a session")
        self._states = Records(kv, _STATES, "a value of a session's state")
        self._users = Records(kv, _USERS, "a value of a user's state")
        self._apps = Records(kv, _APPS, "a value of an app's state")

    def turn(
        self, *, app_name: str, user_id: str, session_id: str, ttl: float = 30, wait: float | None = None
    ) -> Turn:
        """Get the turn of a session, to run an agent in: another worker that asks for it waits.

        Everything that is appended to the session in the block is refused by the store once another worker
        has taken the turn, which happens if this one was stopped for longer than `ttl`.

        Args:
            app_name: The app.
            user_id: The user.
            session_id: The session.
            ttl: Seconds after which the turn of a worker that has stopped is over. It is renewed meanwhile.
            wait: Seconds to wait before `Busy` is raised; None waits for ever.

        Returns:
            A context manager for `async with`. Get the session inside of it.

        Example:
            `async with service.turn(app_name="desk", user_id="ada", session_id="s"): await run()`
        """
        lock = _lock(app_name, user_id, session_id)
        return Turn(self._kv, lock, ttl=ttl, wait=wait, owner=self._owner)

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session.

        Args:
            app_name: The app.
            user_id: The user.
            state: The state to begin with; names that begin with `app:` and `user:` are set for all sessions.
            session_id: Name of the session; a new one if not given.

        Raises:
            AlreadyExistsError: There is a session of this name.
        """
        name = (session_id or "").strip() or platform_uuid.new_uuid()
        head = _Head(0, seams.token(16), 0, platform_time.get_time())
        try:
            version = await self._write((app_name, user_id, name), head, head, state or {}, None)
        except VersionConflict:
            raise AlreadyExistsError(f"Session with id {name} already exists.") from None
        return await self._session((app_name, user_id, name), head._replace(version=version))

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Get a session with its state and its events, or None.

        Args:
            app_name: The app.
            user_id: The user.
            session_id: The session.
            config: Which events to get; all if not given.
        """
        place = (app_name, user_id, session_id.strip())
        while (head := await self._head(*place)) is not None:
            session = await self._session(place, head)
            session.events = await self._read_events(head, config or GetSessionConfig())
            again = await self._head(*place)
            if again is not None and again.version == head.version:
                return session
        return None

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """List the sessions of a user or of all users, the latest last, without events."""
        parts = (app_name,) if user_id is None else (app_name, user_id)
        sessions = []
        async for entry in entries_below(self._kv, _SESSIONS.prefix(*parts)):
            place: Any = _SESSIONS.parts_of(entry.key, entry.value)
            sessions.append(await self._session(place, _read_head(entry)))
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Remove a session with its events and its state; that of the user and of the app stays."""
        place = (app_name, user_id, session_id.strip())
        races = Races()
        while (head := await self._head(*place)) is not None:
            try:
                await self._kv.delete(
                    _SESSIONS.key(*place), expected_version=head.version, **self._provenance(place)
                )
            except VersionConflict as conflict:
                await races.lose(conflict)
                continue
            await self._states.delete_all(head.run)
            await self._events.delete_all(head.run)
            return

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Get the state of a user, with names that do not begin with `user:`."""
        return await _Scope(self._users, (app_name, user_id)).values()

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to a session and to its copy in memory, and apply the event's state.

        The same event may be appended again if the answer was lost: within a day it is written once.

        Args:
            session: The session, as `get_session` or the last call of this method has left it.
            event: The event.

        Raises:
            StaleSessionError: Another process has appended to the session since it was read.
            SessionNotFoundError: There is no such session.
            Fenced: Another worker has taken the turn that this call was made in.
        """
        if event.partial or any(one.id == event.id for one in session.events):
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        place = (session.app_name, session.user_id, session.id)
        marker = session._storage_update_marker
        if marker is not None:
            # The head that the session was read with. A known event is answered whatever the head is now.
            run, version, count = marker.split(" ")
            head = _Head(int(version), run, int(count), 0.0)
        elif (stored := await self._head(*place)) is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        elif await self._is_newer(stored, session):
            raise StaleSessionError(_stale(session))
        else:
            head = stored
        new = head._replace(events=head.events + 1, updated=event.timestamp)
        try:
            new = new._replace(version=await self._write(place, head, new, event.actions.state_delta, event))
        except VersionConflict:
            if await self._head(*place) is None:
                raise SessionNotFoundError(f"Session {session.id} not found.") from None
            raise StaleSessionError(_stale(session)) from None
        session.last_update_time = event.timestamp
        session._storage_update_marker = _marker(new)
        return self._commit_event_to_session(session, event)

    async def update_state(
        self,
        name: str,
        change: Callable[[Any], Any],
        *,
        app_name: str,
        user_id: str = "",
        once: str | None = None,
    ) -> Any:
        """Set a name of a user's or of an app's state to what a function makes of its value.

        Sessions that set such a name overwrite each other: the last one stays. Here nothing is lost, since
        the function is called again if another writer was faster.

        Args:
            name: The name, which begins with `user:` or `app:`.
            change: Takes the value, None if there is none, and returns the new one.
            app_name: The app.
            user_id: The user, for a name that begins with `user:`.
            once: Names what the change is for. If a call of this id was made in the last 24 hours, nothing is
                changed, so that a call whose answer was lost can be made again.

        Returns:
            The new value; the one that is there if the id is known.

        Example:
            `await service.update_state("user:n", lambda n: (n or 0) + 1, app_name="desk", user_id="ada")`
        """
        if name.startswith(State.USER_PREFIX):
            scope = _Scope(self._users, (app_name, user_id, name.removeprefix(State.USER_PREFIX)))
        elif name.startswith(State.APP_PREFIX):
            scope = _Scope(self._apps, (app_name, name.removeprefix(State.APP_PREFIX)))
        else:
            raise ValidationError("only names that begin with user: or app: are shared", field="name")
        value, _ = await scope.records.update(
            *scope.parts,
            change=lambda record: _json(change(None if record is None else record.value)),
            **(self._writer if once is None else self._writer | {"once": once}),
        )
        return value

    @property
    def _writer(self) -> dict[str, Any]:
        return {} if self._owner is None else {"writer": self._owner}

    def _provenance(self, place: tuple[str, str, str]) -> dict[str, Any]:
        return self._writer | fence_of(self._kv, _lock(*place))

    async def _head(self, *place: str) -> _Head | None:
        entry = await self._kv.get(_SESSIONS.key(*place))
        return None if entry is None else _read_head(entry)

    async def _session(self, place: tuple[str, str, str], head: _Head) -> Session:
        app_name, user_id, session_id = place
        state = await _Scope(self._states, (head.run,)).values()
        shared = {
            State.APP_PREFIX: await _Scope(self._apps, (app_name,)).values(),
            State.USER_PREFIX: await _Scope(self._users, (app_name, user_id)).values(),
        }
        for prefix, values in shared.items():
            state |= {prefix + name: value for name, value in values.items()}
        session = Session(
            id=session_id,
            app_name=app_name,
            user_id=user_id,
            state=state,
            last_update_time=head.updated,
        )
        session._storage_update_marker = _marker(head)
        return session

    async def _read_events(self, head: _Head, config: GetSessionConfig) -> list[Event]:
        recent = config.num_recent_events
        stored: list[Entry | None]
        if recent is None:
            stored = [one.entry async for one in self._events.listed(head.run)]
            stored = [entry for entry in stored if entry and (number_in(entry.key) or 0) < head.events]
        else:
            first = max(0, head.events - recent)
            keys = [_event_key(head.run, number) for number in range(first, head.events)]
            stored = await get_all(self._kv, keys)
        events = []
        for entry in stored:
            record = await self._events.read(entry)
            if record is not None:
                try:
                    events.append(Event.model_validate(record.value))
                except (ValueError, TypeError) as error:
                    raise ValidationError(
                        f"the entry {record.entry.key!r} is not an event: {error}", field="value"
                    ) from None
        after = config.after_timestamp
        return [event for event in events if after is None or event.timestamp >= after]

    async def _is_newer(self, head: _Head, session: Session) -> bool:
        """Return whether a session that was not read from here lacks events that are there."""
        if head.updated <= session.last_update_time:
            return False
        latest = await self._read_events(head, GetSessionConfig(num_recent_events=1))
        return bool(latest) and (not session.events or session.events[-1].id != latest[0].id)

    async def _write(
        self,
        place: tuple[str, str, str],
        head: _Head,
        new: _Head,
        delta: Mapping[str, Any] | None,
        event: Event | None,
    ) -> int:
        """Write a head, if the one before it is still there, with an event and state; return its version."""
        pieces: list[tuple[Records, tuple[str, ...], Any]] = [
            (*self._scope_of(name, place, head.run), value)
            for name, value in _json(dict(delta or {})).items()
        ]
        pieces = [piece for piece in pieces if piece[1]]
        if event is not None:
            number = f"{head.events:0{_DIGITS}d}"
            data = event.model_dump(exclude_none=True, mode="json")
            pieces.append((self._events, (head.run, number), data))
        changes = [(records, await records.change(*parts, value=value)) for records, parts, value in pieces]
        # The event has a key of its own, at which there is nothing as long as the head is that one.
        before: list[Entry | None] = await get_all(
            self._kv, [change.key for records, change in changes if records is not self._events]
        )
        before += [None] * (len(changes) - len(before))
        key = _SESSIONS.key(*place)
        checks: list[dict[str, Any]] = [{"key": key, "version": head.version}]
        writes: list[dict[str, Any]] = [{"key": key, "value": _SESSIONS.wrapped(new.value(), *place)}]
        for (records, change), entry in zip(changes, before, strict=True):
            more_checks, more_writes = records.batch_parts([change], [entry])
            checks += more_checks
            writes += more_writes
        provenance = self._provenance(place)
        if event is not None:
            provenance["once"] = _once(head.run, event.id)
        try:
            result = await self._kv.batch(checks=checks, writes=writes, **provenance)
        except (Refused, VersionConflict):
            for records, change in changes:
                await records.drop([change])
            raise
        for (records, _), entry in zip(changes, before, strict=True):
            await records.drop_replaced([entry])
        version = result.versions[0]
        assert version is not None
        return version

    def _scope_of(self, name: str, place: tuple[str, str, str], run: str) -> tuple[Records, tuple[str, ...]]:
        """Return where a name of a state is kept; no parts if it is kept nowhere."""
        app_name, user_id, _ = place
        if name.startswith(State.APP_PREFIX):
            return self._apps, (app_name, name.removeprefix(State.APP_PREFIX))
        if name.startswith(State.USER_PREFIX):
            return self._users, (app_name, user_id, name.removeprefix(State.USER_PREFIX))
        return self._states, () if name.startswith(State.TEMP_PREFIX) else (run, name)


def _read_head(entry: Any) -> _Head:
    value = _SESSIONS.unwrapped(entry.key, entry.value)
    checked(value, _StoredHead, f"a session, in the entry {entry.key!r}")
    return _Head(entry.version, value["run"], value["events"], float(value["updated"]))


def _marker(head: _Head) -> str:
    return f"{head.run} {head.version} {head.events}"


def _event_key(run: str, number: int) -> str:
    return _EVENTS.key(run, f"{number:0{_DIGITS}d}")


def _json(value: Any) -> Any:
    """Return a value of a state as JSON; what has no such form becomes text, as in ADK's own services."""
    return to_jsonable_python(value, fallback=repr)


def _lock(app_name: str, user_id: str, session_id: str) -> str:
    return lock_name("adk", json.dumps((app_name, user_id, session_id.strip())))


def _once(run: str, event_id: str) -> str:
    return f"adk.{blake2b(f'{run} {event_id}'.encode(), digest_size=16).hexdigest()}"


def _stale(session: Session) -> str:
    return (
        f"Session {session.id} was changed since it was read. Get it again, or let workers wait for each "
        "other with HoldfastSessionService.turn."
    )
