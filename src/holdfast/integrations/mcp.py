"""An event store of the MCP SDK whose events are items of logs, so that a client can resume its streams.

The ids of streams are those of requests, which every session counts from the beginning. So each session has
event stores of its own, and a client can resume no stream of another session, whatever id it names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote

from holdfast import seams
from holdfast.errors import ValidationError
from holdfast.extras import imported
from holdfast.integrations.entries import delete_all

with imported("mcp", "holdfast.integrations.mcp"):
    from mcp.server.streamable_http import EventMessage, EventStore
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp_types import jsonrpc_message_adapter
    from pydantic import ValidationError as InvalidMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http import EventCallback
    from mcp_types import JSONRPCMessage

    from holdfast.handles.kv import KV

_DAY: Final = 86_400
_CHARACTERS: Final = 8_000
"""Characters of a message in one item. Each has at most six bytes as JSON."""
_AT_ONCE: Final = 8
"""Items of a message that are written together."""
_PAGE: Final = 100
_EVENT_ID: Final = re.compile(r"([0-9]{1,12})-([!-~]{1,1000})")
__all__ = ["HoldfastEventStore", "HoldfastSessionManager"]


class HoldfastEventStore(EventStore):
    """The events of one session.

    Args:
        kv: The handle of the namespace to keep events in, from `Store.kv`.
        session: Name of the session, which nobody else can guess, such as its session id.
        ttl: Seconds for which an event can be replayed.
        keep: Number of events of the session that can be replayed, about.

    Example:
        `StreamableHTTPServerTransport(name, event_store=HoldfastEventStore(store.kv("mcp"), name))`
    """

    def __init__(self, kv: KV, session: str, *, ttl: int = _DAY, keep: int = 1_000) -> None:
        self._kv = kv
        # Each request is a stream, and the store keeps the last number of a log for ever: so one log for all.
        self._log = f"stream/{_digest(session)}"
        self._ttl = ttl
        self._keep = keep

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event and return its id.

        Args:
            stream_id: The stream.
            message: The message; None for an event that only tells a client where the stream begins.
        """
        text = "" if message is None else message.model_dump_json(by_alias=True, exclude_unset=True)
        texts = [text[start : start + _CHARACTERS] for start in range(0, len(text), _CHARACTERS)] or [""]
        name = seams.token(8)
        values = [
            {"stream": _digest(stream_id), "message": name, "text": piece, "last": number == len(texts)}
            for number, piece in enumerate(texts, start=1)
        ]
        write = {"append": self._log, "ttl": self._ttl, "keep": self._keep}
        number = first = 0
        for start in range(0, len(values), _AT_ONCE):
            pieces = [{**value, "first": first} for value in values[start : start + _AT_ONCE]]
            done = await self._kv.batch(writes=[{**write, "value": piece} for piece in pieces])
            number = done.numbers[-1] or 0
            first = first or done.numbers[0] or 0
        return f"{number}-{quote(stream_id, safe='')}"

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send the messages of a stream that follow an event, in their order.

        Args:
            last_event_id: The id of the event.
            send_callback: Sends a message.

        Returns:
            The stream; None if there is no such event in this session, or none any more.

        Raises:
            ValidationError: An entry of the session holds no message, so something else has written it.
        """
        matched = _EVENT_ID.fullmatch(last_event_id)
        if matched is None:
            return None
        seen, stream_id = int(matched[1]), unquote(matched[2])
        stream = _digest(stream_id)
        event = await self._kv.get(self._key(seen))
        if event is None or _piece(event.key, event.value).stream != stream:
            return None
        texts: defaultdict[str, str] = defaultdict(str)
        async for number, piece in self._pieces(stream, seen):
            if piece.name not in texts and 0 < piece.first <= seen:
                # The message was begun before the event that the client has seen, and has ended after it.
                texts[piece.name] = await self._beginning(piece, seen)
            texts[piece.name] += piece.text
            if piece.last and (whole := texts.pop(piece.name)):
                message = _message(self._key(number), whole)
                await send_callback(EventMessage(message, f"{number}-{quote(stream_id, safe='')}"))
        return stream_id

    def _key(self, number: int) -> str:
        return f"{self._log}/{number:012}"

    async def _pieces(self, stream: str, after: int) -> AsyncIterator[tuple[int, _Piece]]:
        """Read on in a stream, to its end."""
        while True:
            page = await self._kv.list(f"{self._log}/", after=after, limit=_PAGE, values=True)
            for entry in page.entries or ():
                after = int(entry.key[-12:])
                piece = _piece(entry.key, entry.value)
                if piece.stream == stream:
                    yield after, piece
            if not page.keys:
                return

    async def _beginning(self, piece: _Piece, upto: int) -> str:
        """Return the text of a message in the items up to a number."""
        text = ""
        async for number, other in self._pieces(piece.stream, piece.first - 1):
            if number > upto:
                break
            text += other.text if other.name == piece.name else ""
        return text

    async def clear(self) -> None:
        """Remove all events of the session."""
        await delete_all(self._kv, f"{self._log}/")


class HoldfastSessionManager(StreamableHTTPSessionManager):
    """The SDK's session manager, with an event store of its own for each session.

    Args:
        app: The server.
        kv: The handle of the namespace to keep events in, from `Store.kv`.
        ttl: Seconds for which an event can be replayed.
        keep: Number of events of a session that can be replayed, about.
        **options: What the SDK's manager takes besides, but for `event_store`.

    Example:
        `manager = HoldfastSessionManager(server, store.kv("mcp"))`
    """

    def __init__(
        self, app: Server[Any], kv: KV, *, ttl: int = _DAY, keep: int = 1_000, **options: Any
    ) -> None:
        self._kv = kv
        self._ttl = ttl
        self._keep = keep
        super().__init__(app, **options)

    @property
    def event_store(self) -> EventStore | None:
        """An event store for another session; the SDK asks once for each."""
        return HoldfastEventStore(self._kv, seams.token(32), ttl=self._ttl, keep=self._keep)

    @event_store.setter
    def event_store(self, _: EventStore | None) -> None:
        """Ignore the store that the SDK's manager sets for all sessions."""


def _digest(name: str) -> str:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class _Piece(NamedTuple):
    """A part of a message."""

    stream: str
    """The digest of its name."""
    name: str
    """That of the message, which all its parts have."""
    text: str
    last: bool
    first: int
    """Number of the item with which the message begins; 0 if it was written together with this one."""


def _piece(key: str, value: Any) -> _Piece:
    try:
        stream, name, text = value["stream"], value["message"], value["text"]
        piece = _Piece(stream, name, text, value["last"], value.get("first", 0))
        kinds = (*map(type, piece),)
    except (KeyError, TypeError, AttributeError):
        kinds = ()
    if kinds != (str, str, str, bool, int):
        raise ValidationError(f"the entry {key!r} is not a part of a message", field="value")
    return piece


def _message(key: str, text: str) -> JSONRPCMessage:
    try:
        return jsonrpc_message_adapter.validate_json(text)
    except InvalidMessage:
        raise ValidationError(f"the entry {key!r} holds no message of JSON-RPC", field="value") from None
