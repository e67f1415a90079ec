"""The reference of errors says of every code when it is met, what it carries and what to do; no code is idle.

What the page says is held against the source. Where a code is raised is found by reading the source,
never by a list that is kept here.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from holdfast.edges.cli.output import EXIT_CODES
from holdfast.errors import error_classes
from holdfast.wire.errors import NUMBERS
from tests.docs.sources import trees
from tests.docs.test_reference import read, section, table_rows
from tools.pages.errors import ADVICE, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS: Final = {kind.code: kind for kind in error_classes()}


def made_in(trees: Iterable[ast.Module]) -> dict[str, set[str]]:
    """The classes that modules make errors of, by name, and the arguments that each is ever given."""
    made: dict[str, set[str]] = defaultdict(set)
    names = {kind.__name__ for kind in KINDS.values()}
    for tree in trees:
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)) if called in names:
                    made[called].update(keyword.arg or "" for keyword in node.keywords)
    return made


def test_every_code_has_its_sentences() -> None:
    """A user finds every code, when it is met and what to do about it, and no code that does not exist."""
    assert set(ADVICE) == set(KINDS)
    rows = {row[0]: row[1:] for row in table_rows(read("reference/errors.md")) if row[0].startswith("[")}
    assert rows == {
        f"[`{code}`](#{code.lower()})": [
            kind.__name__,
            "yes" if kind.retryable else "no",
            str(NUMBERS[code]),
            str(EXIT_CODES[code]),
        ]
        for code, kind in KINDS.items()
    }
    assert all(advice.when.endswith(".") and advice.do.endswith(".") for advice in ADVICE.values())


def test_no_code_is_idle() -> None:
    """Every code is one that users can meet: the package raises it somewhere, with what the page says.

    The page describes `field` where the package ever sets it, and every other field that the error has.
    """
    called = "|".join(kind.__name__ for kind in KINDS.values())
    made = made_in(trees(re.compile(rf"\b(?:{called})\s*\(")))
    assert [code for code, kind in KINDS.items() if kind.__name__ not in made] == []
    for code, kind in KINDS.items():
        text = section(read("reference/errors.md"), f"`{code}`")
        assert ("field" in made[kind.__name__]) == bool(ADVICE[code].field) == ("**`field`:**" in text), code
        assert all(f"`{name}`" in text for name in fields_of(kind)), code


def test_the_reader_of_sources_finds_what_is_made() -> None:
    """The tests above prove nothing about errors that are only mentioned, caught or matched."""
    mentioned = (
        "match error:\n    case Busy():\n        pass\ntry:\n    f(Timeout)\nexcept Fenced:\n    pass\n"
    )
    sources = (mentioned, "raise KeyNotFound('x', field='key')", "x = holdfast.Unavailable('y')")
    made = made_in(map(ast.parse, sources))
    assert made == {"KeyNotFound": {"field"}, "Unavailable": set()}
