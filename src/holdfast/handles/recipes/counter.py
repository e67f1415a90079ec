"""A number that many callers add to at once.

Adding is one `incr`, so that no addition is lost and none has to be repeated.
"""

from __future__ import annotations

from typing import Unpack

from holdfast.errors import ValidationError
from holdfast.handles.kv import KV
from holdfast.handles.recipes.names import entry_key
from holdfast.verbs.fields import Provenance


class Counter:
    """A counter of a namespace. Get one from `KV.counter`."""

    def __init__(self, kv: KV, name: str, *, ttl: int | None = None) -> None:
        self.name = name
        self._key = entry_key(kv, "counter", name)
        self._kv = kv
        self._ttl = ttl

    async def add(self, number: float = 1, **provenance: Unpack[Provenance]) -> int | float:
        """Add a number.

        Args:
            number: What to add, which may be negative.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The sum.

        Raises:
            ValidationError: The stored value is not a number, or the sum is too large.

        Example:
            `hits = await kv.counter("hits").add(1)`
        """
        entry = await self._kv.incr(self._key, number, ttl=self._ttl, **provenance)
        return _number(entry.value, self.name)

    async def value(self) -> int | float:
        """Get the sum.

        Returns:
            The sum; 0 before the first addition and after the counter has expired.

        Raises:
            ValidationError: The stored value is not a number.
        """
        entry = await self._kv.get(self._key)
        return 0 if entry is None else _number(entry.value, self.name)


def _number(value: object, name: str) -> int | float:
    """Return the stored value if it is a number. Any writer may have stored something else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise ValidationError(f"the value of counter {name!r} is not a number", field="value")
