"""Strict comparison: values as JSON text, and refusals by class, code, field and message.

Nothing here reads a store. It compares what a caller got with what a caller may expect.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from holdfast.errors import HoldfastError

E = TypeVar("E", bound=HoldfastError)
T = TypeVar("T")


def text_of(value: Any) -> str:
    """Get the JSON text of a value: 1, 1.0 and true are three values, and so are 0.0 and -0.0.

    Args:
        value: A JSON value.

    Returns:
        Its text, with the names of objects sorted.
    """
    return json.dumps(value, sort_keys=True)


def same(found: Any, expected: Any) -> bool:
    """Compare two values as JSON.

    Args:
        found: A JSON value.
        expected: Another one.

    Returns:
        True if their texts are the same.
    """
    return text_of(found) == text_of(expected)


def present(answer: T | HoldfastError | None) -> T:
    """Require that there is an entry, an item, a blob or a letter.

    Args:
        answer: What a call returned.

    Returns:
        The same.

    Raises:
        AssertionError: There is none.
        HoldfastError: The call returned this error in its place.
    """
    assert answer is not None, "there is nothing"
    if isinstance(answer, HoldfastError):
        raise answer
    return answer


@contextmanager
def refusal(
    kind: type[E], *, field: str | None = None, says: str = "", about: object = ""
) -> Iterator[pytest.ExceptionInfo[E]]:
    """Require that the body of a `with` block is refused with exactly this error.

    Args:
        kind: The class of the error, and no subclass of it.
        field: The field that the error names.
        says: Text that its message must contain.
        about: Shown when the refusal does not come, to tell the cases of a table apart.

    Yields:
        What pytest knows of the error.
    """
    try:
        with pytest.raises(kind) as caught:
            yield caught
    except pytest.fail.Exception as missing:
        pytest.fail(f"{missing} {about!r}")
    assert type(caught.value) is kind
    assert caught.value.field == field, about
    assert says in caught.value.message
