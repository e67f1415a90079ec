"""Handles that take and give streams, without `await`.

The handles here are a small tree of sources for the generator; what it makes of them is run.
"""

from __future__ import annotations

import asyncio
import io
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import holdfast.handles
from holdfast.errors import Unavailable
from holdfast.sync.thread import LoopThread
from tools import facade, handles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STORE = '''
from holdfast.handles.blobs import Blobs

class Store:
    """A store."""

    def blobs(self) -> Blobs:
        """Get the blobs."""
'''
PIECES = """
from collections.abc import AsyncIterable, Iterable
from typing import TypeAlias

Content: TypeAlias = bytes | Iterable[bytes] | AsyncIterable[bytes]
"""
BLOBS = '''
from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from holdfast.handles.blob_upload import Content
    from holdfast.rows import Row

class Blobs:
    """Bytes by name."""

    def __init__(self) -> None:
        self._kept = {}

    async def put(self, name: str, data: Content) -> int:
        """Put a blob."""
        if isinstance(data, bytes):
            pieces = [data]
        elif hasattr(data, "read"):
            pieces = [data.read()]
        else:
            pieces = [piece async for piece in data]
        self._kept[name] = pieces
        return len(pieces)

    async def get(self, name: str) -> Reader | None:
        """Get a blob."""
        return Reader(self._kept[name]) if name in self._kept else None

    async def names(self) -> AsyncIterator[str]:
        """Yield the names."""
        for name in self._kept:
            yield name

    def opened(self, row: Row) -> Reader:
        """Open a blob for an edge."""

class Reader:
    """An open blob.

    Attributes:
        size: The number
            of pieces.
    """

    def __init__(self, pieces: list[bytes]) -> None:
        self.size = len(pieces)
        self._pieces = pieces

    async def read(self) -> bytes:
        """Read all bytes."""
        return b"".join(self._pieces)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the bytes."""
        for piece in self._pieces:
            yield piece

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self._pieces = []
'''
OPEN = '''
def open(url: str) -> Store:
    """Open a store."""
'''


def generated(folder: Path, blobs: str) -> str:
    """Generate the handles of a small library; return the text of its module of blobs without `await`."""
    sources = {"store": STORE, "registry": OPEN, "handles/blobs": blobs, "handles/blob_upload": PIECES}
    for name, text in sources.items():
        path = folder / "holdfast" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return facade.formatted(facade.generate()["blobs"])


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the generator reads instead of the library's."""
    monkeypatch.setattr(handles, "SOURCE", tmp_path)
    return tmp_path


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    """A thread with a loop."""
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture
def blobs(sources: Path, thread: LoopThread, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The blobs of the small library, without `await`."""
    with_await = ModuleType("blobs")
    exec(BLOBS, vars(with_await))
    monkeypatch.setattr(holdfast.handles, "blobs", with_await, raising=False)
    without: dict[str, Any] = {}
    exec(generated(sources, BLOBS), without)
    return without["Blobs"](thread, with_await.Blobs())


def test_an_iterator_is_advanced_on_the_thread_that_passed_it(blobs: Any) -> None:
    """A generator may use what belongs to its thread, also the store, which is waiting for it."""
    blobs.put("a", b"1")
    threads: set[int] = set()

    def pieces() -> Iterator[bytes]:
        for number in range(3):
            threads.add(threading.get_ident())
            yield blobs.get("a").read() + b"%d" % number

    assert blobs.put("b", pieces()) == 3
    assert blobs.get("b").read() == b"101112"
    assert threads == {threading.get_ident()}


def test_a_handle_can_be_passed_on(blobs: Any) -> None:
    """What a verb gave, another takes, piece by piece; files, bytes and asynchronous iterators too."""

    async def slowly() -> Any:
        await asyncio.sleep(0)
        yield b"5"

    assert blobs.put("a", [b"1", b"2"]) == 2
    assert blobs.put("b", blobs.get("a")) == 2
    assert blobs.put("c", io.BytesIO(b"34")) == 1
    assert blobs.put("d", slowly()) == 1
    assert [blobs.get(name).read() for name in blobs.names()] == [b"12", b"12", b"34", b"5"]


def test_an_error_of_an_iterator_is_that_of_the_call(blobs: Any) -> None:
    """A call whose iterator fails raises the iterator's error, and has no effect."""

    def pieces() -> Iterator[bytes]:
        yield b"1"
        raise LookupError("the source is gone")

    with pytest.raises(LookupError, match="the source is gone"):
        blobs.put("a", pieces())
    assert blobs.get("a") is None


def test_an_interrupted_iterator_ends_the_call(blobs: Any) -> None:
    """Ctrl-C while the program makes the next piece cancels the call, and the thread serves on."""

    def pieces() -> Iterator[bytes]:
        yield b"1"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        blobs.put("a", pieces())
    assert blobs.get("a") is None


def test_a_call_that_is_cancelled_no_longer_waits_for_its_iterator(blobs: Any, thread: LoopThread) -> None:
    """The end of the loop ends a call that is in the middle of an iterator."""

    def pieces() -> Iterator[bytes]:
        closing = threading.Thread(target=thread.close)
        closing.start()
        closing.join(20)
        yield b"1"

    with pytest.raises(Unavailable, match="closing"):
        blobs.put("a", pieces())


def test_a_reader_is_an_iterator_and_a_block(blobs: Any) -> None:
    """An optional handle is None or a handle; it can be iterated over more than once, and left early."""
    blobs.put("a", [b"1", b"2"])
    with blobs.get("a") as reader:
        assert (list(reader), list(reader), reader.size) == ([b"1", b"2"], [b"1", b"2"], 2)
        assert next(iter(reader)) == b"1"
    assert list(reader) == []
    assert type(reader).size.__doc__ == "The number of pieces."


def test_methods_that_take_rows_are_left_out(blobs: Any) -> None:
    """A method that takes a row is not for programs."""
    assert not hasattr(blobs, "opened")


@pytest.mark.parametrize(
    ("was", "becomes", "why"),
    [
        ("async def names(", "@asynccontextmanager\n    async def names(", "return a handle with __aenter__"),
        ("name: str, data: Content", "name: Content, data: Content", "one iterator"),
        ("-> Self", "-> Blobs", "the handle itself"),
    ],
)
def test_a_handle_without_a_plain_form_is_refused(sources: Path, was: str, becomes: str, why: str) -> None:
    """The generator refuses what it can't translate, and names the method."""
    with pytest.raises(SystemExit, match=rf"^(Blobs|Reader)\.\w+ has no form without await: .*{why}"):
        generated(sources, BLOBS.replace(was, becomes))
