"""The machine of tables: random calls, the same for every store and for the oracle, and their answers.

As in `machine`. Nothing says which of two items that expire together is noticed first, so a sweep that
would meet two is left out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.clock import ManualClock
from tests.machine import table_steps as steps
from tests.machine.machine import _in_time
from tests.machine.table_items import Plain
from tests.machine.table_oracle import TableOracle
from tests.machine.table_plain import ask
from tests.machine.targets import Memory

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from holdfast.model import Stats
    from holdfast.store import Store
    from tests.machine.targets import Target

PLUGIN = "plugin"


class TableMachine(RuleBasedStateMachine):
    """Drives the stores of its targets."""

    targets: ClassVar[Sequence[Target]] = (Memory(),)

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.oracle = TableOracle(self.clock.now)
        self.stores: list[Store] = []
        self.last: tuple[str, Plain] | None = None

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something asynchronous."""
        return self.runner.get_loop().run_until_complete(_in_time(work))

    @initialize()
    def begin(self) -> None:
        """Open a store of every kind, with the tables."""
        for target in self.targets:
            self.stores.append(self.run(target.fresh(self.clock)))
        for table in ("t", "u"):
            self._ask("create_table", table=table)

    def teardown(self) -> None:
        """Close what is open."""
        for store in self.stores:
            self.run(store.aclose())
        self.runner.close()

    # Writing

    @rule(data=st.data(), table=steps.TABLES, how=steps.VERSIONS, condition=steps.CONDITIONS)
    def put(self, data: st.DataObject, table: str, how: str, condition: Plain | None) -> None:
        """Put an item."""
        item = self._timed(data.draw(steps.items(table)))
        key = [item[name] for name in ("p", "s") if name in item]
        given = {"table": table, "item": item} | self._expecting(table, key, how, condition)
        self._write("put", given | self._options(data))

    @rule(data=st.data(), table=steps.TABLES, how=steps.VERSIONS, condition=steps.CONDITIONS)
    def update(self, data: st.DataObject, table: str, how: str, condition: Plain | None) -> None:
        """Change an item, mostly one that is there."""
        key, changes = data.draw(steps.keys(table)), data.draw(steps.updates())
        if not data.draw(steps.SELDOM):
            key = self._aimed(table, key)
        if "set" in changes:
            changes["set"] = self._timed(changes["set"])
        given = {"table": table, "key": key, "changes": changes}
        self._write("update", given | self._expecting(table, key, how, condition) | self._options(data))

    @rule(data=st.data(), table=steps.TABLES, how=steps.VERSIONS, condition=steps.CONDITIONS)
    def delete(self, data: st.DataObject, table: str, how: str, condition: Plain | None) -> None:
        """Remove an item."""
        key = data.draw(steps.keys(table))
        given = {"table": table, "key": key} | self._expecting(table, key, how, condition)
        options = self._options(data)
        if options["returns"] == "new":
            del options["returns"]
        self._write("delete", given | options)

    @rule(writes=st.lists(steps.writes(), min_size=1, max_size=4))
    def transact(self, writes: list[tuple[str, Plain]]) -> None:
        """Several writes that are one."""
        self._ask("transact", writes=[(verb, self._meant(given)) for verb, given in writes])

    @rule(writes=st.lists(steps.writes(st.just("t"), "pd"), min_size=1, max_size=3))
    def batch(self, writes: list[tuple[str, Plain]]) -> None:
        """Several writes, each for itself."""
        meant = [(verb, self._meant(given)) for verb, given in writes]
        for _, given in meant:
            del given["table"]
        self._ask("batch", table="t", writes=meant)

    @rule(pk=st.sampled_from(steps.PARTITIONS), tag=st.sampled_from(["x", "y"]), n=st.integers(1, 2))
    def stock(self, pk: str, tag: str, n: int) -> None:
        """Put several items of a partition, and walk over them in every way."""
        found = [{"p": pk, "s": sort, "tag": tag, "n": n} for sort in (1, 2.5, -1)]
        self._ask("batch", table="t", writes=[("put", {"item": item}) for item in found])
        for reverse in (False, True):
            self._walk(1, table="t", pk=pk, sk={"between": [-1, 1.0]}, reverse=reverse)
            self._walk(2, table="t", pk=pk, where={"n": {"eq": n}}, reverse=reverse)
            self._walk(1, table="t", index="by_tag", value=tag, reverse=reverse)

    @rule(pk=st.sampled_from(steps.PARTITIONS), tags=steps.TWO_TAGS, ends=steps.TWO_ENDS)
    def replace_below_an_index(self, pk: str, tags: list[str], ends: list[str | None]) -> None:
        """Put an item twice, with tags and deadlines that may differ, and look at the index when one ends."""
        self._ask("create_index", table="t", index="by_tag")
        for tag, end in zip(tags, ends, strict=True):
            item = {"p": pk, "s": 1, "tag": tag} | ({} if end is None else {"e": end})
            self._ask("batch", table="t", writes=[("put", {"item": self._timed(item)})])
        self.clock.advance(2)
        self._walk(2, table="t", index="by_tag", value=tags[0])

    @rule(pause=st.sampled_from([0, 0, 1, 86_400]))
    def repeat(self, pause: int) -> None:
        """Make the last write that had a request id again."""
        if self.last is not None:
            self.clock.advance(pause)
            verb, given = self.last
            self._ask(verb, **given)

    # Tables and indexes

    @rule(table=steps.TABLES, really=steps.SELDOM)
    def renew(self, table: str, really: bool) -> None:
        """Drop a table and make it again, or make it if there is none."""
        if really:
            self._ask("drop_table", table=table)
        self._ask("list_tables")
        self._ask("create_table", table=table)

    @rule(table=steps.TABLES, really=steps.SELDOM)
    def drop_table(self, table: str, really: bool) -> None:
        """Drop a table, or find that it is gone."""
        if really:
            self._ask("drop_table", table=table)

    @rule(table=steps.TABLES, index=steps.INDEXES)
    def create_index(self, table: str, index: str) -> None:
        """Make an index of what is there."""
        self._ask("create_index", table=table, index=index)

    @rule(table=steps.TABLES, index=steps.INDEXES, again=st.booleans())
    def drop_index(self, table: str, index: str, again: bool) -> None:
        """Drop an index, and perhaps make it again."""
        self._ask("drop_index", table=table, index=index)
        if again:
            self._ask("create_index", table=table, index=index)

    # Reading

    @rule(data=st.data(), table=steps.TABLES)
    def look(self, data: st.DataObject, table: str) -> None:
        """Ask for an item and for how long it lives."""
        key = data.draw(steps.keys(table))
        self._ask("get", table=table, key=key)
        self._ask("get_ttl", table=table, key=key)

    @rule(
        table=steps.TABLES,
        pk=st.sampled_from([None, *steps.PARTITIONS]),
        sk=st.sampled_from([None, {"eq": 1}, {"lt": 2.5}, {"gte": 1, "lt": 3}, {"between": [-1, 1.0]}]),
        where=steps.CONDITIONS,
        limit=st.integers(1, 4),
        reverse=st.booleans(),
    )
    def walk(self, table: str, pk: str | None, where: Plain | None, reverse: bool, **given: Any) -> None:
        """Query or scan, page by page."""
        sk = given.pop("sk") if pk is not None else given.pop("sk") and None
        self._walk(given["limit"], table=table, where=where, pk=pk, sk=sk, reverse=reverse)

    @rule(
        table=steps.TABLES,
        index=steps.INDEXES,
        value=st.sampled_from(["x", "y", "x\x00", 1, -0.5]),
        where=steps.CONDITIONS,
        limit=st.integers(1, 3),
        reverse=st.booleans(),
    )
    def walk_index(self, limit: int, **given: Any) -> None:
        """Query an index, page by page."""
        self._walk(limit, **given)

    @rule(calls=st.lists(steps.writes(st.just("t"), "ppud"), min_size=2, max_size=40))
    def crowd(self, calls: list[tuple[str, Plain]]) -> None:
        """Make several calls without waiting for the answers: each sees those before it."""
        meant = [(verb, self._meant(given) | {"expected": None}) for verb, given in calls]
        meant.insert(len(meant) // 2, ("drop_table", {"table": "u"}))
        expected = [self.oracle.ask(verb, **given) for verb, given in meant]
        for store in self.stores:
            assert self.run(_gathered(store, meant)) == expected, store.capabilities

    # Time

    @rule(seconds=st.sampled_from([0.001, 0.5, 1, 2, 3600, 86_400]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    @rule(early=st.sampled_from([0, 0, 1]))
    def wait_for_a_deadline(self, early: int) -> None:
        """Let time pass up to the next deadline, or to the millisecond before."""
        now = self.clock.now()
        items = [item for table in self.oracle.tables.values() for item in table["items"].values()]
        ends = [end for item in items if (end := item["expires_at"]) is not None and end - early > now]
        if ends:
            self.clock.advance((min(ends) - early - now) / 1000)

    @rule(data=st.data(), table=steps.TABLES, ttl=st.sampled_from([1, 2, 60]), removed=st.booleans())
    def move_a_deadline(self, data: st.DataObject, table: str, ttl: int, removed: bool) -> None:
        """Set or remove the deadline of an item."""
        key = self._aimed(table, data.draw(steps.keys(table)))
        self.clock.advance(0.3)
        if removed:
            self._ask("remove_ttl", table=table, key=key)
        else:
            self._ask("set_ttl", table=table, key=key, ttl=ttl)

    @rule(table=steps.TABLES)
    def sweep(self, table: str) -> None:
        """Notice what has expired."""
        items = self.oracle.tables.get(table, {"items": {}})["items"]
        ends = [item["expires_at"] for item in items.values() if item["expires_at"] is not None]
        if len(ends) == len(set(ends)):
            self._ask("sweep", table=table)

    @rule()
    def reopen(self) -> None:
        """Close every store and open its storage again."""
        self.stores = [
            self.run(target.again(store, self.clock))
            for target, store in zip(self.targets, self.stores, strict=True)
        ]

    @invariant()
    def all_agree(self) -> None:
        """Whatever a step did, all stores hold what the oracle holds, and indexes agree with the items."""
        if not self.stores:
            return
        looks: list[tuple[str, Plain]] = []
        for table, found in self.oracle.tables.items():
            looks += [("walk", {"table": table}), ("changes", {"table": table})]
            looks += [("check_index", {"table": table, "index": index}) for index in found["indexes"]]
        expected = [self.oracle.ask(verb, **given) for verb, given in looks]
        sizes = set()
        for store in self.stores:
            seen, stats = self.run(_seen(store, looks))
            assert seen == expected, store.capabilities
            assert (stats.keys, stats.version) == (self.oracle.keys(), self.oracle.revision)
            sizes.add(stats.bytes)
        assert len(sizes) == 1

    # How a step is made

    def _write(self, verb: str, given: Plain) -> None:
        if given.get("request_id") is not None:
            self.last = (verb, given)
        self._ask(verb, **given)

    def _ask(self, verb: str, **given: Any) -> None:
        """Make a call of the oracle and of every store, and compare the answers."""
        expected = self.oracle.ask(verb, **given)
        for store in self.stores:
            found = self.run(ask(store.tables(PLUGIN), verb, given))
            assert found == expected, (store.capabilities, verb, given)

    def _walk(self, limit: int, **given: Any) -> None:
        expected = self.oracle.ask("walk", **given)
        for store in self.stores:
            found = self.run(ask(store.tables(PLUGIN), "walk", given | {"limit": limit}))
            assert found == expected, (store.capabilities, given)

    def _meant(self, given: Plain) -> Plain:
        """The fields of a write, with the words in them turned into what they mean now."""
        table = given["table"]
        meant = dict(given)
        if "item" in given:
            meant["item"] = self._timed(given["item"])
            key = [given["item"][name] for name in ("p", "s") if name in given["item"]]
        else:
            key = given["key"]
        if "set" in given.get("changes", {}):
            meant["changes"] = given["changes"] | {"set": self._timed(given["changes"]["set"])}
        return meant | self._expecting(table, key, given["expected"], given["condition"])

    def _expecting(self, table: str, key: list[Any], how: str, condition: Plain | None) -> Plain:
        current = self.oracle.ask("get", table=table, key=key) or {}
        version = current.get("version", 0)
        words = {"any": None, "right": version, "zero": 0, "next": version + 1}
        return {"expected": words[how], "condition": condition}

    def _aimed(self, table: str, key: list[Any]) -> list[Any]:
        """The key of an item that is there, if there is one; else the key that was drawn."""
        items = self.oracle.tables.get(table, {"items": {}})["items"]
        there = [list(place) for place in items if self.oracle.ask("get", table=table, key=list(place))]
        return there[0] if there else key

    def _options(self, data: st.DataObject) -> Plain:
        return {"returns": data.draw(steps.RETURNS), "request_id": data.draw(steps.REQUESTS)}

    def _timed(self, values: Plain) -> Plain:
        """Values, with the word for a deadline turned into one."""
        words = {"soon": 2_000, "later": 90_000_000, "past": -1}
        end = values.get("e")
        if not isinstance(end, str) or end not in words:
            return dict(values)
        return values | {"e": (self.clock.now() + words[end]) / 1000}


async def _gathered(store: Store, calls: list[tuple[str, Plain]]) -> list[Any]:
    tables = store.tables(PLUGIN)
    return list(await asyncio.gather(*(ask(tables, verb, given) for verb, given in calls)))


async def _seen(store: Store, looks: list[tuple[str, Plain]]) -> tuple[list[Any], Stats]:
    """What a store answers in turn. (To run the loop for each answer would take longer.)"""
    tables = store.tables(PLUGIN)
    seen = [
        await ask(tables, verb, given | ({"limit": 1000} if verb == "walk" else {})) for verb, given in looks
    ]
    return seen, await store.stats(f"table/{PLUGIN}")
