"""Calls from inside the process: a request whose answer goes to a task instead of a reply subject.

Law: such a request waits in its plugin's queue like any other.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from holdfast.edges.intake.lines import Request
    from holdfast.errors import HoldfastError

    Answer: TypeAlias = tuple[dict[str, Any], HoldfastError | None]
    Back: TypeAlias = Callable[[dict[str, Any], HoldfastError | None], None]


async def answered(accept: Callable[[Request], None], make: Callable[[Back], Request]) -> dict[str, Any]:
    """Queue a request and return the fields of its answer.

    Args:
        accept: Queues a request.
        make: Makes the request from the function that takes its answer.

    Raises:
        HoldfastError: The request was refused.
    """
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    accept(make(partial(_hand_back, answer)))
    found, error = await answer
    if error is not None:
        raise error
    return found


def _hand_back(answer: asyncio.Future[Answer], fields: dict[str, Any], error: HoldfastError | None) -> None:
    if not answer.done():  # it is cancelled if the client has gone
        answer.set_result((fields, error))
