"""Small Starlette applications, and how tests reach them without a server.

Nothing about the middleware that a test is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
from starlette.applications import Starlette
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import Response


def app_of(middleware: Middleware, *handlers: Callable[[Request], Awaitable[Response]]) -> Starlette:
    """An application with one route for each handler, at its name, for several methods."""
    routes = [
        Route(f"/{handler.__name__}", handler, methods=["GET", "POST", "PATCH", "PUT"])
        for handler in handlers
    ]
    return Starlette(routes=routes, middleware=[middleware])


def client_of(app: Any, **options: Any) -> httpx.AsyncClient:
    """A client with cookies of its own."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=options.pop("raising", True))
    return httpx.AsyncClient(transport=transport, base_url="https://shop.example", **options)
