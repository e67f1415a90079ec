"""Finding the server that accepts writes among those that an address names.

The server that was found last is tried first. If it does not answer within a moment, the next one is tried
beside it, so that a machine that is gone costs a moment and not the driver's whole timeout.

Law: this module opens connections and gives them away. It keeps none, and an attempt that is not wanted any
more is ended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast.engines.sql.address import one_by_one
from holdfast.errors import HoldfastError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any

    import asyncpg

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

HEAD_START: Final = 1.0
"""Seconds after which the next server is tried although the one before has not answered yet."""


class Dialling:
    """The servers of one address, the one that was found last in front.

    Args:
        dsn: The address, which may name several servers.
        dial: Connects to the server of an address, or raises an error of ours that says why it can't be used.
    """

    def __init__(self, dsn: str, dial: Callable[[str], Coroutine[Any, Any, Connection]]) -> None:
        self._places = one_by_one(dsn)
        self._dial = dial

    async def connection(self) -> Connection:
        """Return a connection to a server that accepts writes.

        Raises:
            Unavailable: There is none at the moment. The message says of each server why.
            HoldfastError: An address is not valid, or a server does not suit.
        """
        if len(self._places) == 1:
            return await self._dial(self._places[0])
        waiting = list(self._places)
        trying: dict[asyncio.Task[Connection], str] = {}
        troubles: dict[str, HoldfastError] = {}
        try:
            while waiting or trying:
                if waiting:
                    place = waiting.pop(0)
                    trying[asyncio.create_task(self._dial(place))] = place
                head_start = HEAD_START if waiting else None
                await asyncio.wait(trying, timeout=head_start, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in trying if task.done()]:
                    try:
                        connection = task.result()
                    except HoldfastError as error:
                        troubles[trying.pop(task)] = error
                        continue
                    self._found(trying.pop(task))
                    return connection
        finally:
            await _ended(trying)
        raise _together([troubles[place] for place in self._places])

    def _found(self, place: str) -> None:
        self._places = [place, *(other for other in self._places if other != place)]


async def _ended(trying: Iterable[asyncio.Task[Connection]]) -> None:
    """End attempts that are not wanted any more, and close what they have opened."""
    for task in trying:
        task.cancel()
    for opened in await asyncio.gather(*trying, return_exceptions=True):
        if not isinstance(opened, BaseException):
            opened.terminate()


def _together(troubles: list[HoldfastError]) -> HoldfastError:
    """Return one error for servers that all failed: the gravest, or all reasons if they may pass."""
    for trouble in troubles:
        if not isinstance(trouble, Unavailable):
            return trouble
    return Unavailable("; ".join(trouble.message for trouble in troubles))
