"""Keys over HTTP: a key is a resource, its version is the entity tag, and preconditions compare and set."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.wire.errors import NUMBERS

if TYPE_CHECKING:
    import httpx

    from tests.edges.http.ground import Served

KEY = "/v1/kv/trivia/game%3A42"


def problem(response: httpx.Response) -> dict[str, Any]:
    """The problem document of a refusal."""
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    assert found["status"] == response.status_code
    return found


async def test_a_value_comes_back_as_it_was_put(here: Served) -> None:
    """PUT takes the value itself, GET returns it, and DELETE removes it; the version is the entity tag."""
    put = await here.ask("PUT", KEY, {"turn": "alice"})
    assert (put.status_code, put.headers["etag"]) == (200, '"1"')
    assert put.json() == {"version": 1, "expires_at": None}
    got = await here.ask("GET", KEY)
    assert (got.status_code, got.headers["etag"], got.content) == (200, '"1"', b'{"turn":"alice"}')
    assert got.headers["last-modified"].endswith(" GMT")
    entry = (await here.ask("GET", f"{KEY}?entry=true")).json()
    assert (entry["value"], entry["version"], entry["last_writer"]) == ({"turn": "alice"}, 1, "trivia")
    head = await here.ask("HEAD", KEY)
    assert (head.status_code, head.headers["etag"], head.content) == (200, '"1"', b"")
    gone = await here.ask("DELETE", KEY)
    assert (gone.status_code, gone.json()) == (200, {"deleted": True, "version": 2})
    missing = problem(await here.ask("GET", KEY))
    assert (missing["status"], missing["code"], missing["field"]) == (404, "KEY_NOT_FOUND", "key")
    assert (await here.ask("DELETE", KEY)).json() == {"deleted": False}


@pytest.mark.parametrize("value", ["null", "false", "0", '""', "[]", '"a b"', str(10**400)])
async def test_any_json_is_a_value(here: Served, value: str) -> None:
    """Every JSON value comes back exactly, null and integers beyond any machine's included."""
    await here.ask("PUT", KEY, value.encode())
    assert (await here.ask("GET", KEY)).text == value


@pytest.mark.parametrize("key", ["a/b", "/", "a%2Fb", "é😀", "a b", "%", "?x=1", "a:b", "..x", "a+b", "#"])
async def test_any_key_has_a_path(here: Served, key: str) -> None:
    """A key is percent-encoded in the path, whatever it is made of."""
    from urllib.parse import quote

    await here.ask("PUT", f"/v1/kv/trivia/{quote(key, safe='')}", 1)
    assert (await here.store.kv("trivia").list()).keys == [key]


async def test_preconditions_compare_and_set(here: Served) -> None:
    """If-None-Match: * creates, If-Match replaces; 412 carries the current entry and its tag."""
    created = await here.ask("PUT", KEY, 1, If_None_Match="*")
    assert created.status_code == 200
    again = await here.ask("PUT", KEY, 2, If_None_Match="*")
    assert (again.status_code, again.headers["etag"]) == (412, created.headers["etag"])
    told = problem(again)
    assert (told["code"], told["current"]["value"], told["current"]["version"]) == ("VERSION_CONFLICT", 1, 1)
    replaced = await here.ask("PUT", KEY, 3, If_Match='"1"')
    assert (replaced.status_code, replaced.headers["etag"]) == (200, '"2"')
    assert (await here.ask("PUT", KEY, 4, If_Match='"1"')).status_code == 412
    assert (await here.ask("DELETE", KEY, If_Match='"1"')).status_code == 412
    assert (await here.ask("DELETE", KEY, If_Match='"2"')).json()["deleted"] is True
    absent = await here.ask("DELETE", KEY, If_Match='"2"')
    assert (absent.status_code, problem(absent)["current"]) == (412, None)


@pytest.mark.parametrize(
    "headers",
    [
        {"If_Match": "1"},
        {"If_Match": 'W/"1"'},
        {"If_Match": '"1", "2"'},
        {"If_Match": "*"},
        {"If_None_Match": '"1"'},
        {"If_None_Match": "*", "If_Match": '"1"'},
    ],
)
async def test_a_precondition_that_is_not_understood_is_refused(
    here: Served, headers: dict[str, str]
) -> None:
    """A write never goes through because its precondition was overlooked."""
    refused = problem(await here.ask("PUT", KEY, 1, **headers))
    assert (refused["status"], refused["code"]) == (400, "VALIDATION_ERROR")
    assert await here.store.kv("trivia").get("game:42") is None


async def test_a_known_version_is_not_sent_again(here: Served) -> None:
    """A GET with the tag of the current version is answered 304, without a body."""
    tag = (await here.ask("PUT", KEY, "x" * 1000)).headers["etag"]
    known = await here.ask("GET", KEY, If_None_Match=tag)
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
    await here.ask("PUT", KEY, 2)
    assert (await here.ask("GET", KEY, If_None_Match=tag)).text == "2"


async def test_ttl_by_header_and_by_field(here: Served) -> None:
    """A deadline is set by a header of PUT or a field of set; a wrong one is refused as everywhere."""
    kv = here.store.kv("trivia")
    put = await here.ask("PUT", KEY, 1, Holdfast_TTL="60")
    assert (put.json()["expires_at"] is not None, await kv.get_ttl("game:42")) == (True, 60)
    assert "holdfast-expires-at" in (await here.ask("GET", KEY)).headers
    await here.ask("PUT", KEY, 2, Holdfast_TTL="keep")
    assert await kv.get_ttl("game:42") == 60
    await here.call("/v1/kv/trivia:set", key="game:42", value=3, ttl=90)
    assert await kv.get_ttl("game:42") == 90
    for wrong in ("0", "-1", "1.5", "soon", "9" * 30):
        refused = problem(await here.ask("PUT", KEY, 1, Holdfast_TTL=wrong))
        assert (refused["code"], refused["field"]) == ("VALIDATION_ERROR", "ttl")


async def test_a_request_id_makes_a_write_repeatable(here: Served) -> None:
    """A request sent again with its id is not done again; with other content it is refused with 409."""
    path = "/v1/kv/trivia:incr"
    first = await here.ask("POST", path, {"key": "n"}, Holdfast_Request_Id="once")
    again = await here.ask("POST", path, {"key": "n"}, Holdfast_Request_Id="once")
    assert (first.json(), again.json()) == (first.json(), first.json())
    other = await here.ask("PUT", "/v1/kv/trivia/n", 5, Holdfast_Request_Id="once", If_Match='"1"')
    assert (other.status_code, problem(other)["reason"]) == (409, "request_id_reused")
    differing = await here.ask("POST", path, {"key": "n", "request_id": "a"}, Holdfast_Request_Id="b")
    assert problem(differing)["field"] == "request_id"


async def test_once_and_fence_are_headers(here: Served) -> None:
    """The id of an intention and the fence of a write are headers, where the body is the value."""
    first = await here.ask("PUT", KEY, 1, Holdfast_Once="o")
    again = await here.ask("PUT", KEY, 2, Holdfast_Once="o", If_Match='"99"')
    assert (again.status_code, again.json()) == (200, first.json())
    batch = await here.ask("POST", "/v1/kv/trivia:batch", {"writes": [{"guard": "l"}]})
    fence = {"lock": "l", "token": batch.json()["versions"][0]}
    held, live = json.dumps(fence), json.dumps(fence | {"live": True})
    assert (await here.ask("PUT", KEY, 3, Holdfast_Fence=held)).status_code == 200
    for method, path in (("PUT", KEY), ("DELETE", KEY), ("PUT", "/v1/blob/trivia/b")):
        refused = problem(
            await here.ask(method, path, None if method == "DELETE" else 4, Holdfast_Fence=live)
        )
        assert (refused["status"], refused["code"]) == (409, "FENCED")
    wrong = problem(await here.ask("PUT", KEY, 5, Holdfast_Fence="l=7"))
    assert (wrong["code"], wrong["field"]) == ("VALIDATION_ERROR", "fence")


async def test_pages_are_linked(here: Served) -> None:
    """A page of keys links to the next one with all that was asked; the last one has no link."""
    kv = here.store.kv("trivia")
    await kv.set_many(
        [{"key": f"a&{number}", "value": number} for number in range(5)] + [{"key": "b", "value": 0}]
    )
    path, found, pages = "/v1/kv/trivia?prefix=a%26&limit=2&values=true", [], 0
    while path:
        response = await here.ask("GET", path)
        pages += 1
        found += [(entry["key"], entry["value"]) for entry in response.json()["entries"]]
        path = response.links["next"]["url"] if "next" in response.links else ""
    assert (found, pages) == ([(f"a&{number}", number) for number in range(5)], 3)


async def test_a_deadline_in_milliseconds(here: Served) -> None:
    """A request whose deadline has passed is refused and not done."""
    late = await here.ask("PUT", KEY, 1, Holdfast_Deadline="1")
    assert (late.status_code, problem(late)["code"]) == (408, "TIMEOUT")
    assert (await here.ask("PUT", KEY, 1, Holdfast_Deadline_Ms="5000")).status_code == 200
    wrong = problem(await here.ask("PUT", KEY, 1, Holdfast_Deadline_Ms="soon"))
    assert wrong["field"] == "deadline_ms"


async def test_unknown_fields_are_told(here: Served) -> None:
    """A misspelt field or parameter is named in a header, as over NATS."""
    told = await here.call("/v1/kv/trivia:set", key="a", value=1, ttl_second=5)
    assert (told.status_code, told.headers["holdfast-warning"]) == (200, "unknown field ttl_second")
    told = await here.ask("GET", "/v1/kv/trivia?prefx=a")
    assert told.headers["holdfast-warning"] == "unknown field prefx"


async def test_semantic_entries(here: Served) -> None:
    """A tenant's project has the same paths; keys may be relative or whole, and a foreign one is refused."""
    path = "/v1/semantic/acme/web"
    put = await here.ask("PUT", f"{path}/deploy/cursor", 7)
    assert put.json()["version"] == 1
    whole = await here.ask("GET", f"{path}/tenant/acme/project/web/deploy/cursor")
    assert whole.text == "7"
    assert (await here.ask("GET", path)).json()["keys"] == ["tenant/acme/project/web/deploy/cursor"]
    foreign = problem(await here.ask("GET", f"{path}/tenant/acme/project/api/deploy/cursor"))
    assert (foreign["status"], foreign["code"]) == (400, "VALIDATION_ERROR")
    assert (await here.call(f"{path}:incr", key="n")).json()["value"] == 1


async def test_every_reply_says_the_time(here: Served) -> None:
    """A client learns the service's clock from any reply, refusals included."""
    for response in (await here.ask("PUT", KEY, 1), await here.ask("GET", "/v1/kv/trivia/none")):
        assert abs(int(response.headers["holdfast-time"]) - here.store.now()) < 60_000


def test_every_code_has_a_status() -> None:
    """The table from codes to statuses is total, and each is an error of HTTP."""
    from holdfast.errors import error_classes

    assert set(NUMBERS) == {kind.code for kind in error_classes()}
    assert all(400 <= number < 600 for number in NUMBERS.values())


async def test_a_conflict_in_the_body_is_a_conflict(here: Served) -> None:
    """A version in the body that does not match is 409: no precondition was sent."""
    await here.ask("PUT", KEY, 1)
    refused = await here.call("/v1/kv/trivia:set", key="game:42", value=2, expected_version=9)
    assert (refused.status_code, json.loads(refused.text)["current"]["version"]) == (409, 1)
