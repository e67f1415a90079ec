"""Trace context: which headers name a trace, and what programs without OpenTelemetry pay for it."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

import holdfast
from holdfast import tracing
from holdfast.clock import ManualClock
from holdfast.testing import AUDIT_KEY
from holdfast.tracing import Trace, of_head, of_headers, of_meta, trace_of

ID, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{ID}-{SPAN}-01"

ILLEGAL = [
    "",
    PARENT.upper(),
    f"{PARENT}-",
    f"{PARENT}-more",
    f" {PARENT}",
    f"{PARENT}\n",
    f"{PARENT}\r\nadmin: yes",
    f"ff-{ID}-{SPAN}-01",
    f"00-{'0' * 32}-{SPAN}-01",
    f"00-{ID}-{'0' * 16}-01",
    f"00-{ID[1:]}-{SPAN}-01",
    f"00-{ID}0-{SPAN}-01",
    f"00-{ID}-{SPAN}-1",
    f"00-{ID}-{SPAN}",
    f"00-{ID}-{SPAN}-0x",
    f"0-{ID}-{SPAN}-01",
    f"01-{ID}-{SPAN}-01more",
    f"01-{ID}-{SPAN}-01-{'x' * 1_000}",
    f"00-{'٤' * 32}-{SPAN}-01",
]


@pytest.mark.parametrize("parent", ILLEGAL)
def test_an_illegal_traceparent_is_ignored(parent: str) -> None:
    """A `traceparent` that breaks any rule of the standard is ignored, wherever it comes from."""
    assert trace_of(parent) is UNSET
    assert of_meta({"traceparent": parent}) is UNSET
    if parent.isascii() and parent == parent.strip():
        assert of_headers([(b"traceparent", parent.encode())]) is UNSET
    if "\n" not in parent and parent == parent.strip():
        assert of_head(f"NATS/1.0\r\ntraceparent: {parent}\r\n\r\n".encode()) is UNSET


@pytest.mark.parametrize("parent", [None, 7, b"bytes", [PARENT], {"a": PARENT}])
def test_anything_but_text_names_no_trace(parent: object) -> None:
    """JSON of any type may stand in the `_meta` of a request over MCP."""
    assert trace_of(parent) is UNSET
    assert of_meta({"traceparent": parent, "tracestate": parent}) is UNSET
    assert trace_of(PARENT, parent) == Trace(PARENT)


def test_a_later_version_is_read_as_far_as_this_one_goes() -> None:
    """The parts that all versions share are taken, and sent on as version 00 with the flags that it has."""
    assert trace_of(f"cc-{ID}-{SPAN}-ff-what-the-future-brings") == Trace(f"00-{ID}-{SPAN}-03")
    assert trace_of(f"00-{ID}-{SPAN}-fe") == Trace(f"00-{ID}-{SPAN}-02")


def test_the_parts_of_a_trace() -> None:
    """Logs get the ids of the trace and of the span; a trace may be sampled or not."""
    trace = Trace(PARENT, "vendor=1")
    assert trace.fields == {"trace_id": ID, "span_id": SPAN}
    assert trace.headers == {"traceparent": PARENT, "tracestate": "vendor=1"}
    assert (trace.sampled, Trace(f"00-{ID}-{SPAN}-02").sampled) == (True, False)


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("a=1", "a=1"),
        (" a=1 ,\tb=2,,", "a=1,b=2"),
        ("tenant@vendor=x y", "tenant@vendor=x y"),
        ("a=1,a=2", ""),
        ("A=1", ""),
        ("a=", ""),
        ("a", ""),
        ("a=1\r\nadmin: yes", ""),
        ("a=\x1b[31mred", ""),
        ("a=b=c", ""),
        ("a=é", ""),
        (",".join(f"k{number}=1" for number in range(33)), ""),
        ("a=" + "x" * 600, ""),
    ],
)
def test_a_state_is_legal_or_dropped(state: str, kept: str) -> None:
    """A `tracestate` is taken whole or not at all. An illegal one does not cost the request its trace."""
    assert trace_of(PARENT, state) == Trace(PARENT, kept)


def test_headers_over_nats_in_any_case() -> None:
    """Some libraries write the names in upper case. Two parents contradict each other; two states add up."""
    assert of_head(b"NATS/1.0\r\n\r\n") is UNSET
    assert of_head(f"NATS/1.0\r\nA: b\r\nTraceparent:{PARENT}\r\n\r\n".encode()) == Trace(PARENT)
    several = f"NATS/1.0\r\nTRACESTATE: a=1\r\ntraceparent:  {PARENT} \r\ntracestate: b=2\r\n\r\n"
    assert of_head(several.encode()) == Trace(PARENT, "a=1,b=2")
    assert of_head(f"NATS/1.0\r\ntraceparent: {PARENT}\r\nTraceparent: {PARENT}\r\n\r\n".encode()) is UNSET
    assert of_head(f"NATS/1.0\r\nX-traceparent: {PARENT}\r\n\r\n".encode()) is UNSET
    assert of_head(f"NATS/1.0\r\ntraceparent: {PARENT}".encode()) is UNSET, "the block has no end"


def test_headers_over_http() -> None:
    """Headers of HTTP are taken alike."""
    parent, state = (b"traceparent", PARENT.encode()), (b"tracestate", b"a=1")
    assert of_headers([(b"host", b"here")]) is UNSET
    assert of_headers([state]) is UNSET
    assert of_headers([state, parent, (b"tracestate", b"b=2")]) == Trace(PARENT, "a=1,b=2")
    assert of_headers([parent, parent]) is UNSET


def test_headers_of_ten_megabytes_cost_no_time() -> None:
    """A caller that sends huge headers takes none of the service's time with its trace."""
    huge = 10 * 1024 * 1024
    heads = [
        b"NATS/1.0\r\ntraceparent: " + b" " * huge + b"\r\n\r\n",
        b"NATS/1.0\r\n" + b"tracestate: a=1\r\n" * (huge // 17) + b"\r\n",
        b"NATS/1.0\r\nA: " + b"x" * huge + f"\r\ntraceparent: {PARENT}\r\n\r\n".encode(),
        f"NATS/1.0\r\ntraceparent: {PARENT}\r\ntracestate: ".encode() + b"a=1," * (huge // 4) + b"\r\n\r\n",
    ]
    began = time.thread_time()
    for head in heads:
        assert of_head(head) in (UNSET, Trace(PARENT))
    assert of_headers([(b"traceparent", b"0" * huge)]) is UNSET
    assert trace_of("0" * huge, "a" * huge) is UNSET
    assert time.thread_time() - began < 1, "a scan of all of it with backtracking takes minutes"


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_header_is_an_error(parent: bytes, state: bytes) -> None:
    """Whatever a caller sends, reading its trace neither fails nor yields text that breaks a log line."""
    head = b"NATS/1.0\r\ntraceparent: " + parent + b"\r\ntracestate: " + state + b"\r\n\r\n"
    for trace in (of_head(head), of_headers([(b"traceparent", PARENT.encode()), (b"tracestate", state)])):
        if isinstance(trace, Trace):
            assert all(" " <= one <= "~" for one in trace.parent + trace.state)


def test_a_block_belongs_to_the_trace_that_it_was_given() -> None:
    """`traced` names the trace of what is called inside it. An illegal header changes nothing."""
    assert tracing.current() is UNSET
    with holdfast.traced(PARENT, "a=1"):
        assert tracing.current() == Trace(PARENT, "a=1")
        with holdfast.traced("nonsense"), holdfast.traced(None):
            assert tracing.current() == Trace(PARENT, "a=1")
    assert tracing.current() is UNSET


async def test_a_retry_in_another_trace_gets_the_first_reply() -> None:
    """A request that is sent again belongs to another span, and is the same request."""
    async with holdfast.open("memory://") as store:
        kv, replies = store.kv("p"), []
        for digit in "12":
            with holdfast.traced(f"00-{digit * 32}-{digit * 16}-01"):
                entry = await kv.set("k", 1, request_id="r")
                batch = await kv.batch(writes=[{"key": "a", "value": 1}], request_id="b")
                many = await kv.set_many([{"key": "m", "value": 1}], request_id="m")
                replies.append((entry.version, batch.versions, many))
        assert replies[0] == replies[1]


async def test_an_expiry_that_a_write_finds_belongs_to_no_trace() -> None:
    """The audit has the trace of the write, and none for the expiry of what was there."""
    clock = ManualClock()
    async with holdfast.open("memory://", reap=False, clock=clock, audit_key=AUDIT_KEY) as store:
        kv = store.kv("p")
        await store.set_policy("kv/p", {"audit": True})
        await kv.set("k", 1, ttl=1)
        clock.advance(2)
        with holdfast.traced(PARENT):
            await kv.set("k", 2)
        records = (await store.audit("kv/p").log()).records
        assert [(one.op, one.trace_id) for one in records if one.key == "k"] == [
            ("set", None),
            ("expired", None),
            ("set", ID),
        ]


def test_nothing_of_opentelemetry_is_imported_unless_asked_for() -> None:
    """A program pays nothing for an extra that it does not use: neither a client nor a service imports it."""
    code = """
import asyncio, sys
import holdfast
import holdfast.client.http, holdfast.client.nats, holdfast.engines.sqlite.engine
import holdfast.edges.serve, holdfast.edges.cli.app
async def main():
    async with holdfast.open("memory://") as store:
        with holdfast.traced("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"):
            await store.kv("trivia").set("a", 1)
            await store.kv("trivia").get("a")
asyncio.run(main())
print([name for name in sys.modules if name.partition(".")[0] == "opentelemetry"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_spans_without_opentelemetry_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for spans without the packages is told what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(holdfast.Unsupported, match=r"holdfast-kv\[otel\]"):
        holdfast.record_spans()
