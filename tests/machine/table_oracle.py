"""What the contract says of tables, as a plain model: dictionaries, lists and nothing of the library.

Written from the contract, slow and obvious. It imports nothing of `holdfast`; an answer is plain data,
and a refusal is one too. Versions are counted as the store's are: one for each change, two for an index that
is made (begun and filled).
"""

from __future__ import annotations

import copy
import json
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tests.machine.table_items import (
    DAY_MS,
    INDEXES,
    KEYS,
    TTL,
    Plain,
    Refused,
    alive,
    as_expected,
    check_type,
    end_of,
    entered,
    holds,
    in_range,
    returned,
    shown,
    text_of,
    updated,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class TableOracle:
    """The tables of one plugin."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.revision = 0
        self.tables: dict[str, Plain] = {}
        self.journal: list[Plain] = []
        self.requests: dict[str, tuple[str, Any, int]] = {}

    def ask(self, verb: str, **given: Any) -> Any:
        """The answer to a call, which is remembered under its request id; a refusal leaves no trace."""
        saved = self._saved()
        try:
            return self._once(verb, given)
        except Refused as refused:
            self.revision, self.tables, self.journal, self.requests = saved
            return refused.answer

    def _saved(self) -> tuple[int, dict[str, Plain], list[Plain], dict[str, tuple[str, Any, int]]]:
        """All there is. Items and records are replaced and never changed, so they need not be copied."""
        tables = {
            name: table | {"items": dict(table["items"]), "indexes": list(table["indexes"])}
            for name, table in self.tables.items()
        }
        return self.revision, tables, list(self.journal), dict(self.requests)

    def _once(self, verb: str, given: Plain) -> Any:
        request_id = given.pop("request_id", None)
        call: Callable[..., Any] = getattr(self, verb)
        if request_id is None:
            return call(**given)
        content = json.dumps([verb, given])
        known = self.requests.get(request_id)
        if known is not None and known[2] > self._now():
            if known[0] != content:
                raise Refused("VersionConflict", item=None, reason="request_id_reused")
            return known[1]
        answer = call(**given)
        self.requests[request_id] = (content, answer, self._now() + DAY_MS)
        return answer

    # Tables

    def create_table(self, table: str) -> None:
        if table in self.tables:
            raise Refused("TableExists", "table")
        self.tables[table] = {"id": self._version(), "items": {}, "indexes": []}

    def drop_table(self, table: str) -> None:
        self._table(table)
        self._version()
        del self.tables[table]

    def list_tables(self) -> list[str]:
        return sorted(self.tables)

    def create_index(self, table: str, index: str) -> None:
        found = self._table(table)
        if index in found["indexes"]:
            raise Refused("ValidationError", "index")
        self.revision += 2
        found["indexes"].append(index)

    def drop_index(self, table: str, index: str) -> None:
        self._indexed(table, index)["indexes"].remove(index)
        self._version()

    def check_index(self, table: str, index: str) -> Plain:
        self._indexed(table, index)
        live = self._live(table)
        entries = sum(entered(item["value"], index) for item in live)
        return {"consistent": True, "items": len(live), "entries": entries, "missing": 0, "extra": 0}

    # Writes

    def put(self, table: str, item: Plain, returns: str = "new", **expecting: Any) -> Any:
        key = self._key(table, item)
        before = self._expect(table, key, **expecting)
        return returned(self._store(table, key, before, item, named=item), before, returns)

    def update(
        self, table: str, key: list[Any], changes: Plain, returns: str = "new", **expecting: Any
    ) -> Any:
        place, named = self._place(table, key)
        before = self._expect(table, place, **expecting)
        item = updated(named if before is None else before["value"], changes)
        return returned(self._store(table, place, before, item, named=named), before, returns)

    def delete(self, table: str, key: list[Any], returns: str = "none", **expecting: Any) -> Any:
        place, named = self._place(table, key)
        before = self._expect(table, place, **expecting)
        if before is not None:
            del self.tables[table]["items"][place]
            self._record(table, "deleted", named, before["value"], None)
        if returns == "old":
            return None if before is None else shown(before)
        return before is not None

    def check(self, table: str, key: list[Any], **expecting: Any) -> None:
        place, _ = self._place(table, key)
        self._expect(table, place, **expecting)

    def transact(self, writes: list[tuple[str, Plain]]) -> list[int | None]:
        places = []
        for verb, given in writes:
            table = given["table"]
            self._table(table)
            place = self._key(table, given["item"]) if verb == "put" else self._place(table, given["key"])[0]
            self._meet(table, place)
            places.append((table, place))
        if len(set(places)) < len(places):
            raise Refused("ValidationError", "writes")
        failed = []
        for position, ((table, place), (_, given)) in enumerate(zip(places, writes, strict=True)):
            before = self.tables[table]["items"].get(place)
            if not as_expected(before, given.get("expected"), given.get("condition")):
                failed.append({"position": position, "current": None if before is None else shown(before)})
        if failed:
            raise Refused("ConditionFailed", current=failed[0]["current"], conflicts=failed)
        versions: list[int | None] = []
        for verb, given in writes:
            revision = self.revision
            getattr(self, verb)(**given)
            versions.append(self.revision if self.revision > revision else None)
        return versions

    def batch(self, table: str, writes: list[tuple[str, Plain]]) -> list[Any]:
        return [self._part(verb, table, given) for verb, given in writes]

    def _part(self, verb: str, table: str, given: Plain) -> Any:
        revision = self.revision
        answer = self.ask(verb, table=table, **given)
        if isinstance(answer, dict) and "error" in answer:
            return answer
        return self.revision if self.revision > revision and answer is not False else None

    # Deadlines

    def set_ttl(self, table: str, key: list[Any], ttl: int) -> Any:
        return self._move(table, key, -(-self._now() // 1000) + ttl)

    def remove_ttl(self, table: str, key: list[Any]) -> Any:
        return self._move(table, key, 0)

    def _move(self, table: str, key: list[Any], value: int) -> Any:
        place, named = self._place(table, key)
        if TTL[table] is None:
            raise Refused("TtlNotConfigured", "table")
        before = self._meet(table, place)
        if before is None:
            raise Refused("ItemNotFound", "partition_key")
        return shown(self._store(table, place, before, before["value"] | {TTL[table]: value}, named=named))

    def get_ttl(self, table: str, key: list[Any]) -> int | None:
        self._table(table)
        if TTL[table] is None:
            raise Refused("TtlNotConfigured", "table")
        item = self.get(table, key)
        if item is None:
            return 0
        end: int | None = item["expires_at"]
        return None if end is None else max(1, math.floor(Fraction(end - self._now(), 1000)))

    def sweep(self, table: str) -> int:
        self._table(table)
        if TTL[table] is None:
            raise Refused("TtlNotConfigured", "table")
        due = self.due(table)
        for place in due[:100]:
            self._meet(table, place)
        return min(len(due), 100)

    def due(self, table: str) -> list[Any]:
        """Where the items are that have expired unnoticed, the longest overdue first."""
        items = self.tables[table]["items"]
        gone = [place for place, item in items.items() if not alive(item, self._now())]
        return sorted(gone, key=lambda place: int(items[place]["expires_at"]))

    # Reads

    def get(self, table: str, key: list[Any]) -> Any:
        place, _ = self._place(table, key)
        item = self.tables[table]["items"].get(place)
        return None if item is None or not alive(item, self._now()) else shown(item)

    def walk(
        self,
        table: str,
        where: Plain | None = None,
        *,
        pk: str | None = None,
        sk: Plain | None = None,
        index: str | None = None,
        value: Any = None,
        reverse: bool = False,
    ) -> list[Plain]:
        """All items that a query, a scan or a query of an index gives, in their order."""
        self._table(table)
        if index is not None:
            self._indexed(table, index)
            check_type(index, value)
        if sk is not None and len(KEYS[table]) == 1:
            raise Refused("ValidationError", "sort_key_condition")
        found = [
            shown(item)
            for item in self._live(table)
            if (pk is None or item["value"]["p"] == pk)
            and (sk is None or in_range(item["value"]["s"], sk))
            and (
                index is None or (entered(item["value"], index) and item["value"][INDEXES[index][0]] == value)
            )
            and (where is None or holds(where, item["value"]))
        ]
        return found[::-1] if reverse else found

    def changes(self, table: str) -> list[Plain]:
        made = self._table(table)["id"]
        return [record for record in self.journal if record["table"] == table and record["version"] > made]

    def keys(self) -> int:
        """How many items there are, also those that have expired unnoticed."""
        return sum(len(table["items"]) for table in self.tables.values())

    # The ground

    def _table(self, name: str) -> Plain:
        if name not in self.tables:
            raise Refused("TableNotFound", "table")
        return self.tables[name]

    def _indexed(self, table: str, index: str) -> Plain:
        found = self._table(table)
        if index not in found["indexes"]:
            raise Refused("IndexNotFound", "index")
        return found

    def _key(self, table: str, item: Plain) -> tuple[Any, ...]:
        self._table(table)
        for name in KEYS[table]:
            if name not in item:
                raise Refused("ValidationError", f"item.{name}")
        return tuple(item[name] for name in KEYS[table])

    def _place(self, table: str, key: list[Any]) -> tuple[tuple[Any, ...], Plain]:
        self._table(table)
        if len(key) != len(KEYS[table]):
            raise Refused("ValidationError", "sort_key")
        return tuple(key), dict(zip(KEYS[table], key, strict=True))

    def _live(self, table: str) -> list[Plain]:
        items = self.tables[table]["items"]
        order = sorted(items, key=lambda place: (place[0].encode(), *place[1:]))
        return [items[place] for place in order if alive(items[place], self._now())]

    def _meet(self, table: str, place: tuple[Any, ...]) -> Plain | None:
        """The item at a place; one that has expired is gone, and that is recorded."""
        item: Plain | None = self.tables[table]["items"].get(place)
        if item is None or alive(item, self._now()):
            return item
        del self.tables[table]["items"][place]
        late = self._now() - item["expires_at"]
        self._record(
            table, "expired", item["value"], item["value"], None, lag_ms=late, expired_version=item["version"]
        )
        return None

    def _expect(
        self, table: str, place: tuple[Any, ...], expected: int | None = None, condition: Plain | None = None
    ) -> Plain | None:
        before = self._meet(table, place)
        current = None if before is None else shown(before)
        if expected is not None and expected != (0 if before is None else before["version"]):
            raise Refused("VersionConflict", item=current, reason=None)
        if not as_expected(before, None, condition):
            raise Refused("ConditionFailed", "condition", current=current, conflicts=[])
        return before

    def _store(
        self, table: str, place: tuple[Any, ...], before: Plain | None, item: Plain, *, named: Plain
    ) -> Plain:
        self._record(table, "set", named, None if before is None else before["value"], item)
        made = {
            "value": copy.deepcopy(item),
            "version": self.revision,
            "expires_at": end_of(item, TTL[table]),
        }
        self.tables[table]["items"][place] = made
        return made

    def _record(
        self, table: str, op: str, named: Plain, old: Plain | None, new: Plain | None, **more: Any
    ) -> None:
        key = [named[name] for name in KEYS[table]]
        self.journal.append(
            {
                "op": op,
                "table": table,
                "key": text_of(key),
                "version": self._version(),
                "at": self._now(),
                "old": None if old is None else text_of(old),
                "new": None if new is None else text_of(new),
                "lag_ms": None,
                "expired_version": None,
                **more,
            }
        )

    def _version(self) -> int:
        self.revision += 1
        return self.revision
