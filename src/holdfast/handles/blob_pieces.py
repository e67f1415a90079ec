"""Cutting what a caller puts into parts.

Law: at most one part is held here at a time. Whatever the caller's pieces are, all parts but the last have
the same size.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, Final, Protocol, TypeAlias

from holdfast import rules
from holdfast.blobs.manifest import PART_BYTES
from holdfast.errors import ValidationError


class Readable(Protocol):
    """A file that is open for reading bytes."""

    def read(self, size: int, /) -> Any:
        """Return at most so many bytes; none at the end."""
        ...


Bytes: TypeAlias = bytes | bytearray | memoryview
Content: TypeAlias = Bytes | Readable | Iterable[Bytes] | AsyncIterable[Bytes]
"""The forms of data that `put` takes: bytes, a file, or an iterator of bytes, synchronous or not."""

_FORMS: Final = "data must be bytes, a file open for reading bytes, or an iterator of bytes"


def parts_of(data: object) -> AsyncIterator[bytes]:
    """Return the parts of what a caller puts."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return _of_bytes(memoryview(data).cast("B"))
    if hasattr(data, "read"):
        return _cut(_read(data))
    if isinstance(data, str):
        raise ValidationError(f"{_FORMS}, not text: encode it first", field="data")
    if isinstance(data, AsyncIterable):
        return _cut(data)
    if isinstance(data, Iterable):
        return _cut(_each(data))
    raise ValidationError(f"{_FORMS}, not {rules.kind_of(data)}", field="data")


async def _of_bytes(data: memoryview) -> AsyncIterator[bytes]:
    for start in range(0, len(data), PART_BYTES):
        yield bytes(data[start : start + PART_BYTES])


async def _read(file: Any) -> AsyncIterator[object]:
    """Read a file in a thread, or await its `read` if that is asynchronous."""
    while True:
        if asyncio.iscoroutinefunction(file.read):
            piece = await file.read(PART_BYTES)
        else:
            piece = await asyncio.to_thread(file.read, PART_BYTES)
        if not isinstance(piece, bytes):
            raise ValidationError(f"{_FORMS}; this file gives {rules.kind_of(piece)}", field="data")
        if not piece:
            return
        yield piece


async def _each(pieces: Iterable[object]) -> AsyncIterator[object]:
    for piece in pieces:
        yield piece


async def _cut(pieces: AsyncIterable[object]) -> AsyncIterator[bytes]:
    """Join and cut pieces of any size."""
    held = bytearray()
    async for piece in pieces:
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise ValidationError(f"{_FORMS}; the iterator gave {rules.kind_of(piece)}", field="data")
        if not held and len(piece) == PART_BYTES and isinstance(piece, bytes):
            yield piece
            continue
        view = memoryview(piece).cast("B")
        for start in range(0, len(view), PART_BYTES):  # a large piece is taken over bit by bit
            held += view[start : start + PART_BYTES]
            if len(held) >= PART_BYTES:
                yield bytes(held[:PART_BYTES])
                del held[:PART_BYTES]
    if held:
        yield bytes(held)
