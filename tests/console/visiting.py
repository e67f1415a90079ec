"""Requests to the console as browsers and programs send them.

Only how to ask; nothing about pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

    from tests.edges.http.ground import Served

OWN_PAGE = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
"""The headers of a request that a page of the service causes."""


async def page(here: Served, path: str, **headers: str) -> dict[str, Any]:
    """The JSON of a page."""
    response = await here.ask("GET", path, Accept="application/json", **headers)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def refused(here: Served, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
    """The status and the problem of a page that is refused."""
    response = await here.ask("GET", path, Accept="application/json", **headers)
    assert response.status_code >= 400
    return response.status_code, response.json()


async def log_in(here: Served, **fields: str) -> httpx.Response:
    """Log in as the page does; the client keeps the cookie."""
    return await here.client.post("/ui/login", json=fields, headers=OWN_PAGE)
