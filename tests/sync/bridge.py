"""A store of `holdfast.sync` that looks like an asynchronous one, so that the conformance suite can call it.

Every call of a verb goes through the facade, on the thread of the test. What the facade does not have, such
as the capabilities of an engine, is asked of the handle behind it.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from holdfast.sync.facade import Facade, Iteration

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator


class Bridge:
    """A facade with `await`."""

    def __init__(self, facade: Any) -> None:
        self._facade = facade

    def __getattr__(self, name: str) -> Any:
        handle = self._facade._handle
        if not hasattr(type(self._facade), name):
            return getattr(handle, name)
        if isinstance(inspect.getattr_static(type(handle), name, None), property):
            return bridged(getattr(self._facade, name))
        method, waits = getattr(self._facade, name), inspect.iscoroutinefunction(getattr(handle, name, None))
        if not callable(method):
            return bridged(method)

        async def awaited(*given: Any, **named: Any) -> Any:
            return bridged(method(*given, **named))

        return awaited if waits else lambda *given, **named: bridged(method(*given, **named))

    def __aiter__(self) -> AsyncIterator[Any]:
        return stream(iter(self._facade))

    async def aclose(self) -> None:
        """Close the store."""
        self._facade.close()

    async def __aenter__(self) -> Any:
        return bridged(self._facade.__enter__())

    async def __aexit__(self, *given: Any) -> None:
        self._facade.__exit__(*given)


async def stream(found: Iteration[Any]) -> AsyncGenerator[Any]:
    """What an iterator of the facade yields."""
    try:
        for one in found:
            yield one
    finally:
        found.close()


def bridged(found: Any) -> Any:
    """A facade with `await`, or an iterator with it; anything else as it is."""
    if isinstance(found, Iteration):
        return stream(found)
    return Bridge(found) if isinstance(found, Facade) else found
