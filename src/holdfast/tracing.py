"""W3C trace context: the trace that a request belongs to, taken at every door and sent on by every client.

The headers `traceparent` and `tracestate` become a `Trace`, which goes with a request into its log lines, the
slow log and the audit. What breaks the rules of the standard is ignored, so that a caller can neither
fail because of it nor get any other text into a log. `UNSET` stands for no trace.

OpenTelemetry is never imported unless a program asks for spans. A program that uses it anyway has its current
span sent on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from holdfast import extras, seams
from holdfast.errors import ValidationError

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
MOST_HEAD: Final = 16_384
"""Bytes at the beginning of the headers of a NATS message in which a trace is looked for."""
MOST_PARENT: Final = 256
MOST_STATE: Final = 512
MOST_MEMBERS: Final = 32
"""Maximum length of a `traceparent` and a `tracestate`, and maximum number of members of the latter."""

_PARENT: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?"
)
_MEMBER: Final = re.compile(
    r"([a-z0-9][a-z0-9_*/@-]{0,255})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_FLAGS: Final = 0b11
"""The flags that version 00 defines: the trace is sampled, and its id is random."""
GROUP_SIZE: Final = "db.holdfast.group_size"
"""The attribute that says how many requests an engine served at once."""
GLOBAL: Final = "global"
"""The name of an exporter that stands for the tracer provider of the process."""
_API: Final = "opentelemetry.trace"


class Trace(msgspec.Struct, frozen=True, gc=False):
    """A place in a trace: the span of a caller, as a `traceparent` of version 00, and its `tracestate`."""

    parent: str
    state: str = ""

    @property
    def trace_id(self) -> str:
        """The id of the trace: 32 hexadecimal digits."""
        return self.parent[3:35]

    @property
    def span_id(self) -> str:
        """The id of the span: 16 hexadecimal digits."""
        return self.parent[36:52]

    @property
    def sampled(self) -> bool:
        """True if the caller records the trace."""
        return bool(int(self.parent[53:], 16) & 1)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that belongs to the trace."""
        state = {TRACESTATE: self.state} if self.state else {}
        return {TRACEPARENT: self.parent, **state}

    @property
    def fields(self) -> dict[str, str]:
        """The fields of a log line."""
        return {"trace_id": self.trace_id, "span_id": self.span_id}


CURRENT: Final[ContextVar[Trace | UnsetType | None]] = ContextVar("holdfast_trace", default=None)
"""The trace of what is being done. Where it is None, OpenTelemetry is asked if the program uses it."""


def current() -> Trace | UnsetType:
    """Return the trace of the calling code: one that was given, or else the current span of OpenTelemetry."""
    trace = CURRENT.get()
    if trace is not None:
        return trace
    api = sys.modules.get(_API)
    return UNSET if api is None else _trace_of(getattr(api, "get_current_span", None))


@contextmanager
def use(trace: Trace | UnsetType | None) -> Iterator[None]:
    """Make calls of this block belong to a trace; to none if UNSET. None changes nothing."""
    token = CURRENT.set(CURRENT.get() if trace is None else trace)
    try:
        yield
    finally:
        CURRENT.reset(token)


@contextmanager
def traced(traceparent: str | None, tracestate: str | None = None) -> Iterator[None]:
    """Make calls of this block belong to the trace of these headers, such as those of an incoming request.

    A program whose current span is one of OpenTelemetry does not need this.

    Args:
        traceparent: The header `traceparent`. None and anything that the standard does not allow are ignored.
        tracestate: The header `tracestate`; ignored likewise.

    Returns:
        A context manager.

    Example:
        `with holdfast.traced("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"): await kv.get("a")`
    """
    trace = trace_of(traceparent, tracestate)
    with use(None if trace is UNSET else trace):
        yield


def trace_of(parent: object, state: object = None) -> Trace | UnsetType:
    """Return the trace that a `traceparent` and a `tracestate` name; UNSET unless the former is legal."""
    if not isinstance(parent, str) or len(parent) > MOST_PARENT:
        return UNSET
    match = _PARENT.fullmatch(parent)
    if match is None or (match[4] is not None and match[1] == "00"):
        return UNSET
    flags = int(match[3], 16) & _FLAGS
    return Trace(f"00-{match[2]}-{flags:02x}", _legal_state(state))


def of_head(head: bytes) -> Trace | UnsetType:
    """Return the trace in the headers of a NATS message."""
    head = head[:MOST_HEAD]
    lower = head.lower()
    if b"\r\ntraceparent:" not in lower:
        return UNSET
    return _of_bytes(_values(head, lower, b"\r\ntraceparent:"), _values(head, lower, b"\r\ntracestate:"))


def _values(head: bytes, lower: bytes, name: bytes) -> list[bytes]:
    """Return the values of a header, whose name other programs write in upper case too."""
    values, start = [], lower.find(name)
    while start >= 0:
        end = head.find(b"\r\n", start + len(name))
        values.append(head[start + len(name) : end].strip(b" \t"))
        start = lower.find(name, end) if end >= 0 else -1
    return values


def of_headers(headers: Iterable[tuple[bytes, bytes]]) -> Trace | UnsetType:
    """Return the trace in the headers of a request over HTTP, whose names are in lower case."""
    parents: list[bytes] = []
    states: list[bytes] = []
    for name, value in headers:
        if name == b"traceparent":
            parents.append(value.strip(b" \t"))
        elif name == b"tracestate":
            states.append(value)
    return _of_bytes(parents, states)


def of_meta(meta: Mapping[str, Any] | None) -> Trace | UnsetType:
    """Return the trace in the `_meta` of a request over MCP."""
    return UNSET if not meta else trace_of(meta.get(TRACEPARENT), meta.get(TRACESTATE))


def _of_bytes(parents: Sequence[bytes], states: Sequence[bytes]) -> Trace | UnsetType:
    if len(parents) != 1 or len(parents[0]) > MOST_PARENT:
        return UNSET
    state = b",".join(states) if sum(map(len, states)) <= MOST_STATE else b""
    return trace_of(parents[0].decode("latin-1"), state.decode("latin-1"))


def _legal_state(state: object) -> str:
    """Return a `tracestate` in its shortest form; nothing if any of it is illegal."""
    if not isinstance(state, str) or not state or len(state) > MOST_STATE:
        return ""
    members = [member for part in state.split(",") if (member := part.strip(" \t"))]
    names = [match[1] for member in members if (match := _MEMBER.fullmatch(member))]
    legal = len(members) == len(names) == len(set(names)) and len(members) <= MOST_MEMBERS
    return ",".join(members) if legal else ""


def _trace_of(get_span: Any) -> Trace | UnsetType:
    """Return the trace of OpenTelemetry's current span. Its module may still be being imported."""
    context = None if get_span is None else get_span().get_span_context()
    if context is None or not context.is_valid:
        return UNSET
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & _FLAGS:02x}"
    return Trace(parent, _legal_state(context.trace_state.to_header()) if context.trace_state else "")


class OpenSpan:
    """A span that has begun. `trace` is its place, for spans within it.

    Args:
        span: The span of OpenTelemetry.
        began: When it began, in nanoseconds since 1970.
    """

    __slots__ = ("_span", "began", "trace")

    def __init__(self, span: Any, began: int) -> None:
        self._span = span
        self.began = began
        trace = _trace_of(lambda: span)
        assert isinstance(trace, Trace), "a span that is recorded has a place"
        self.trace: Trace = trace

    def end(
        self,
        error: str | None = None,
        *,
        failed: bool = False,
        attributes: Mapping[str, str | int] | None = None,
    ) -> None:
        """End the span.

        Args:
            error: The code of the error that the caller got, if any.
            failed: Whether the error is a fault of the service, and not of the request.
            attributes: Attributes that were not known at the beginning.
        """
        if attributes is not None:
            self._span.set_attributes(attributes)
        if error is not None:
            self._span.set_attribute("error.type", error)
            if failed:
                # late: whoever has a span has imported it
                from opentelemetry.trace import Status, StatusCode

                self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end(seams.wall_ns())


class Spans:
    """Records spans with OpenTelemetry.

    Args:
        provider: The provider of the tracer; that of the process if not given.

    Raises:
        Unsupported: OpenTelemetry is not installed.
    """

    def __init__(self, provider: Any = None) -> None:
        with extras.needed("otel", "recording spans"):
            # late: few programs record spans, and it takes 60 ms
            from opentelemetry import trace
        self._api = trace
        self._tracer = trace.get_tracer("holdfast", tracer_provider=provider)

    def begin(
        self, name: str, parent: Trace | UnsetType, *, server: bool = False, began: int | None = None
    ) -> OpenSpan | None:
        """Begin a span; None if it is not recorded.

        Args:
            name: The name of the span.
            parent: The place of the span around it.
            server: Whether it is what a service does for a request of another process.
            began: When it began; now if not given.
        """
        api, began = self._api, seams.wall_ns() if began is None else began
        kind = api.SpanKind.SERVER if server else api.SpanKind.INTERNAL
        span = self._tracer.start_span(name, self._around(parent, remote=server), kind, start_time=began)
        return OpenSpan(span, began) if span.is_recording() else None

    def record(
        self, name: str, parent: Trace, began: int, attributes: Mapping[str, str | int] | None = None
    ) -> None:
        """Record a span that ends now."""
        span = self.begin(name, parent, began=began)
        if span is not None:
            span.end(attributes=attributes)

    def record_engine(self, commands: Sequence[Any], began: int, *, forwarded: bool = False) -> None:
        """Record what an engine has done for a group of commands, in the trace of each.

        Args:
            commands: The group.
            began: When the engine began, in nanoseconds since 1970.
            forwarded: Whether another node of a cluster has sent the group.
        """
        attributes = {GROUP_SIZE: len(commands), "db.holdfast.forwarded": forwarded}
        for command in commands:
            trace = getattr(getattr(command, "origin", None), "trace", UNSET)  # upkeep has no origin
            if isinstance(trace, Trace) and trace.sampled:
                self.record("engine", trace, began, attributes)

    def _around(self, parent: Trace | UnsetType, *, remote: bool) -> Any:
        """Return the context in which a span begins. It never has the span that happens to be current."""
        api = self._api
        if isinstance(parent, UnsetType):
            return api.set_span_in_context(api.INVALID_SPAN)
        place = api.SpanContext(
            int(parent.trace_id, 16),
            int(parent.span_id, 16),
            is_remote=remote,
            trace_flags=api.TraceFlags(int(parent.parent[53:], 16)),
            trace_state=api.TraceState.from_header([parent.state]) if parent.state else None,
        )
        return api.set_span_in_context(api.NonRecordingSpan(place))


spans: Spans | None = None
"""Records spans; None if nobody wants any."""


def record_spans(provider: Any = None) -> Callable[[], None]:
    """Record spans of this process with OpenTelemetry, from now on.

    A service records a span for each request and, within it, one for its time in the queue, one for its
    commit and one for the work of the engine. A store that is embedded in a program records the last two.

    Args:
        provider: The tracer provider; the global one of OpenTelemetry if not given.

    Returns:
        A function that ends the recording.

    Raises:
        Unsupported: The packages of the extra `otel` are not installed.

    Example:
        `holdfast.record_spans()`
    """
    _record(Spans(provider))
    return partial(_record, None)


def _record(recorder: Spans | None) -> None:
    global spans  # noqa: PLW0603 - one for the process, as the provider of OpenTelemetry is
    spans = recorder


@contextmanager
def exported(exporter: str | None) -> Iterator[None]:
    """Record spans within this block, and send them to where an exporter of OpenTelemetry sends them.

    Where that is, how many requests are sampled and everything else is said by the environment variables of
    OpenTelemetry.

    Args:
        exporter: The name under which an installed package offers it, such as `console` or
            `otlp_proto_http`; `global` for the tracer provider that the process has already; None for none.

    Raises:
        Unsupported: The packages of the extra `otel` are not installed.
        ValidationError: No installed package offers an exporter of this name.
    """
    if exporter is None:
        yield
        return
    provider = None if exporter == GLOBAL else _provider(exporter)
    end = record_spans(provider)
    try:
        yield
    finally:
        end()
        if provider is not None:
            provider.shutdown()


def _provider(exporter: str) -> Any:
    with extras.needed("otel", "recording spans"):
        # late: few services export spans, and it takes 200 ms
        from importlib.metadata import entry_points

        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    offers = {offer.name: offer for offer in entry_points(group="opentelemetry_traces_exporter")}
    if exporter not in offers:
        raise ValidationError(
            f"no installed package offers the exporter {exporter!r}; there are {', '.join(sorted(offers))} "
            "and global; otlp_proto_http, for one, is in the package opentelemetry-exporter-otlp-proto-http",
            field="trace_exporter",
        )
    resource = Resource.create()
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "holdfast"}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(offers[exporter].load()()))
    return provider
