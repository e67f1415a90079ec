"""A session manager of Strands Agents whose sessions are entries of a namespace.

Messages are appended to a log, so that workers lose none of each other's. The state of an agent is saved only
over the one that it was read as, or merged with what others have saved meanwhile. Values that do not fit into
an entry are blobs of the same plugin.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NotRequired, TypedDict

from holdfast import seams
from holdfast.errors import Refused, ValidationError, VersionConflict
from holdfast.extras import imported
from holdfast.integrations.entries import Races, checked, sent
from holdfast.integrations.json_merge import MergeConflict, merged, same
from holdfast.integrations.key_names import KeyNames
from holdfast.integrations.overflow_values import EntryChange, OverflowValues
from holdfast.integrations.records import Record, Records
from holdfast.integrations.stores import SyncBridge
from holdfast.integrations.turns import Turn, fence_of, lock_name
from holdfast.model import number_in

with imported("strands", "holdfast.integrations.strands"):
    from strands.session.repository_session_manager import RepositorySessionManager
    from strands.session.session_repository import SessionRepository
    from strands.types.exceptions import SessionException
    from strands.types.session import (
        Session,
        SessionAgent,
        SessionMessage,
        decode_bytes_values,
        encode_bytes_values,
    )

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strands.multiagent import MultiAgentBase
    from strands.types.agent import LocalAgent

    import holdfast.sync
    from holdfast.model import Entry

_SESSIONS: Final = KeyNames("session", parts=1)
_AGENTS: Final = KeyNames("agent", parts=2)
_MULTI_AGENTS: Final = KeyNames("multi-agent", parts=2)
_MESSAGES: Final = KeyNames("message", parts=3)
_DIGITS: Final = 12
_PAGE: Final = 200
_TIMES: Final = ("created_at", "updated_at")
_BROKEN: Final = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
OnConflict = Literal["refuse", "merge"]
__all__ = ["HoldfastSessionManager", "HoldfastSessionRepository", "SessionConflict"]


class _Shown(TypedDict):
    """What the entry of a session shows of it."""

    life: str


class _Agent(TypedDict):
    """An agent as the SDK makes it."""

    agent_id: str
    state: dict[str, Any]
    conversation_manager_state: dict[str, Any]
    _internal_state: NotRequired[dict[str, Any]]


class _Said(TypedDict):
    """A message of a conversation."""

    role: str
    content: list[dict[str, Any]]


class _Message(TypedDict):
    """A message as the SDK stores it."""

    message: _Said
    message_id: int
    redact_message: _Said | None


class SessionConflict(VersionConflict, SessionException):
    """Another worker has saved an agent since it was read, or has made it; nothing was written."""


class _Known(NamedTuple):
    """What was read or saved last, and the version of the entry that holds just that; 0 if none does."""

    life: str
    version: int
    value: dict[str, Any]


class HoldfastSessionRepository(SessionRepository):
    """The sessions of one session manager. It remembers what was read, so give each manager its own.

    Args:
        store: The store, which is open: one of `holdfast.sync.open`.
        plugin: The plugin whose namespace has the sessions.
        on_conflict: What happens to the state of an agent that another worker has saved since it was read:
            `"refuse"` raises `SessionConflict`; `"merge"` unites what both have changed, and raises it if
            both have changed the same value.
        owner: Name of the worker. It is the `last_writer` of what this repository writes.
    """

    def __init__(
        self,
        store: holdfast.sync.Store,
        *,
        plugin: str = "strands",
        on_conflict: OnConflict = "refuse",
        owner: str | None = None,
    ) -> None:
        if on_conflict not in ("refuse", "merge"):
            raise ValidationError("it is 'refuse' or 'merge'", field="on_conflict")
        self._bridge = SyncBridge(store, "HoldfastSessionRepository")
        if self._bridge.asynchronous:
            raise ValidationError("this needs a store of holdfast.sync.open", field="store")
        self._kv = self._bridge.store.kv(plugin)
        self._merges = on_conflict == "merge"
        self._owner = owner
        self._sessions = Records(
            self._kv,
            _SESSIONS,
            "a session",
            lambda value: {"life": value["life"]},
            form=dict[str, Any],
            shown=_Shown,
        )
        self._agents = Records(self._kv, _AGENTS, "an agent", form=_Agent)
        self._multi_agents = Records(self._kv, _MULTI_AGENTS, "a group of agents", form=dict[str, Any])
        self._values = OverflowValues(self._kv, _stored)
        self._known: dict[tuple[Records, str, str], _Known] = {}

    def turn(self, session_id: str, *, ttl: float = 30, wait: float | None = None) -> Turn:
        """Get the turn of a session; see `HoldfastSessionManager.turn`."""
        lock = lock_name("strands", session_id)
        return Turn(self._kv, lock, ttl=ttl, wait=wait, owner=self._owner, bridge=self._bridge)

    def create_session(self, session: Session, **_: Any) -> Session:
        """Create a session. Raises `SessionConflict` if there is one of this id."""
        self._bridge.run(self._create_session(session))
        return session

    def read_session(self, session_id: str, **_: Any) -> Session | None:
        """Read a session, or return None."""
        record = self._bridge.run(self._sessions.get(session_id))
        if record is None:
            return None
        try:
            return Session.from_dict(record.value)
        except _BROKEN as error:
            raise _broken("a session", error) from None

    def delete_session(self, session_id: str, **_: Any) -> None:
        """Remove a session with its agents and messages. Raises `SessionException` if there is none."""
        self._bridge.run(self._delete_session(session_id))

    def create_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Create an agent in a session. Raises `SessionConflict` if the session has one of this id."""
        row = session_agent.to_dict()
        self._bridge.run(self._create(self._agents, session_id, session_agent.agent_id, row))

    def read_agent(self, session_id: str, agent_id: str, **_: Any) -> SessionAgent | None:
        """Read an agent, or return None."""
        row = self._bridge.run(self._read(self._agents, session_id, agent_id))
        try:
            return None if row is None else SessionAgent.from_dict(row)
        except _BROKEN as error:
            raise _broken("an agent", error) from None

    def update_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Save an agent, if it has changed.

        Raises:
            SessionConflict: Another worker has saved the agent since it was read.
            Fenced: Another worker has taken the turn that this call was made in.
        """
        row = session_agent.to_dict()
        self._bridge.run(self._update(self._agents, session_id, session_agent.agent_id, row))

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any
    ) -> None:
        """Append a message. Its `message_id` becomes its number, which is another if others appended too."""
        self._bridge.run(self._append(session_id, agent_id, session_message))

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **_: Any
    ) -> SessionMessage | None:
        """Read a message, or return None."""
        return self._bridge.run(self._read_message(session_id, agent_id, message_id))

    def update_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any
    ) -> None:
        """Replace a message, such as one that was redacted. Raises `SessionException` if there is none."""
        self._bridge.run(self._replace_message(session_id, agent_id, session_message))

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **_: Any
    ) -> list[SessionMessage]:
        """List messages in the order in which they were appended."""
        return self._bridge.run(self._list(session_id, agent_id, limit, offset))

    def create_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **_: Any) -> None:
        """Create the state of a group of agents. Raises `SessionConflict` if there is one of this id."""
        row = encode_bytes_values(multi_agent.serialize_state())
        self._bridge.run(self._create(self._multi_agents, session_id, multi_agent.id, row))

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **_: Any) -> dict[str, Any] | None:
        """Read the state of a group of agents, or return None."""
        row = self._bridge.run(self._read(self._multi_agents, session_id, multi_agent_id))
        try:
            return None if row is None else decode_bytes_values(row)
        except _BROKEN as error:
            raise _broken("a group of agents", error) from None

    def update_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **_: Any) -> None:
        """Save the state of a group of agents as `update_agent` does."""
        row = encode_bytes_values(multi_agent.serialize_state())
        self._bridge.run(self._update(self._multi_agents, session_id, multi_agent.id, row))

    def _provenance(self, session_id: str) -> dict[str, Any]:
        writer = {} if self._owner is None else {"writer": self._owner}
        return writer | fence_of(self._kv, lock_name("strands", session_id))

    async def _create_session(self, session: Session) -> None:
        value = {**_json(session.to_dict()), "life": seams.token(16)}
        try:
            await self._set(self._sessions, (session.session_id,), value, None, session.session_id)
        except VersionConflict as conflict:
            raise SessionConflict(f"there is a session {session.session_id!r} already") from conflict

    async def _delete_session(self, session_id: str) -> None:
        life, _ = await self._life(session_id)
        await self._sessions.delete(session_id, **self._provenance(session_id))
        await self._agents.delete_all(life)
        await self._multi_agents.delete_all(life)
        await self._values.delete_all(_MESSAGES.prefix(life))
        self._known.clear()

    async def _life(self, session_id: str) -> tuple[str, dict[str, Any]]:
        """Return the prefix of what a session has, and a check that the session is still there."""
        listed = await self._sessions.find(session_id)
        if listed is None:
            raise SessionException(f"Session {session_id} does not exist")
        return listed.fields["life"], {"key": listed.entry.key, "version": listed.entry.version}

    async def _set(
        self, records: Records, parts: tuple[str, ...], value: Any, before: Entry | None, session_id: str
    ) -> int:
        """Set a record, and send that again if its outcome is unknown."""
        provenance = {**self._provenance(session_id), "once": f"strands.{seams.token(16)}"}
        return await sent(partial(records.set, *parts, value=value, before=before, **provenance))

    async def _create(self, records: Records, session_id: str, name: str, row: dict[str, Any]) -> None:
        value = _json(row)
        life, _ = await self._life(session_id)
        try:
            version = await self._set(records, (life, name), value, None, session_id)
        except VersionConflict as conflict:
            raise SessionConflict(f"session {session_id!r} has {name!r} already") from conflict
        self._known[records, session_id, name] = _Known(life, version, value)

    async def _read(self, records: Records, session_id: str, name: str) -> dict[str, Any] | None:
        listed = await self._sessions.find(session_id)
        if listed is None or (record := await records.get(life := listed.fields["life"], name)) is None:
            return None
        self._known[records, session_id, name] = _Known(life, record.version, record.value)
        value: dict[str, Any] = json.loads(json.dumps(record.value))
        return value

    async def _update(self, records: Records, session_id: str, name: str, row: dict[str, Any]) -> None:
        ours = _json(row)
        life, _ = await self._life(session_id)
        races = Races()
        while True:
            record = await records.get(life, name)
            if record is None:
                raise SessionException(f"{name} in session {session_id} does not exist")
            known = self._known.get((records, session_id, name))
            if known is not None and known.life != life:
                known = None  # the session was deleted and made anew
            if known is not None and same(_timeless(ours), _timeless(known.value)):
                return
            value = self._next(known, record, ours, f"{name!r} of session {session_id!r}")
            try:
                version = await self._set(records, (life, name), value, record.entry, session_id)
            except VersionConflict as conflict:
                await races.lose(conflict)
            else:
                exact = same(_timeless(value), _timeless(ours))
                self._known[records, session_id, name] = _Known(life, version if exact else 0, ours)
                return

    def _next(self, known: _Known | None, record: Record, ours: dict[str, Any], what: str) -> dict[str, Any]:
        """Return what to store in place of what is there."""
        theirs = record.value
        times = {name: theirs[name] for name in ("created_at",) if name in theirs}
        if known is not None and known.version == record.version:
            return {**ours, **times}
        if known is None or not self._merges:
            raise SessionConflict(
                f"{what} was saved by another worker since it was read. Make the agent anew, let workers "
                "wait for each other with turn(), or merge with on_conflict='merge'",
                current=record.entry,
            )
        own = (*_TIMES, "conversation_manager_state")
        base, there, mine = (
            {name: value[name] for name in value if name not in own} for value in (known.value, theirs, ours)
        )
        try:
            united = merged(base, there, mine)
        except MergeConflict as conflict:
            raise SessionConflict(
                f"{what} was saved by another worker since it was read, and both have changed {conflict}"
            ) from None
        # What a worker has removed from its own view of the conversation is its own.
        return {**theirs, **{name: ours[name] for name in own if name in ours}, **united, **times}

    async def _append(self, session_id: str, agent_id: str, message: SessionMessage) -> None:
        row = _json(message.to_dict())
        life, check = await self._life(session_id)
        # An agent is removed with its session alone, which gets another life then.
        known = self._known.get((self._agents, session_id, agent_id))
        if (known is None or known.life != life) and await self._agents.find(life, agent_id) is None:
            raise SessionException(f"Agent {agent_id} does not exist in session {session_id}")
        log = _MESSAGES.prefix(life, agent_id)[:-1]
        packed = await self._values.pack(row)
        intention = json.dumps([log, row["message_id"], row["created_at"], row["message"]])
        provenance = self._provenance(session_id) | {"once": f"strands.{_digest(intention)}"}
        checks = [check, *packed.checks]
        writes = [{"append": log, "value": packed.stored}, *packed.named(f"{log}/")]
        try:
            result = await sent(partial(self._kv.batch, checks=checks, writes=writes, **provenance))
        except (Refused, VersionConflict):
            await self._values.drop([packed.stored])
            raise
        number = result.numbers[0]
        assert number is not None
        await self._values.settle(packed, f"{log}/{number:0{_DIGITS}d}")
        message.message_id = number - 1

    async def _entry(self, session_id: str, agent_id: str, message_id: int) -> Entry | None:
        listed = await self._sessions.find(session_id)
        if listed is None or message_id < 0:
            return None
        return await self._kv.get(
            _MESSAGES.key(listed.fields["life"], agent_id, f"{message_id + 1:0{_DIGITS}d}")
        )

    async def _read_message(self, session_id: str, agent_id: str, message_id: int) -> SessionMessage | None:
        read = await self._values.read(await self._entry(session_id, agent_id, message_id))
        return None if read is None else _message(*read)

    async def _replace_message(self, session_id: str, agent_id: str, message: SessionMessage) -> None:
        races = Races()
        while True:
            entry = await self._entry(session_id, agent_id, message.message_id)
            read = await self._values.read(entry)
            if read is None:
                raise SessionException(f"Message {message.message_id} does not exist")
            message.created_at = _message(*read).created_at
            packed = await self._values.pack(_json(message.to_dict()))
            change = EntryChange(read[0].key, packed, packed.stored)
            try:
                await self._values.swap(change, read[0], **self._provenance(session_id))
            except VersionConflict as conflict:
                await races.lose(conflict)
            else:
                return

    async def _list(
        self, session_id: str, agent_id: str, limit: int | None, offset: int
    ) -> list[SessionMessage]:
        listed = await self._sessions.find(session_id)
        if listed is None:
            return []
        prefix = _MESSAGES.prefix(listed.fields["life"], agent_id)
        messages: list[SessionMessage] = []
        after, cursor = offset or None, None
        while limit is None or len(messages) < limit:
            count = _PAGE if limit is None else min(_PAGE, limit - len(messages))
            page = await self._kv.list(prefix, limit=count, cursor=cursor, after=after, values=True)
            read = await self._values.read_all(list(page.entries or ()))
            messages += [_message(*one) for one in read if one is not None]
            cursor, after = page.cursor, None
            if cursor is None:
                break
        return messages


class HoldfastSessionManager(RepositorySessionManager):
    """A session manager for agents that several processes run.

    Args:
        session_id: Name of the session, any text. It is created if there is none.
        store: The store, which is open: one of `holdfast.sync.open`.
        **options: `plugin`, `on_conflict` and `owner`; see `HoldfastSessionRepository`.

    Example:
        `Agent(agent_id="desk", session_manager=HoldfastSessionManager("s-1", store))`
    """

    def __init__(self, session_id: str, store: holdfast.sync.Store, **options: Any) -> None:
        self._repository = HoldfastSessionRepository(store, **options)
        try:
            super().__init__(session_id, self._repository)
        except SessionConflict:  # another worker has just created it
            super().__init__(session_id, self._repository)

    def turn(self, *, ttl: float = 30, wait: float | None = None) -> Turn:
        """Get the turn of the session, to make and run an agent in: another worker that asks for it waits.

        Everything that is written to the session in the block is refused by the store once another worker
        has taken the turn, which happens if this one was stopped for longer than `ttl`.

        Args:
            ttl: Seconds after which the turn of a worker that has stopped is over. It is renewed meanwhile.
            wait: Seconds to wait before `Busy` is raised; None waits for ever.

        Returns:
            A context manager, for `with` and for `async with`. Make the agent inside of it.

        Example:
            `with manager.turn(): Agent(agent_id="desk", session_manager=manager)("Hello")`
        """
        return self._repository.turn(self.session_id, ttl=ttl, wait=wait)

    def initialize(self, agent: LocalAgent, **options: Any) -> None:
        """Restore an agent from the session, or create it there."""
        with _restoring("an agent"):
            try:
                super().initialize(agent, **options)
            except SessionConflict:  # another worker has just created it
                del self._latest_agent_message[agent.agent_id]
                self._is_new_session = False
                super().initialize(agent, **options)

    def initialize_multi_agent(self, source: MultiAgentBase, **options: Any) -> None:
        """Restore a group of agents from the session, or create it there."""
        with _restoring("a group of agents"):
            try:
                super().initialize_multi_agent(source, **options)
            except SessionConflict:  # another worker has just created it
                self._is_new_session = False
                super().initialize_multi_agent(source, **options)


def _stored(entry: Entry) -> Any:
    return entry.value


def _message(entry: Entry, row: Any) -> SessionMessage:
    checked(row, _Message, f"a message of Strands, in the entry {entry.key!r}")
    try:
        message = SessionMessage.from_dict(row)
        message.message_id = (number_in(entry.key) or 0) - 1
    except _BROKEN as error:
        raise _broken("a message", error) from None
    return message


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _TIMES}


def _json(value: Any) -> Any:
    """Return a value as JSON, as the SDK's own managers store it."""
    try:
        return json.loads(json.dumps(value))
    except (RecursionError, TypeError, ValueError) as error:
        raise ValidationError(f"this can't be stored as JSON: {error}", field="value") from None


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@contextmanager
def _restoring(noun: str) -> Iterator[None]:
    """Refuse what the SDK can't restore, since it relies on forms that it does not check."""
    try:
        yield
    except _BROKEN as error:
        raise _broken(noun, error) from error


def _broken(noun: str, error: BaseException) -> ValidationError:
    return ValidationError(f"what is stored is not {noun} of Strands: {error!r}", field="value")
