"""Answers with which a middleware refuses a request, as problem details of RFC 9457.

A refusal says what was wrong and what the caller can do, and shows nothing of other callers.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import Send

TRY_AGAIN_AFTER: Final = 1
"""Seconds that a caller is asked to wait if only time can help."""


async def refuse(send: Send, status: HTTPStatus, detail: str, *, retry_after: int | None = None) -> None:
    """Send a whole response that refuses the request."""
    problem = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
    body = json.dumps(problem).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if retry_after is not None:
        headers.append((b"retry-after", str(retry_after).encode()))
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def refuse_while_away(send: Send) -> None:
    """Send the response for a request that Holdfast could not be asked about."""
    await refuse(
        send,
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The storage of this service does not answer at the moment. Try again.",
        retry_after=TRY_AGAIN_AFTER,
    )
