"""A store like S3 that keeps its objects in memory: the server of moto, which is written in Python too.

It runs in an environment of its own, which `./dev bench blobs` makes; where there is none, the store is
left out and the reason is given.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.peers.process import accepting, free_port, program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DURABILITY: Final = "nothing: objects are kept in memory, or in a temporary file if they are large"
LACKING: Final = "its environment is not there: `./dev bench blobs` makes it if a package index answers"
_PYTHON: Final = Path(__file__).resolve().parents[2] / ".dev" / "s3" / "bin" / "python"
_QUIETLY: Final = """
import logging, moto.server
logging.getLogger("werkzeug").setLevel(logging.ERROR)
moto.server.main()
"""
CREDENTIALS: Final = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=none"
}
"""Headers of a request. The server wants to see a signature but does not verify it."""


def found() -> bool:
    """Return whether the server can be started."""
    return _PYTHON.exists()


@contextlib.asynccontextmanager
async def s3_server() -> AsyncIterator[str]:
    """Run the server. Yields its address."""
    port = free_port()
    async with program(str(_PYTHON), "-W", "ignore", "-c", _QUIETLY, "-H", "127.0.0.1", "-p", str(port)):
        await accepting(port)
        yield f"http://127.0.0.1:{port}"
