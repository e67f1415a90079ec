"""The attacks on the bus, against HTTP: isolation, malformed requests, heads, order, budgets and floods."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest

import holdfast
from holdfast.edges.calls import FAMILIES
from holdfast.edges.http.connections import HttpLimits
from tests.edges.http.ground import Served, served
from tests.edges.nats.ground import until
from tests.nats import lasting_nats_server
from tests.security.malformed import LATE, Mill, verdict
from tests.security.test_malformed import ODD_KEYS, ODD_TOKENS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.unmeasured

MESSAGES = int(os.environ.get("HOLDFAST_HTTP_ATTACKS", "400"))
OWNERS: dict[str, dict[str, Any]] = {"trivia": {"plugin": "trivia"}, "quote-db": {"plugin": "quote-db"}}
OWNERS |= {"acme/web": {"tenant": "acme", "project": "web"}, "acme/api": {"tenant": "acme", "project": "api"}}


@pytest.fixture(scope="module")
def bus() -> Iterator[str]:
    """The address of a NATS server."""
    with lasting_nats_server() as url:
        yield url


PATIENT = HttpLimits(request_seconds=60.0, answer_seconds=300.0)
"""Client and service share a thread here, so that a busy machine makes clients slow."""


@pytest.fixture
async def here(bus: str, tmp_path: Path) -> AsyncIterator[Served]:
    """A service on whose machine everybody is let in."""
    async with served(tmp_path / "state.db", bus) as found:
        yield found


@pytest.fixture
async def patient(bus: str, tmp_path: Path) -> AsyncIterator[Served]:
    """The same, which also waits for slow clients."""
    async with served(tmp_path / "state.db", bus, limits=PATIENT) as found:
        yield found


def paths(owner: str) -> Iterator[tuple[str, str]]:
    """Every way to every verb of an owner: method and path."""
    families = ("semantic",) if "/" in owner else ("kv", "table", "blob")
    for family in families:
        for verb in FAMILIES[family]:
            yield "POST", f"/v1/{family}/{owner}:{verb}"
    for family in families:
        if family != "table":
            place = f"/v1/{family}/{owner}"
            yield from ((method, f"{place}/secret") for method in ("GET", "HEAD", "PUT", "DELETE"))
            yield from (("GET", place), ("GET", f"{place}?watch"))


async def test_no_token_reaches_another(bus: str, tmp_path: Path) -> None:
    """With the token of one owner every verb of every other is refused, and nothing is read or written."""
    async with served(tmp_path / "state.db", bus, open_mode=False) as here:
        tokens = {name: (await here.store.tokens().create(**who)).token for name, who in OWNERS.items()}
        spaces = [here.store.kv("trivia"), here.store.kv("quote-db")]
        spaces += [here.store.semantic("acme", project) for project in ("web", "api")]
        for kv in spaces:
            await kv.set("secret", "s3cret")
        for plugin in ("trivia", "quote-db"):
            await here.store.blobs(plugin).put("secret", b"s3cret")
        tried = 0
        for attacker, token in tokens.items():
            for victim in OWNERS:
                if victim == attacker:
                    continue
                for method, path in paths(victim):
                    body = {"key": "secret", "value": "forged", "keys": ["secret"], "prefix": ""}
                    response = await here.ask(method, path, body, Authorization=f"Bearer {token}")
                    assert (response.status_code, "s3cret" in response.text) == (403, False), (method, path)
                    tried += 1
            for verb in FAMILIES["admin"]:
                response = await here.ask("POST", f"/v1/admin:{verb}", {}, Authorization=f"Bearer {token}")
                assert response.status_code == 403
        found = [(await kv.get("secret"), (await kv.changes()).next) for kv in spaces]
        assert [entry is not None and entry.value == "s3cret" and last == 1 for entry, last in found] == [
            True
        ] * 4
        assert tried > 300


async def test_illegal_names_in_a_path_are_refused(here: Served) -> None:
    """A name in a path that is none is refused with a code, however it is encoded."""
    for token in ODD_TOKENS:
        for encoded in {quote(token, safe=""), quote(token, safe="/")}:
            for path in (f"/v1/kv/{encoded}/k", f"/v1/kv/{encoded}:get", f"/v1/{encoded}/trivia:get"):
                method = "POST" if ":" in path.rpartition("/")[2] else "GET"
                response = await here.ask(method, path, {"key": "k"})
                assert 400 <= response.status_code < 500, path
        assert await here.store.namespaces() == [], token


async def test_odd_keys_reach_no_other_key_namespace_or_file(here: Served) -> None:
    """A key is text: nothing in it leads to another key, namespace or file."""
    for number, key in enumerate(key for key in ODD_KEYS if not key.startswith("..")):
        path = f"/v1/kv/trivia{number}/{quote(key, safe='')}"
        assert (await here.ask("PUT", path, "mine")).status_code == 200, key
        assert (await here.ask("GET", path)).json() == "mine", key
        assert (await here.store.kv(f"trivia{number}").list()).keys == [key]
        assert len(await here.store.namespaces()) == number + 1, key


async def test_malformed_requests_are_answered(patient: Served) -> None:
    """Whatever is posted, the answer is 200 or a problem with a right code, and the service goes on."""
    mill, wrong, codes = Mill(20_311), [], Counter[str]()
    families = {"kv": "kv", "table": "table", "admin": "admin", "semantic": "semantic"}

    async def send() -> None:
        made = mill.next()
        tokens = made.subject.removeprefix("rosey.").removeprefix("db.").split(".")
        family, *owner, verb = tokens
        if family == "kv" and not owner:
            owner = ["fuzz1"]
        where = "/".join([families[family], *owner])
        verb = "set" if verb == "put" else verb
        response = await patient.ask("POST", f"/v1/{where}:{verb}", made.payload)
        code = "OK" if response.status_code == 200 else response.json()["code"]
        codes[code] += 1
        if code != "OK" and code not in verdict(made.payload) | LATE:
            wrong.append((made, code))

    for _ in range(MESSAGES // 50):
        await asyncio.gather(*(send() for _ in range(50)))
    assert wrong == []
    assert codes["OK"] > 0
    assert (await patient.ask("GET", "/readyz")).json()["store"] == "ok"


async def raw(here: Served, sent: bytes) -> bytes:
    """What the service answers to bytes, until it or the client ends the connection."""
    where = urlsplit(here.url)
    assert where.hostname is not None
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(sent)
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                return await reader.read()
        return b""
    finally:
        writer.transport.abort()


HEAD = b"Host: localhost\r\nConnection: close\r\n"


NOT_HTTP = (
    b"GET /v1/kv/trivia/a HTTP/1.1\r\n" + HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"PUT /v1/kv/trivia/a HTTP/1.1\r\n" + HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n12",
    b"PUT /v1/kv/trivia/a HTTP/1.1\r\n" + HEAD + b"Content-Length: -1\r\n\r\n1",
    b"PUT /v1/kv/trivia/a HTTP/1.1\r\n" + HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n1",
    b"PUT /v1/kv/trivia/a HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n1\r\n0\r\n\r\n",
    b"PUT /v1/kv/trivia/a\x00b HTTP/1.1\r\n" + HEAD + b"Content-Length: 1\r\n\r\n1",
    b"GET /v1/kv/trivia/\xff HTTP/1.1\r\n" + HEAD + b"\r\n",
    b"GET http://evil.example/v1/kv/trivia/a HTTP/1.1\r\n" + HEAD + b"If-Match: \x01\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\r\n" * 10_000,
)


async def test_malformed_http_is_refused_and_writes_nothing(here: Served) -> None:
    """Bytes that are no legal request, or two at once, are refused, and nothing is written."""

    async def is_refused(sent: bytes) -> None:
        sending = asyncio.create_task(raw(here, sent + b"\r\n\r\n"))
        done, _ = await asyncio.wait({sending}, timeout=7)
        assert done, f"the connection was left open: {sent[:80]!r}"
        assert b" 200 " not in sending.result()[:20], sent
        assert await here.store.kv("trivia").get("a") is None, sent
        assert (await here.ask("GET", "/livez")).status_code == 200, sent

    await asyncio.gather(*map(is_refused, NOT_HTTP))


async def status_of(here: Served, sent: bytes) -> int:
    """The status of the first answer to bytes."""
    return int((await raw(here, sent)).split(b" ", 2)[1])


def chunked(head: bytes, trailers: bytes) -> bytes:
    """A PUT of `2` in chunks, with headers before and after its body."""
    return (
        b"PUT /v1/kv/trivia/a HTTP/1.1\r\n"
        + HEAD
        + b"Transfer-Encoding: chunked\r\n"
        + head
        + b"\r\n1\r\n2\r\n0\r\n"
        + trailers
        + b"\r\n"
    )


async def test_trailers_are_ignored(here: Served) -> None:
    """What follows a body in chunks says nothing about the request: no condition, no host, no proxy."""
    await here.store.kv("trivia").set("a", 1)
    trailers = (
        *(b"Authorization: Bearer x", b'If-Match: "9"', b"If-None-Match: *", b"Host: evil.example"),
        *(b"X-Forwarded-For: 192.0.2.7", b"Origin: https://evil.example"),
        *(b"Holdfast-Writer: mallory", b"Holdfast-Ttl: 1", b"Holdfast-Request-Id: r1", b"Cookie: a=b"),
    )
    for number, trailer in enumerate(trailers):
        assert await status_of(here, chunked(b"", trailer + b"\r\n")) == 200, trailer
        entry = await here.store.kv("trivia").get("a")
        assert entry is not None
        assert (entry.version, entry.last_writer, entry.expires_at) == (number + 2, "trivia", None), trailer


async def test_a_token_in_a_trailer_lets_nobody_in(bus: str, tmp_path: Path) -> None:
    """A token counts only before the body, and a second one after it changes nothing."""
    async with served(tmp_path / "state.db", bus, open_mode=False) as here:
        token = (await here.store.tokens().create(plugin="trivia")).token.encode()
        valid, wrong = (b"Authorization: Bearer " + one + b"\r\n" for one in (token, b"wrong"))
        assert await status_of(here, chunked(b"", valid)) == 401
        assert await status_of(here, chunked(wrong, valid)) == 401
        assert await here.store.kv("trivia").get("a") is None
        assert await status_of(here, chunked(valid, wrong)) == 200


GET = b"GET /v1/kv/trivia/a HTTP/1.1\r\n"
PUT = b"PUT /v1/kv/trivia/a HTTP/1.1\r\n"
HEADS = {
    "no host": (GET + b"Connection: close\r\n\r\n", 400),
    "no host at a probe": (b"GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
    "no host, and one in a trailer": (
        PUT
        + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n2\r\n0\r\nHost: localhost\r\n\r\n",
        400,
    ),
    "two hosts": (GET + HEAD + b"Host: localhost\r\n\r\n", 400),
    "two hosts that differ": (GET + HEAD + b"Host: evil.example\r\n\r\n", 400),
    "an empty host": (GET + b"Host:\r\nConnection: close\r\n\r\n", 421),
    "two tokens": (GET + HEAD + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400),
    "a target elsewhere": (b"GET http://evil.example/v1/kv/trivia/a HTTP/1.1\r\n" + HEAD + b"\r\n", 421),
    "a target here": (
        b"GET http://localhost/v1/kv/trivia/a HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        200,
    ),
    "a target with a login": (b"GET http://a@localhost/v1/kv/trivia/a HTTP/1.1\r\n" + HEAD + b"\r\n", 421),
    "a target of another scheme": (b"GET ftp://localhost/v1/kv/trivia/a HTTP/1.1\r\n" + HEAD + b"\r\n", 421),
    "a target and no host": (
        b"GET http://localhost/v1/kv/trivia/a HTTP/1.1\r\nConnection: close\r\n\r\n",
        400,
    ),
    "a folded host": (GET + b"Host: local\r\n host\r\nConnection: close\r\n\r\n", 400),
    "a folded header": (GET + HEAD + b"Holdfast-Writer: a\r\n\tb\r\n\r\n", 400),
    "two lengths": (PUT + HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n2", 400),
    "two equal lengths": (PUT + HEAD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n2", 400),
    "another coding": (PUT + HEAD + b"Transfer-Encoding: gzip\r\n\r\n2", 400),
    "two codings": (PUT + HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n1\r\n2\r\n0\r\n\r\n", 400),
    "chunks in an old version": (
        PUT.replace(b"1.1", b"1.0") + HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n2\r\n0\r\n\r\n",
        400,
    ),
    "a version without headers": (b"GET /v1/kv/trivia/a\r\n\r\n", 400),
    "a space before a colon": (GET + b"Host : localhost\r\nConnection: close\r\n\r\n", 400),
    "lines without a return": (GET.replace(b"\r", b"") + HEAD.replace(b"\r", b"") + b"\n", 400),
}


@pytest.mark.parametrize("name", HEADS)
async def test_ambiguous_heads_are_refused(here: Served, name: str) -> None:
    """A head of which two programs may think differently is refused, and nothing is written."""
    await here.store.kv("trivia").set("a", 1)
    sent, status = HEADS[name]
    assert await status_of(here, sent) == status
    entry = await here.store.kv("trivia").get("a")
    assert entry is not None
    assert entry.version == 1
    assert (await here.ask("GET", "/v1/kv/trivia/a")).status_code == 200


async def test_a_request_without_a_host_is_refused_in_its_turn(here: Served) -> None:
    """It is answered behind earlier requests of its connection, which may take a shorter way."""
    whole = b"PUT /v1/kv/trivia/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n"
    sent = (
        whole + b"1" + whole.replace(b"Host: localhost\r\n", b"") + b"2" + whole + b"3" + GET + HEAD + b"\r\n"
    )
    answers = (await raw(here, sent)).split(b"HTTP/1.1 ")[1:]
    assert [int(one[:3]) for one in answers] == [200, 400, 200, 200]
    assert answers[-1].endswith(b"3")


async def test_header_values_can_not_inject_headers_or_log_lines(here: Served) -> None:
    """A request id or a writer can't add a header or a line to an answer or to the log."""
    for value in ("a\x7fb", "x" * 201, "é" * 300):
        sent = b"PUT /v1/kv/trivia/a HTTP/1.1\r\n" + HEAD + b"Holdfast-Writer: " + value.encode()
        answer = await raw(here, sent + b"\r\nContent-Length: 1\r\n\r\n1")
        assert answer.startswith(b"HTTP/1.1 400 ")
    assert await here.store.kv("trivia").get("a") is None


async def test_requests_sent_together_keep_their_order(here: Served) -> None:
    """Requests that a connection sends without waiting take effect and are answered in their order."""
    sent = b""
    for number in range(100):
        body = str(number).encode()
        sent += (
            b"PUT /v1/kv/trivia/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        sent += b"GET /v1/kv/trivia/a HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answers = await raw(here, sent + b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    bodies = [part.partition(b"\r\n\r\n")[2] for part in answers.split(b"HTTP/1.1 ")[1:]]
    assert len(bodies) == 201
    assert [int(body) for body in bodies[1:200:2]] == list(range(100))
    assert [json.loads(body)["version"] for body in bodies[0:200:2]] == list(range(1, 101))


async def test_a_client_that_disconnects_costs_nothing_afterwards(here: Served) -> None:
    """A client that sends requests and goes at once costs nothing afterwards, and its writes are whole."""
    where = urlsplit(here.url)
    assert where.hostname is not None
    chance = random.Random(5)
    for _ in range(30):
        _, writer = await asyncio.open_connection(where.hostname, where.port)
        put = b"PUT /v1/kv/trivia/%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n[1,2,3]"
        writer.write(b"".join(put % number for number in range(20))[: chance.randint(1, 1_900)])
        await writer.drain()
        writer.transport.abort()
    service: Any = here.api.service
    await until(lambda: service.under_way == 0 and service.waiting == 0)
    page = await here.store.kv("trivia").list(values=True)
    assert all(entry.value == [1, 2, 3] for entry in page.entries or ())
    assert (await here.ask("GET", "/livez")).status_code == 200


async def test_expensive_requests_and_quotas_are_refused_over_http(here: Served) -> None:
    """A request that would cost too much is refused over HTTP as everywhere, and a quota holds."""
    await here.store.set_policy("kv/trivia", holdfast.Policy(quota_keys=3))
    statuses = [(await here.ask("PUT", f"/v1/kv/trivia/{number}", 1)).status_code for number in range(5)]
    assert statuses == [200, 200, 200, 422, 422]
    keys = [f"k{number}" for number in range(1_001)]
    assert (await here.call("/v1/kv/trivia:get_many", keys=keys)).status_code == 400
    await here.call(
        "/v1/table/trivia:create_table", table="t", partition_key={"name": "id", "type": "string"}
    )
    deep: dict[str, Any] = {"id": {"eq": "a"}}
    for _ in range(60):
        deep = {"and": [deep, deep]} if len(json.dumps(deep)) < 200_000 else {"not": deep}
    refused = await here.call("/v1/table/trivia:scan", table="t", filter=deep)
    assert (refused.status_code, refused.json()["code"]) == (413, "VALUE_TOO_LARGE")
