"""A run: how many rounds of how many seconds, and the book that they go into.

Law: no scenario is known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.book import Book


@dataclass
class Run:
    """What a scenario is given."""

    count: int = 5
    seconds: float = 1.0
    book: Book = field(default_factory=Book)

    def rounds(self) -> range:
        """The rounds, to be gone through in order."""
        return range(self.count)
