"""Inspection of blobs: bytes that are not those that were put, and uploads that are referred to wrongly.

Law: as in `holdfast.operators.inspection`. All bytes are read, a few parts at a time.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.blobs.manifest import EMPTY, checksum_after, manifest_of, part_space, upload_of
from holdfast.decide.entries import trashed
from holdfast.engine import Scan
from holdfast.errors import DatabaseError
from holdfast.rows import DROPPED, KV, PARTS, TRASH, UPLOAD, Address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast.blobs.manifest import Manifest
    from holdfast.engine import Engine
    from holdfast.rows import Row

AT_ONCE: Final = 4
"""Number of parts that are read at a time."""


class Bytes(msgspec.Struct, frozen=True, kw_only=True):
    """The findings about the parts of an upload. `wrong` are those that don't match their checksums."""

    parts: int
    size: int
    checksum: str
    wrong: list[int]


class BlobInspection:
    """Inspects the blobs of a namespace.

    Args:
        engine: Where their rows are kept.
        namespace: The namespace's full name.
        walk: Yields the keys and rows of a space.
        tell: Called with each problem.
        count: Called with the key and the row of each part.
    """

    def __init__(
        self,
        engine: Engine,
        namespace: str,
        *,
        walk: Callable[[str, str], AsyncIterator[tuple[str | bytes, Row]]],
        tell: Callable[[str], None],
        count: Callable[[bytes, Row], None],
    ) -> None:
        self._engine = engine
        self._namespace = namespace
        self._walk = walk
        self._tell = tell
        self._count = count
        self._references: Counter[int] = Counter()
        self._known: dict[int, Bytes] = {}

    async def run(self) -> None:
        """Read every part, then compare every blob with its parts."""
        async for key, row in self._walk(self._namespace, UPLOAD):
            assert isinstance(key, bytes)
            self._known[int.from_bytes(key, "big")] = await self._bytes(int.from_bytes(key, "big"))
            self._references[int.from_bytes(key, "big")] -= upload_of(row.value).references
        async for key, _ in self._walk(self._namespace, DROPPED):
            space = bytes(key).decode() if isinstance(key, bytes) else key
            if space.startswith(PARTS):
                async for part, row in self._parts(space):
                    self._count(part, row)
        for space in (KV, TRASH):
            async for key, row in self._walk(self._namespace, space):
                self._compare(space, key if isinstance(key, str) else key.decode(), row)
        for upload, by in self._references.items():
            if by and upload in self._known:
                self._tell(f"upload {upload} is counted {-by:+d} times too often by its record")

    def _compare(self, space: str, name: str, row: Row) -> None:
        """Compare a blob with the parts of its upload."""
        try:
            text = row.value if space == KV else bytes(trashed(name, row).value).decode()
            manifest = manifest_of(name, text)
        except DatabaseError as error:
            self._tell(error.message)
            return
        self._references[manifest.upload] += 1
        if manifest.upload:
            self._compare_bytes(name, manifest)

    def _compare_bytes(self, name: str, manifest: Manifest) -> None:
        found = self._known.get(manifest.upload)
        if found is None:
            self._tell(f"the bytes of blob {name!r} are missing")
        elif found.wrong:
            parts = ", ".join(map(str, found.wrong[:5]))
            self._tell(f"bytes of blob {name!r} were changed: parts {parts} of {manifest.parts}")
        elif (found.parts, found.size) != (manifest.parts, manifest.size):
            self._tell(f"blob {name!r} has {found.size} of {manifest.size} bytes")
        elif found.checksum != manifest.checksum:
            self._tell(f"blob {name!r} does not match its checksum")

    async def _bytes(self, upload: int) -> Bytes:
        parts = size = 0
        chain, wrong = EMPTY, []
        async for key, row in self._parts(part_space(upload)):
            number, data = int.from_bytes(key, "big"), row.data or b""
            self._count(key, row)
            checksum = sha256(data).hexdigest()
            if checksum != row.value:
                wrong.append(number)
            chain = checksum_after(chain, checksum, number)
            parts, size = parts + 1, size + len(data)
        return Bytes(parts=parts, size=size, checksum=chain, wrong=wrong)

    async def _parts(self, space: str) -> AsyncIterator[tuple[bytes, Row]]:
        after: bytes | None = None
        more = True
        while more:
            query = Scan(
                namespace=self._namespace,
                space=space,
                start=b"",
                after=after,
                limit=AT_ONCE,
                max_bytes=AT_ONCE * 4,
            )
            page = await self._engine.scan(query, 0)
            rows = await self._engine.read([Address(self._namespace, space, key) for key in page.keys], 0)
            for key, row in zip(page.keys, rows, strict=True):
                if row is not None:
                    yield key, row
            more, after = page.more, page.keys[-1] if page.keys else None
