"""Reads expressions of PromQL, as far as rules and dashboards here use the language.

Strict. What is not understood raises, so that nothing goes unchecked. It tells what an expression refers
to; what it comes to is Prometheus' business.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

TOKENS: Final = re.compile(
    r"""\s*(?:
    (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<duration>\d+[smhdwy](?![A-Za-z0-9_]))
  | (?P<number>\d+(?:\.\d+)?(?:e\d+)?(?![A-Za-z0-9_.]))
  | (?P<word>[A-Za-z_:][A-Za-z0-9_:]*)
  | (?P<sign>=~|!~|==|!=|>=|<=|[-+*/%^<>=(){}\[\],])
)""",
    re.VERBOSE,
)
AGGREGATIONS: Final = frozenset({"sum", "min", "max", "avg", "count", "topk"})
FUNCTIONS: Final = frozenset(
    {"rate", "increase", "deriv", "histogram_quantile", "min_over_time", "max_over_time"}
)
OPERATORS: Final = frozenset(
    {"+", "-", "*", "/", "%", "==", "!=", ">", "<", ">=", "<=", "and", "or", "unless"}
)
MATCHES: Final = frozenset({"=", "!=", "=~", "!~"})


class Selector(NamedTuple):
    """A metric, and what is asked of its labels: (label, operator, value)."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]


class Grouping(NamedTuple):
    """Labels that are named outside of a selector, and the selectors that they are about.

    `every`: each of these selectors must have them; else one of them.
    """

    labels: tuple[str, ...]
    about: tuple[Selector, ...]
    every: bool


class Expression:
    """What an expression refers to.

    Raises:
        ValueError: It is not understood.
    """

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self.selectors: list[Selector] = []
        self.groupings: list[Grouping] = []
        self._operation()
        if self._at != len(self._tokens):
            raise ValueError(f"{self._next()!r} was not expected in {text!r}")

    def _operation(self) -> None:
        began = len(self.selectors)
        self._operand()
        while self._next() in OPERATORS:
            self._take()
            matching = self._next()
            labels = self._labels() if self._skip("on", "ignoring") else ()
            self._operand()
            if labels:
                about = tuple(self.selectors[began:])
                self.groupings.append(Grouping(labels, about, every=matching == "on"))

    def _operand(self) -> None:
        token, kind = self._next(), self._kind()
        if kind == "number":
            self._take()
        elif self._skip("("):
            self._operation()
            self._expect(")")
        elif kind != "word":
            raise ValueError(f"{token!r} was not expected")
        elif token in AGGREGATIONS:
            self._aggregation()
        elif token in FUNCTIONS:
            self._take()
            self._arguments()
        else:
            self._selector()

    def _aggregation(self) -> None:
        self._take()
        labels = self._labels() if self._skip("by") else ()
        began = len(self.selectors)
        self._arguments()
        if labels:
            self.groupings.append(Grouping(labels, tuple(self.selectors[began:]), every=True))

    def _arguments(self) -> None:
        self._expect("(")
        self._operation()
        while self._skip(","):
            self._operation()
        self._expect(")")

    def _selector(self) -> None:
        metric, matchers = self._take(), []
        if self._skip("{"):
            while not self._skip("}"):
                label, operator, value = self._word(), self._take(), self._take()
                if operator not in MATCHES or not value.startswith('"'):
                    raise ValueError(f"{label}{operator}{value} is no matcher")
                matchers.append((label, operator, value[1:-1]))
                if self._next() != "}":
                    self._expect(",")
        if self._skip("["):
            self._duration()
            self._expect("]")
        if self._skip("offset"):
            self._duration()
        self.selectors.append(Selector(metric, tuple(matchers)))

    def _labels(self) -> tuple[str, ...]:
        self._expect("(")
        labels = [self._word()]
        while self._skip(","):
            labels.append(self._word())
        self._expect(")")
        return tuple(labels)

    def _next(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _kind(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next()
        self._at += 1
        return token

    def _skip(self, *tokens: str) -> bool:
        found = self._next() in tokens
        self._at += found
        return found

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            raise ValueError(f"{token!r} was expected, not {self._next()!r}")

    def _word(self) -> str:
        if self._kind() != "word":
            raise ValueError(f"a name was expected, not {self._next()!r}")
        return self._take()

    def _duration(self) -> None:
        if self._kind() != "duration":
            raise ValueError(f"a duration was expected, not {self._next()!r}")
        self._take()


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = TOKENS.match(text, at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"{text[at : at + 20]!r} is not understood")
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found
