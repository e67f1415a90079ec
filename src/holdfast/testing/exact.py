"""Comparing without mercy: values as JSON, and refusals by class, code, field and words.

Law: nothing here looks into a store; it compares what a caller was given with what a caller may expect.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.model import Entry

E = TypeVar("E", bound=HoldfastError)


def text_of(value: Any) -> str:
    """The JSON text of a value: 1, 1.0 and true are three values, and so are 0.0 and -0.0."""
    return json.dumps(value, sort_keys=True)


def same(found: Any, expected: Any) -> bool:
    """Whether two values are the same JSON."""
    return text_of(found) == text_of(expected)


def present(entry: Entry | HoldfastError | None) -> Entry:
    """The entry that must be there."""
    assert entry is not None, "there is no entry"
    if isinstance(entry, HoldfastError):
        raise entry
    return entry


@contextmanager
def refusal(
    kind: type[E], *, field: str | None = None, says: str = "", about: object = ""
) -> Iterator[pytest.ExceptionInfo[E]]:
    """What is done inside must be refused with exactly this error.

    Args:
        kind: The class of the error, no subclass of it.
        field: The field that the error names.
        says: What its message holds.
        about: Shown when the refusal does not come, to tell the cases of a table apart.
    """
    try:
        with pytest.raises(kind) as caught:
            yield caught
    except pytest.fail.Exception as missing:
        pytest.fail(f"{missing} {about!r}")
    assert type(caught.value) is kind
    assert caught.value.field == field, about
    assert says in caught.value.message
