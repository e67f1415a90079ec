"""What a planted bug is, and how it is planted.

A bug is a function that patches the library. Its name says what goes wrong and its docstring which rule that
breaks. The decorator names the tests that must fail:

    @bug("tests/unit/test_trash.py")
    def the_trash_keeps_an_entry_for_eight_days(patch: Patches) -> None:
        '''The trash keeps an entry for seven days.'''
        patch.set(rules, "TRASH_RETENTION", 8 * 86_400)

Patches are made in the process that runs the tests and in its forks, not in other programs that tests start.
"""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

SUBJECTS: Final = ("verbs", "groups", "storage", "cluster", "moves", "recipes", "sync", "http")
"""The modules of this package that hold the bugs."""

_bugs: Final[dict[str, Bug]] = {}


class Bug(NamedTuple):
    """A bug: its name, the rule that it breaks, how it is planted, and pytest's arguments to find it."""

    name: str
    rule: str
    plant: Callable[[Patches], None]
    tests: tuple[str, ...]


class Patches:
    """Changes to the library, which `undo` takes back.

    `places` are the owners and names that were changed, with what was there before.
    """

    def __init__(self) -> None:
        self.places: list[tuple[Any, Any, Any]] = []

    def set(self, owner: Any, name: Any, value: Any) -> None:
        """Put a value in the place of an attribute, or of an item if the owner is a dictionary."""
        if isinstance(owner, dict):
            self.places.append((owner, name, owner[name]))
            owner[name] = value
        else:
            self.places.append((owner, name, inspect.getattr_static(owner, name)))
            setattr(owner, name, value)

    def wrap(self, owner: Any, name: Any, wrong: Callable[..., Any]) -> None:
        """Call `wrong` instead of a function, with the function itself as its first argument."""
        right = owner[name] if isinstance(owner, dict) else getattr(owner, name)

        @wraps(right)
        def wrapper(*args: Any, **fields: Any) -> Any:
            return wrong(right, *args, **fields)

        self.set(owner, name, wrapper)

    def within(
        self,
        outer: tuple[Any, str],
        inner: tuple[Any, str],
        wrong: Callable[..., Any] = lambda *args, **fields: None,
    ) -> None:
        """Call `wrong` instead of the inner function wherever the outer one calls it.

        Both are an owner with a name, and each may be a coroutine function. Without `wrong` nothing is done.
        """
        inside: ContextVar[bool] = ContextVar("inside", default=False)
        right_outer, right_inner = getattr(*outer), getattr(*inner)

        @wraps(right_inner)
        def called(*args: Any, **fields: Any) -> Any:
            if not inside.get():
                return right_inner(*args, **fields)
            result = wrong(*args, **fields)
            return _soon(result) if inspect.iscoroutinefunction(right_inner) else result

        @wraps(right_outer)
        def entered(*args: Any, **fields: Any) -> Any:
            token = inside.set(True)
            try:
                return right_outer(*args, **fields)
            finally:
                inside.reset(token)

        @wraps(right_outer)
        async def entered_async(*args: Any, **fields: Any) -> Any:
            token = inside.set(True)
            try:
                return await right_outer(*args, **fields)
            finally:
                inside.reset(token)

        self.set(*inner, called)
        self.set(*outer, entered_async if inspect.iscoroutinefunction(right_outer) else entered)

    def undo(self) -> None:
        """Put back what was there before."""
        while self.places:
            owner, name, before = self.places.pop()
            if isinstance(owner, dict):
                owner[name] = before
            else:
                setattr(owner, name, before)


async def _soon(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


def bug(*tests: str) -> Callable[[Callable[[Patches], None]], Callable[[Patches], None]]:
    """Add a function to the list of bugs. The tests are arguments of pytest."""

    def add(plant: Callable[[Patches], None]) -> Callable[[Patches], None]:
        name = plant.__name__
        assert name not in _bugs, f"two bugs are called {name}"
        _bugs[name] = Bug(name, (plant.__doc__ or "").strip(), plant, tests)
        return plant

    return add


def all_bugs() -> dict[str, Bug]:
    """Return all bugs by name."""
    for subject in SUBJECTS:
        import_module(f"tests.mutate.{subject}")
    return _bugs
