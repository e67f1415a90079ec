"""An import: lines become entries, and entries are written in chunks.

Law: a chunk is written as a whole or not at all, and only after all of its lines were found valid. Written
chunks stay, so that an interrupted import can resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.clock import moment
from holdfast.edges.cli.export_format import read_entry
from holdfast.errors import HoldfastError, ValidationError
from holdfast.rules import MAX_BATCH, MAX_TRANSFER_BYTES, MAX_VALUE_BYTES, semantic_root

if TYPE_CHECKING:
    from holdfast.handles.kv import KV
    from holdfast.model import Entry
    from holdfast.store import Store

_MARGIN: Final = 256
"""Bytes that a line counts in addition to its length."""
_DESCRIBED: Final = 10
"""Maximum number of bad lines that are described."""


class ImportCounts(msgspec.Struct, kw_only=True):
    """Counts of lines: skipped entries already existed, expired ones have passed their deadline."""

    namespace: str
    keeps_versions: bool
    dry_run: bool
    written: int = 0
    expired: int = 0
    skipped: int = 0
    policy_set: bool = False


class Importer:
    """Takes the lines of an export, in their order.

    Args:
        store: The store to write to.
        keys: The namespace.
        after: The version after which to resume an import that kept versions; 0 to start from the beginning.
        keeps_versions: Whether entries keep their versions.
        dry_run: Whether lines are only checked.
        most: The size of the largest value that the namespace allows; the usual limit if None.
    """

    def __init__(
        self,
        store: Store,
        keys: KV,
        *,
        after: int,
        keeps_versions: bool,
        dry_run: bool,
        most: int | None = None,
    ) -> None:
        self._store = store
        self._keys = keys
        self._after = after
        self._joined = after == 0
        self._verbs = store.verbs(keys.namespace, root=semantic_root(keys.namespace))
        self._most = most or MAX_VALUE_BYTES
        self._last = 0
        self._chunk: list[Entry] = []
        self._room = MAX_TRANSFER_BYTES
        self._bad: list[str] = []
        self.tally = ImportCounts(namespace=keys.namespace, keeps_versions=keeps_versions, dry_run=dry_run)

    async def take(self, number: int, line: bytes) -> None:
        """Take a line; errors in it are raised when its chunk is written."""
        try:
            entry = read_entry(line, self._verbs, most=self._most)
            self._in_order(entry)
        except HoldfastError as error:
            self._bad.append(f"line {number}: {error.message}")
            return
        if 0 < entry.version <= self._after:
            await self._skip(entry)
            return
        size = len(line) + _MARGIN
        if size > self._room or len(self._chunk) == MAX_BATCH:
            await self._write()
        self._room -= size
        self._chunk.append(entry)

    async def finish(self) -> None:
        """Write the last chunk.

        Raises:
            ValidationError: A line of the last chunk is bad, or in a dry run any line.
        """
        await self._write()
        if self._bad:
            raise ValidationError(_described(self._bad), field="line")

    def _in_order(self, entry: Entry) -> None:
        if not self.tally.keeps_versions or entry.version == 0:
            return
        if entry.version <= self._last:
            raise ValidationError(
                f"version {entry.version} comes after {self._last}, but versions are kept only in "
                "ascending order"
            )
        self._last = entry.version

    async def _skip(self, entry: Entry) -> None:
        """Skip an existing entry. The last version of the namespace must belong to such an entry."""
        self.tally.skipped += 1
        if entry.version == self._after:
            found = await self._keys.get(entry.key)
            self._joined = self._over(entry) or (found is not None and found.version == entry.version)

    async def _write(self) -> None:
        if not self._joined:
            raise ValidationError(
                f"{self._keys.namespace} does not end where an import of this file stopped: its last "
                f"version, {self._after}, is not in the file. Without --resume, all is imported "
                "under new versions",
                field="resume",
            )
        if self._bad and not self.tally.dry_run:
            raise ValidationError(_described(self._bad), field="line")
        written = sum(not self._over(entry) for entry in self._chunk)
        if self._chunk and not self.tally.dry_run:
            written = await self._store.load(
                self._keys.namespace, self._chunk, keep_versions=self.tally.keeps_versions
            )
        self.tally.written += written
        self.tally.expired += len(self._chunk) - written
        self._chunk, self._room = [], MAX_TRANSFER_BYTES

    def _over(self, entry: Entry) -> bool:
        return entry.expires_at is not None and entry.expires_at <= moment(self._store.now())


def _described(bad: list[str]) -> str:
    more = len(bad) - _DESCRIBED
    return "; ".join(bad[:_DESCRIBED]) + (f"; and {more} lines more" if more > 0 else "")
