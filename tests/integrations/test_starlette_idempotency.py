"""Requests with an idempotency key: run once, answered as often as they are sent."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

import holdfast
from holdfast.integrations.starlette import IdempotencyMiddleware, idempotency
from tests.integrations.web import app_of, client_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.clock import ManualClock
    from holdfast.store import Store
    from tests.integrations.grounds import Ground

KEY: Final = {"Idempotency-Key": "order 1"}
MEGABYTES: Final = bytes(range(256)) * 12_000


class Shop:
    """An application that counts what it does, and can be held while it does it."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.runs = 0
        self.arrived = asyncio.Event()
        self.go_on = asyncio.Event()
        self.answers: list[Response | Exception] = []
        self.later: list[int] = []
        kv, blobs = store.kv("web"), store.blobs("web")
        middleware = Middleware(IdempotencyMiddleware, kv=kv, blobs=blobs, caller=caller, **options)
        self.app = app_of(middleware, self.order, self.slow, self.scripted, self.echo, self.stream)

    async def order(self, request: Request) -> Response:
        """Count the request."""
        self.runs += 1
        answer = JSONResponse({"order": self.runs}, status_code=201, headers={"location": f"/{self.runs}"})
        answer.set_cookie("seen", "yes")
        return answer

    async def slow(self, request: Request) -> Response:
        """Count the request, and wait until told to go on."""
        self.runs += 1
        number = self.runs
        self.arrived.set()
        await self.go_on.wait()
        return JSONResponse(number)

    async def scripted(self, request: Request) -> Response:
        """Give the next answer."""
        self.runs += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def echo(self, request: Request) -> Response:
        """Answer with the body of the request."""
        self.runs += 1
        return Response(await request.body(), media_type="application/octet-stream")

    async def stream(self, request: Request) -> Response:
        """Answer piece by piece, and do something afterwards."""
        self.runs += 1

        async def pieces() -> AsyncIterator[bytes]:
            for number in range(3):
                yield b"%d" % number

        async def afterwards() -> None:
            self.later.append(self.runs)

        return StreamingResponse(pieces(), background=BackgroundTask(afterwards))


def caller(connection: HTTPConnection) -> str:
    """Tell callers apart by their credentials."""
    return connection.headers.get("authorization", "")


@pytest.fixture
async def client(store: Store) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a shop on every ground."""
    async with client_of(Shop(store).app) as made:
        yield made


@pytest.fixture
async def here(clock: ManualClock) -> AsyncIterator[Store]:
    """A store, for rules that do not depend on where things are kept."""
    async with holdfast.open("memory://", clock=clock, reap=False) as store:
        yield store


def facts(answer: httpx.Response) -> tuple[int, bytes, str | None]:
    """What a caller goes by."""
    return answer.status_code, answer.content, answer.headers.get("location")


async def test_a_repetition_gets_the_first_answer(client: httpx.AsyncClient) -> None:
    """The same request with the same key is run once; its status, headers and body come back, not cookies."""
    first = await client.post("/order", json={"article": "rope"}, headers=KEY)
    assert facts(first) == (201, b'{"order":1}', "/1")
    assert "idempotent-replayed" not in first.headers
    assert "set-cookie" in first.headers
    client.cookies.clear()
    again = await client.post("/order", json={"article": "rope"}, headers=KEY)
    assert facts(again) == facts(first)
    assert again.headers["idempotent-replayed"] == "true"
    assert "set-cookie" not in again.headers
    other = await client.post("/order", json={"article": "rope"}, headers={"Idempotency-Key": "order 2"})
    assert other.json() == {"order": 2}


async def test_another_request_with_the_key_is_refused(client: httpx.AsyncClient) -> None:
    """A key belongs to one method, path, query, type and body; anything else is refused and not run."""
    await client.post("/order", content=b"a", headers=KEY)
    for method, path, content, more in (
        ("POST", "/order", b"b", {}),
        ("POST", "/order?x=1", b"a", {}),
        ("POST", "/echo", b"a", {}),
        ("PATCH", "/order", b"a", {}),
        ("POST", "/order", b"a", {"content-type": "text/plain"}),
    ):
        answer = await client.request(method, path, content=content, headers=KEY | more)
        assert answer.status_code == 422
        assert "Idempotency-Key" in answer.json()["detail"]
    assert (await client.post("/order", content=b"a", headers=KEY)).json() == {"order": 1}


async def test_request_in_progress_refuses_repetitions(store: Store) -> None:
    """Of a crowd with one key one request runs; the others are told to come back, and then get its answer."""
    shop = Shop(store)
    async with client_of(shop.app) as client:
        first = asyncio.create_task(client.post("/slow", headers=KEY))
        await shop.arrived.wait()
        crowd = await asyncio.gather(*(client.post("/slow", headers=KEY) for _ in range(8)))
        assert {(one.status_code, one.headers["retry-after"]) for one in crowd} == {(409, "1")}
        assert (await client.post("/slow", content=b"other", headers=KEY)).status_code == 422
        shop.go_on.set()
        assert (await first).json() == 1
        assert (await client.post("/slow", headers=KEY)).json() == 1
        assert shop.runs == 1


async def test_bodies_of_any_size_are_repeated_exactly(client: httpx.AsyncClient) -> None:
    """Bodies of any size are compared and sent again byte by byte."""
    first = await client.post("/echo", content=MEGABYTES, headers=KEY)
    again = await client.post("/echo", content=MEGABYTES, headers=KEY)
    assert first.content == again.content == MEGABYTES
    assert again.headers["idempotent-replayed"] == "true"
    assert (await client.post("/echo", content=MEGABYTES[:-1], headers=KEY)).status_code == 422


async def test_the_claim_of_a_dead_worker_expires(store: Store, clock: ManualClock) -> None:
    """A request whose worker has died is refused for the lease and then run again."""
    shop = Shop(store, lease=29.5)
    async with client_of(shop.app) as client:
        dying = asyncio.create_task(client.post("/slow", headers=KEY))
        await shop.arrived.wait()
        dying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await dying
        shop.go_on.set()
        clock.advance(29)
        assert (await client.post("/slow", headers=KEY)).status_code == 409
        clock.advance(1)
        assert (await client.post("/slow", headers=KEY)).json() == 2


async def test_a_worker_that_was_overtaken_does_not_answer(store: Store, clock: ManualClock) -> None:
    """A worker that was stopped past its lease does not replace the answer of the one that took over."""
    shop, other = Shop(store), Shop(store)
    other.runs = 10
    other.go_on.set()
    async with client_of(shop.app) as stopped, client_of(other.app) as client:
        first = asyncio.create_task(stopped.post("/slow", content=MEGABYTES, headers=KEY))
        await shop.arrived.wait()
        clock.advance(60)
        assert (await client.post("/slow", content=MEGABYTES, headers=KEY)).json() == 11
        shop.go_on.set()
        assert (await first).status_code == 409
        assert (await stopped.post("/slow", content=MEGABYTES, headers=KEY)).json() == 11


async def test_a_late_worker_that_nobody_replaced_answers(store: Store, clock: ManualClock) -> None:
    """A worker that was stopped past its lease, but was not replaced, stores its answer."""
    shop = Shop(store)
    async with client_of(shop.app) as client:
        first = asyncio.create_task(client.post("/slow", headers=KEY))
        await shop.arrived.wait()
        clock.advance(60)
        shop.go_on.set()
        assert (await first).json() == 1
        assert (await client.post("/slow", headers=KEY)).json() == 1


async def test_a_living_worker_renews_its_claim(here: Store) -> None:
    """A request that takes longer than the lease is not run by another worker as long as its worker lives."""
    shop = Shop(here, lease=0.1)
    async with client_of(shop.app) as client:
        first = asyncio.create_task(client.post("/slow", headers=KEY))
        async with asyncio.timeout(60):
            async for change in here.kv("web").watch(since=0):
                if change.version >= 3:
                    break
        shop.go_on.set()
        assert (await first).json() == 1
        assert (await client.post("/slow", headers=KEY)).json() == 1


async def test_the_answer_is_kept_for_its_ttl(here: Store, clock: ManualClock) -> None:
    """After its ttl, rounded up, an answer is forgotten and the request runs again."""
    async with client_of(Shop(here, ttl=99.5).app) as client:
        for seconds, order in ((0, 1), (99, 1), (1, 2)):
            clock.advance(seconds)
            assert (await client.post("/order", headers=KEY)).json() == {"order": order}


async def test_other_methods_ignore_the_key(here: Store) -> None:
    """A key on another method changes nothing, and a request without one is run each time."""
    async with client_of(Shop(here).app) as client, client_of(Shop(here, methods=["put"]).app) as putting:
        for method in ("GET", "PUT", "GET"):
            await client.request(method, "/order", headers=KEY)
        assert (await client.post("/order")).json() == {"order": 4}
        assert (await putting.put("/order", headers=KEY)).json() == {"order": 1}
        assert (await putting.put("/order", headers=KEY)).json() == {"order": 1}
        assert (await putting.post("/order", headers=KEY)).json() == {"order": 2}


async def test_callers_with_the_same_key_stay_apart(here: Store) -> None:
    """Two callers with the same key have an answer each, and no key of the store shows their credentials."""
    async with client_of(Shop(here).app) as client:
        for name, order in (("ada", 1), ("bob", 2), ("ada", 1)):
            answer = await client.post("/order", headers=KEY | {"authorization": f"Bearer {name}"})
            assert answer.json() == {"order": order}
    keys = (await here.kv("web").list()).keys
    assert len(keys) == 2
    assert not any("ada" in key for key in keys)


@pytest.mark.parametrize("headers", [[], [("idempotency-key", "a"), ("idempotency-key", "b")]])
async def test_one_key_is_required(here: Store, headers: list[tuple[str, str]]) -> None:
    """Without a key where one is required, or with several, a request is refused and not run."""
    shop = Shop(here, required=True)
    async with client_of(shop.app) as client:
        answer = await client.post("/order", headers=headers)
        assert answer.status_code == 400
        assert "Idempotency-Key" in answer.json()["detail"]
        assert (await client.get("/order")).status_code == 201
        assert shop.runs == 1


async def test_an_empty_key_is_refused(here: Store) -> None:
    """An empty key is no key that a caller could have meant."""
    async with client_of(Shop(here).app) as client:
        assert (await client.post("/order", headers={"Idempotency-Key": ""})).status_code == 400


async def test_strange_keys_do_not_collide(here: Store) -> None:
    """A key may be as long and as strange as a header allows; no two of them meet."""
    keys = ["/", "%2F", "#" * 300, "#" * 301, "a/b", "a", b"\xff\xe9".decode("latin-1")]
    async with client_of(Shop(here).app) as client:
        for _ in range(2):
            for number, key in enumerate(keys, start=1):
                answer = await client.post("/order", headers={b"idempotency-key": key.encode("latin-1")})
                assert answer.json() == {"order": number}


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
async def test_a_passing_refusal_is_not_kept(here: Store, status: int) -> None:
    """After an answer that asks for another try, the same request with the same key is run again."""
    shop = Shop(here)
    shop.answers = [Response(status_code=status), Response(b"done")]
    async with client_of(shop.app) as client:
        assert (await client.post("/scripted", headers=KEY)).status_code == status
        assert (await client.post("/scripted", headers=KEY)).content == b"done"


async def test_a_refusal_is_kept(here: Store) -> None:
    """An answer that says no is an answer like any other."""
    shop = Shop(here)
    shop.answers = [Response(status_code=404)]
    async with client_of(shop.app) as client:
        for _ in range(2):
            assert (await client.post("/scripted", headers=KEY)).status_code == 404


async def test_a_handler_that_fails_frees_the_key(here: Store) -> None:
    """After an exception the request can be sent again at once, and the exception is not hidden."""
    shop = Shop(here)
    shop.answers = [KeyError("bug"), Response(b"done")]
    async with client_of(shop.app) as client:
        with pytest.raises(KeyError, match="bug"):
            await client.post("/scripted", headers=KEY)
        assert (await client.post("/scripted", headers=KEY)).content == b"done"


async def test_a_request_that_is_too_large_is_refused(here: Store) -> None:
    """A body beyond the limit is refused and nothing is stored."""
    shop = Shop(here, largest_request=10)
    async with client_of(shop.app) as client:
        assert (await client.post("/echo", content=b"x" * 11, headers=KEY)).status_code == 413
        assert (await client.post("/echo", content=b"x" * 11)).status_code == 200
        assert (await client.post("/echo", content=b"x" * 10, headers=KEY)).content == b"x" * 10
    assert len((await here.kv("web").list()).keys) == 1


async def test_streams_and_background_tasks(here: Store) -> None:
    """A streamed answer is kept as a whole; what follows the answer runs once, after it."""
    shop = Shop(here)
    async with client_of(shop.app) as client:
        for _ in range(2):
            assert (await client.post("/stream", headers=KEY)).content == b"012"
    assert shop.later == [1]


async def test_while_the_storage_is_away(ground: Ground) -> None:
    """A request with a key is not run while nobody knows whether it was run before."""
    async with ground.open() as store:
        shop = Shop(store)
    async with client_of(shop.app) as client:
        answer = await client.post("/order", headers=KEY)
        assert (answer.status_code, answer.headers["retry-after"], shop.runs) == (503, "1", 0)
        assert (await client.post("/order")).status_code == 201


async def test_an_answer_that_can_not_be_stored_is_sent(
    here: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A caller gets the answer of a request that was run, even if the storage went away meanwhile."""
    monkeypatch.setattr(idempotency, "_PAUSES", (0.0,))
    shop = Shop(here)
    async with client_of(shop.app) as client:
        first = asyncio.create_task(client.post("/slow", headers=KEY))
        await shop.arrived.wait()
        await here.aclose()
        shop.go_on.set()
        assert (await first).json() == 1
    assert "could not be stored" in caplog.text


async def test_a_caller_who_leaves_and_an_app_that_is_silent(here: Store) -> None:
    """A request that never arrived whole is not run; one that gets no answer can be sent again."""
    seen: list[Any] = []

    async def silent(scope: Any, receive: Any, send: Any) -> None:
        seen.append([scope["extensions"], await receive(), await receive(), await receive()])

    async def send(message: Any) -> None:
        seen.append(message)

    app = IdempotencyMiddleware(silent, here.kv("web"), here.blobs("web"), caller=lambda _: "")
    scope = {
        **{"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"k")]},
        "extensions": {"http.response.pathsend": {}, "http.response.debug": {}},
    }
    body = {"type": "http.request", "body": b"a", "more_body": True}
    gone = {"type": "http.disconnect"}
    for messages in ([body, gone], [{**body, "more_body": False}, gone]):

        async def receive(left: list[Any] = messages) -> Any:
            return left.pop(0)

        await app(scope, receive, send)
    end = {"type": "http.request", "body": b"", "more_body": False}
    assert seen == [[{"http.response.debug": {}}, body, end, gone]]
    assert (await here.kv("web").list()).keys == []
