"""Blobs over HTTP: a blob is a resource whose body is its bytes, of any size."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sqlite3
import tracemalloc
from typing import TYPE_CHECKING

import httpx
import pytest

from holdfast.blobs.manifest import GRACE, PART_BYTES, UPLOAD_IDLE
from holdfast.clock import ManualClock
from holdfast.edges.http import blobs as transfers
from holdfast.edges.http import guard
from holdfast.edges.http.connections import BoundedConnection, HttpLimits
from holdfast.edges.nats.service import Settings
from holdfast.testing.conformance.blobs import content, kept
from tests.edges.http.ground import Served, served
from tests.edges.http.test_keys import problem
from tests.edges.nats.ground import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PLUGIN = "/v1/blob/trivia"
BLOB = f"{PLUGIN}/logo.png"
LARGE = content(3 * PART_BYTES + 5)


async def test_a_blob_comes_back_as_it_was_put(here: Served) -> None:
    """PUT takes bytes, and headers about them; GET and HEAD return the same; DELETE removes the blob."""
    for number, data in enumerate((b"", b"small", LARGE)):
        put = await here.ask(
            "PUT",
            BLOB,
            data,
            content_type="image/png",
            holdfast_ttl="60",
            holdfast_metadata='{"author":"Zo\\u00eb"}',
        )
        assert put.status_code == 200, put.text
        assert set(put.json()) == {"version", "expires_at"}
        got = await here.ask("GET", BLOB)
        assert (got.status_code, got.content, got.headers["etag"]) == (200, data, put.headers["etag"])
        assert (got.headers["content-type"], got.headers["accept-ranges"]) == ("image/png", "bytes")
        assert json.loads(got.headers["holdfast-metadata"]) == {"author": "Zoë"}
        assert "holdfast-expires-at" in got.headers
        head = await here.ask("HEAD", BLOB)
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(data)))
        for name in ("etag", "content-type", "last-modified", "holdfast-checksum", "holdfast-metadata"):
            assert head.headers[name] == got.headers[name]
        blob = await here.store.blobs("trivia").head("logo.png")
        assert blob is not None
        assert (blob.size, blob.checksum) == (len(data), got.headers["holdfast-checksum"])
        assert (blob.content_type, blob.last_writer) == ("image/png", "trivia")
        assert blob.metadata == {"author": "Zoë"}
        assert number or (await here.ask("DELETE", BLOB)).json()["deleted"] is True
    assert (await here.ask("DELETE", BLOB, if_match='"1"')).status_code == 412
    assert (await here.ask("DELETE", BLOB)).json()["deleted"] is True
    missing = problem(await here.ask("GET", BLOB))
    assert (missing["status"], missing["code"]) == (404, "KEY_NOT_FOUND")
    assert (await here.ask("HEAD", BLOB)).status_code == 404


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=5-", (5, len(LARGE))),
        ("bytes=-7", (len(LARGE) - 7, len(LARGE))),
        (f"bytes={PART_BYTES - 1}-{PART_BYTES}", (PART_BYTES - 1, PART_BYTES + 1)),
        (f"bytes=10-{10**17}", (10, len(LARGE))),
        (f"bytes=-{10**17}", (0, len(LARGE))),
    ],
)
async def test_ranges_over_http(here: Served, asked: str, found: tuple[int, int]) -> None:
    """A range of bytes is 206 with just these bytes, and says where they are."""
    await here.ask("PUT", BLOB, LARGE)
    start, end = found
    got = await here.ask("GET", BLOB, range=asked)
    assert (got.status_code, got.content) == (206, LARGE[start:end])
    assert got.headers["content-range"] == f"bytes {start}-{end - 1}/{len(LARGE)}"


async def test_ranges_that_are_none(here: Served) -> None:
    """A range beyond the blob is 416; what is not one range of bytes, or of another version, is the whole."""
    tag = (await here.ask("PUT", BLOB, b"0123456789")).headers["etag"]
    for asked in ("bytes=10-", "bytes=10-20", "bytes=-0"):
        got = await here.ask("GET", BLOB, range=asked)
        assert (problem(got)["status"], got.headers["content-range"]) == (416, "bytes */10")
    for asked in ("bytes=-", "bytes=5-4", "bytes=0-1,3-4", "lines=0-1", "bytes=a-b"):
        assert (await here.ask("GET", BLOB, range=asked)).content == b"0123456789"
    assert (await here.ask("GET", BLOB, range="bytes=1-2", if_range=tag)).content == b"12"
    assert (await here.ask("GET", BLOB, range="bytes=1-2", if_range='"99"')).status_code == 200


async def test_preconditions_on_blobs(here: Served) -> None:
    """The entity tag is the version: it guards writes and saves reads, and a lost race is 412."""
    first = (await here.ask("PUT", BLOB, LARGE, if_none_match="*")).headers["etag"]
    again = await here.ask("PUT", BLOB, b"other", if_none_match="*")
    assert (problem(again)["status"], again.headers["etag"]) == (412, first)
    second = (await here.ask("PUT", BLOB, LARGE[:-1], if_match=first)).headers["etag"]
    assert problem(await here.ask("PUT", BLOB, LARGE, if_match=first))["status"] == 412
    assert (await here.ask("GET", BLOB)).content == LARGE[:-1]
    unchanged = await here.ask("GET", BLOB, if_none_match=second)
    assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", second)
    assert (await here.ask("GET", BLOB, if_match=first)).status_code == 412
    for match in (second, "*"):
        assert (await here.ask("GET", BLOB, if_match=match)).status_code == 200


async def test_a_put_over_http_that_is_sent_again(here: Served) -> None:
    """A PUT with a request id has one effect however often it is sent."""
    for data in (b"small", LARGE):
        name = f"put {len(data)}"
        first = await here.ask("PUT", BLOB, data, holdfast_request_id=name)
        await here.ask("PUT", BLOB, b"newer")
        assert (await here.ask("PUT", BLOB, data, holdfast_request_id=name)).json() == first.json()
        assert (await here.ask("GET", BLOB)).content == b"newer"


async def test_an_upload_that_is_begun_again_is_the_same(bus: str, tmp_path: Path, pg_url: str) -> None:
    """A `begin` that is sent again with its id gets the same upload, and any other request is refused."""
    for db in (tmp_path / "state.db", pg_url):
        async with served(db, bus) as here:
            begun = [await here.call(f"{PLUGIN}:begin", request_id="upload-1") for _ in range(3)]
            assert [(one.status_code, one.json()) for one in begun] == [(200, begun[0].json())] * 3
            upload = begun[0].json()["upload"]
            assert (await here.call(f"{PLUGIN}:begin", request_id="upload-2")).json()["upload"] != upload
            assert (await here.call(f"{PLUGIN}:begin")).json()["upload"] != upload
            for verb, fields in (("abort", {"upload": upload}), ("delete", {"key": "logo.png"})):
                other = await here.call(f"{PLUGIN}:{verb}", request_id="upload-1", **fields)
                assert (other.status_code, problem(other)["reason"]) == (409, "request_id_reused"), verb


async def test_bytes_that_are_not_those_sent_are_refused(here: Served) -> None:
    """A checksum that a caller gives is verified before anything can be seen."""
    wrong = hashlib.sha256(b"other").hexdigest()
    for data in (b"small", LARGE):
        refused = problem(await here.ask("PUT", BLOB, data, holdfast_checksum=wrong))
        assert (refused["status"], refused["field"]) == (400, "checksum")
    assert (await here.ask("GET", BLOB)).status_code == 404
    right = hashlib.sha256(b"small").hexdigest()
    assert (await here.ask("PUT", BLOB, b"small", holdfast_checksum=right)).status_code == 200


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"holdfast_metadata": "{"}, "metadata"),
        ({"holdfast_metadata": '{"a": 1}'}, "metadata"),
        ({"holdfast_metadata": json.dumps({"a": "x" * 9_000})}, "metadata"),
        ({"holdfast_ttl": "0"}, "ttl"),
        ({"if_match": "7"}, "if_match"),
        ({"content_type": "é"}, "content_type"),
    ],
)
async def test_illegal_headers_of_blobs(here: Served, headers: dict[str, str], field: str) -> None:
    """A header that breaks a rule is refused in the words of the rule, and nothing is stored."""
    named = {name.replace("_", "-").encode(): said.encode() for name, said in headers.items()}
    refused = problem(await here.client.put(BLOB, content=b"x", headers=named))
    assert refused["field"] == field
    assert (await here.store.blobs("trivia").list()).blobs == []


async def test_blobs_are_listed_over_http(here: Served) -> None:
    """The path of a plugin lists its blobs in pages, with what is known of each."""
    for name in ("a", "b/c", "d"):
        await here.ask("PUT", f"/v1/blob/trivia/{name}", name.encode())
    first = await here.ask("GET", "/v1/blob/trivia?limit=2&values=true")
    assert first.json()["keys"] == ["a", "b/c"]
    following = first.headers["link"].split(";")[0].strip("<>")
    assert (await here.ask("GET", following)).json()["keys"] == ["d"]
    wrong = await here.ask("POST", BLOB, b"")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD, PUT, DELETE")


async def test_stored_bytes_are_never_a_page(here: Served) -> None:
    """A blob that calls itself a web page does not become one of this service's origin."""
    await here.ask("PUT", BLOB, b"<script>1</script>", content_type="text/html")
    headers = (await here.ask("GET", BLOB)).headers
    assert headers["content-security-policy"].startswith("sandbox")
    assert headers["x-content-type-options"] == "nosniff"


async def test_a_client_that_goes_leaves_nothing(bus: str, tmp_path: Path) -> None:
    """An upload that its client breaks off is not seen, and its bytes are swept."""
    clock = ManualClock()
    async with served(tmp_path / "state.db", bus, clock=clock) as here:
        await here.ask("PUT", BLOB, b"before")

        async def broken() -> AsyncIterator[bytes]:
            yield LARGE
            raise ConnectionAbortedError

        with pytest.raises(ConnectionAbortedError):
            await here.client.put(BLOB, content=broken())
        await until(lambda: not here.api._transfers._of)
        assert (await here.ask("GET", BLOB)).content == b"before"
        clock.advance(max(GRACE, UPLOAD_IDLE))
        await here.store.upkeep()
        assert await kept(here.store) < 1000


async def test_a_transfer_ends_with_its_token(
    bus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that is revoked during an upload stores nothing: each part asks anew who is sending it."""
    monkeypatch.setattr(guard, "FRESH", 0.0)
    async with served(tmp_path / "state.db", bus, open_mode=False) as here:
        tokens = here.store.tokens()
        made = await tokens.create(plugin="trivia")

        async def revoked_half_way() -> AsyncIterator[bytes]:
            yield LARGE
            await until(lambda: here.api._transfers._of.total() == 1)
            await tokens.revoke(made.about.id)
            yield LARGE

        headers = {"Authorization": f"Bearer {made.token}"}
        refused = await here.client.put(BLOB, content=revoked_half_way(), headers=headers)
        assert (refused.status_code, problem(refused)["code"]) == (401, "PERMISSION_DENIED")
        assert await here.store.blobs("trivia").head("logo.png") is None


async def test_a_body_that_cannot_be_sent_is_cut_off(here: Served, tmp_path: Path) -> None:
    """If bytes turn out to be damaged half way, the client sees a broken response, never a short blob."""
    await here.ask("PUT", BLOB, LARGE)
    with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as file, file:
        file.execute("UPDATE holdfast_parts SET data = zeroblob(262144) WHERE key = x'00000002'")
    with pytest.raises(httpx.RemoteProtocolError):
        await here.ask("GET", BLOB)


async def test_a_plugin_has_a_bounded_number_of_large_transfers(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit a large transfer is told to come again; small ones are not held up."""
    await here.ask("PUT", BLOB, LARGE)
    monkeypatch.setattr(transfers, "MOST_OF_ONE", 0)
    for method, body in (("GET", None), ("PUT", LARGE)):
        refused = await here.ask(method, BLOB, body)
        assert (problem(refused)["code"], refused.headers["retry-after"]) == ("BUSY", "1")
    assert (await here.ask("PUT", BLOB, b"small")).status_code == 200
    assert (await here.ask("GET", BLOB)).content == b"small"


async def test_parts_wait_for_their_turn_under_a_rate(bus: str, tmp_path: Path) -> None:
    """A plugin that may ask only so often gets its blob all the same, later."""
    async with served(tmp_path / "state.db", bus, settings=Settings(rate=5)) as here:
        assert (await here.ask("PUT", BLOB, LARGE)).status_code == 200
        answers = await asyncio.gather(*(here.ask("GET", f"{BLOB}-2") for _ in range(30)))
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert (problem(refused)["code"], "retry-after" in refused.headers) == ("RATE_LIMITED", True)
        async with asyncio.timeout(60):
            while (answer := await here.ask("GET", BLOB)).status_code == 429:  # noqa: ASYNC110 - as told
                await asyncio.sleep(answer.json()["retry_after"])
        assert answer.content == LARGE


async def test_memory_does_not_grow_with_the_blob(here: Served) -> None:
    """A transfer holds a few parts, whatever the size of the blob."""
    size = 48

    async def body() -> AsyncIterator[bytes]:
        for number in range(size):
            yield content(PART_BYTES, number)

    tracemalloc.start()
    try:
        assert (await here.client.put(BLOB, content=body())).status_code == 200
        summed, pieces = 0, hashlib.sha256()
        async with here.client.stream("GET", BLOB) as response:
            async for piece in response.aiter_bytes():
                summed += len(piece)
                pieces.update(piece)
        assert summed == size * PART_BYTES
        assert tracemalloc.get_traced_memory()[1] < 9 * 1024 * 1024
    finally:
        tracemalloc.stop()


async def test_verbs_with_bytes_by_post(here: Served) -> None:
    """A POST has bytes as its body and fields in a header, or all as JSON; bytes come back as the body."""
    fields = {"key": "é", "content_type": "text/plain"}
    posted = await here.ask("POST", f"{PLUGIN}:put", b"\x00\xff", holdfast_fields=json.dumps(fields))
    assert (posted.status_code, posted.json()["version"]) == (200, 2), posted.text
    in_json = await here.call(f"{PLUGIN}:put", key="b", data="AP8=")
    assert in_json.status_code == 200
    for key in ("é", "b"):
        got = await here.call(f"{PLUGIN}:get", key=key)
        told = json.loads(got.headers["holdfast-fields"])
        assert (got.content, told["value"]["size"], told["start"], told["end"]) == (b"\x00\xff", 2, 0, 2)
    assert (await here.call(f"{PLUGIN}:get", key="none")).json() == {"exists": False}


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ([("Holdfast-Fields", "{")], None),
        ([("Holdfast-Fields", "[]")], None),
        ([("Holdfast-Fields", '{"key":"a"}'), ("Holdfast-Fields", '{"key":"b"}')], "headers"),
        ([("Holdfast-Fields", "{}")], "key"),
        ([("Holdfast-Fields", '{"key":"a"}'), ("Holdfast-TTL", "never")], "ttl"),
    ],
)
async def test_malformed_fields_of_bytes(
    here: Served, headers: list[tuple[str, str]], field: str | None
) -> None:
    """Fields in a header that are none, or twice there, are refused, and nothing is stored."""
    refused = problem(await here.client.post(f"{PLUGIN}:put", content=b"x", headers=headers))
    assert (refused["status"], refused.get("field")) == (400, field)
    assert (await here.store.blobs("trivia").list()).blobs == []


async def test_whole_parts_gain_a_client_time(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client has a new limit of time after each part that it sends or receives."""
    moved: list[str] = []
    monkeypatch.setattr(BoundedConnection, "moved", lambda self: moved.append(self.scope["method"]))
    await here.ask("PUT", BLOB, LARGE)
    await here.ask("GET", BLOB)
    assert (moved.count("PUT"), moved.count("GET")) == (4, 4)


async def test_trickling_gains_a_client_no_time(bus: str, tmp_path: Path) -> None:
    """A client that sends a byte now and then has the time of one answer for all of it."""

    async def trickle() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.05)

    async with served(tmp_path / "state.db", bus, limits=HttpLimits(answer_seconds=0.5)) as here:
        with pytest.raises((httpx.RemoteProtocolError, httpx.WriteError, httpx.ReadError)):
            await here.client.put(BLOB, content=trickle())
