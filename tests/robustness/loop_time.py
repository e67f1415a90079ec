"""`holdfast up` that notes how long the event loop worked between the arrival of a request and its reply.

Only CPU time of the loop's thread counts, whatever the request waited for, so that the figure does not
depend on what else the machine does. It includes work for others while the request waits for the disk,
which delays nothing.

Two functions of the service are wrapped, and nothing else of it changes.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.__main__ import main
from holdfast.edges.intake.service import RequestService

if TYPE_CHECKING:
    from holdfast.edges.intake.requests import Request

VARIABLE: Final = "LOOP_TIME_FILE"
PLUGIN: Final = "quiet"


class Noted(NamedTuple):
    """A request: the monotonic time of its reply, its verb, and the milliseconds that the loop worked."""

    at: float
    verb: str
    took: float


def noting() -> None:
    """Note the requests of the quiet plugin, and write them to a file at the end."""
    begun: dict[int, float] = {}
    noted: list[Noted] = []
    accept, finish = RequestService.accept, RequestService._finish

    def accepted(service: RequestService, request: Request) -> None:
        if request.queue == PLUGIN:
            begun[id(request)] = time.thread_time()
        accept(service, request)

    def finished(service: RequestService, request: Request, answer: dict[str, Any] | Exception) -> None:
        finish(service, request, answer)
        since = begun.pop(id(request), None)
        if since is not None:
            took = (time.thread_time() - since) * 1000
            noted.append(Noted(time.monotonic(), request.route.verb, took))

    setattr(RequestService, "accept", accepted)  # noqa: B010 -- a method is replaced on purpose
    setattr(RequestService, "_finish", finished)  # noqa: B010 -- likewise
    atexit.register(lambda: Path(os.environ[VARIABLE]).write_text(json.dumps(noted)))


def noted_in(path: Path) -> list[Noted]:
    """The requests in such a file."""
    return [Noted(*one) for one in json.loads(path.read_text())]


if __name__ == "__main__":
    noting()
    main()
