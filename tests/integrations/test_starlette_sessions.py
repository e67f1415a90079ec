"""Sessions of Starlette in Holdfast: what visitors keep, and what happens when their requests meet."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse

import holdfast
from holdfast.integrations.starlette import SessionConflict, SessionMiddleware, StoredSession, session
from tests.integrations.web import app_of, client_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.store import Store
    from tests.integrations.grounds import Ground


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> ManualClock:
    """The clock of the stores, which renewals go by as well."""
    monkeypatch.setattr(session, "_now", lambda: datetime.fromtimestamp(clock.now() / 1000, UTC))
    return clock


@pytest.fixture
async def kv() -> AsyncIterator[KV]:
    """A namespace, for rules that do not depend on where it is kept."""
    async with holdfast.open("memory://", reap=False) as store:
        yield store.kv("web")


async def show(request: Request) -> JSONResponse:
    """Answer with the session."""
    return JSONResponse(request.session)


async def put(request: Request) -> JSONResponse:
    """Put the parameters of the query into the session."""
    request.session.update(request.query_params)
    return JSONResponse(request.session)


async def login(request: Request) -> JSONResponse:
    """Note who the visitor is, under a new id."""
    session_of(request).rotate()
    request.session["user"] = request.query_params["user"]
    return JSONResponse(request.session)


async def logout(request: Request) -> JSONResponse:
    """End the session."""
    request.session.clear()
    return JSONResponse(request.session)


async def count(request: Request) -> JSONResponse:
    """Count this request."""
    return JSONResponse(await session_of(request).change("count", lambda number: number + 1, 0))


async def nothing(request: Request) -> JSONResponse:
    """Answer without a look at the session."""
    return JSONResponse(None)


def session_of(request: Request) -> StoredSession:
    """The session of a request, with all its methods."""
    found = request.session
    assert isinstance(found, StoredSession)
    return found


class Meeting:
    """A handler that lets other requests go on while it holds a session that it has read."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.go_on = asyncio.Event()

    async def meet(self, request: Request) -> JSONResponse:
        """Read the session, wait, then change it."""
        self.arrived.set()
        await self.go_on.wait()
        request.session.update(request.query_params)
        return JSONResponse(request.session)


def visitor(kv: KV, *handlers: Any, **options: Any) -> httpx.AsyncClient:
    """A visitor of an application that has these handlers and the ones above."""
    middleware = Middleware(SessionMiddleware, kv=kv, **options)
    own = (show, put, login, logout, count, nothing)
    return client_of(app_of(middleware, *own, *handlers))


async def overtaken(ada: httpx.AsyncClient, meeting: Meeting, late: str, *paths: str) -> httpx.Response:
    """Send a request, and others that are answered while it is held; return its answer."""
    waiting = asyncio.create_task(ada.get(f"/meet?{late}"))
    await meeting.arrived.wait()
    for path in paths:
        await ada.get(path)
    meeting.go_on.set()
    return await waiting


async def test_a_session_is_kept(store: Store) -> None:
    """What a request puts into the session is there at the next one, and for this visitor alone."""
    kv = store.kv("web")
    async with visitor(kv) as ada, visitor(kv) as bob:
        first = await ada.get("/put?name=Ada&city=Köln")
        assert (await ada.get("/show")).json() == {"name": "Ada", "city": "Köln"}
        assert (await bob.get("/show")).json() == {}
        cookie = first.headers["set-cookie"]
        assert cookie.partition("; ")[2] == "Max-Age=1209600; Path=/; HttpOnly; SameSite=Lax; Secure"
        assert first.headers["vary"] == "Cookie"
        [key] = (await kv.list()).keys
        assert ada.cookies["session"] not in key
        entry = await kv.get(key)
        assert entry is not None
        assert entry.value == {"name": "Ada", "city": "Köln"}


async def test_login_gives_a_new_id(store: Store) -> None:
    """After a login the session goes on under a new id, and the old id is worth nothing."""
    kv = store.kv("web")
    async with visitor(kv) as ada, visitor(kv) as thief:
        await ada.get("/put?basket=rope")
        planted = ada.cookies["session"]
        assert (await ada.get("/login?user=ada")).json() == {"basket": "rope", "user": "ada"}
        assert ada.cookies["session"] != planted
        assert (await ada.get("/show")).json() == {"basket": "rope", "user": "ada"}
        assert (await thief.get("/show", headers={"cookie": f"session={planted}"})).json() == {}
        assert len((await kv.list()).keys) == 1


async def test_logout_ends_the_session(store: Store) -> None:
    """A logout removes the session and the cookie, and no request that is under way brings it back."""
    kv, meeting = store.kv("web"), Meeting()
    async with visitor(kv, meeting.meet) as ada:
        await ada.get("/put?user=ada")
        late = await overtaken(ada, meeting, "seen=1", "/logout")
        assert late.status_code == 409
        assert "has ended this session" in late.json()["detail"]
        assert "session" not in ada.cookies
        assert (await kv.list()).keys == []


async def test_requests_that_change_different_names_both_succeed(store: Store) -> None:
    """A change is kept when another request of the visitor has saved the session in between."""
    meeting = Meeting()
    async with visitor(store.kv("web"), meeting.meet) as ada:
        await ada.get("/put?a=0&b=0&gone=1")
        late = await overtaken(ada, meeting, "b=1", "/put?a=1", "/put?c=1")
        assert late.status_code == 200
        assert (await ada.get("/show")).json() == {"a": "1", "b": "1", "c": "1", "gone": "1"}


async def test_requests_that_change_the_same_name_conflict(store: Store) -> None:
    """Of two requests that change one name the later one is told; nothing of it is saved."""
    meeting = Meeting()
    async with visitor(store.kv("web"), meeting.meet) as ada:
        await ada.get("/put?a=0")
        late = await overtaken(ada, meeting, "a=2&b=2", "/put?a=1")
        assert late.status_code == 409
        assert late.headers["content-type"] == "application/problem+json"
        assert "'a'" in late.json()["detail"]
        assert "set-cookie" not in late.headers
        assert (await ada.get("/show")).json() == {"a": "1"}


async def test_a_conflict_that_a_handler_does_not_catch(kv: KV) -> None:
    """A handler that saves by itself stops at a conflict, and the visitor gets the same answer."""
    meeting, done = Meeting(), []

    async def meet(request: Request) -> JSONResponse:
        answer = await meeting.meet(request)
        await session_of(request).save()
        done.append(1)
        return answer

    async with visitor(kv, meet) as ada:
        await ada.get("/put?a=0")
        late = await overtaken(ada, meeting, "a=2", "/put?a=1")
        assert (late.status_code, done) == (409, [])
        assert (await ada.get("/show")).json() == {"a": "1"}


async def test_a_login_keeps_what_others_change_meanwhile(kv: KV) -> None:
    """A login that another request has overtaken moves that request's change to the new id."""
    meeting = Meeting()

    async def meet(request: Request) -> JSONResponse:
        session_of(request).rotate()
        return await meeting.meet(request)

    async with visitor(kv, meet) as ada:
        await ada.get("/put?a=0")
        old = ada.cookies["session"]
        late = await overtaken(ada, meeting, "user=ada", "/put?basket=rope")
        assert late.status_code == 200
        assert ada.cookies["session"] != old
        assert (await ada.get("/show")).json() == {"a": "0", "basket": "rope", "user": "ada"}
        assert len((await kv.list()).keys) == 1


async def test_counting_at_once(store: Store) -> None:
    """`change` computes a value again if another request is faster, so that no count is lost."""
    async with visitor(store.kv("web")) as ada:
        await ada.get("/put?a=0")
        counts = await asyncio.gather(*(ada.get("/count") for _ in range(6)))
        assert sorted(one.json() for one in counts) == list(range(1, 7))
        assert (await ada.get("/show")).json() == {"a": "0", "count": 6}


async def test_a_session_lives_on_while_it_is_used(store: Store, wall: ManualClock) -> None:
    """A session expires its ttl after the last use, rounded up; a use renews it, also one that only reads."""
    kv = store.kv("web")
    async with visitor(kv, ttl=99.5) as ada:
        assert "Max-Age=100;" in (await ada.get("/put?a=0")).headers["set-cookie"]
        wall.advance(5)
        assert "set-cookie" not in (await ada.get("/show")).headers
        wall.advance(50)
        assert "Max-Age=100;" in (await ada.get("/show")).headers["set-cookie"]
        assert "set-cookie" not in (await ada.get("/show")).headers
        wall.advance(99)
        assert (await ada.get("/show")).json() == {"a": "0"}
        wall.advance(100)
        assert (await ada.get("/show")).json() == {}


async def test_unused_session_stores_nothing_and_sets_no_cookie(kv: KV) -> None:
    """A request that puts nothing into the session stores nothing, gets no cookie and may be cached."""
    async with visitor(kv) as ada:
        assert not {"set-cookie", "vary"} & set((await ada.get("/nothing")).headers)
        assert "set-cookie" not in (await ada.get("/show")).headers
        await ada.get("/logout")
        assert (await kv.list()).keys == []


@pytest.mark.parametrize("cookie", ["x" * 43, "short", "a/b", "", '"' + "x" * 43 + '"'])
async def test_an_id_that_is_not_known_is_not_taken_over(kv: KV, cookie: str) -> None:
    """A visitor can't choose the id of a session."""
    async with visitor(kv) as ada:
        answer = await ada.get("/put?a=1", headers={"cookie": f"session={cookie}"})
        assert len(ada.cookies["session"]) == 43
        assert ada.cookies["session"] != cookie
        assert answer.json() == {"a": "1"}


async def test_changes_inside_values_are_saved(kv: KV) -> None:
    """A list that a handler appends to is saved, and a name that it removes is gone."""

    async def append(request: Request) -> JSONResponse:
        request.session.setdefault("basket", []).append("rope")
        request.session.pop("a", None)
        return JSONResponse(request.session)

    async def save(request: Request) -> JSONResponse:
        basket = request.session["basket"]
        await session_of(request).save()
        basket.append("anchor")
        return JSONResponse(request.session)

    async with visitor(kv, append, save) as ada:
        await ada.get("/put?a=1")
        for _ in range(2):
            await ada.get("/append")
        await ada.get("/save")
        assert (await ada.get("/show")).json() == {"basket": ["rope", "rope", "anchor"]}


async def test_a_session_that_is_emptied_is_removed(kv: KV) -> None:
    """A session with nothing in it leaves neither an entry nor a cookie."""

    async def drop(request: Request) -> JSONResponse:
        del request.session["a"]
        return JSONResponse(request.session)

    async with visitor(kv, drop) as ada:
        await ada.get("/put?a=1")
        assert "Max-Age=0;" in (await ada.get("/drop")).headers["set-cookie"]
        assert (await kv.list()).keys == []


async def test_clear_begins_a_new_session(kv: KV) -> None:
    """What is put in after `clear` gets a new id, and the old entry is gone."""

    async def anew(request: Request) -> JSONResponse:
        request.session.clear()
        request.session["user"] = "bob"
        return JSONResponse(request.session)

    async with visitor(kv, anew) as ada:
        await ada.get("/put?a=1")
        old = ada.cookies["session"]
        await ada.get("/anew")
        assert ada.cookies["session"] != old
        assert (await ada.get("/show")).json() == {"user": "bob"}
        assert len((await kv.list()).keys) == 1


async def test_changes_after_the_response_started(kv: KV) -> None:
    """What a stream changes is saved at its end; a session that begins too late for a cookie is an error."""

    async def stream(request: Request) -> StreamingResponse:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"some"
            request.session["streamed"] = True

        return StreamingResponse(pieces())

    async with visitor(kv, stream) as ada:
        with pytest.raises(RuntimeError, match="after the response has started"):
            await ada.get("/stream")
        assert (await kv.list()).keys == []
        await ada.get("/put?a=1")
        await ada.get("/stream")
        assert (await ada.get("/show")).json() == {"a": "1", "streamed": True}


@pytest.mark.parametrize("value", [datetime(2026, 1, 1, tzinfo=UTC), float("nan"), {1, 2}, b"bytes"])
async def test_values_that_are_not_json_are_refused(kv: KV, value: Any) -> None:
    """A value that can't be stored is an error that names it, and nothing is saved."""

    async def keep(request: Request) -> JSONResponse:
        request.session["when"] = value
        return JSONResponse(None)

    async with visitor(kv, keep) as ada:
        with pytest.raises(holdfast.ValidationError, match="'when'"):
            await ada.get("/keep")
        assert (await kv.list()).keys == []


async def test_a_session_that_is_too_large_is_refused(kv: KV) -> None:
    """A session has the limit of an entry; beyond it nothing is saved."""

    async def fill(request: Request) -> JSONResponse:
        request.session["large"] = "x" * 70_000
        return JSONResponse(None)

    async with visitor(kv, fill) as ada:
        with pytest.raises(holdfast.ValueTooLarge):
            await ada.get("/fill")


async def test_while_the_storage_is_away(ground: Ground) -> None:
    """A visitor with a session is asked to try again; one without is served until something must be saved."""
    async with contextlib.AsyncExitStack() as stack:
        async with ground.open() as store:
            ada = await stack.enter_async_context(visitor(store.kv("web")))
            await ada.get("/put?a=1")
        answer = await ada.get("/show")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        ada.cookies.clear()
        assert (await ada.get("/show")).json() == {}
        assert (await ada.get("/put?a=1")).status_code == 503


async def over_websocket(app: Any, cookie: str) -> list[dict[str, Any]]:
    """Open a websocket, and return what the application has sent."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"cookie", f"session={cookie}".encode())] if cookie else []
    await app({"type": "websocket", "path": "/", "headers": headers}, receive, send)
    return sent


async def test_websockets_have_the_session(kv: KV, tmp_path: Path) -> None:
    """A websocket sees the session of its visitor, begins one when accepted, and saves at its end."""

    async def chat(scope: Any, receive: Any, send: Any) -> None:
        scope["session"]["talks"] = scope["session"].get("talks", 0) + 1
        await send({"type": "websocket.accept"})
        scope["session"]["said"] = "hello"
        await send({"type": "websocket.close"})

    app = SessionMiddleware(chat, kv)
    first, _ = await over_websocket(app, "")
    cookie = dict(first["headers"])[b"set-cookie"].decode().partition(";")[0].removeprefix("session=")
    assert len(await over_websocket(app, cookie)) == 2
    [key] = (await kv.list()).keys
    entry = await kv.get(key)
    assert entry is not None
    assert entry.value == {"talks": 2, "said": "hello"}
    closed = holdfast.open(str(tmp_path / "closed.db"))
    away = SessionMiddleware(chat, closed.kv("web"))
    assert await over_websocket(away, cookie) == [{"type": "websocket.close", "code": 1013}]


async def test_a_websocket_that_can_not_save_is_told(kv: KV) -> None:
    """A conflict at the start of a websocket is raised in its handler, which can close it."""
    seen: list[Exception] = []

    async def chat(scope: Any, receive: Any, send: Any) -> None:
        scope["session"]["a"] = 2
        [key] = (await kv.list()).keys
        await kv.delete(key)
        try:
            await send({"type": "websocket.accept"})
        except SessionConflict as conflict:
            seen.append(conflict)

    async with visitor(kv) as ada:
        await ada.get("/put?a=1")
        await over_websocket(SessionMiddleware(chat, kv), ada.cookies["session"])
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"cookie": "a b"}, "cookie"),
        ({"cookie": ""}, "cookie"),
        ({"path": "/; Domain=x"}, "path"),
        ({"domain": "a\r\nb"}, "domain"),
        ({"same_site": "some"}, "same_site"),
        ({"same_site": "none", "secure": False}, "secure"),
    ],
)
def test_settings_of_the_cookie(options: dict[str, Any], field: str) -> None:
    """Settings that a browser would not understand are refused when the application starts."""
    store = holdfast.open("memory://")
    with pytest.raises(holdfast.ValidationError) as caught:
        SessionMiddleware(lambda *_: None, store.kv("web"), **options)  # type: ignore[arg-type]
    assert caught.value.field == field
