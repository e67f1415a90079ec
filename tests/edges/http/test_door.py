"""The HTTP door: every verb answers there, in the same queues as over NATS, and nothing else gets in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest

from holdfast.edges.calls import FAMILIES
from holdfast.edges.http.connections import HttpLimits
from holdfast.edges.intake.service import Limits
from holdfast.edges.nats.service import Settings
from holdfast.edges.serve import http_limits_of
from holdfast.edges.settings.table import Config
from tests.edges.calls.script import SCRIPT
from tests.edges.calls.test_catalogue import filled
from tests.edges.http.ground import Served, served
from tests.edges.nats.ground import Gated, calling, until
from tests.edges.running import holdfast_up

if TYPE_CHECKING:
    from pathlib import Path


def path(family: str, verb: str) -> str:
    """Where a verb is called."""
    return f"/v1/admin:{verb}" if family == "admin" else f"/v1/{family}/trivia:{verb}"


async def test_every_verb_answers(here: Served, tmp_path: Path) -> None:
    """Every verb of the catalogue takes its fields over HTTP and answers as declared."""
    letter = 0
    for family, name, fields in SCRIPT:
        request = filled(fields, path=str(tmp_path / "copy"), letter=letter)
        response = await here.call(path(family, name), **request)
        reply = response.json()
        assert response.status_code == 200, (family, name, reply)
        assert "holdfast-warning" not in response.headers, (family, name)
        letter = reply["letter"] if name == "escalate" else letter
        msgspec.convert(reply, FAMILIES[family][name].reply)


@pytest.mark.parametrize(
    ("method", "where", "status", "code"),
    [
        ("POST", "/v1/kv/trivia:fly", 404, "INVALID_SUBJECT"),
        ("POST", "/v1/kv/trivia:", 404, "INVALID_SUBJECT"),
        ("GET", "/v1/", 404, "INVALID_SUBJECT"),
        ("GET", "/v1/nothing/trivia", 404, "INVALID_SUBJECT"),
        ("GET", "/v1/table/trivia", 404, "INVALID_SUBJECT"),
        ("GET", "/v1/table/trivia/key", 404, "INVALID_SUBJECT"),
        ("POST", "/v1/admin/x:stats", 404, "INVALID_SUBJECT"),
        ("GET", "/v1/semantic/acme", 404, "INVALID_SUBJECT"),
        ("GET", "/v1/semantic/Acme/web", 400, "VALIDATION_ERROR"),
        ("GET", "/v1/kv/Trivia/key", 400, "INVALID_PLUGIN_NAME"),
        ("GET", "/v1/kv/%2e%2e/key", 400, "INVALID_PLUGIN_NAME"),
        ("GET", "/v1/kv/trivia/", 400, "VALIDATION_ERROR"),
        ("GET", "/v1/kv/trivia/%ff", 400, "VALIDATION_ERROR"),
        ("GET", "/v1/kv/trivia?limit=many", 400, "VALIDATION_ERROR"),
        ("GET", "/v1/kv/trivia?prefix=%ff", 400, "VALIDATION_ERROR"),
        ("PUT", "/v1/kv/trivia/key", 400, "INVALID_JSON"),
        ("GET", "/v1/kv/trivia:get", 405, "INVALID_SUBJECT"),
        ("POST", "/v1/kv/trivia/key", 405, "INVALID_SUBJECT"),
        ("PATCH", "/v1/kv/trivia/key", 405, "INVALID_SUBJECT"),
        ("PUT", "/v1/kv/trivia", 405, "INVALID_SUBJECT"),
        ("DELETE", "/v1/kv/trivia", 405, "INVALID_SUBJECT"),
    ],
)
async def test_a_wrong_path_method_or_parameter_is_refused(
    here: Served, method: str, where: str, status: int, code: str
) -> None:
    """A path, method or parameter that is wrong is refused with a code, and what is allowed is named."""
    response = await here.ask(method, where)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"key":"a","value":NaN}', b"\xff", b'{"a":' * 5_000])
async def test_a_body_that_is_no_object_is_refused(here: Served, body: bytes) -> None:
    """A body that can't be read is refused with a code, never with a server error."""
    response = await here.ask("POST", "/v1/kv/trivia:set", body)
    assert (response.status_code, response.json()["code"] in ("INVALID_JSON", "VALIDATION_ERROR")) == (
        400,
        True,
    )


async def test_a_body_has_its_size(here: Served) -> None:
    """A body larger than a megabyte is refused, its size told or not; a value keeps its own limit."""

    async def pieces(size: int) -> Any:
        for _ in range(size // 65_536):
            yield b"x" * 65_536

    told = await here.ask("POST", "/v1/kv/trivia:set_many", b"x" * (HttpLimits().body_bytes + 1))
    assert (told.status_code, told.json()["code"]) == (413, "VALUE_TOO_LARGE")
    untold = await here.client.post("/v1/kv/trivia:set_many", content=pieces(2 * HttpLimits().body_bytes))
    assert (untold.status_code, untold.json()["code"]) == (413, "VALUE_TOO_LARGE")
    value = await here.ask("PUT", "/v1/kv/trivia/k", "x" * 65_535)
    assert value.json()["detail"] == "Value size (65537 bytes) exceeds 64KB limit (65536 bytes)"
    assert (await here.ask("PUT", "/v1/kv/trivia/k", "x" * 65_534)).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Sec_Fetch_Site": "none"}, 200),
    ],
)
async def test_web_pages_of_others_are_kept_out(here: Served, headers: dict[str, str], status: int) -> None:
    """A web page in a browser on this machine can neither read nor write here: there is no CORS."""
    response = await here.ask("PUT", "/v1/kv/trivia/k", 1, **headers)
    assert (response.status_code, "access-control-allow-origin" in response.headers) == (status, False)
    assert (await here.store.kv("trivia").get("k") is not None) == (status == 200)


async def test_a_rate_counts_both_doors(bus: str, tmp_path: Path) -> None:
    """What a plugin asks over NATS and over HTTP counts against one rate; 429 says when to come back."""
    async with (
        served(tmp_path / "state.db", bus, settings=Settings(rate=1)) as here,
        calling(bus) as caller,
    ):
        assert (await caller.ask("db.kv.trivia.get", {"key": "a"}))["success"]
        refused = await here.ask("GET", "/v1/kv/trivia/a")
        assert (refused.status_code, refused.json()["code"]) == (429, "RATE_LIMITED")
        assert refused.headers["retry-after"] == "1"
        assert (await here.ask("GET", "/v1/kv/quiet/a")).status_code == 404


async def test_a_flood_over_http_fills_its_own_queue(bus: str, tmp_path: Path) -> None:
    """A plugin that floods HTTP is told that it is too many, and another's requests over NATS are served."""
    engine, limits = Gated(), Limits(waiting=10, under_way=4)
    settings = Settings(limits=limits, deadline_ms=60_000)
    async with served("", bus, settings=settings, engine=engine) as here, calling(bus) as caller:
        engine.gate.clear()
        try:
            sent = []
            for wave in range(2):  # all of the first may arrive before any of it is under way
                sent += [asyncio.create_task(here.ask("PUT", f"/v1/kv/flood/{n}", n)) for n in range(40)]
                least = 26 + 40 * wave
                await until(lambda: sum(one.done() for one in sent) >= least)  # noqa: B023
            other = await caller.begin("db.kv.quiet.set", {"key": "k", "value": 1})
            too_many = await caller.ask("db.kv.flood.set", {"key": "k", "value": 1})
            assert (too_many["success"], too_many.get("error_code")) == (False, "BUSY")
        finally:
            engine.gate.set()
        assert (await other).fields["success"]
        found = [response.status_code for response in await asyncio.gather(*sent)]
        assert (found.count(503), found.count(200)) == (66, 14)


async def test_before_and_after_there_is_a_service(here: Served) -> None:
    """While a service starts or stops, a request is refused as one that may be repeated."""
    here.api.service = None
    response = await here.ask("GET", "/v1/kv/trivia/a")
    assert (response.status_code, response.json()["retryable"]) == (503, True)


async def test_dead_letters_are_masked(here: Served) -> None:
    """An operator over HTTP sees what a dead letter would write only by saying why, if there is an audit."""
    await here.store.set_policy("kv/trivia", {"audit": True})
    request = {"key": "a", "value": "secret", "request_id": "r1"}
    given_up = {"verb": "set", "request": request, "error_code": "BUSY", "attempts": 5}
    number = (await here.call("/v1/kv/trivia:escalate", **given_up)).json()["letter"]
    listed = await here.call("/v1/admin:deadletters", namespace="kv/trivia")
    assert (listed.json()["letters"][0]["request"]["value"], "secret" in listed.text) == ("***", False)
    asked = {"namespace": "kv/trivia", "number": number}
    for why, status in ((None, 400), ("x", 400), (" ", 400), ("OPS-1", 200)):
        response = await here.call("/v1/admin:deadletter_reveal", **asked, **({"why": why} if why else {}))
        assert (response.status_code, "secret" in response.text) == (status, status == 200), why


async def test_requests_are_told_apart_in_the_log_of_slow_ones(bus: str, tmp_path: Path) -> None:
    """Operators find slow requests over HTTP in the slow log, with plugin, verb and key."""
    settings = Settings(slow_seconds=0.0)
    async with served(tmp_path / "state.db", bus, settings=settings) as here:
        await here.ask("PUT", "/v1/kv/trivia/a%2Fb", 1, Holdfast_Request_Id="r1")
        [slow] = (await here.call("/v1/admin:slowlog")).json()["requests"]
    assert (slow["plugin"], slow["verb"], slow["key"], slow["request_id"]) == ("trivia", "set", "a/b", "r1")


async def test_limits_are_settings(tmp_path: Path) -> None:
    """Operators set how much a client may send, and how many watches and connections there are."""
    settings = {
        "HOLDFAST_HTTP_MAX_BODY_BYTES": "2000",
        "HOLDFAST_HTTP_MAX_HEAD_BYTES": "8192",
        "HOLDFAST_HTTP_MAX_WATCHES": "1",
        "HOLDFAST_HTTP_MAX_CONNECTIONS": "2",
        "HOLDFAST_HTTP_REQUEST_SECONDS": "9",
    }
    async with (
        holdfast_up(tmp_path / "home", **settings) as up,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{up.http_port}", timeout=60) as client,
    ):
        for method, path in (("PUT", "/v1/kv/trivia/a"), ("POST", "/v1/kv/trivia:set_many")):
            large = await client.request(method, path, content=b" " * 2_001)
            assert (large.status_code, "more than 2000" in large.json()["detail"]) == (413, True)
        assert (await client.put("/v1/kv/trivia/a", content=b" " * 1_999 + b"1")).status_code == 200
        headed = await client.get("/v1/kv/trivia/a", headers={"X-Long": "x" * 20_000})
        assert headed.status_code == 431
        async with client.stream("GET", "/v1/kv/trivia?watch") as watch:
            assert watch.status_code == 200
            assert (await client.get("/v1/kv/other?watch")).status_code == 503


def test_limits_have_the_defaults_of_the_settings() -> None:
    """What the reference of settings says is what a service does without any."""
    assert http_limits_of(Config(db="", data_dir="")) == HttpLimits()
