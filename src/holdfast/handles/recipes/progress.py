"""Checkpoints and cursors: recorded progress, advanced by one worker at a time and never backwards.

Each step is compared with the entry that was loaded. A conflict is raised to the caller, which knows what has
to be done again. Nothing here repeats a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from holdfast.errors import ValidationError
from holdfast.handles.kv import KV
from holdfast.handles.recipes.names import entry_key
from holdfast.model import Entry
from holdfast.verbs.fields import Provenance


class Progress:
    """A checkpoint or a cursor. Get one from `KV.checkpoint` or `KV.cursor`.

    Each object remembers the entry that it loaded or wrote last, so use one per worker.
    """

    def __init__(
        self,
        kv: KV,
        name: str,
        *,
        purpose: str,
        order: Callable[[Any], Any] | None = None,
        owner: str | None = None,
    ) -> None:
        self.name = name
        self._key = entry_key(kv, purpose, name)
        self._kv = kv
        self._order = order
        self._semantics = {"purpose": purpose, "producer": owner}
        self._owner: Provenance = {} if owner is None else {"writer": owner}
        self._loaded: Entry | None = None

    async def load(self) -> Entry | None:
        """Load the entry. The next `advance` starts from here.

        Returns:
            The entry, or None if there is none yet.
        """
        self._loaded = await self._kv.get(self._key)
        return self._loaded

    async def advance(self, value: Any, **provenance: Unpack[Provenance]) -> Entry:
        """Replace the value that was loaded. If nothing was loaded, there must be no entry yet.

        Args:
            value: The new value.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The new entry.

        Raises:
            VersionConflict: Another worker has advanced meanwhile; `current` is its entry. Load again and
                continue from there.
            ValidationError: The `order` that was given puts `value` before what was loaded.

        Example:
            `await progress.advance({"row": 2_000})`
        """
        before = self._loaded
        if before is not None and self._order is not None and self._order(value) < self._order(before.value):
            raise ValidationError(
                f"{self._semantics['purpose']} {self.name!r} would go back from version {before.version}",
                field="value",
            )
        self._loaded = await self._kv.set(
            self._key,
            value,
            expected_version=0 if before is None else before.version,
            semantics=self._semantics,
            **(self._owner | provenance),
        )
        return self._loaded
