"""Traces through every door: who called, what the service did for the call, and where its id shows up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import holdfast
from holdfast import tracing
from holdfast.edges.calls import FAMILIES
from holdfast.edges.intake.requests import Endpoint
from holdfast.edges.nats.service import Settings
from holdfast.wire.dialects import PLUGIN
from holdfast.wire.subjects import Route
from tests.edges.http.ground import Served, served
from tests.edges.mcp.agents import MODERN, agent
from tests.edges.mcp.http_agents import agent as agent_over_http
from tests.edges.running import Up, holdfast_up
from tests.nats import lasting_nats_server, library_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from opentelemetry.sdk.trace import ReadableSpan

TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN: Final = "00f067aa0ba902b7"
PARENT: Final = f"00-{TRACE}-{SPAN}-01"
SLOW: Final = Settings(slow_seconds=0.0, slow_walk_seconds=0.0)
"""Every request counts as slow."""


@pytest.fixture(scope="module")
def bus() -> Iterator[str]:
    """The address of a NATS server."""
    with lasting_nats_server() as url:
        yield url


@pytest.fixture
async def here(bus: str, tmp_path: Path) -> AsyncIterator[Served]:
    """A service at all doors, on an audited namespace, whose requests are all slow."""
    async with served(tmp_path / "state.db", bus, settings=SLOW) as service:
        await service.store.set_policy("kv/trivia", holdfast.Policy(audit=True))
        yield service


class Collected:
    """The spans that were recorded."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, name: str, within: str | None = None) -> list[ReadableSpan]:
        """The spans with a name, within another if its id is given."""
        spans = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return [span for span in spans if within is None or parent_of(span) == within]

    def one(self, name: str, within: str) -> ReadableSpan:
        """The only span with a name within another."""
        [span] = self.named(name, within)
        return span


def id_of(span: ReadableSpan) -> str:
    """The id of a span."""
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def parent_of(span: ReadableSpan) -> str | None:
    """The id of the span around a span."""
    return None if span.parent is None else f"{span.parent.span_id:016x}"


@pytest.fixture
def provider() -> TracerProvider:
    """A provider of OpenTelemetry's SDK."""
    return TracerProvider()


@pytest.fixture
def collected(provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> Collected:
    """Record spans in memory."""
    monkeypatch.setattr(tracing, "spans", None)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    holdfast.record_spans(provider)
    return Collected(exporter)


def check_write(collected: Collected, caller: str, verb: str, door: str) -> None:
    """The spans of a write: the request within the caller's span; in it queue and commit, in that engine."""
    request = collected.one(verb, caller)
    assert request.kind is api.SpanKind.SERVER
    assert request.attributes is not None
    assert dict(request.attributes) == {
        "db.system.name": "holdfast",
        "db.namespace": "kv/trivia",
        "db.operation.name": verb,
        "db.holdfast.door": door,
    }
    queue, commit = collected.one("queue", id_of(request)), collected.one("commit", id_of(request))
    engine = collected.one("engine", id_of(commit))
    assert engine.attributes is not None
    assert engine.attributes["db.holdfast.group_size"] == 1
    spans = (request, queue, commit, engine)
    assert {f"{span.context.trace_id:032x}" for span in spans if span.context is not None} == {TRACE}
    for inner, outer in ((queue, request), (commit, request), (engine, commit)):
        assert inner.start_time is not None
        assert inner.end_time is not None
        assert outer.start_time is not None
        assert outer.end_time is not None
        assert outer.start_time <= inner.start_time <= inner.end_time <= outer.end_time


async def ask(bus: str, subject: str, fields: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    """Send a request with another project's client, and return the reply."""
    async with library_client(bus) as client:
        message = await client.request(subject, json.dumps(fields).encode(), timeout=60, headers=headers)
    reply: dict[str, Any] = json.loads(message.data)
    return reply


async def test_a_write_over_nats(here: Served, collected: Collected) -> None:
    """The headers of a message name the caller's span, within which everything is recorded."""
    reply = await ask(here.bus, "db.kv.trivia.set", {"key": "a", "value": 1}, {"traceparent": PARENT})
    assert reply["success"]
    check_write(collected, SPAN, "set", "kv")


@pytest.mark.parametrize("fast", [True, False])
async def test_a_write_over_http(here: Served, collected: Collected, fast: bool) -> None:
    """The headers of a request do, whether or not the request takes the fast path."""
    usual = {} if fast else {"sec-fetch-site": "same-origin"}
    answer = await here.client.put("/v1/kv/trivia/a", json=1, headers={"traceparent": PARENT, **usual})
    assert answer.status_code == 200
    check_write(collected, SPAN, "set", "http")


async def test_a_write_over_mcp(here: Served, collected: Collected) -> None:
    """The `_meta` of a call of a tool does."""
    async with agent_over_http(here, None, path="/mcp/kv/trivia", mode=MODERN) as caller:
        meta: Any = {"traceparent": PARENT}
        result = await caller.client.call_tool("put", {"key": "a", "value": 1}, meta=meta)
    assert not result.is_error, result
    check_write(collected, SPAN, "set", "mcp")


async def test_a_write_to_a_memory(here: Served, collected: Collected) -> None:
    """So does that of a call of a tool of the memory, to all that the tool asks for."""
    entity = {"name": "Ada", "entityType": "person", "observations": []}
    async with agent_over_http(here, None, path="/mcp/memory/kv/trivia", mode=MODERN) as caller:
        meta: Any = {"traceparent": PARENT}
        result = await caller.client.call_tool("create_entities", {"entities": [entity]}, meta=meta)
    assert not result.is_error, result
    collected.one("get_many", SPAN)
    check_write(collected, SPAN, "batch", "mcp")


async def test_a_call_of_a_tool_over_stdio_is_audited_with_its_trace(here: Served) -> None:
    """A server that has opened the store itself takes the trace as one behind a service does."""
    async with agent(here.store, here.store.kv("trivia")) as caller:
        meta: Any = {"traceparent": PARENT}
        result = await caller.client.call_tool("put", {"key": "a", "value": 1}, meta=meta)
    assert not result.is_error, result
    page = await here.store.audit("kv/trivia").log(trace_id=TRACE)
    assert [record.key for record in page.records] == ["a"]


async def test_a_memory_over_mcp_is_audited_with_the_trace(here: Served) -> None:
    """The tools of a memory take the trace of a call as all others do."""
    async with agent_over_http(here, None, path="/mcp/memory/kv/trivia", mode=MODERN) as caller:
        meta: Any = {"traceparent": PARENT}
        entities = [{"name": "Ada", "entityType": "person", "observations": ["plays"]}]
        result = await caller.client.call_tool("create_entities", {"entities": entities}, meta=meta)
        assert not result.is_error, result
        await caller.client.call_tool("read_graph", {})
    records = (await here.store.audit("kv/trivia").log()).records
    assert {record.trace_id for record in records if record.op == "set"} == {TRACE}


@pytest.mark.parametrize("path", ["/mcp/kv/trivia", "/mcp/memory/kv/trivia"])
async def test_an_illegal_trace_over_mcp_is_dropped_quietly(
    here: Served, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """Whatever stands in the `_meta` of a call, the call is answered and no library logs the text of it."""
    caplog.set_level(logging.DEBUG)
    illegal = ("nonsense\nlevel=error", "nonsense=" * 2_000, "nonsense=1,nonsense=2", None, 1, ["nonsense"])
    tool, fields = ("put", {"key": "a", "value": 1}) if path == "/mcp/kv/trivia" else ("read_graph", {})
    async with agent_over_http(here, None, path=path, mode=MODERN) as caller:
        for text in illegal:
            for name in ("traceparent", "tracestate", "baggage"):
                meta: Any = {"traceparent": PARENT, name: text}
                result = await caller.client.call_tool(tool, fields, meta=meta)
                assert not result.is_error, result
    logged = [record for record in caplog.records if not record.name.startswith(("mcp.client", "httpx"))]
    assert not [record for record in logged if "nonsense" in record.getMessage()]


async def test_reads_and_refusals(here: Served, collected: Collected) -> None:
    """A get shows the engine's work in its request. A refusal has its code; only a fault is an error."""
    await ask(here.bus, "db.kv.trivia.get", {"key": "a"}, {"traceparent": PARENT})
    request = collected.one("get", SPAN)
    collected.one("queue", id_of(request))
    collected.one("engine", id_of(request))
    await ask(here.bus, "db.kv.trivia.list", {}, {"traceparent": PARENT})
    collected.one("queue", id_of(collected.one("list", SPAN)))
    fields = {"key": "a", "value": 1, "expected_version": 7}
    await ask(here.bus, "db.kv.trivia.set", fields, {"traceparent": PARENT})
    lost = collected.one("set", SPAN)
    assert lost.attributes is not None
    assert lost.attributes["error.type"] == "VERSION_CONFLICT"
    assert lost.status.status_code is api.StatusCode.UNSET
    await ask(here.bus, "db.kv.trivia.nothing", {}, {"traceparent": PARENT})
    collected.one("unknown", SPAN)
    late = {"key": "a", "value": 1, "deadline": 1}
    await ask(here.bus, "db.kv.other.set", late, {"traceparent": PARENT})
    [late_span] = [span for span in collected.named("set", SPAN) if span is not lost]
    assert late_span.status.status_code is api.StatusCode.ERROR


async def test_a_request_without_a_trace_begins_one(here: Served, collected: Collected) -> None:
    """Where spans are recorded, the request of a caller that sends no trace is the root of its own."""
    await here.client.put("/v1/kv/trivia/a", json=1)
    [request] = collected.named("set")
    assert request.parent is None
    collected.one("engine", id_of(collected.one("commit", id_of(request))))
    [record] = (await here.store.audit("kv/trivia").log(op="set")).records
    assert request.context is not None
    assert record.trace_id == f"{request.context.trace_id:032x}"


async def test_a_trace_that_is_not_sampled_records_nothing(here: Served, collected: Collected) -> None:
    """A caller that does not record its trace is followed in the logs and the audit, without any span."""
    parent = f"00-{TRACE}-{SPAN}-00"
    await ask(here.bus, "db.kv.trivia.set", {"key": "a", "value": 1}, {"traceparent": parent})
    assert not collected.named("set") + collected.named("commit") + collected.named("engine")
    assert [one.key for one in (await here.store.audit("kv/trivia").log(trace_id=TRACE)).records] == ["a"]


async def test_a_state_goes_along(here: Served, collected: Collected) -> None:
    """What vendors add to a trace is part of every span in it."""
    headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
    await ask(here.bus, "db.kv.trivia.set", {"key": "a", "value": 1}, headers)
    for name in ("set", "queue", "commit", "engine"):
        [span] = collected.named(name)
        assert span.context is not None
        assert span.context.trace_state.to_header() == "vendor=1", name


@pytest.mark.parametrize("scheme", ["nats", "http", "embedded"])
async def test_clients_send_the_current_span(
    here: Served, collected: Collected, provider: TracerProvider, scheme: str
) -> None:
    """A call within a span of the program belongs to that span, whatever the store's address is."""
    tracer = provider.get_tracer("a program")
    async with contextlib.AsyncExitStack() as stack:
        store = here.store
        if scheme != "embedded":
            address = here.url if scheme == "http" else here.bus
            store = await stack.enter_async_context(holdfast.open(address))
        kv = store.kv("trivia")
        with tracer.start_as_current_span("program") as program:
            await kv.set("a", 1)
            await kv.get("a")
            await kv.list()
        await kv.set("b", 1)
    around = f"{program.get_span_context().span_id:016x}"
    if scheme != "embedded":
        for verb in ("set", "get", "list"):
            collected.one(verb, around)
    [record] = (
        await here.store.audit("kv/trivia").log(trace_id=f"{program.get_span_context().trace_id:032x}")
    ).records
    assert record.key == "a"
    writes = around if scheme == "embedded" else id_of(collected.one("set", around))
    collected.one("engine", id_of(collected.one("commit", writes)))


@pytest.mark.parametrize("scheme", ["nats", "http", "file"])
async def test_programs_without_asyncio(here: Served, tmp_path: Path, scheme: str) -> None:
    """`holdfast.sync` sends on the trace of the calling thread, and of no other."""
    address = {"nats": here.bus, "http": here.url, "file": str(tmp_path / "other.db")}[scheme]

    def program() -> list[str | None]:
        with holdfast.sync.open(address) as store:
            store.set_policy("kv/trivia", holdfast.Policy(audit=True))
            with holdfast.traced(PARENT):
                store.kv("trivia").set("a", 1)
            store.kv("trivia").set("b", 1)
            records = store.audit("kv/trivia").log(op="set").records
        return [record.trace_id for record in records]

    assert await asyncio.to_thread(program) == [TRACE, None]


async def test_without_spans_the_trace_still_shows(here: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Request log, slow log and audit name the trace of a request, and none for one that has none."""
    caplog.set_level(logging.DEBUG, "holdfast")
    await ask(here.bus, "db.kv.trivia.set", {"key": "a", "value": 1}, {"traceparent": PARENT})
    await ask(here.bus, "db.kv.trivia.set", {"key": "b", "value": 1}, {"traceparent": "nonsense\x1b[31m"})
    fields = {"key": "a", "value": 1, "expected_version": 7}
    await ask(here.bus, "db.kv.trivia.set", fields, {"Traceparent": PARENT})
    done = [vars(record) for record in caplog.records if record.message.startswith("set of trivia")]
    assert [(line["key"], line.get("trace_id"), line.get("span_id")) for line in done] == [
        ("a", TRACE, SPAN),
        ("b", None, None),
    ]
    [conflict] = [vars(record) for record in caplog.records if record.name == "holdfast.writes"]
    assert (conflict["trace_id"], conflict["span_id"]) == (TRACE, SPAN)
    slow = [vars(record) for record in caplog.records if record.message.startswith("slow: set")]
    assert [line.get("trace_id") for line in slow] == [TRACE, None, TRACE]
    assert not [line for line in map(str, map(vars, caplog.records)) if "nonsense" in line]
    async with holdfast.open(here.bus) as store:
        page = await store.slowlog()
        assert [one.trace_id for one in page.requests if one.verb == "set"] == [TRACE, None, TRACE]
        records = (await store.audit("kv/trivia").log(op="set")).records
        assert [(one.key, one.trace_id) for one in records] == [("a", TRACE), ("b", None)]
        assert (await store.audit("kv/trivia").verify()).whole


async def test_one_request_does_not_get_the_trace_of_another(here: Served) -> None:
    """Requests that come at the same time, with traces and without, keep their own."""
    traces = [f"{number:032x}" if number % 3 else None for number in range(1, 60)]

    async def write(number: int, trace: str | None) -> None:
        headers = {} if trace is None else {"traceparent": f"00-{trace}-{SPAN}-01"}
        if number % 2:
            await here.client.put(f"/v1/kv/trivia/{number:03}", json=1, headers=headers)
        else:
            fields = {"key": f"{number:03}", "value": 1}
            await client.request("db.kv.trivia.set", json.dumps(fields).encode(), timeout=60, headers=headers)

    async with library_client(here.bus) as client:
        await asyncio.gather(*(write(number, trace) for number, trace in enumerate(traces)))
    records = (await here.store.audit("kv/trivia").log(op="set")).records
    assert {one.key: one.trace_id for one in records} == {
        f"{number:03}": trace for number, trace in enumerate(traces)
    }


async def test_a_turn_that_one_request_causes_does_not_name_its_trace_in_others(here: Served) -> None:
    """The service starts requests of several doors together. None of them runs in the context of another."""
    service, verb = here.api.service, FAMILIES["kv"]["set"]
    assert service is not None

    async def write(key: str) -> None:
        route, payload = Route(PLUGIN, "set", "kv/trivia", "trivia"), json.dumps({"key": key, "value": 1})
        await service.ask(
            route, payload.encode(), verb=verb, endpoint=Endpoint(name="test"), trace=tracing.current()
        )

    with holdfast.traced(PARENT):
        first = asyncio.create_task(write("first"))
    await asyncio.gather(first, write("second"))
    records = (await here.store.audit("kv/trivia").log(op="set")).records
    assert [(one.key, one.trace_id) for one in records] == [("first", TRACE), ("second", None)]


async def test_thousands_of_states_leave_nothing_behind(here: Served) -> None:
    """Each request may bring another state: none is kept once the request is answered."""
    async with library_client(here.bus) as client:
        for start in range(0, 3_000, 100):
            await asyncio.gather(
                *(
                    client.request(
                        "db.kv.trivia.get",
                        b'{"key": "a"}',
                        timeout=60,
                        headers={"traceparent": PARENT, "tracestate": f"vendor=needle{number}"},
                    )
                    for number in range(start, start + 100)
                )
            )
    page = await here.store.audit("kv/trivia").log()
    assert "needle" not in repr(page)


async def test_a_service_exports_what_the_settings_name(tmp_path: Path) -> None:
    """`trace_exporter` names an exporter of OpenTelemetry, which has all spans when the service ends."""
    async with holdfast_up(tmp_path, HOLDFAST_TRACE_EXPORTER="console") as up:
        async with holdfast.open(up.url) as store:
            with holdfast.traced(PARENT):
                await store.kv("trivia").set("a", 1)
        assert await up.stop() == 0
    spans = [line for line in up.said if line.startswith('    "name": ')]
    assert sorted(spans) == [f'    "name": "{name}",' for name in ("commit", "engine", "queue", "set")]
    assert f'        "trace_id": "0x{TRACE}",' in up.said
    assert '            "service.name": "holdfast"' in " ".join(up.said)


async def test_an_exporter_that_is_not_installed(tmp_path: Path) -> None:
    """A service does not start without the exporter that its settings name, and says which there are."""
    code, line = await Up(tmp_path, (), {"HOLDFAST_TRACE_EXPORTER": "nowhere"}).ended()
    assert code != 0
    assert "no installed package offers the exporter 'nowhere'; there are console and global" in line


def test_our_headers_are_what_opentelemetry_reads() -> None:
    """Another project's propagator finds the same ids in the headers that our clients send."""
    headers = tracing.Trace(PARENT, "a=1").headers
    context = api.get_current_span(TraceContextTextMapPropagator().extract(headers)).get_span_context()
    assert (f"{context.trace_id:032x}", f"{context.span_id:016x}") == (TRACE, SPAN)
    assert context.trace_state.to_header() == "a=1"
