"""A worker of a web application, as a process: `python -m tests.integrations.web_worker URL PORT`.

Whatever it knows of its visitors is in the store, so that it can be killed at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route

import holdfast
from holdfast.integrations.starlette import IdempotencyMiddleware, SessionMiddleware, StoredSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request


def application(url: str) -> Starlette:
    """The application: it counts visits in the session, and orders in the store."""
    store = holdfast.open(url)
    kv = store.kv("web")

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with store:
            yield

    async def visit(request: Request) -> JSONResponse:
        session = request.session
        assert isinstance(session, StoredSession)
        return JSONResponse(await session.change("visits", lambda visits: visits + 1, 0))

    async def note(request: Request) -> JSONResponse:
        request.session.update(request.query_params)
        return JSONResponse(request.session)

    async def order(request: Request) -> JSONResponse:
        entry = await kv.incr("orders")
        if "hang" in request.query_params and entry.value == 2:
            await asyncio.sleep(600)
        return JSONResponse(entry.value)

    return Starlette(
        lifespan=lifespan,
        routes=[Route(f"/{one.__name__}", one, methods=["GET", "POST"]) for one in (visit, note, order)],
        middleware=[
            Middleware(SessionMiddleware, kv=kv, secure=False),
            Middleware(IdempotencyMiddleware, kv=kv, blobs=store.blobs("web"), caller=lambda _: "", lease=1),
        ],
    )


if __name__ == "__main__":
    uvicorn.run(application(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
