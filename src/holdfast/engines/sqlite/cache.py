"""Rows in memory: those that this process has read or written last.

A reader may use them only if the file has not changed since, and `LogHeader` knows: SQLite changes the header
of the index of its log (`-shm`) with every commit of any process, once the commit is durable and before it
returns. The header has a counter of commits, and the checksum and the salts of the log, so that the same
header means the same contents. A row is kept only if the header was the same before and after it was read.

A commit of this process changes the header too. The writer reads it within the transaction and again after
the commit. If it was the one that the rows are of, and the counter is one higher, nothing but this commit has
happened: its own rows are replaced and the others stay.

A decision may use the rows without a look at the header, since every commit verifies that nobody else has
written since (`Writer.commit`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from holdfast.bounded import Bounded
from holdfast.decide import Outcome
from holdfast.engines.sqlite.log import LogHeader, Span, one_commit_later
from holdfast.rows import Address, Namespace, Row

CACHE_BYTES: Final = 32 * 1024 * 1024
"""How much memory the rows of a store take at most, by default."""
ROW_BYTES: Final = 640
"""What a row takes in memory in addition to its value, with its address and its place in the dictionary."""
SMALL: Final = 2_048
"""The size of the largest value that a decision takes from here, in bytes."""
MAX_NAMESPACES: Final = 4_096


class RowCache:
    """Rows and namespaces of a file, up to a number of bytes. See the module for when they hold.

    Only the event loop changes them; other threads may call `peek`. There are two generations: when one is
    full, the one before it is dropped, and a row of the older one that is used moves to the newer. Dropping
    rows one at a time would cost microseconds each.

    Args:
        size: How many bytes to keep at most; 0 to keep nothing.
        writing: The jobs of the writer whose effect is not learned yet. The header may change by them.
    """

    def __init__(self, size: int = CACHE_BYTES, writing: Collection[object] = ()) -> None:
        self._half = size // 2
        self._rows: dict[Address, Row] = {}
        self._before: dict[Address, Row] = {}
        self._bytes = 0
        self._namespaces: Bounded[str, Namespace] = Bounded(MAX_NAMESPACES)
        self._header: Callable[[], bytes] | None = None
        self._at: bytes | None = None
        """The header of the file that the rows are of; None if it is not known."""
        self._writing = writing

    def follow(self, header: LogHeader | None) -> None:
        """Let readers use the rows as long as this header stays the same; None ends that."""
        self._header = None if header is None or not self._half else header.read
        self._at = None

    # For readers.

    def fresh(self) -> bytes | None:
        """Return the header that the rows are of if it is still that of the file; None if they can't be used.

        If others have written, everything is forgotten.
        """
        if self._header is None:
            return None
        header = self._header()
        if header != self._at:
            if self._writing:  # most likely this process has: what it wrote is learned in a moment
                return None
            self.forget()
            self._at = header
        return self._at

    def get(self, address: Address) -> Row | None:
        """Return a row, after `fresh`."""
        row = self._rows.get(address)
        if row is None and self._before:
            row = self._before.get(address)
            if row is not None:
                self._put(address, row)
        return row

    def keep(self, at: bytes, rows: Iterable[tuple[Address, Row]]) -> bool:
        """Keep rows that were read from the file after `fresh` returned `at`.

        Returns:
            False if the file has changed since: the rows may be newer than others that were here.
        """
        if self._header is None or self._at is not at or self._header() != at:
            return False
        for address, row in rows:
            self._put(address, row)
        return True

    def peek(self, address: Address) -> Row | None:
        """Return a row if it is here and holds now. Any thread may call this."""
        header, at = self._header, self._at
        if header is None or header() != at:
            return None
        return self._rows.get(address) or self._before.get(address)

    # For decisions.

    def add_rows(self, rows: dict[Address, Row], wanted: Mapping[Address, bool]) -> dict[Address, bool]:
        """Add the wanted rows that are here. Returns the others, unless they are known with their values.

        Large rows are loaded, where their bytes are counted.
        """
        newer, older = self._rows, self._before
        missing = {}
        for address, shown in wanted.items():
            row = newer.get(address) or older.get(address)
            if row is not None and row.size <= SMALL:
                rows[address] = row
            elif (row := rows.get(address)) is None or row.value is None:
                missing[address] = shown
        return missing

    def add_namespaces(self, namespaces: dict[str, Namespace], wanted: Iterable[str]) -> list[str]:
        """Add the wanted namespaces that are here. Returns those that are not known."""
        missing = []
        for name in wanted:
            if name not in namespaces:
                namespace = self._namespaces.get(name)
                if namespace is None:
                    missing.append(name)
                else:
                    namespaces[name] = namespace
        return missing

    def learn(self, outcome: Outcome, span: Span | None) -> None:
        """Take note of a commit of this process."""
        self._move(span)
        if outcome.runs:  # only the database knows which entries were removed
            self._drop_rows()
        for address, row in outcome.rows.items():
            if row is not None:
                self._put(address, row)
            else:
                self._remove(address)
        for namespace in outcome.namespaces:
            self._namespaces.keep(namespace.name, namespace)
        if span is not None:
            self._at = span[1]

    def pass_over(self, span: Span | None) -> None:
        """Take note of a commit of this process that has changed no row."""
        self._move(span)
        if span is not None:
            self._at = span[1]

    def forget(self) -> None:
        """Forget everything: it is not known what the file contains."""
        self._at = None
        self._drop_rows()
        self._namespaces.clear()

    def _move(self, span: Span | None) -> None:
        """Forget everything if not only this commit has changed the file."""
        if span is None:
            return
        before, after = span
        if before == after:  # what was mapped is not what SQLite uses
            self.follow(None)
        elif before != self._at or not one_commit_later(before, after):
            self.forget()

    def _drop_rows(self) -> None:
        self._rows, self._before, self._bytes = {}, {}, 0

    def _put(self, address: Address, row: Row) -> None:
        self._remove(address)  # an address is never in both, since `peek` may look while they change places
        size = row.size + ROW_BYTES
        if size > self._half or row.value is None or row.data is not None:
            return
        if self._bytes + size > self._half:
            self._before, self._rows, self._bytes = self._rows, {}, 0
        self._rows[address] = row
        self._bytes += size

    def _remove(self, address: Address) -> None:
        self._before.pop(address, None)
        removed = self._rows.pop(address, None)
        if removed is not None:
            self._bytes -= removed.size + ROW_BYTES
