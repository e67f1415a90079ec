"""A bare Starlette application on uvicorn with httptools and uvloop: `python -m bench.peers.http_echo PORT`.

It stores nothing. It is what HTTP itself costs in this process model.
"""

from __future__ import annotations

import sys
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

DURABILITY: Final = "nothing is stored"
ANSWER: Final = b'{"n":1,"text":"' + b"x" * 80 + b'"}'


async def echo(request: Request) -> Response:
    """Return the body, or to a GET a value of the usual size."""
    body = await request.body()
    return Response(body or ANSWER, media_type="application/json")


if __name__ == "__main__":
    app = Starlette(routes=[Route("/v1/kv/{plugin}/{key}", echo, methods=["GET", "PUT"])])
    print("ready", flush=True)
    uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", log_level="error", ws="none")
