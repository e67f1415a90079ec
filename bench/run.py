"""A run: how many rounds of how many seconds, and the book that they go into."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from bench.book import Book

FINER: Final = 3


@dataclass
class Run:
    """What a scenario is given."""

    count: int = 5
    seconds: float = 1.0
    book: Book = field(default_factory=Book)

    def rounds(self) -> range:
        """The rounds, to be gone through in order."""
        return range(self.count)

    def finely(self) -> Run:
        """As long in all, in more and shorter turns: what the machine does then meets all sides alike."""
        return replace(self, count=self.count * FINER, seconds=self.seconds / FINER)
