"""Filters of LangGraph's store: which values and which namespaces an operation asks for.

Law: pure functions. A comparison of values that have no order is false and never an error, as in a database.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_ORDER: Final = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_ANY: Final = "*"
_MISSING: Final = object()


def matches(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Return whether a value meets a filter, whose names may be paths with dots.

    Raises:
        ValueError: The filter has an unknown operator.
    """
    return all(_meets(_at(value, name), asked) for name, asked in (wanted or {}).items())


def meets(namespace: Sequence[str], kind: str, path: Sequence[str]) -> bool:
    """Return whether a namespace meets a condition of the kind `prefix` or `suffix`.

    Raises:
        ValueError: The kind is neither.
    """
    if kind == "prefix":
        return _begins(namespace, path)
    if kind == "suffix":
        return _begins(namespace[::-1], path[::-1])
    raise ValueError(f"a condition must be of the kind 'prefix' or 'suffix', not {kind!r}")


def literal(path: Sequence[str]) -> tuple[str, ...]:
    """Return the labels before the first `*` of a path."""
    labels = tuple(path)
    return labels[: labels.index(_ANY)] if _ANY in labels else labels


def _begins(namespace: Sequence[str], path: Sequence[str]) -> bool:
    """Return whether a namespace begins with a path, in which `*` stands for any label."""
    return len(namespace) >= len(path) and all(
        asked in (_ANY, label) for label, asked in zip(namespace, path, strict=False)
    )


def _at(value: Mapping[str, Any], name: str) -> Any:
    """Return the member of that name, or the one at that path; `_MISSING` if there is neither."""
    if name in value:
        return value[name]
    first, dot, rest = name.partition(".")
    inner = value.get(first)
    return _at(inner, rest) if dot and isinstance(inner, Mapping) else _MISSING


def _meets(found: Any, asked: Any) -> bool:
    if isinstance(asked, Mapping):
        if any(name.startswith("$") for name in asked):
            return all(_compared(found, name, other) for name, other in asked.items())
        return isinstance(found, Mapping) and all(
            _meets(found.get(name, _MISSING), other) for name, other in asked.items()
        )
    if isinstance(asked, list | tuple):
        return isinstance(found, list | tuple) and len(found) == len(asked) and all(map(_meets, found, asked))
    return _same(found, asked)


def _compared(found: Any, name: str, other: Any) -> bool:
    if name == "$eq":
        return _meets(found, other)
    if name == "$ne":
        return not _meets(found, other)
    if name not in _ORDER:
        raise ValueError(f"unsupported operator {name!r}: use $eq, $ne, {', '.join(_ORDER)}")
    ordered = all(_is_number(one) for one in (found, other)) or all(
        isinstance(one, str) for one in (found, other)
    )
    return ordered and bool(_ORDER[name](found, other))


def _same(found: Any, asked: Any) -> bool:
    """Return whether two values are the same JSON, where true is not 1 and what is missing is null."""
    if found is _MISSING:
        return asked is None
    return bool(found == asked) and isinstance(found, bool) == isinstance(asked, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
