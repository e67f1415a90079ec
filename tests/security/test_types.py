"""Wrong types: whatever JSON stands in a field of a verb, no door blames the service for it.

Every wrong value is sent in every field over NATS to a service on SQLite. At each other place, where the same
code decides, one of seven such requests is sent. `./dev soak attacks` sends all of them everywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from itertools import islice, product
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import pytest

from holdfast.edges.calls import FAMILIES
from holdfast.edges.http.requests import HEADERS
from tests.edges.calls.script import SCRIPT
from tests.edges.calls.test_catalogue import filled
from tests.edges.http.ground import Served, served
from tests.edges.mcp.http_agents import agent, token_for
from tests.edges.nats.ground import calling
from tests.nats import lasting_nats_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.unmeasured

T = TypeVar("T")

WRONG: tuple[Any, ...] = (
    *(None, True, -1, 1.5, 2**70, "", "x", "\x00", "9" * 400),
    *([], [[]], [{}], ["x", 1], {}, {"a": 1}, {"": {"b": [{}]}}),
)
"""What stands in the place of a field."""
_BLOB: dict[str, dict[str, Any]] = {
    "get": {"key": "b", "start": 0, "end": 1},
    "get_part": {"upload": 1, "number": 0},
    "put": {"key": "b", "data": "x", "checksum": "x", "content_type": "text/plain", "metadata": {"a": "b"}},
    "begin": {"request_id": "r"},
    "put_part": {"upload": 1, "number": 0, "data": "x", "checksum": "x"},
    "commit": {"key": "b", "upload": 1, "size": 1, "checksum": "x", "metadata": {"a": "b"}},
    "abort": {"upload": 1},
    "copy": {"key": "b", "source": "a"},
}
STEP = 1 if os.environ.get("HOLDFAST_EVERY_ATTEMPT") == "1" else 7
"""One request of so many is sent where not all are. Every verb and every wrong value is among them."""
FAULTS = {"INTERNAL_ERROR", "DATABASE_ERROR", "OUTCOME_UNKNOWN", "UNAVAILABLE"}
"""Codes that blame the service."""


def requests() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A right request for every verb of every family."""
    yield from ((family, name, filled(fields, path="copy", letter=1)) for family, name, fields in SCRIPT)
    keys = {name: filled(fields) for family, name, fields in SCRIPT if family == "kv"}
    for family in ("semantic", "blob"):
        for name in FAMILIES[family]:
            yield (
                family,
                name,
                _BLOB[name] if family == "blob" and name in _BLOB else keys.get(name, {"key": "a"}),
            )


def altered(right: Any, wrong: Any) -> Iterator[Any]:
    """A request with a wrong value in the place of each of its parts, one at a time."""
    if isinstance(right, dict):
        for name, part in right.items():
            yield {**right, name: wrong}
            yield from ({**right, name: one} for one in altered(part, wrong))
    elif isinstance(right, list):
        for position, part in enumerate(right):
            yield [*right[:position], wrong, *right[position + 1 :]]
            yield from ([*right[:position], one, *right[position + 1 :]] for one in altered(part, wrong))


def attacks() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every wrong value in every part of every request, and in every field that a verb has besides."""
    for family, name, right in requests():
        more = dict.fromkeys(FAMILIES[family][name].shape.names - right.keys())
        for wrong in WRONG:
            for request in altered(right, wrong):
                yield family, name, request
            for field in more:
                yield family, name, {**right, field: wrong}


def path(family: str, verb: str) -> str:
    """Where a verb is called over HTTP."""
    owner = {"admin": "admin", "semantic": "semantic/acme/web"}.get(family, f"{family}/trivia")
    return f"/v1/{owner}:{verb}"


def subject(family: str, verb: str) -> str:
    """Where a verb is called over NATS."""
    owner = {"admin": "admin", "semantic": "semantic.acme.web"}.get(family, f"{family}.trivia")
    return f"db.{owner}.{verb}"


@pytest.fixture(scope="module")
def bus() -> Iterator[str]:
    """The address of a NATS server."""
    with lasting_nats_server() as url:
        yield url


@contextlib.asynccontextmanager
async def filled_store(db: Path | str, bus: str) -> AsyncIterator[Served]:
    """A service on a store that holds something."""
    async with served(db, bus) as found:
        for family, name, fields in SCRIPT[:20]:
            await found.call(path(family, name), **filled(fields, path="copy", letter=1))
        yield found


@pytest.fixture
async def here(bus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """A service on a file, in a folder where relative paths lead."""
    monkeypatch.chdir(tmp_path)
    async with filled_store(tmp_path / "state.db", bus) as found:
        yield found


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_wrong_types_over_nats_are_client_errors(
    bus: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Over NATS a wrong type is a mistake of the caller, whatever the verb, the field and the engine."""
    monkeypatch.chdir(tmp_path)
    db = tmp_path / "state.db" if engine == "sqlite" else request.getfixturevalue("pg_url")
    async with filled_store(db, bus) as here:
        assert await faults_over_nats(here, 1 if engine == "sqlite" else STEP) == {}


async def faults_over_nats(here: Served, step: int) -> dict[tuple[str, str], Any]:
    """The first request of each verb that the service is blamed for."""
    faults: dict[tuple[str, str], Any] = {}
    async with calling(here.bus) as caller:
        for some in batched(islice(attacks(), 0, None, step), 200):
            sent = [(subject(family, name), request) for family, name, request in some]
            for (family, name, request), answer in zip(some, await caller.ask_all(sent), strict=True):
                if answer.fields.get("error_code") in FAULTS:
                    faults.setdefault((family, name), (request, answer.fields))
    return faults


async def test_wrong_types_over_http_are_never_500(here: Served) -> None:
    """Over HTTP a wrong type is never answered with 500, whatever the verb and the field."""
    faults: dict[tuple[str, str], Any] = {}
    where = urlsplit(here.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    for some in batched(islice(attacks(), 0, None, STEP), 30):
        writer.write(b"".join(posted(path(family, name), request) for family, name, request in some))
        for family, name, request in some:
            head = await reader.readuntil(b"\r\n\r\n")
            [length] = re.findall(rb"content-length: (\d+)", head)
            body = await reader.readexactly(int(length))
            code = "" if head.split(b" ", 2)[1] == b"200" else json.loads(body)["code"]
            if code in FAULTS:
                faults.setdefault((family, name), (request, body))
    writer.close()
    await writer.wait_closed()
    assert faults == {}


def posted(path: str, request: dict[str, Any]) -> bytes:
    """A request as it is sent over HTTP."""
    body = json.dumps(request).encode()
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (
        path.encode(),
        len(body),
        body,
    )


@pytest.mark.parametrize("name", ["limit", "since", "prefix", "cursor", "values", "entry", "watch"])
async def test_wrong_query_parameters_are_client_errors(here: Served, name: str) -> None:
    """A wrong parameter in a query is a mistake of the caller too."""
    for said in ("", "x", "-1", "1.5", "9" * 400, "null", "[]", "{}", "true", "%00", "%ff"):
        for place in ("/v1/kv/trivia", "/v1/kv/trivia/a", "/v1/blob/trivia", "/v1/semantic/acme/web"):
            if name == "watch" and said in ("", "true"):
                continue  # a stream without an end
            response = await here.ask("GET", f"{place}?{name}={said}")
            assert response.status_code < 500, (place, name, said, response.text)


@pytest.mark.parametrize(
    "name", [*(name.decode() for name in HEADERS), "holdfast-fields", "last-event-id", "range"]
)
async def test_wrong_headers_are_client_errors(here: Served, name: str) -> None:
    """A wrong header is a mistake of the caller too."""
    for said in ("", "x", "-1", "1.5", "9" * 400, "null", "[]", "{}", "[[]]", '"', "\xff", '{"key": []}'):
        for method, place in (
            ("PUT", "/v1/kv/trivia/a"),
            ("GET", "/v1/blob/trivia/a"),
            ("PUT", "/v1/blob/trivia/a"),
        ):
            response = await here.client.request(
                method,
                place,
                content=b"1" if method == "PUT" else None,
                headers={name.encode(): said.encode("latin-1")},
            )
            assert response.status_code < 500, (method, place, name, said, response.text)


async def test_wrong_types_over_mcp_are_client_errors(here: Served) -> None:
    """Over MCP a wrong argument is a mistake of the caller, whatever the tool."""
    faults: dict[str, Any] = {}
    async with agent(here, await token_for(here)) as one:
        tools = (await one.client.list_tools()).tools
        for tool in tools:
            known = tool.input_schema["properties"]
            right = {
                name: _RIGHT.get(known[name].get("type"), "a")
                for name in tool.input_schema.get("required", ())
            }
            for name, wrong in islice(product(known, WRONG), 0, None, STEP):
                result = await one.result(tool.name, **{**right, name: wrong})
                told = str(result.structured_content) + str(result.content)
                if any(code in told for code in FAULTS):
                    faults.setdefault(tool.name, (name, wrong, told))
    assert len(tools) > 10
    assert faults == {}


_RIGHT: dict[Any, Any] = {
    "string": "a",
    "integer": 1,
    "number": 1,
    "boolean": True,
    "array": [],
    "object": {},
}
"""A value of each type."""


def batched(some: Iterator[T], size: int) -> Iterator[list[T]]:
    """So many at a time, until there are no more."""
    while part := list(islice(some, size)):
        yield part
