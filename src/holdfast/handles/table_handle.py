"""The part that all verbs of the tables handle share: the namespace, and how a call is made.

Law: a handle is bound to one namespace and cannot leave it. It gives calls their Python form.
`holdfast.handles.table_calls` decides what they mean, here or in a service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.handles import table_fields

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping


class TableHandle:
    """The tables of one namespace; see `holdfast.Tables`, which has the verbs."""

    def __init__(
        self,
        namespace: str,
        ask: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]],
        own: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self.namespace = namespace
        self._ask = ask
        self._own = own

    async def _call(
        self,
        verb: str,
        table: str,
        fields: Mapping[str, Any] | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        return await self._ask(verb, {"table": table, **(fields or {}), **table_fields.options(given or {})})
