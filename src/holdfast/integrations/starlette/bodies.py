"""Bodies of requests and responses, held until they are whole.

Law: a small body is in memory and a large one in a temporary file, which threads read and write, so that no
body holds up the event loop or fills the memory.
"""

from __future__ import annotations

import asyncio
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType
    from typing import Self, TypeVar

    T = TypeVar("T")

_IN_MEMORY: Final = 1_048_576
"""Bytes of a body that are held in memory."""
_PIECE: Final = 65_536
"""Bytes of a body that are sent at once."""


class Body:
    """The bytes of a message. Use it as a context manager."""

    def __init__(self) -> None:
        self.size: int = 0
        self.file: SpooledTemporaryFile[bytes] = SpooledTemporaryFile[bytes](max_size=_IN_MEMORY)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()

    async def write(self, data: bytes) -> None:
        """Add bytes at the end."""
        self.size += len(data)
        await self._done(partial(self.file.write, data))

    async def whole(self) -> bytes:
        """Return all bytes, which must fit into memory."""
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes from the beginning, a piece at a time."""
        position = 0
        while position < self.size:
            piece = await self._done(partial(self._read, position))
            position += len(piece)
            yield piece

    def _read(self, position: int) -> bytes:
        self.file.seek(position)
        return self.file.read(_PIECE)

    async def _done(self, work: Callable[[], T]) -> T:
        """Do something with the file, in a thread if it is one on the disk."""
        return work() if self.size <= _IN_MEMORY else await asyncio.to_thread(work)
