"""Bugs in blobs: bytes that are lost, mixed, kept for ever or not verified.

Law: as in `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_RULES: Final = ("tests/conformance/test_memory.py",)
_HTTP: Final = ("tests/edges/http/test_blobs.py",)

PLANTS: Final = (
    Plant(
        "the bytes of a replaced blob stay",
        "decide/blobs.py",
        "        release(draft, command.key, before.value)\n",
        "        pass\n",
        _RULES,
    ),
    Plant(
        "a blob is put before all its parts are there",
        "decide/blobs.py",
        "_require_whole(_unfinished(draft, command.upload), command)",
        "_unfinished(draft, command.upload)",
        ("tests/unit/test_blobs.py",),
    ),
    Plant(
        "a copy does not hold its bytes",
        "decide/blobs.py",
        "    refer(draft, manifest.upload, 1)\n",
        "",
        _RULES,
    ),
    Plant(
        "a part that is sent again is counted again",
        "decide/blobs.py",
        "if number < record.next or number in record.beyond:",
        "if number in record.beyond:",
        ("tests/unit/test_blobs.py",),
    ),
    Plant(
        "blobs that expire in a run leave their bytes",
        "decide/entries.py",
        "audited(namespace) or has_blobs(namespace.name):",
        "audited(namespace):",
        _RULES,
    ),
    Plant(
        "a blob that leaves the trash leaves its bytes",
        "decide/upkeep.py",
        "        release_trashed(draft, key.decode(), row)\n",
        "        pass\n",
        _RULES,
    ),
    Plant(
        "a blob in the trash is replaced without its bytes",
        "decide/entries.py",
        "        release_trashed(draft, key, replaced)\n",
        "        pass\n",
        _RULES,
    ),
    Plant(
        "readers get no grace",
        "upkeep/purge.py",
        "if early or not bytes(key).decode().startswith(PARTS) or row.updated_at + GRACE * 1000 <= now()",
        "if True",
        _RULES,
    ),
    Plant(
        "bytes are handed out unverified",
        "handles/blob_reader.py",
        "if checksum != row.value or len(row.data) != self._size_of(number):",
        "if len(row.data) != self._size_of(number):",
        ("tests/unit/test_blobs.py",),
    ),
    Plant(
        "a request id remembers the upload",
        "blobs/commands.py",
        "origin=self.origin.asked, upload=None, data=None)",
        "origin=self.origin.asked, data=None)",
        _RULES,
    ),
    Plant(
        "the policy's limit for values holds for nobody",
        "decide/policies.py",
        "    if size > most:\n        raise rules.too_large(size, most)",
        "    pass",
        _RULES,
    ),
    Plant(
        "a range over HTTP is applied to another version",
        "edges/http/blobs.py",
        "if chosen is None or (condition is not None and condition != tag.encode()):",
        "if chosen is None:",
        _HTTP,
    ),
)
