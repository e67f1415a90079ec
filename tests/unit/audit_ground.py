"""Rows of the audit behind a store's back: read and changed with plain SQL, as somebody could who may.

Nothing here knows the store's own code but the names of its columns.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import holdfast
from tests import postgres_session

if TYPE_CHECKING:
    from collections.abc import Callable

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
RECORDS = 6
"""How many changes of one key an audit tells of at the beginning of a test."""
COLUMNS = "value, created_at, updated_at, version, last_writer"


def key_of(number: int) -> bytes:
    """The key of a record; 0 is the head's."""
    return number.to_bytes(8, "big") if number else b""


class Table:
    """The rows of one namespace's audit in a database. Statements have `?` for their parameters."""

    def __init__(self, url: str, namespace: str) -> None:
        self._url = url
        self._namespace = namespace

    async def run(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement and commit."""
        if self._url.startswith("postgresql"):
            return await self._run_postgres(sql, *parameters)
        with contextlib.closing(sqlite3.connect(self._url)) as file, file:
            return file.execute(sql, parameters).fetchall()

    async def _run_postgres(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        *parts, last = sql.split("?")
        numbered = "".join(f"{part}${number}" for number, part in enumerate(parts, start=1)) + last
        return await postgres_session.run(self._url, numbered, *parameters)

    async def value(self, number: int) -> dict[str, Any]:
        """What a record says."""
        sql = "SELECT value FROM holdfast_rows WHERE namespace = ? AND space = 'audit' AND key = ?"
        [(value,)] = await self.run(sql, self._namespace, key_of(number))
        found: dict[str, Any] = json.loads(value)
        return found

    async def write(self, number: int, value: dict[str, Any] | str) -> None:
        """Have a record say something else."""
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        sql = "UPDATE holdfast_rows SET value = ? WHERE namespace = ? AND space = 'audit' AND key = ?"
        await self.run(sql, text, self._namespace, key_of(number))

    async def edit(self, number: int, change: Callable[[dict[str, Any]], None]) -> None:
        """Change what a record says."""
        value = await self.value(number)
        change(value)
        await self.write(number, value)

    async def remove(self, *numbers: int) -> None:
        """Remove records."""
        for number in numbers:
            sql = "DELETE FROM holdfast_rows WHERE namespace = ? AND space = 'audit' AND key = ?"
            await self.run(sql, self._namespace, key_of(number))

    async def copy(self, number: int, key: bytes) -> None:
        """Put a copy of a record at another key."""
        sql = (
            f"INSERT INTO holdfast_rows (namespace, space, key, {COLUMNS})"
            f" SELECT namespace, space, ?, {COLUMNS} FROM holdfast_rows"
            " WHERE namespace = ? AND space = 'audit' AND key = ?"
        )
        await self.run(sql, key, self._namespace, key_of(number))

    async def rows(self) -> list[tuple[Any, ...]]:
        """All records with their numbers, without the head, as they are stored."""
        sql = "SELECT key, value FROM holdfast_rows WHERE namespace = ? AND space = 'audit' ORDER BY key"
        found = await self.run(sql, self._namespace)
        return [(int.from_bytes(key, "big"), value) for key, value in found if key]

    async def set_policy(self, policy: str | None) -> None:
        """Change the policy of the namespace."""
        sql = "UPDATE holdfast_namespaces SET policy = ? WHERE name = ?"
        await self.run(sql, policy, self._namespace)

    async def remove_namespace(self) -> None:
        """Remove the row of the namespace."""
        await self.run("DELETE FROM holdfast_namespaces WHERE name = ?", self._namespace)


class Ground:
    """An audit of six records, and the table that holds it."""

    def __init__(self, store: holdfast.Store, kv: holdfast.KV, url: str) -> None:
        self.store = store
        self.kv = kv
        self.name = kv.namespace
        self.audit = store.audit(kv.namespace)
        self.table = Table(url, kv.namespace)

    async def fill(self) -> None:
        """Make the records. Every other request belongs to a trace."""
        for number in range(RECORDS):
            with holdfast.traced(None if number % 2 else PARENT):
                await self.kv.set(
                    "k", number, writer="alice", spec_ref="doc", semantics={"purpose": "config"}
                )

    async def found(self, **noted: Any) -> tuple[int | None, str]:
        """Where the audit is broken, and how."""
        verdict = await self.audit.verify(**noted)
        assert verdict.whole == (verdict.reason is None) == (verdict.broken_at is None)
        return verdict.broken_at, verdict.reason or "whole"
