"""Middleware for Starlette and FastAPI: sessions kept on the server, and answers to repeated requests.

A missing package is reported here, before the modules of this folder are imported.
"""

from holdfast.extras import imported

with imported("starlette", "holdfast.integrations.starlette"):
    import starlette as _starlette  # noqa: F401 - fails here if the package is missing

from holdfast.integrations.starlette.idempotency import IdempotencyMiddleware
from holdfast.integrations.starlette.session import SessionConflict, SessionMiddleware, StoredSession

__all__ = ["IdempotencyMiddleware", "SessionConflict", "SessionMiddleware", "StoredSession"]
