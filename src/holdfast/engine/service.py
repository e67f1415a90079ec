"""What an engine implements beside `Engine` if its other side is a service.

These methods pass a whole call on, because the service answers it better than its rows would: with its keys,
its clock and its filters. An engine has all of them or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.commands import Command
    from holdfast.engine.queries import Filter, Scan, Selected
    from holdfast.model import Page
    from holdfast.origin import Origin


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """A page of keys to remove: those with a prefix, after a cursor. `dry_run` only lists them."""

    namespace: str
    prefix: str
    limit: int
    cursor: str | None
    dry_run: bool


@runtime_checkable
class ServiceEngine(Protocol):
    """What an engine implements beside `Engine` if its other side is a service.

    Verbs of operators are refused by a service that does not permit them to its caller.
    """

    async def select(self, query: Scan, wanted: Filter | None) -> Selected:
        """Return the entries of a page that pass a filter, or all of them without one."""
        ...

    async def delete_prefix(self, asked: Removal, origin: Origin, now: Callable[[], int]) -> Page:
        """Remove a page of keys."""
        ...

    async def table(self, command: Command, now: Callable[[], int]) -> Any:
        """Return the result of a command on tables."""
        ...

    async def operator(self, verb: str, fields: dict[str, Any], *, writes: bool = False) -> Mapping[str, Any]:
        """Return the reply to a verb of operators; see `holdfast.edges.calls.operators`.

        If the verb `writes` and no reply comes, it is unknown whether it was done, and the error says so.
        """
        ...


def service_of(engine: object) -> ServiceEngine | None:
    """Return an engine as one whose other side is a service; None if it keeps its rows itself."""
    return engine if isinstance(engine, ServiceEngine) else None
