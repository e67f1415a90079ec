"""Batched reads of single rows: requests that arrive while a read is running are combined in the next one.

Law: a read never returns state from before it was requested. Each caller's own `now` decides what it sees.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.engines.postgres import part_sql, sql
from holdfast.engines.postgres.columns import keys_text, row_of
from holdfast.engines.sql.layout import plugin_column
from holdfast.rows import KV, PARTS, Address, Row

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.engines.postgres.connections import Connection, Connections

_MOST: Final = 512
"""The maximum number of rows in a batch. A single caller may exceed it."""


class _Asked(NamedTuple):
    addresses: Sequence[Address]
    now: int
    answer: asyncio.Future[list[Row | None]]


class Lookups:
    """Reads by address, with at most `lanes` statements at a time."""

    def __init__(self, connections: Connections, lanes: int) -> None:
        self._connections = connections
        self._free = lanes
        self._waiting: list[_Asked] = []

    async def read(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """Return the rows that are alive at `now`, by position."""
        self._connections.check_open()
        asked = _Asked(addresses, now, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        if self._free:
            self._free -= 1
            self._connections.spawn(self._lane())
        return await asked.answer

    async def _lane(self) -> None:
        try:
            while self._waiting:
                await self._answer(self._next())
        finally:
            self._free += 1

    def _next(self) -> list[_Asked]:
        """Take the next batch of callers: the first, and as many others as fit."""
        room = _MOST
        for position, asked in enumerate(self._waiting):
            room -= len(asked.addresses)
            if room < 0 and position:
                break
        else:
            position = len(self._waiting)
        group, self._waiting = self._waiting[:position], self._waiting[position:]
        return [asked for asked in group if not asked.answer.done()]

    async def _answer(self, group: list[_Asked]) -> None:
        wanted = {address for asked in group for address in asked.addresses}
        try:
            rows = await self._connections.use(partial(_fetch, wanted=wanted))
        except Exception as error:
            for asked in group:
                if not asked.answer.done():
                    asked.answer.set_exception(error)
            return
        for asked in group:
            if not asked.answer.done():
                asked.answer.set_result([_alive(rows.get(address), asked.now) for address in asked.addresses])


def _alive(row: Row | None, now: int) -> Row | None:
    return row if row is not None and row.alive(now) else None


async def _fetch(connection: Connection, wanted: Collection[Address]) -> dict[Address, Row]:
    rows: dict[Address, Row] = {}
    kv = [address for address in wanted if address.space == KV]
    if kv:
        plugins = [plugin_column(address.namespace) for address in kv]
        found = await connection.fetch(sql.READ_KV, plugins, [address.key for address in kv])
        rows.update((kv[answer[0] - 1], row_of(answer[1:])) for answer in found)
    parts = [address for address in wanted if address.space.startswith(PARTS)]
    if parts:
        found = await connection.fetch(part_sql.READ_PARTS, *_columns(parts))
        rows.update((parts[answer[0] - 1], row_of(answer[1:-1], answer[-1])) for answer in found)
    others = [address for address in wanted if address.space != KV and not address.space.startswith(PARTS)]
    if others:
        found = await connection.fetch(sql.READ_OTHERS, *_columns(others))
        rows.update((others[answer[0] - 1], row_of(answer[1:])) for answer in found)
    return rows


def _columns(addresses: Sequence[Address]) -> tuple[list[str], list[str], str]:
    """Return the namespaces, spaces and keys of addresses."""
    return (
        [address.namespace for address in addresses],
        [address.space for address in addresses],
        keys_text(addresses),
    )
