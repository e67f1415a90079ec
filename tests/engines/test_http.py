"""The HTTP engine: addresses, tokens, and what a caller learns when a connection fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.client import http
from holdfast.client.http import http_address
from holdfast.masking import shown
from tests.edges.http.ground import served
from tests.edges.http.test_fast_path import until
from tests.nats import lasting_nats_server
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def bus() -> Iterator[str]:
    """The address of a NATS server."""
    with lasting_nats_server() as url:
        yield url


@contextlib.asynccontextmanager
async def answering(*answers: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives these answers, one for each request; at None it ends the connection."""
    heard: list[bytes] = []
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while left:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                heard.append(head + await reader.readexactly(size))
                answer = left.pop(0)
                if answer is None:
                    break
                writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


def response(status: int, body: bytes, kind: str = "application/json") -> bytes:
    """A response."""
    return (
        f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    )


async def test_a_client_logs_in_with_the_token_of_its_url(bus: str, tmp_path: Path) -> None:
    """A client shows the token in its URL, and is told what it may not do."""
    async with served(tmp_path / "state.db", bus, open_mode=False) as here:
        made = (await here.store.tokens().create(plugin="trivia", verbs=["get", "set"])).token
        (tmp_path / "token").write_text(f"{made}\n")
        for option in (f"token={made}", f"token_file={tmp_path / 'token'}"):
            async with holdfast.open(f"{here.url}?{option}") as store:
                await store.kv("trivia").set("a", 1)
                assert (await store.kv("trivia").get("a")) is not None
                for refused in (store.kv("other").get("a"), store.kv("trivia").delete("a")):
                    with pytest.raises(holdfast.PermissionDenied, match="this token is for trivia"):
                        await refused
        async with holdfast.open(here.url) as store:
            with pytest.raises(holdfast.PermissionDenied, match="needs a token"):
                await store.kv("trivia").get("a")


async def test_calls_of_one_namespace_keep_their_order(bus: str, tmp_path: Path) -> None:
    """Calls that are begun one after the other take effect in this order, without waiting for each other."""
    async with served(tmp_path / "state.db", bus) as here, holdfast.open(here.url) as store:
        kv = store.kv("trivia")
        calls = []
        for number in range(50):
            calls += [kv.set("a", number), kv.get("a")]
        results = await asyncio.gather(*calls)
        assert [entry.value for entry in results[1::2] if entry is not None] == list(range(50))
        versions = [entry.version for entry in results[::2] if entry is not None]
    assert versions == sorted(versions)


async def test_opening_without_a_service_is_unavailable_and_names_the_address() -> None:
    """Where no service runs, opening says so and names the address without the token."""
    port = free_port()
    with pytest.raises(holdfast.Unavailable, match=f"reached at http://127.0.0.1:{port}$"):
        async with holdfast.open(f"http://127.0.0.1:{port}?token=secret"):
            pass


async def test_a_lost_connection_leaves_a_write_unknown() -> None:
    """A write that was sent and not answered may have been done, and is not sent again."""
    async with answering(None, None) as (url, heard), holdfast.open(url) as store:
        with pytest.raises(holdfast.OutcomeUnknown, match="may or may not have been done"):
            await store.kv("trivia").set("a", 1)
    assert len(heard) == 1


async def test_a_write_that_was_never_sent_was_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits in vain for a connection is told that nothing was done, and not that nobody knows."""
    async with answering() as (url, heard), holdfast.open(f"{url}?timeout=0.1") as store:

        async def never(*given: Any) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(http.HttpConnection, "to", never)
        ends = await asyncio.gather(
            *(store.kv("p").set(f"k{number}", 1) for number in range(2)), return_exceptions=True
        )
        assert [type(end) for end in ends] == [holdfast.Unavailable] * 2
        assert all("could not be sent within 0.1 s: nothing was done" in str(end) for end in ends)
        assert not heard


async def test_a_read_is_sent_again() -> None:
    """A read that a lost connection left unanswered is sent again within its timeout."""
    found = response(200, b'{"exists":false}')
    async with answering(None, found) as (url, heard), holdfast.open(url) as store:
        assert await store.kv("trivia").get("a") is None
    assert len(heard) == 2


async def test_a_late_answer_is_not_taken_for_another() -> None:
    """A call that gave up leaves its answer to nobody: the next call gets its own."""
    one, two = (
        response(
            200,
            b'{"exists":true,"value":%d,"version":1,"expires_at":null,"created_at":'
            b'"2023-11-14T22:13:20Z","updated_at":"2023-11-14T22:13:20Z","last_writer":"a"}' % n,
        )
        for n in (1, 2)
    )
    async with answering(b"", one + two) as (url, _), holdfast.open(f"{url}?timeout=0.2") as store:
        with pytest.raises(holdfast.Unavailable):
            await store.kv("trivia").get("first")
        entry = await store.kv("trivia").get("second")
    assert entry is not None
    assert entry.value == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (response(502, b"<html>", "text/html"), holdfast.OutcomeUnknown),
        (response(404, b"<html>", "text/html"), holdfast.Unavailable),
        (response(200, b"<html>", "text/html"), holdfast.OutcomeUnknown),
        (response(302, b"", "text/html"), holdfast.OutcomeUnknown),
        (response(408, b"", "text/html"), holdfast.OutcomeUnknown),
        (response(502, b'{"title":"Bad Gateway"}', "application/problem+json"), holdfast.OutcomeUnknown),
        (response(421, b"not here", "text/plain"), holdfast.PermissionDenied),
        (b"SSH-2.0\r\n\r\n", holdfast.OutcomeUnknown),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", holdfast.OutcomeUnknown),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", holdfast.OutcomeUnknown),
    ],
)
async def test_an_answer_of_another_program_is_no_success(answer: bytes, error: type[Exception]) -> None:
    """What a proxy or another program answers is never taken for success."""
    async with answering(answer) as (url, _), holdfast.open(url) as store:
        with pytest.raises(error):
            await store.kv("trivia").set("a", 1)


async def test_a_success_that_a_gateway_has_given_a_charset_is_one() -> None:
    """A gateway may name the encoding of JSON."""
    found = response(200, b'{"exists":false}', "application/json; charset=utf-8")
    async with answering(found) as (url, _), holdfast.open(url) as store:
        assert await store.kv("trivia").get("a") is None


async def test_a_request_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request larger than a service accepts is refused before it is sent."""
    monkeypatch.setattr(http, "MOST_PAYLOAD", 100)
    async with answering() as (url, heard), holdfast.open(url) as store:
        with pytest.raises(holdfast.ValueTooLarge):
            await store.kv("trivia").set("a", "x" * 200)
    assert heard == []


async def test_ready_says_why_the_service_is_not_ready() -> None:
    """A service that is not ready says why."""
    body = b'{"ready":false,"service":"ok","store":"UNAVAILABLE: it is gone","nats":"ok"}'
    async with answering(response(503, body)) as (url, _), holdfast.open(url) as store:
        with pytest.raises(holdfast.Unavailable, match="store: UNAVAILABLE: it is gone"):
            await store.ready()


async def test_a_client_keeps_a_bounded_number_of_connections(
    bus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of many namespaces keeps a bounded number of connections."""
    monkeypatch.setattr(http, "MOST_LINES", 3)
    async with served(tmp_path / "state.db", bus) as here, holdfast.open(here.url) as store:
        for number in range(12):
            assert await store.kv(f"p{number}").get("a") is None
        client: Any = store.caller
        assert len(client._http._ways) <= 4


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://host/path",
        "http://user:password@host",
        "http://host:0",
        "http://host:99999",
        "http://host?unknown=1",
        "http://host?timeout=0",
        "http://host?timeout=x",
        "http://host?token=a b",
        "http://host?token_file=/nowhere/at/all",
    ],
)
def test_a_wrong_address_is_refused(url: str) -> None:
    """A URL that names no host, or an option that does not exist, is refused before anything is sent."""
    with pytest.raises(holdfast.ValidationError) as caught:
        holdfast.open(url)
    assert caught.value.field == "url"


def test_addresses_have_default_ports_and_hide_the_token() -> None:
    """Ports have the usual defaults, IPv6 hosts are in brackets, and a token is never shown."""
    assert http_address("http://host").netloc == "host:80"
    assert http_address("https://host").netloc == "host:443"
    assert http_address("http://[::1]:8420/").netloc == "[::1]:8420"
    assert "secret" not in shown("https://host:8420?token=secret&timeout=3")
    with pytest.raises(holdfast.ValidationError, match="tls_ca"):
        http_address("https://host?tls_ca=/nowhere").context()


async def test_commands_accept_an_http_url(
    bus: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands take `--url http://…` as they take any other address."""
    from holdfast.__main__ import main

    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["holdfast", *arguments])
        with contextlib.suppress(SystemExit):
            main()
        return capfd.readouterr().out

    async with served(tmp_path / "state.db", bus) as here:
        where = ("--url", here.url, "--plugin", "trivia")
        await asyncio.to_thread(run, "set", "a", "1", *where)
        assert await asyncio.to_thread(run, "get", "a", *where) == "1\n"
        assert await asyncio.to_thread(run, "list", *where) == "a\n"
        assert "kv/trivia" in await asyncio.to_thread(run, "namespace", "list", "--url", here.url)
        assert (await asyncio.to_thread(run, "token", "create", *where)).startswith("hf_")
        assert '"slow"' in await asyncio.to_thread(run, "slowlog", "--json", "--url", here.url)


def entry(value: int) -> bytes:
    """The answer to a get of an entry."""
    return response(
        200,
        b'{"exists":true,"value":%d,"version":1,"expires_at":null,"created_at":'
        b'"2023-11-14T22:13:20Z","updated_at":"2023-11-14T22:13:20Z","last_writer":"a"}' % value,
    )


async def values(kv: holdfast.KV, count: int) -> list[Any]:
    """The values of so many gets, one after the other; the error of one that failed."""
    found: list[Any] = []
    for number in range(count):
        try:
            seen = await kv.get(f"k{number}")
        except holdfast.HoldfastError as error:
            found.append(type(error))
        else:
            found.append(seen and seen.value)
    return found


async def test_what_comes_before_an_answer_is_not_the_answer() -> None:
    """Hints that a proxy sends ahead of an answer shift no answer to another request."""
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"
    async with (
        answering(b"HTTP/1.1 100 Continue\r\n\r\n" + hints + entry(1), hints + entry(2)) as (url, _),
        holdfast.open(url) as store,
    ):
        assert await values(store.kv("trivia"), 2) == [1, 2]


@pytest.mark.parametrize(
    "surplus",
    [
        entry(9),
        b"HTTP/1.1 103 Early Hints\r\n\r\n" + entry(9),
        b"HTTP/1.1 408 X\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_an_answer_that_nobody_awaits_is_given_to_nobody(surplus: bytes) -> None:
    """A connection on which more comes than was asked for is not used again."""
    async with answering(entry(1) + surplus, entry(2)) as (url, _), holdfast.open(url) as store:
        kv = store.kv("trivia")
        assert await values(kv, 1) == [1]
        client: Any = store.caller
        connection = client._http._ways["/v1/kv/trivia"].connection
        await until(lambda: not connection.usable)
        assert await values(kv, 1) == [2]


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nXX",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
async def test_an_answer_without_a_clear_end_is_followed_by_no_other(head: bytes) -> None:
    """What follows an answer whose end can't be told may be its body, and is not taken for an answer."""
    async with answering(b"", head + entry(9) + entry(9)) as (url, _), holdfast.open(url) as store:
        kv = store.kv("trivia")
        ends = await asyncio.gather(kv.set("a", 1), kv.set("b", 1), return_exceptions=True)
        assert [type(end) for end in ends] == [holdfast.OutcomeUnknown] * 2


@pytest.mark.parametrize(
    "body",
    [
        b'{"version":',
        b'{"version":}',
        b"{ }",
        b'{"ok":true}',
        b'{"success":"yes"}',
        b'{"version":"x"}',
        b"{\xff}",
    ],
)
async def test_an_answer_that_can_not_be_read_says_nothing_about_a_write(body: bytes) -> None:
    """A success of a write whose fields are broken or missing leaves the write unknown."""
    async with answering(*[response(200, body)] * 3) as (url, _), holdfast.open(url) as store:
        kv = store.kv("trivia")
        with pytest.raises(holdfast.OutcomeUnknown, match="may or may not have been done"):
            await kv.set("a", 1)
        with pytest.raises(holdfast.OutcomeUnknown, match="may or may not have been done"):
            await kv.batch(writes=[{"key": "a", "value": 1}])


async def test_a_read_whose_answer_is_broken_may_be_repeated() -> None:
    """The broken answer to a read is that of a service that can't be reached."""
    broken = [response(200, body) for body in (b'{"exists":', b'{"ok":true}', b'{"keys":5}')]
    async with answering(*broken) as (url, _), holdfast.open(url) as store:
        kv = store.kv("trivia")
        for read in (kv.get("a"), kv.get("a"), kv.list()):
            with pytest.raises(holdfast.Unavailable, match="can't be read"):
                await read


async def test_a_problem_with_a_code_of_a_gateway_says_nothing_about_a_write() -> None:
    """A gateway's problem may have a code of its own."""
    body = b'{"code":"upstream","detail":"reset"}'
    async with (
        answering(response(502, body, "application/problem+json")) as (url, _),
        holdfast.open(url) as store,
    ):
        with pytest.raises(holdfast.OutcomeUnknown):
            await store.kv("trivia").set("a", 1)


async def test_a_call_after_a_program_cancelled_all_its_tasks_gets_its_own_answer() -> None:
    """An answer that was awaited then is not taken for that to a later call."""
    asked = asyncio.Semaphore(0)
    both = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].split()[0])
                body = await reader.readexactly(size)
                number = int(json.loads(body)["key"])
                asked.release()
                await both.wait()
                writer.write(entry(number))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, holdfast.open(url) as store:
        kv = store.kv("trivia")
        others = asyncio.all_tasks()
        call = asyncio.create_task(kv.get("1"))
        await asked.acquire()
        tasks = [
            task
            for task in asyncio.all_tasks() - others
            if task is call or task.get_name().startswith("holdfast")
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        later = asyncio.create_task(kv.get("2"))
        await asked.acquire()
        both.set()
        found = await later
    assert found is not None
    assert found.value == 2


async def test_a_connection_that_has_been_silent_for_long_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service whose machine has gone, so that nothing ever comes, is called over another connection."""
    async with answering(b"", entry(2)) as (url, heard), holdfast.open(f"{url}?timeout=0.1") as store:
        kv = store.kv("trivia")
        assert await values(kv, 1) == [holdfast.Unavailable]
        monkeypatch.setattr(http, "IDLE_SECONDS", 0.01)
        client: Any = store.caller
        silent = client._http._ways["/v1/kv/trivia"].connection
        await until(lambda: not silent.usable)
        assert await values(kv, 1) == [2]
        assert client._http._ways["/v1/kv/trivia"].connection is not silent
        assert len(heard) == 2


async def test_an_answer_that_takes_long_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call does not end the connection over which an earlier one still awaits its answer."""
    monkeypatch.setattr(http, "IDLE_SECONDS", -1.0)
    async with answering(b"", entry(1) + entry(2)) as (url, heard), holdfast.open(url) as store:
        kv = store.kv("trivia")
        first = asyncio.create_task(kv.get("a"))
        await until(lambda: len(heard) == 1)
        second, earlier = await kv.get("b"), await first
    assert earlier is not None
    assert second is not None
    assert (earlier.value, second.value) == (1, 2)


async def test_a_stream_that_is_refused_is_not_asked_for_at_once_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A watch that is one too many does not use up the rate of its plugin by asking again and again."""
    monkeypatch.setattr(http, "AGAIN_SECONDS", 0.0)
    body = b'{"changes":[],"next":0,"head":0,"oldest":null,"floor":0,"epoch":"e","gap":false}'
    streams = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal streams
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET"):
                    streams += 1
                    writer.write(response(503, b"{}", "application/problem+json"))
                else:
                    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
                    writer.write(response(200, body))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, holdfast.open(url) as store:
        kv = store.kv("trivia")
        watching = asyncio.ensure_future(anext(kv.watch(since=0)))
        await until(lambda: streams == 1)
        for _ in range(50):
            await kv.changes()
        assert streams == 1
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
