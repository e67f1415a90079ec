"""What a planted bug is: a few characters of the library's source, changed the way somebody might.

Law: plain data. A plant names the text that it replaces exactly, and the tests that are asked first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
LIBRARY: Final = "src/holdfast"


class Plant(NamedTuple):
    """A bug.

    Attributes:
        name: What it gets wrong, in a few words.
        file: Where it is planted, below the library's folder.
        old: The text that it replaces, which occurs there once.
        new: What stands there instead.
        tests: Arguments of pytest for the tests that should find it. One that they don't find is looked for
            by the whole fast part of the suite.
        equivalent: Why nobody can notice it, in a sentence, if that is so.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str | None = None

    def planted(self, source: str) -> str:
        """The source with the bug in it.

        Raises:
            ValueError: The text that it replaces is not there exactly once.
        """
        if source.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: {self.old!r} occurs {source.count(self.old)} times in {self.file}"
            )
        return source.replace(self.old, self.new)
