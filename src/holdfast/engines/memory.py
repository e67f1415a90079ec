"""The reference engine, in dictionaries, without persistence. Read it to learn what an engine has to do.

Clarity comes before speed. Where another engine disagrees with this one, assume that the other is wrong.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from holdfast import rules, seams
from holdfast.audit.chain import SigningKeys
from holdfast.audit.keyring import Keyring
from holdfast.commands import Command
from holdfast.decide import Loaded, Outcome, decide, further, needs
from holdfast.decide.weights import envelope, record_weight, summed
from holdfast.engine import (
    Capabilities,
    Due,
    JournalPage,
    JournalQuery,
    Scan,
    Scanned,
    Totals,
    fitting,
    row_size,
)
from holdfast.families import is_semantic
from holdfast.model import Policy
from holdfast.rows import KV, Address, FirstAndLast, Namespace, Overdue, Record, Row, Run


class MemoryEngine:
    """See `holdfast.engine.Engine`."""

    capabilities: Capabilities = Capabilities(durable=False, glances=True)
    defaults: Policy | None = None

    def __init__(self, keys: SigningKeys | None = None) -> None:
        self.keys: Keyring | SigningKeys = Keyring([seams.entropy(32)]) if keys is None else keys
        self._rows: dict[Address, Row] = {}
        self._keys: dict[tuple[str, str], list[Any]] = {}  # sorted; all text or all bytes within a space
        self._namespaces: dict[str, Namespace] = {}
        self._journal: dict[str, list[Record]] = {}
        self._epoch = seams.token(8)

    async def start(self) -> None:
        """Do nothing: there is no storage to open."""

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """See `Engine.transact`. No step awaits, so nothing can run between the load and the save."""
        at = now()
        need = needs(commands)
        loaded = Loaded(
            namespaces={name: self._namespaces[name] for name in need.namespaces if name in self._namespaces},
            rows=self._load(need.rows),
        )
        more = further(commands, need, loaded)
        if more is not None:
            loaded.rows.update(self._load(more.rows))
            loaded.looked.update(more.rows)
        loaded.runs.update({name: self._overdue(name, at, most) for name, most in need.runs.items()})
        loaded.trims.update({(name, upto): self._journal_bytes(name, upto) for name, upto in need.trims})
        loaded.counts.update({name: self._count(name) for name in need.counts})
        outcome = decide(loaded, commands, at, self.keys, self.defaults)
        while outcome.unfinished:
            loaded.ends.update({place: self._ends(*place) for place in outcome.wants})
            loaded.rows.update(self._load(outcome.looks))
            loaded.looked.update(outcome.looks)
            outcome = decide(loaded, commands, at, self.keys, self.defaults)
        self._save(outcome)
        return outcome

    def glance(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """See `Engine.glance`: this engine never has to wait."""
        rows = map(self._rows.get, addresses)
        return [row if row is not None and row.alive(now) else None for row in rows]

    async def read(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """See `Engine.read`."""
        return self.glance(addresses, now)

    async def scan(self, query: Scan, now: int) -> Scanned:
        """See `Engine.scan`."""
        keys: list[Any] = []
        rows: list[Row] = []
        room = query.max_bytes
        walk = list(self._range(query.namespace, query.space, query.start, query.stop))
        for key, row in reversed(walk) if query.reverse else walk:
            if not row.alive(now) or _passed(key, query):
                continue
            room -= row_size(key, row if query.values else None)
            if len(keys) == query.limit or (keys and room < 0):
                return Scanned(keys=keys, rows=rows, more=True)
            keys.append(key)
            if query.values:
                rows.append(row)
        return Scanned(keys=keys, rows=rows, more=False)

    async def due(self, space: str, now: int, *, limit: int, namespace: str | None = None) -> list[Due]:
        """See `Engine.due`."""
        return [
            due
            for due in self._by_deadline(space)
            if due.expires_at <= now and namespace in (None, due.namespace)
        ][:limit]

    async def falling_due(self, since: int, until: int, *, limit: int) -> list[Due]:
        """See `Engine.falling_due`."""
        due_rows = [due for due in self._by_deadline(KV) if since < due.expires_at <= until]
        return [due for due in due_rows if self._is_meant(Address(due.namespace, KV, due.key))][:limit]

    def _by_deadline(self, space: str) -> list[Due]:
        due_rows = [
            Due(namespace=address.namespace, key=address.key, expires_at=row.expires_at)
            for address, row in self._rows.items()
            if address.space == space and row.expires_at is not None
        ]
        return sorted(due_rows, key=lambda due: due.expires_at)

    def _is_meant(self, address: Address) -> bool:
        return is_semantic(address.namespace) or self._rows[address].semantics is not None

    async def journal(self, query: JournalQuery) -> JournalPage:
        """See `Engine.journal`."""
        records = [
            record
            for record in self._journal.get(query.namespace, [])
            if record.version > query.since
            and query.key in (None, record.key)
            and query.start <= record.key
            and (query.stop is None or record.key < query.stop)
        ]
        if query.newest_first:
            records.reverse()
        namespace = self._namespaces.get(query.namespace, Namespace(name=query.namespace))
        page, complete = fitting(records, query)
        return JournalPage(
            records=page,
            complete=complete,
            floor=namespace.journal_floor,
            head=namespace.revision,
            epoch=self._epoch,
        )

    async def totals(self, now: int, *, namespace: str | None = None) -> list[Totals]:
        """See `Engine.totals`."""
        return [
            self._totals(row, now)
            for name, row in sorted(self._namespaces.items())
            if namespace in (None, name)
        ]

    async def owners(self, space: str) -> list[str]:
        """See `Engine.owners`."""
        return sorted({address.namespace for address in self._rows if address.space == space})

    async def ready(self) -> None:
        """Do nothing: writes are always accepted."""

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    def _load(self, wanted: Iterable[Address]) -> dict[Address, Row]:
        return {address: self._rows[address] for address in wanted if address in self._rows}

    def _ends(self, namespace: str, space: str) -> FirstAndLast | None:
        pairs = list(self._range(namespace, space, b"", None))
        return FirstAndLast(first=pairs[0], last=pairs[-1]) if pairs else None

    def _overdue(self, namespace: str, now: int, limit: int) -> Overdue:
        due = self._plain(namespace, now)[:limit]
        if not due:
            return Overdue()
        return Overdue(
            count=len(due),
            bytes=sum(row_size(key, None) + row.size for key, row in due),
            until=due[-1][1].expires_at or 0,
            envelope=sum(envelope(row) for _, row in due),
            names=sum(len(key) + len(row.last_writer) for key, row in due),
        )

    def _journal_bytes(self, namespace: str, upto: int) -> int:
        records = self._journal.get(namespace, [])
        return sum(record_weight(record) for record in records if record.version <= upto)

    def _count(self, namespace: str) -> dict[str, int]:
        """Compute the counters of a namespace from its rows and records."""
        rows = [
            (address.space, 1, row_size(address.key, None) + row.size, envelope(row))
            for address, row in self._rows.items()
            if address.namespace == namespace and (address.space != KV or row.version > 0)
        ]
        return summed(rows, journal=self._journal_bytes(namespace, rules.MAX_VERSION))

    def _plain(self, namespace: str, now: int) -> list[tuple[str, Row]]:
        """Return the expired entries that can be removed as a run, longest overdue first."""
        due = [
            (key, row)
            for key, row in self._range(namespace, KV, "", None)
            if not row.alive(now) and row.version > 0 and row.semantics is None
        ]
        return sorted(due, key=lambda found: found[1].expires_at or 0)

    def _expire(self, run: Run) -> None:
        for version, (key, row) in enumerate(self._plain(run.namespace, run.until)[: run.count], run.first):
            self._put(Address(run.namespace, KV, key), None)
            record = Record(
                namespace=run.namespace,
                version=version,
                op="expired",
                key=key,
                at=run.at,
                last_writer=row.last_writer,
                lag_ms=run.at - (row.expires_at or 0),
                expired_version=row.version,
            )
            self._journal.setdefault(run.namespace, []).append(record)

    def _save(self, outcome: Outcome) -> None:
        for run in outcome.runs:
            self._expire(run)
        for namespace in outcome.namespaces:
            self._namespaces[namespace.name] = namespace
        for address, row in outcome.rows.items():
            self._put(address, row)
        for record in outcome.journal:
            self._journal.setdefault(record.namespace, []).append(record)
        for name, upto in outcome.trims.items():
            self._journal[name] = [record for record in self._journal.get(name, []) if record.version > upto]

    def _put(self, address: Address, row: Row | None) -> None:
        keys = self._keys.setdefault((address.namespace, address.space), [])
        if row is None:
            if self._rows.pop(address, None) is not None:
                del keys[bisect_left(keys, address.key)]
            return
        if address not in self._rows:
            insort(keys, address.key)
        self._rows[address] = row

    def _range(self, namespace: str, space: str, start: Any, stop: Any) -> Iterator[tuple[Any, Row]]:
        keys = self._keys.get((namespace, space), [])
        for key in keys[bisect_left(keys, start) :]:
            if stop is not None and key >= stop:
                return
            yield key, self._rows[Address(namespace, space, key)]

    def _totals(self, namespace: Namespace, now: int) -> Totals:
        due = [
            row_size(key, None) + row.size
            for key, row in self._range(namespace.name, KV, "", None)
            if not row.alive(now) and row.version > 0
        ]
        return Totals(namespace=namespace, due_keys=len(due), due_bytes=sum(due))


def _passed(key: Any, query: Scan) -> bool:
    """Return whether a key was covered by an earlier page of the scan."""
    if query.after is None:
        return False
    return bool(key >= query.after if query.reverse else key <= query.after)
