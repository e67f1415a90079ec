"""A WSGI application whose stores are open when gunicorn forks its workers.

It is the shop of `examples/workers`, after its cache was used. At `/early` it uses a store that it has opened
itself before the fork, and answers with the error.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from django.core.cache import cache
from django_shop import application as shop  # type: ignore[import-not-found]  # found by gunicorn

import holdfast.sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

store = holdfast.sync.open(os.environ["HOLDFAST_URL"])
store.start()
store.kv("early").set("opened by", os.getpid())
cache.set("opened by", os.getpid())


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request."""
    if environ["PATH_INFO"] != "/early":
        answer: Iterable[bytes] = shop(environ, start_response)
        return answer
    try:
        text = str(store.kv("early").get("opened by"))
    except RuntimeError as error:
        text = f"refused: {error}"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [text.encode()]
