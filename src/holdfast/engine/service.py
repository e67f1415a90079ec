"""What an engine implements beside `Engine` if its other side is a service.

These methods pass a whole call on, because the service answers it better than its rows would: with its keys,
its clock and its filters. An engine has all of them or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.commands import Command


@runtime_checkable
class ServiceEngine(Protocol):
    """What an engine implements beside `Engine` if its other side is a service.

    Verbs of operators are refused by a service that does not permit them to its caller.
    """

    async def call(self, command: Command, now: Callable[[], int]) -> Any:
        """Have a command answered. `now` returns the time, from which its deadline counts."""
        ...

    async def operator(self, verb: str, fields: dict[str, Any], *, writes: bool = False) -> Mapping[str, Any]:
        """Return the reply to a verb of operators; see `holdfast.edges.calls.operators`.

        If the verb `writes` and no reply comes, it is unknown whether it was done, and the error says so.
        """
        ...


def service_of(engine: object) -> ServiceEngine | None:
    """Return an engine as one whose other side is a service; None if it keeps its rows itself."""
    return engine if isinstance(engine, ServiceEngine) else None
