"""Conditions on items, for writes and as filters, and how they are made in Python.

    attr("score").gt(5) & ~attr("meta.closed").exists()

Law: a condition is a frozen value. `holdfast.tables.condition_json` checks conditions, and
`holdfast.tables.evaluation` evaluates them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.tables.paths import Path, path_of, shown


class Condition(msgspec.Struct, frozen=True, tag=True):
    """A condition on an item. Combine conditions with `&`, `|` and `~`."""

    def __and__(self, other: Condition) -> Condition:
        return Every((*_members(self, Every), *_members(other, Every)))

    def __or__(self, other: Condition) -> Condition:
        return Some((*_members(self, Some), *_members(other, Some)))

    def __invert__(self) -> Condition:
        return self.part if isinstance(self, Not) else Not(self)


class Every(Condition, frozen=True, tag=True):
    """A condition that holds if all of its parts hold."""

    parts: tuple[Condition, ...]


class Some(Condition, frozen=True, tag=True):
    """A condition that holds if at least one of its parts holds."""

    parts: tuple[Condition, ...]


class Not(Condition, frozen=True, tag=True):
    """A condition that holds if its part does not."""

    part: Condition


class Comparison(Condition, frozen=True, tag=True):
    """A comparison of the value at a path, or of its size if `sized`, with a value."""

    path: Path
    operator: str
    value: Any
    sized: bool = False

    def __str__(self) -> str:
        return f"{self.operator} at {shown(self.path)}"


class Attribute(msgspec.Struct, frozen=True):
    """The value at a path of an item, or its size, for use in conditions. Get one from `holdfast.attr`."""

    path: Path
    sized: bool = False

    def eq(self, value: Any) -> Condition:
        """Require the same JSON value; 1 and 1.0 are the same.

        Args:
            value: The value.

        Returns:
            The condition.
        """
        return self._test("eq", value)

    def ne(self, value: Any) -> Condition:
        """Require that there is a value, and that it is another one.

        Args:
            value: The other value.

        Returns:
            The condition.
        """
        return self._test("ne", value)

    def lt(self, value: Any) -> Condition:
        """Require a number that is less, or text that comes before.

        Args:
            value: A number or text.

        Returns:
            The condition.
        """
        return self._test("lt", value)

    def lte(self, value: Any) -> Condition:
        """Require a number or text that is less or equal.

        Args:
            value: A number or text.

        Returns:
            The condition.
        """
        return self._test("lte", value)

    def gt(self, value: Any) -> Condition:
        """Require a number that is greater, or text that comes after.

        Args:
            value: A number or text.

        Returns:
            The condition.
        """
        return self._test("gt", value)

    def gte(self, value: Any) -> Condition:
        """Require a number or text that is greater or equal.

        Args:
            value: A number or text.

        Returns:
            The condition.
        """
        return self._test("gte", value)

    def between(self, low: Any, high: Any) -> Condition:
        """Require a number or text within bounds.

        Args:
            low: The least value that is allowed.
            high: The greatest value that is allowed.

        Returns:
            The condition.
        """
        return self._test("between", [low, high])

    def in_(self, values: Sequence[Any]) -> Condition:
        """Require one of several values.

        Args:
            values: The values.

        Returns:
            The condition.
        """
        return self._test("in", list(values))

    def begins_with(self, text: str) -> Condition:
        """Require text with this beginning.

        Args:
            text: The beginning.

        Returns:
            The condition.
        """
        return self._test("begins_with", text)

    def contains(self, value: Any) -> Condition:
        """Require text that contains this text, or a list that has this member.

        Args:
            value: The text or the member.

        Returns:
            The condition.
        """
        return self._test("contains", value)

    def exists(self) -> Condition:
        """Require that there is a value, which may be null."""
        return self._test("exists", True)

    def not_exists(self) -> Condition:
        """Require that there is no value."""
        return self._test("not_exists", True)

    def type_is(self, name: str) -> Condition:
        """Require a type.

        Args:
            name: `string`, `number`, `boolean`, `null`, `list` or `object`.

        Returns:
            The condition.
        """
        return self._test("type", name)

    def size(self) -> Attribute:
        """Get the number of a text's characters, or of a list's or object's members, for a condition."""
        return Attribute(self.path, sized=True)

    def _test(self, name: str, value: Any) -> Condition:
        return Comparison(self.path, name, value, self.sized)


def attr(path: str | Sequence[str | int]) -> Attribute:
    """Get the value at a path of an item, for use in a condition.

    Args:
        path: Text such as `meta.tag` or `list[0].x`, or a list of steps.

    Returns:
        The attribute, whose methods make conditions.

    Raises:
        ValidationError: The path is not legal.

    Example:
        `condition = holdfast.attr("score").gt(5) & ~holdfast.attr("meta.closed").exists()`
    """
    return Attribute(path_of(path, field="path"))


def _members(condition: Condition, kind: type[Every | Some]) -> tuple[Condition, ...]:
    return condition.parts if isinstance(condition, kind) else (condition,)
