"""A Starlette application: four workers of uvicorn keep sessions in one SQLite file.

    pip install 'holdfast-kv[starlette]' uvicorn
    uvicorn --app-dir examples/workers --workers 4 starlette_shop:app
    curl -c jar -b jar -X POST http://127.0.0.1:8000/buy/rope

Each call of the last line adds to the visitor's basket, whichever worker answers, and prints such as

    {"basket":["rope","rope"],"sold":2,"worker":4711}

Each worker opens the file when it starts and closes it when it ends. `HOLDFAST_URL` names another store,
`starlette_shop.db` in this folder if it is not set.
"""

import contextlib
import os
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import holdfast
from holdfast.integrations.starlette import SessionMiddleware, StoredSession

store = holdfast.open(os.environ.get("HOLDFAST_URL", "starlette_shop.db"))


@contextlib.asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    """Have the store open while the worker runs."""
    async with store:
        yield


async def enter(request: Request) -> JSONResponse:
    """Begin a session, so that requests at the same time have the same one."""
    request.session["basket"] = []
    return JSONResponse({"worker": os.getpid()})


async def buy(request: Request) -> JSONResponse:
    """Put an article into the visitor's basket, and count what all visitors have bought."""
    session, article = request.session, request.path_params["article"]
    assert isinstance(session, StoredSession)
    # Requests of one visitor may be at several workers at once. `change` adds to the list in the store.
    basket = await session.change("basket", lambda articles: [*articles, article], [])
    sold = (await store.kv("shop").incr("sold")).value
    return JSONResponse({"basket": basket, "sold": sold, "worker": os.getpid()})


app = Starlette(
    lifespan=lifespan,
    routes=[Route("/enter", enter, methods=["POST"]), Route("/buy/{article}", buy, methods=["POST"])],
    # Over plain HTTP, as here, a browser would not send a Secure cookie back.
    middleware=[Middleware(SessionMiddleware, kv=store.kv("sessions"), secure=False)],
)
