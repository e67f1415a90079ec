"""Subjects about more than keys: audit and trash, policies, tables, blobs, locks, tokens, retries."""

# ruff: noqa: ASYNC240 - the files of a world are small, and its time does not pass meanwhile

from __future__ import annotations

import asyncio
import contextlib
import math
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

import holdfast
from holdfast.edges.cli.output import whole_file
from holdfast.engine import Movable
from holdfast.errors import (
    Busy,
    Escalated,
    Fenced,
    HoldfastError,
    KeyNotFound,
    OutcomeUnknown,
    TableExists,
    ValidationError,
    VersionConflict,
)
from holdfast.handles.recipes.names import lock_key
from holdfast.moves.backups import back_up, restore
from holdfast.registry import backend_for
from tests.simulation.keys import audited, milliseconds, trashed
from tests.simulation.subject import Finding, Lane, Subject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from holdfast import Store
    from holdfast.handles.blobs import Blobs as BlobHandle
    from holdfast.handles.kv import KV
    from holdfast.handles.recipes.lock import Lock
    from holdfast.handles.tables import Tables as TableHandle
    from holdfast.operators.tokens import NewToken
    from tests.simulation.workload import Workload


PATIENT: Final = 30.0
"""The seconds within which a lock must be free in the end. Others still wait for it, and hold it in turn."""


LONGEST_LEASE: Final = 2_500_000_000
"""The nanoseconds after which every lease that is not renewed has ended, by every clock."""


class Documents(Subject):
    """What is deleted can be restored once, as it was, for as long as the trash keeps it; all is audited."""

    share = 0.05
    keys = ("semantic/acme/web", "semantic/acme/short")

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._short = False
        self._audited: dict[str, dict[int, str]] = {}
        self._verdicts: dict[str, Any] = {}

    async def act(self, lane: Lane) -> None:
        """Set, delete and restore entries that only this lane knows."""
        chance = lane.chance
        keys = [f"{chance.getrandbits(32):08x}" for _ in range(4)]
        do = self._restored if chance.random() < 0.4 else self._forgotten
        try:
            await asyncio.gather(*(do(lane, key) for key in keys))
        except HoldfastError:
            await asyncio.sleep(0.1)

    async def _restored(self, lane: Lane, key: str) -> None:
        kv = lane.store.semantic("acme", "web")
        self.calls += 4
        made = await kv.set(key, key, semantics={"purpose": "config"})
        await kv.set(key, "again", expected_version=made.version, semantics={"purpose": "config"})
        if lane.chance.random() < 0.3:
            await kv.batch(writes=[{"key": key, "delete": True}])
        else:
            await kv.delete(key)
        restored = await kv.restore(key)
        if (restored.value, restored.created_at) != ("again", made.created_at):
            self.wrong("trash", f"restored as another entry: {restored}, made {made.created_at}", key)
        if restored.key in await trashed(lane.store, "semantic/acme/web"):
            self.wrong("trash", f"{key} was restored and is still in the trash", key)

    async def _forgotten(self, lane: Lane, key: str) -> None:
        store, kv = lane.store, lane.store.semantic("acme", "short")
        if not self._short:
            await store.set_policy("semantic/acme/short", {"trash_retention": 1})
            self._short = True
        self.calls += 3
        await kv.set(key, key)
        await kv.delete(key)
        deleted = milliseconds((await kv.set("time", 0)).updated_at)
        await asyncio.sleep(lane.chance.choice((1.0, 1.05, 1.3)) + self.run.skew / 1000)
        now = milliseconds((await kv.set("time", 0)).updated_at)
        try:
            await kv.restore(key)
        except KeyNotFound:
            return
        if now > deleted + 1000 + self.run.skew:
            self.wrong("trash", f"{key} was restored {now - deleted} ms after it was deleted", key)

    async def last_look(self, store: Store) -> None:
        """Read and verify the audits."""
        for namespace in self.keys:
            self._audited[namespace] = await audited(store, namespace)
            self._verdicts[namespace] = await store.audit(namespace).verify()

    def findings(self) -> Iterator[Finding]:
        """A change without a record, a record without a change, or a broken chain."""
        for namespace, records in self._audited.items():
            changes = {one.version: one.key for one in self.run.kept[namespace].changes}
            odd = {version for version, key in changes.items() if records.get(version) != key}
            if odd:
                yield Finding("audit", f"changes of {namespace} are not audited: {sorted(odd)[:5]}")
            if not self._verdicts[namespace].whole:
                yield Finding("audit", f"the audit of {namespace} is broken: {self._verdicts[namespace]}")


class Toggle(msgspec.Struct):
    """A change of a policy, and when it was certain to hold."""

    audit: bool
    call: int
    end: int | None = None


class Policies(Subject):
    """A write that comes after a change of policy keeps to it. One lane changes it, the others write."""

    share = 0.05
    keys = ("kv/toggled",)

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._toggles: list[Toggle] = []
        self._sent = set[str]()
        self._writes: list[tuple[int, int, int]] = []
        self._audited: dict[int, str] = {}
        self._verdict: Any = None
        self.seen = [self._toggles, self._writes]

    async def act(self, lane: Lane) -> None:
        """Change the policy, and write meanwhile and right after."""
        for _ in range(5):
            await self._turn(lane)

    async def _turn(self, lane: Lane) -> None:
        if lane.client:
            await asyncio.gather(*(self._write(lane, number) for number in range(3)))
            return
        before = self._toggles[-1].audit if self._toggles else False
        toggle = Toggle(not before, self.run.now())
        self._toggles.append(toggle)
        self.calls += 3
        kv, size = lane.store.kv("toggled"), lane.chance.choice((1, 400))
        value = f"{lane.chance.getrandbits(32):08x}" * size
        self._sent.add(value)
        policy = {"audit": toggle.audit, "trash": toggle.audit}
        try:
            await kv.set("again", value)
            # The writes are sent right behind the change, and behind others, so that they may share a group.
            await asyncio.gather(
                *(self._write(lane, number) for number in range(lane.chance.randrange(3))),
                lane.store.set_policy("kv/toggled", policy),
                kv.delete("again"),
                *(self._write(lane, number) for number in range(3)),
            )
            toggle.end = self.run.now()
            if lane.chance.random() < 0.3:
                with contextlib.suppress(KeyNotFound):
                    restored = await kv.restore("again")
                    if restored.value not in self._sent:
                        self.wrong("trash", f"restored as another entry: {restored}", "again")
        except HoldfastError:
            await asyncio.sleep(0.2)

    async def _write(self, lane: Lane, number: int) -> None:
        call = self.run.now()
        self.calls += 1
        try:
            entry = await lane.store.kv("toggled").set(f"k{lane.chance.randrange(5)}", number)
        except HoldfastError:
            await asyncio.sleep(0.1)
        else:
            self._writes.append((call, self.run.now(), entry.version))

    async def last_look(self, store: Store) -> None:
        """Read the audit."""
        self._audited = await audited(store, "kv/toggled")
        self._verdict = await store.audit("kv/toggled").verify() if self._audited else None

    def findings(self) -> Iterator[Finding]:
        """A write that was audited or not, against the policy that certainly held."""
        changes = {one.version: one for one in self.run.kept["kv/toggled"].changes}
        for call, end, version in self._writes:
            held = [one for one in self._toggles if one.call < end]
            sure = [one for one in held if one.end is not None and one.end < call]
            if not sure or held[-1] is not sure[-1] or version not in changes:
                continue
            if (version in self._audited) != sure[-1].audit:
                text = f"version {version} was {'' if version in self._audited else 'not '}audited"
                yield Finding("policy", f"{text} although the policy had changed")
        if self._verdict is not None and not self._verdict.whole:
            yield Finding("audit", f"the audit of kv/toggled is broken: {self._verdict}")


class Tables(Subject):
    """Items and their index agree, a transaction moves what it takes, and an addition is made once."""

    share = 0.06
    ACCOUNTS: Final = 4

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._made = False
        self._added: list[str] = []
        """What became of each addition: ok, perhaps."""
        self._end: dict[str, Any] = {}
        self.seen = [self._added]

    async def act(self, lane: Lane) -> None:
        """Move money, add, put, delete, or look at an index."""
        tables, chance = lane.store.tables("shop"), lane.chance
        try:
            if not self._made:
                await self._make(tables)
            self.calls += 1
            draw = chance.random()
            if draw < 0.4:
                await self._transfer(tables, chance)
            elif draw < 0.6:
                await self._add(tables, chance)
            elif draw < 0.7:
                puts = [{"put": {"item": _item(chance, size=60)}} for _ in range(chance.choice((3, 130)))]
                distinct = {repr(_key(one["put"]["item"])): one for one in puts}
                await tables.batch_write_item("items", list(distinct.values()))
            elif draw < 0.9:
                item = _item(chance)
                if chance.random() < 0.7:
                    await tables.put_item("items", item)
                else:
                    await tables.delete_item("items", *_key(item))
            else:
                await self._query(tables, chance)
        except HoldfastError:
            await asyncio.sleep(0.1)

    async def _make(self, tables: TableHandle) -> None:
        for name, sort in (("items", ("at", "number")), ("accounts", None)):
            with contextlib.suppress(TableExists):
                await tables.create_table(name, partition_key=("id", "string"), sort_key=sort)
        try:
            await tables.create_index("items", "groups", key=("group", "number"))
        except HoldfastError as error:
            if "exists" not in error.message and "has an index" not in error.message:
                raise
        self._made = True

    async def _transfer(self, tables: TableHandle, chance: Random) -> None:
        one, two = chance.sample([f"a{number}" for number in range(self.ACCOUNTS)], 2)
        amount, request_id = chance.randrange(1, 9), f"t{chance.getrandbits(48)}"
        writes = [
            {"update": {"table": "accounts", "partition_key": key, "add": {"money": by, "moves": 1}}}
            for key, by in ((one, -amount), (two, amount))
        ]
        for _ in range(10):
            try:
                await tables.transact_write(writes, request_id=request_id)
            except OutcomeUnknown:
                await asyncio.sleep(0.05)
            else:
                return

    async def _add(self, tables: TableHandle, chance: Random) -> None:
        place = len(self._added)
        self._added.append("perhaps")
        try:
            request_id = f"a{chance.getrandbits(48)}"
            await tables.update_item("accounts", "sum", add={"count": 1}, request_id=request_id)
        except OutcomeUnknown:
            return
        except HoldfastError:
            self._added[place] = "refused"
            raise
        self._added[place] = "ok"

    async def _query(self, tables: TableHandle, chance: Random) -> None:
        group = chance.randrange(3)
        page = await tables.query_index("items", "groups", group)
        if odd := [one for one in page.items if one.value["group"] != group]:
            self.wrong("index", f"the index shows {odd[0]} in group {group}")

    async def last_look(self, store: Store) -> None:
        """Compare the index with the items, and read the accounts."""
        if not self._made:
            return
        tables = store.tables("shop")
        await self._make(tables)
        self._end["index"] = await tables.check_index("items", "groups")
        accounts = await tables.scan("accounts")
        self._end["accounts"] = {one.value["id"]: one.value for one in accounts.items}
        self._end["counters"] = await store.recount("table/shop")
        items, cursor = [], None
        while True:
            page = await tables.scan("items", cursor=cursor)
            items += page.items
            cursor = page.cursor
            if cursor is None:
                break
        self._end["items"] = [one.version for one in items]
        versions: dict[str, int] = {}
        since = 0
        while True:
            changes = await tables.changes("items", since, limit=1_000)
            if not changes.changes:
                break
            for one in changes.changes:
                key = f"{one.partition_key} {one.sort_key}"
                versions.pop(key, None)
                if one.op == "set":
                    versions[key] = one.version
            since = changes.next
        self._end["journal"] = list(versions.values())

    def findings(self) -> Iterator[Finding]:
        """An index that differs, money that came or went, an addition that was lost or made twice."""
        if not self._end:
            return
        if not self._end["index"]["consistent"]:
            yield Finding("index", f"index and items differ: {self._end['index']}")
        accounts = self._end["accounts"]
        count = accounts.pop("sum", {}).get("count", 0)
        if sum(one.get("money", 0) for one in accounts.values()):
            yield Finding("transaction", f"money came or went: {accounts}")
        if sum(one.get("moves", 0) for one in accounts.values()) % 2:
            yield Finding("transaction", f"half of a transaction was made: {accounts}")
        if not self._added.count("ok") <= count <= self._added.count("ok") + self._added.count("perhaps"):
            yield Finding("addition", f"{self._added.count('ok')} additions made {count}")
        if self._end["counters"]:
            yield Finding("counters", f"{self._end['counters']} counters of table/shop were wrong")
        if sorted(self._end["items"]) != sorted(self._end["journal"]):
            odd = set(self._end["items"]) ^ set(self._end["journal"])
            yield Finding("table", f"items and changes differ in versions {sorted(odd)[:5]}")


def _item(chance: Random, size: int = 5) -> dict[str, Any]:
    number = chance.randrange(size)
    return {"id": f"i{number % 7}", "at": number, "group": chance.randrange(3), "text": "x" * size}


def _key(item: dict[str, Any]) -> tuple[str, int]:
    return item["id"], item["at"]


class Blobs(Subject):
    """A reader sees all of one blob, the last that was acknowledged or a later one."""

    share = 0.02
    SIZES: Final = (0, 10, 300, 5_000, 300_000)

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._written: dict[str, tuple[int, int]] = {}
        """The number of the last blob of a name that was acknowledged, and of the last that was sent."""

    async def act(self, lane: Lane) -> None:
        """Put a blob, or read one."""
        blobs, chance = lane.store.blobs("files"), lane.chance
        self.calls += 1
        try:
            if chance.random() < 0.5:
                await self._put(blobs, lane)
            elif self._written:
                await self._read(blobs, chance.choice(list(self._written)))
        except HoldfastError:
            await asyncio.sleep(0.1)

    async def _put(self, blobs: BlobHandle, lane: Lane) -> None:
        known, sent = self._written.get(lane.name, (0, 0))
        number = sent + 1
        self._written[lane.name] = (known, number)
        size = lane.chance.choice(self.SIZES)
        data = _content(number, size)
        await blobs.put(lane.name, data, metadata={"number": str(number), "size": str(size)})
        self._written[lane.name] = (number, number)

    async def _read(self, blobs: BlobHandle, name: str) -> None:
        least, _ = self._written[name]
        reader = await blobs.get(name)
        _, most = self._written[name]
        if reader is None:
            if least:
                self.wrong("blob", f"{name} is gone, and {least} was acknowledged", name)
            return
        try:
            data = await reader.read()
        except Busy:
            return
        about = reader.blob.metadata
        number, size = int(about["number"]), int(about["size"])
        if data != _content(number, size):
            self.wrong("blob", f"{name} has {len(data)} bytes that are not those of {about}", name)
        if not least <= number <= most:
            self.wrong("blob", f"{name} shows {number}, and {least} was acknowledged", name)

    async def last_look(self, store: Store) -> None:
        """Read every blob."""
        for name in list(self._written):
            await self._read(store.blobs("files"), name)


def _content(number: int, size: int) -> bytes:
    return Random(number).randbytes(16) * (size // 16) + bytes(size % 16)


class Holding(msgspec.Struct):
    """A lock that was held, and when its holder last believed so."""

    token: int
    client: int
    taken: int
    held: int = 0


class Locks(Subject):
    """Of all who want a lock one holds it, nobody waits for ever, and a former holder writes nothing."""

    share = 0.12
    lanes = 2

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._holdings: list[Holding] = []
        self._writes: list[tuple[int, int, int]] = []
        self._broken: list[tuple[int, float]] = []
        """When somebody may have removed the entry of whoever held the lock: at first, and at the latest."""
        self.seen = [self._holdings, self._writes]

    async def act(self, lane: Lane) -> None:
        """Wait for the lock, hold it for a while and write under its fence."""
        chance = lane.chance
        patience = chance.choice((0, 0.5, 8.0))
        lock = lane.store.kv("locks").lock("job", ttl=chance.choice((1, 2)), timeout=patience)
        self.calls += 1
        if chance.random() < 0.1:
            await self._break(lane)
        if chance.random() < 0.5:
            await self._hold_in_a_block(lane, lock)
            return
        try:
            if not await lock.acquire(timeout=patience):
                return
        except HoldfastError:
            await asyncio.sleep(0.1)
            return
        try:
            await self._watched(lane, lock)
        finally:
            with contextlib.suppress(HoldfastError, RuntimeError):
                await lock.release()

    async def _break(self, lane: Lane) -> None:
        """Remove the entry of whoever holds the lock, who is to notice that."""
        place, call, kv = len(self._broken), self.run.now(), lane.store.kv("locks")
        self._broken.append((call, math.inf))
        with contextlib.suppress(HoldfastError):
            await kv.delete(lock_key(kv, "job"))
        self._broken[place] = call, self.run.now() + self.run.timeout * 1e9

    async def _hold_in_a_block(self, lane: Lane, lock: Lock) -> None:
        """Hold the lock in a block, which is cancelled when the lock is lost."""
        try:
            async with lock:
                try:
                    await self._watched(lane, lock)
                except asyncio.CancelledError:
                    if lock.held:
                        self.wrong("lock", f"{lock.token} was lost, and is held")
                    raise
        except HoldfastError:
            await asyncio.sleep(0.1)

    async def _watched(self, lane: Lane, lock: Lock) -> None:
        holding = Holding(lock.token, lane.client, self.run.now())
        self._holdings.append(holding)
        watching = asyncio.create_task(self._watch(lock, holding), name="held")
        try:
            await self._hold(lane, lock, holding)
        finally:
            watching.cancel()

    async def _watch(self, lock: Lock, holding: Holding) -> None:
        """Note until when the holder believes that it holds the lock."""
        while lock.held:
            holding.held = self.run.now()
            await asyncio.sleep(0.02)

    def _one_time(self, one: Holding, other: Holding) -> bool:
        """Whether the store's time went on evenly between two holdings.

        A SQLite store whose machine was switched off starts with a later time, so that a lock may expire
        before its holder can know it, and nobody tells a holder whose entry was removed. The fence still
        keeps that holder from writing.
        """
        if any(call < other.taken and end > one.taken for call, end in self._broken):
            return False
        if self.run.skew:  # nodes of a cluster have their time from the log
            return True
        return not any(one.taken < 1e9 * cut < other.taken for cut in self.run.world.power_cuts)

    async def _hold(self, lane: Lane, lock: Lock, holding: Holding) -> None:
        kv = lane.store.kv("locks")
        for _ in range(lane.chance.randrange(1, 6)):
            if not lock.held:
                return
            call = self.run.now()
            try:
                if lane.chance.random() < 0.2:
                    await lane.store.blobs("locks").put("guarded", b"", fence=lock.fence)
                await kv.set("guarded", lock.token, fence=lock.fence)
                self._writes.append((call, self.run.now(), lock.token))
            except Fenced as refusal:
                if "never" in refusal.message:
                    self.wrong("lock", f"{holding} was taken: {refusal}", "guarded")
                return
            except HoldfastError:
                pass
            await asyncio.sleep(lane.chance.choice((0.01, 0.1, 0.6, 1.5)))

    async def last_look(self, store: Store) -> None:
        """Take the lock: whoever held it or waited for it has gone or goes on."""
        lock = store.kv("locks").lock("job", ttl=2)
        if not await lock.acquire(timeout=PATIENT):
            self.wrong("lock", f"nobody can take the lock within {PATIENT} s", "job")
        elif not await lock.release():
            self.wrong("lock", "the lock was lost at once", "job")

    def findings(self) -> Iterator[Finding]:
        """A token twice, two holders at a time, or a former holder that wrote."""
        tokens = [one.token for one in self._holdings]
        if len(tokens) != len(set(tokens)):
            yield Finding("lock", "two holders have one token")
        slack = (self.run.skew + 5) * 1_000_000
        for one in self._holdings:
            later = [
                other for other in self._holdings if other.token > one.token and self._one_time(one, other)
            ]
            if later and one.held > min(other.taken for other in later) + slack:
                yield Finding("lock", f"{one} was held though another had taken it: {later[0]}")
            after = [other for other in self._holdings if other.token > one.token and other not in later]
            if after and one.held > min(other.taken for other in after) + slack + LONGEST_LEASE:
                yield Finding("lock", f"{one} is held long after another had taken it: {after[0]}")
            passed = any(other.taken < one.taken and other.token > one.token for other in self._holdings)
            if passed and one.held:
                yield Finding("lock", f"{one} has a smaller token than one before it")
        for call, _, token in self._writes:
            newer = [one for one in self._holdings if one.token > token and one.taken < call]
            if newer:
                yield Finding("lock", f"a former holder wrote with {token} after {newer[0]}", ("guarded",))


class Tokens(Subject):
    """A token is valid from when it was made until it is revoked or expires, at every process of the store.

    Programs that have opened the store themselves look a token up as the doors do that ask for one.
    """

    share = 0.02

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._over: list[NewToken] = []
        """The tokens that are certain not to be valid any more."""

    async def act(self, lane: Lane) -> None:
        """Make a token, look for it, let it end, and look for it and for one that has ended before."""
        self.calls += 4
        try:
            made = await lane.store.tokens().create(
                plugin="alpha", ttl=1 if lane.chance.random() < 0.3 else None
            )
            if made.about.expires_at is None:
                if not await self._is_valid(lane, made):
                    self.wrong("token", f"{made.about.id} was made and is not valid", made.about.id)
                await lane.store.tokens().revoke(made.about.id)
            else:
                await asyncio.sleep(1.05 + self.run.skew / 1000)
                now = (await lane.store.kv("tokens").set("time", 0)).updated_at
                if now < made.about.expires_at + timedelta(milliseconds=self.run.skew):
                    return
            self._over.append(made)
            for one in (made, lane.chance.choice(self._over)):
                if await self._is_valid(lane, one):
                    self.wrong(
                        "token", f"{one.about.id} was revoked or has expired, and is valid", one.about.id
                    )
        except HoldfastError:
            await asyncio.sleep(0.1)

    async def _is_valid(self, lane: Lane, token: NewToken) -> bool:
        tokens = lane.store.tokens()
        if self.run.urls[lane.client].startswith("nats:"):
            return token.about.id in {one.id for one in await tokens.list()}
        return await tokens.find(token.token) is not None


class Retries(Subject):
    """An increment that is retried by itself is made once."""

    share = 0.03
    keys = ("kv/retries",)

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._added: list[str] = []
        self._value = 0
        self.seen = [self._added]

    async def act(self, lane: Lane) -> None:
        """Add one with retries."""
        place = len(self._added)
        self._added.append("perhaps")
        self.calls += 1
        retry = lane.store.kv("retries").retry
        try:
            if lane.chance.random() < 0.5:
                await retry.incr("sum")
            else:
                await retry.update("other", lambda entry: 1 if entry is None else entry.value + 1)
            self._added[place] = "ok"
        except Escalated:
            pass
        except OutcomeUnknown as error:
            self.wrong("retry", f"given up at once: {error.message}")
        except VersionConflict:
            self._added[place] = "refused"
        except HoldfastError:
            pass

    async def last_look(self, store: Store) -> None:
        """Read the sums."""
        kv = store.kv("retries")
        entries = [await kv.get(key) for key in ("sum", "other")]
        self._value = sum(0 if entry is None else entry.value for entry in entries)

    def findings(self) -> Iterator[Finding]:
        """Increments that were lost or made twice."""
        sure, perhaps = self._added.count("ok"), self._added.count("perhaps")
        if not sure <= self._value <= sure + perhaps:
            yield Finding("retry", f"{sure} increments, and perhaps {perhaps} more, made {self._value}")


class Logs(Subject):
    """Numbers of a log rise in the order of the commits, none is given twice, and `keep` keeps the newest.

    One log is trimmed. Of the other, items are deleted, and entries are written under the next numbers.
    """

    share = 0.04
    keys = ("kv/logs",)
    KEPT: Final = 3

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._items: dict[str, list[tuple[int, int, int]]] = {"trimmed": [], "whole": []}
        """When an item was sent and acknowledged, and its number."""
        self._deleted: list[int] = []
        self._in_the_way: list[int] = []
        self._left: list[int] = []
        self.seen = [self._items, self._deleted, self._in_the_way]

    async def act(self, lane: Lane) -> None:
        """Append items, delete some, and write entries where the next ones would be."""
        for _ in range(lane.chance.randint(6, 14)):
            await self._act(lane.store.kv("logs"), lane.chance)

    async def _act(self, kv: KV, chance: Random) -> None:
        draw = chance.random()
        self.calls += 1
        try:
            if draw < 0.4:
                await self._append(kv, chance, "trimmed", keep=self.KEPT)
            elif draw < 0.7 or not self._items["whole"]:
                await self._append(kv, chance, "whole")
            else:
                number = max(number for _, _, number in self._items["whole"])
                if draw < 0.85:
                    self._deleted.append(number)
                    await kv.delete(f"whole/{number:012}")
                else:
                    number += chance.randint(1, 2)
                    await kv.set(f"whole/{number:012}", "in the way", expected_version=0)
                    self._in_the_way.append(number)
        except HoldfastError:
            await asyncio.sleep(0.1)

    async def _append(self, kv: KV, chance: Random, name: str, keep: int | None = None) -> None:
        intention = f"l{chance.getrandbits(48)}"
        call, first = self.run.now(), None
        for attempt in range(12):
            try:
                entry = await kv.append(name, attempt, once=intention, keep=keep)
            except VersionConflict as conflict:
                self.wrong("log", f"{intention} was refused: {conflict}", intention)
                return
            except HoldfastError:
                await asyncio.sleep(0.1)
                continue
            if first is not None:
                if (entry.number, entry.version, entry.value) != (first.number, first.version, first.value):
                    self.wrong("log", f"{intention} made {first} and then {entry}", entry.key)
                with contextlib.suppress(VersionConflict):
                    other = await kv.set("other", 1, once=intention)
                    self.wrong("log", f"{intention} made {first}, and by another verb {other}", entry.key)
                return
            first = entry
            assert entry.number is not None
            self._items[name].append((call, self.run.now(), entry.number))
            if chance.random() < 0.7:
                return

    async def last_look(self, store: Store) -> None:
        """Read what the trimmed log has, and whether what was in the way is still there."""
        kv = store.kv("logs")
        self._left = [int(key.rpartition("/")[2]) for key in (await kv.list("trimmed/")).keys]
        for number in self._in_the_way:
            entry = await kv.get(f"whole/{number:012}")
            if number not in self._deleted and (entry is None or entry.value != "in the way"):
                self.wrong("log", f"an item has replaced an entry: {entry}", f"whole/{number:012}")

    def findings(self) -> Iterator[Finding]:
        """A number twice, numbers out of order, or items that were not trimmed, or too early."""
        for name, items in self._items.items():
            numbers = [number for _, _, number in items]
            if len(numbers) != len(set(numbers)):
                yield Finding("log", f"the log {name} gave a number twice: {sorted(numbers)}")
            for call, _, number in items:
                if any(end < call and other > number for _, end, other in items):
                    yield Finding("log", f"item {number} of {name} was sent after a higher one was there")
        last = max(self._left, default=0)
        if self._left != list(range(max(1, last - self.KEPT + 1), last + 1)):
            yield Finding("log", f"of the newest {self.KEPT} items {self._left} are left")


class BackupFile(msgspec.Struct):
    """A file with a backup: what was surely in the store before, and whether it was reported as made."""

    sure: list[tuple[str, int | None]]
    made: bool = False


class _Large:
    """A store of which every read takes long, as if it held much."""

    def __init__(self, store: Movable) -> None:
        self._store = store

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncIterator[_Slow]:
        """See `Movable.snapshot`."""
        async with self._store.snapshot() as snapshot:
            yield _Slow(snapshot)


class _Slow:
    """A snapshot each of whose methods takes a few milliseconds."""

    def __init__(self, snapshot: object) -> None:
        self._snapshot = snapshot

    def __getattr__(self, name: str) -> Any:
        async def slowly(*given: Any, **fields: Any) -> Any:
            await asyncio.sleep(0.002)
            return await getattr(self._snapshot, name)(*given, **fields)

        return slowly


class Backups(Subject):
    """A backup has the store as it was at one instant, and a file with one is whole and there for good."""

    share = 0.25
    only_embedded = True
    keys = ("kv/beside",)

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._files: dict[Path, BackupFile] = {}

    async def act(self, lane: Lane) -> None:
        """Make a backup while others write, restore one of all into another store and look at that."""
        if not self.run.urls[lane.client].startswith("sqlite:"):
            return
        await asyncio.sleep(lane.chance.uniform(0, 1.5))
        registers = self.run.registers
        sure = [
            (f"kv/{one.namespace}", one.version)
            for one in registers.history
            if one.outcome == "ok" and one.verb in {"set", "incr"}
        ]
        path = Path(f"backup-{lane.chance.getrandbits(32):08x}")
        file = self._files[path] = BackupFile(sure)
        try:
            await lane.store.kv("beside").set("first", 1)
            beside = asyncio.create_task(self._write_beside(lane))
            with whole_file(path) as output:
                store: Any = _Large(_raw(lane.store.caller.require_engine()))
                await back_up(store, output, made_at=0, software="")
            await beside
            file.made = True
            self.calls += 1
            for one in {path: None, lane.chance.choice(list(self._files)): None}:
                await self._check(lane, one)
        except ValidationError as error:
            self.wrong("backup", f"a backup can't be restored: {error}")
        except HoldfastError:
            await asyncio.sleep(0.2)

    async def _write_beside(self, lane: Lane) -> None:
        """Write while a backup is made."""
        kv = lane.store.kv("beside")
        with contextlib.suppress(HoldfastError):
            for _ in range(20):
                await kv.set(f"{lane.chance.getrandbits(32):08x}", 1)

    async def _check(self, lane: Lane, path: Path) -> None:
        """Restore a backup. One that was not reported as made may be missing, but is whole if it is there."""
        file = self._files[path]
        if not path.exists():
            if file.made:
                self.wrong("backup", f"{path} was made and is gone", str(path))
            return
        url = f"{self.run.urls[lane.client]}.{lane.chance.getrandbits(32):08x}"
        with path.open("rb") as backup:
            await _restore(url, backup)
        async with holdfast.open(url, reap=False) as copy:
            await self._look_at(copy, file.sure)

    async def _look_at(self, copy: Store, sure: list[tuple[str, int | None]]) -> None:
        for namespace in self.run.lasting:
            kept, odd = await self.run.look_at_copy(copy, namespace)
            if odd:
                self.wrong("backup", f"a backup is not whole: {odd[0].text}")
            versions = {one.version for one in kept.changes}
            missing = [version for name, version in sure if name == namespace and version not in versions]
            if missing:
                self.wrong("backup", f"acknowledged, but not in the backup: {namespace} {missing[:5]}")


async def _restore(url: str, backup: IO[bytes]) -> None:
    engine = _raw(backend_for(url))
    engine.open_unfinished()
    await engine.start()
    try:
        await engine.ready()
        await restore(engine, backup)
    finally:
        await engine.aclose()


def _raw(engine: object) -> Movable:
    assert isinstance(engine, Movable)
    return engine


FAMILIES: Final[tuple[type[Subject], ...]] = (
    *(Documents, Policies, Tables, Blobs, Locks, Tokens, Retries, Logs, Backups),
)
"""The subjects about more than keys."""
