"""The HTTP application beside the verbs: `/livez`, `/readyz`, `/metrics` and `/openapi.json`.

Law: nothing here changes anything, and no response contains keys or values. Every response comes within
seconds, even when the storage hangs.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.edges.http.openapi import PATH, document_bytes
from holdfast.edges.monitoring.counters import CONTENT_TYPE
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from holdfast.edges.monitoring.metrics import Metrics
    from holdfast.store import Store

PATIENCE: Final = 2.0
"""Seconds that the storage may take to answer whether it is ready."""
FRESH: Final = 2.0
"""Seconds for which the result of checking the audit's key is cached."""
OK: Final = "ok"
UNKNOWN: Final = "not known"


class Connected(Protocol):
    """A connection to NATS, as far as the readiness of a service depends on it."""

    @property
    def is_connected(self) -> bool:
        """Whether it is up."""
        ...


class Health:
    """The readiness of the service.

    Args:
        store: The store, which is asked whether it would accept a write.
        nats: Whether NATS is served too, and must be connected.
    """

    def __init__(self, store: Store, *, nats: bool = True) -> None:
        self._store = store
        self._serves_nats = nats
        self.links: Sequence[Connected] = ()
        """The connections to NATS: the common one, and those of plugins."""
        self.stopping = False
        self._signs, self._looked = OK, -FRESH

    async def report(self) -> dict[str, Any]:
        """Return `ok` or the problem of each part, and whether the service is ready and degraded.

        Lost connections of some plugins are reported separately. Without the audit's key the service is ready
        for writes that are not audited, and is degraded.
        """
        parts = {"service": self._service(), "store": await self._storage()}
        if self._serves_nats:
            parts["nats"] = self._nats()
        audit = await self._audit() if parts["store"] == OK else UNKNOWN
        ready = all(state == OK for state in parts.values())
        degraded = audit not in (OK, UNKNOWN)
        return {"ready": ready, "degraded": degraded, **parts, "audit": audit, **self._plugins()}

    def _service(self) -> str:
        return "it is stopping" if self.stopping else OK

    async def _storage(self) -> str:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._store.ready()
        except HoldfastError as error:
            return f"{error.code}: {error.message}"
        except TimeoutError:
            return f"it did not answer within {PATIENCE:g} s"
        return OK

    async def _audit(self) -> str:
        """Return `ok` if audited writes can be signed, else the problem. The result is cached briefly."""
        if time.monotonic() < self._looked + FRESH:
            return self._signs
        try:
            async with asyncio.timeout(PATIENCE):
                trouble = await self._store.key_trouble()
        except (HoldfastError, TimeoutError):
            return UNKNOWN
        self._signs = OK if trouble is None else f"{trouble.code}: {trouble.message}"
        self._looked = time.monotonic()
        return self._signs

    def _nats(self) -> str:
        """Return `ok` if the common connection is up and, if plugins have any, at least one of theirs."""
        common, own = self.links[:1], self.links[1:]
        connected = any(one.is_connected for one in common) and (
            not own or any(one.is_connected for one in own)
        )
        return OK if connected else "it is not connected"

    def _plugins(self) -> dict[str, str]:
        """Report lost connections of plugins. They affect only those plugins."""
        own = self.links[1:]
        gone = sum(not one.is_connected for one in own)
        return {"plugins": f"{gone} of {len(own)} connections of plugins are gone"} if gone else {}


def application(health: Health, metrics: Metrics) -> Starlette:
    """Return the application with its routes."""

    async def livez(request: Request) -> Response:
        return JSONResponse({"alive": True})

    async def readyz(request: Request) -> Response:
        report = await health.report()
        return JSONResponse(report, status_code=200 if report["ready"] else 503)

    async def measured(request: Request) -> Response:
        return Response(await metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    async def described(request: Request) -> Response:
        return Response(document_bytes(), media_type="application/json")

    return Starlette(
        routes=[
            Route("/livez", livez),
            Route("/readyz", readyz),
            Route("/metrics", measured),
            Route(PATH, described),
        ]
    )
