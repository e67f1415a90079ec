"""What the contract says the verbs do, in plain dictionaries.

Written from the contract alone. It imports nothing of the library but the word KEEP, so that it can't
share a mistake with it; it is slow and has one way to do each thing.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from holdfast.model import KEEP
from tests.machine.ledger import DAY, Ledger, Plain, Refusal, compact

if TYPE_CHECKING:
    from collections.abc import Callable


class Oracle(Ledger):
    """One namespace. Its methods are the verbs, with the arguments of the library's."""

    # Reading

    def get(self, key: str) -> Plain | None:
        """The entry, unless its deadline is reached."""
        entry = self.live(self._root + key)
        return None if entry is None else dict(entry)

    def get_many(self, keys: list[str]) -> list[Plain | None]:
        """As get, by position."""
        return [self.get(key) for key in keys]

    def get_ttl(self, key: str) -> int | None:
        """Seconds left, rounded up; None for ever; 0 gone."""
        entry = self.get(key)
        if entry is None:
            return 0
        if entry["expires_at"] is None:
            return None
        return int(-(-(entry["expires_at"] - self._now()) // 1000))

    def listing(self, prefix: str, *, limit: int, after: str | None = None, values: bool = False) -> Plain:
        """Keys by their bytes."""
        keys = [
            key
            for key in sorted(self.state.entries, key=str.encode)
            if key.startswith(self._root + prefix) and self.live(key) is not None
        ]
        rest = [key for key in keys if after is None or key.encode() > after.encode()]
        page = rest[:limit]
        return {
            "keys": page,
            "truncated": len(rest) > limit,
            "entries": [dict(self.state.entries[key]) for key in page] if values else None,
        }

    def changes(self, since: int, *, prefix: str = "", limit: int = 1000) -> Plain:
        """The journal after a version, with a gap where it does not reach."""
        state = self.state
        gap = not state.floor <= since <= state.revision
        begin = state.floor if gap else since
        records = [
            record
            for record in state.journal
            if record["version"] > begin and record["key"].startswith(self._root + prefix)
        ]
        page = records[:limit]
        return {
            "changes": page,
            "next": page[-1]["version"] if len(records) > limit else state.revision,
            "gap": gap,
            "oldest": state.floor + 1 if gap else None,
        }

    def history(self, key: str, *, limit: int = 1000) -> list[Plain]:
        """The journal of one key, newest first."""
        return [record for record in reversed(self.state.journal) if record["key"] == self._root + key][
            :limit
        ]

    def stats(self) -> Plain:
        """Living keys, their bytes, and the last version."""
        living = [entry for key, entry in self.state.entries.items() if self.live(key) is not None]
        size = sum(len(entry["key"].encode()) + len(compact(entry["value"])) for entry in living)
        return {"keys": len(living), "bytes": size, "version": self.state.revision}

    # Writing

    def set(self, key: str, value: Any, **given: Any) -> Any:
        """Put a value."""
        legal_ttl(given.get("ttl"))
        return self._write("set", {"key": key, "value": value, **given}, self._set)

    def delete(self, key: str, **given: Any) -> Any:
        """Remove a key."""
        return self._write("delete", {"key": key, **given}, self._delete)

    def incr(self, key: str, by: Any = 1, **given: Any) -> Any:
        """Add to a number."""
        legal_ttl(given.get("ttl"))
        return self._write("incr", {"key": key, "by": by, **given}, self._incr)

    def append(self, name: str, value: Any, **given: Any) -> Any:
        """Add an item to a log."""
        legal_ttl(given.get("ttl"))
        return self._write("append", {"name": name, "value": value, **given}, self._append)

    def set_ttl(self, key: str, ttl_seconds: int, **given: Any) -> Any:
        """Move a deadline."""
        legal_ttl(ttl_seconds, "ttl_seconds")
        return self._write("set_ttl", {"key": key, "ttl": ttl_seconds, **given}, self._set_ttl)

    def exists(self, key: str) -> bool:
        """Whether there is an entry."""
        return self.get(key) is not None

    def touch(self, key: str, ttl_seconds: int, **given: Any) -> Any:
        """Move a deadline, if there is an entry."""
        legal_ttl(ttl_seconds, "ttl_seconds")
        return self._write("touch", {"key": key, "ttl": ttl_seconds, **given}, self._touch)

    def remove_ttl(self, key: str, **given: Any) -> Any:
        """Take a deadline away."""
        return self._write("remove_ttl", {"key": key, "ttl": None, **given}, self._set_ttl)

    def restore(self, key: str, **given: Any) -> Any:
        """Bring a key back from the trash."""
        legal_ttl(given.get("ttl"))
        return self._write("restore", {"key": key, **given}, self._restore)

    def set_many(self, items: list[Plain], **given: Any) -> Any:
        """As set, by position, each for itself."""
        return self._write("set_many", {"items": items, **given}, self._many(self._set))

    def delete_many(self, keys: list[str], **given: Any) -> Any:
        """As delete, by position, each for itself."""
        items = [{"key": key} for key in keys]
        return self._write("delete_many", {"items": items, **given}, self._many(self._delete))

    def batch(self, *, checks: list[Plain], writes: list[Plain], **given: Any) -> Any:
        """All writes or none."""
        return self._write("batch", {"checks": checks, "writes": writes, **given}, self._batch)

    def sweep(self, *, together: bool) -> int:
        """Notice every expiry, the longest overdue first; what goes `together` goes before all others."""
        due = [key for key in self.state.entries if self.live(key) is None]

        def turn(key: str) -> tuple[bool, int]:
            entry = self.state.entries[key]
            alone = bool(self._root) or entry["semantics"] is not None
            return together and alone, entry["expires_at"]

        for key in sorted(due, key=turn):
            self._notice(key)
        return len(due)

    def upkeep(self) -> None:
        """Drop what the journal, the trash and the memory of requests have kept for their time."""
        state, now = self.state, self._now()
        old = [record["version"] for record in state.journal if record["at"] <= now - DAY]
        state.floor = max(old, default=state.floor)
        state.journal = [record for record in state.journal if record["version"] > state.floor]
        state.trash = {key: kept for key, kept in state.trash.items() if kept[1] > now}
        state.requests = {name: known for name, known in state.requests.items() if known[2] > now}

    # What every write shares

    def _write(self, verb: str, call: Plain, apply: Callable[[Plain, Plain], Any]) -> Any:
        """One request, one effect; a refusal has none."""
        before = self.state.copied()
        content = json.dumps([verb, call], sort_keys=True, default=repr)
        try:
            if call.get("once") is not None:
                return self._intended(verb, call, apply)
            return self._once(call, content, apply)
        except Refusal:
            self.state = before
            raise

    def _intended(self, verb: str, call: Plain, apply: Callable[[Plain, Plain], Any]) -> Any:
        """What was intended is done once, whatever else the later call says; its verb must be the same."""
        known = self.state.requests.get(call["once"])
        if known is None or known[2] <= self._now():
            self._check_fence(call.get("fence"))
            reply = apply(call, {**call, "request_id": call["once"]})
            self.state.requests[call["once"]] = (verb, copy.deepcopy(reply), self._now() + DAY)
            return reply
        if known[0] != verb:
            current = self.get(call["key"]) if "key" in call else None
            raise Refusal("VersionConflict", reason="request_id_reused", current=current)
        return copy.deepcopy(known[1])

    def _once(self, call: Plain, content: str, apply: Callable[[Plain, Plain], Any]) -> Any:
        request_id = call.get("request_id")
        known = self.state.requests.get(request_id) if request_id is not None else None
        if known is None or known[2] <= self._now():
            self._check_fence(call.get("fence"))
            reply = apply(call, call)
        elif known[0] != content:
            current = self.get(call["key"]) if "key" in call else None
            raise Refusal("VersionConflict", reason="request_id_reused", current=current)
        elif not any(is_refusal(one) for one in as_list(known[1])):
            return copy.deepcopy(known[1])
        else:
            self._check_fence(call.get("fence"))
            items = [item for item, was in zip(call["items"], known[1], strict=True) if is_refusal(was)]
            anew = iter(apply({**call, "items": items}, call))
            reply = [next(anew) if is_refusal(was) else was for was in known[1]]
        if request_id is not None and (reply == [] or not all(map(is_refusal, as_list(reply)))):
            self.state.requests[request_id] = (content, copy.deepcopy(reply), self._now() + DAY)
        return reply

    def _check_fence(self, fence: Plain | None) -> None:
        if fence is not None and self.state.guards.get(fence["lock"]) != fence["token"]:
            raise Refusal("Fenced", "fence")

    def _expect(self, key: str, expected: int | None) -> Plain | None:
        """The live entry, if it is the expected one; an expiry on the way is noticed."""
        self._notice(key)
        entry = self.state.entries.get(key)
        if expected is not None and expected != (0 if entry is None else entry["version"]):
            raise Refusal("VersionConflict", current=None if entry is None else dict(entry))
        return entry

    # What each write does: `call` has its own fields, `given` the provenance of the whole request

    def _set(self, call: Plain, given: Plain) -> Plain:
        key = self._root + call["key"]
        before = self._expect(key, call.get("expected_version"))
        meaning = call.get("semantics")
        ttl = call.get("ttl")
        if ttl is None and meaning is not None:
            ttl = meaning.get("ttl_seconds")
        running = None if before is None else before["expires_at"]
        return self._put(
            key,
            given,
            old=before,
            value=call["value"],
            deadline=running if ttl is KEEP else self._deadline(ttl),
            semantics=meaning,
            spec_ref=given.get("spec_ref"),
        )

    def _delete(self, call: Plain, given: Plain) -> bool:
        key = self._root + call["key"]
        entry = self._expect(key, call.get("expected_version"))
        if entry is None:
            return False
        self._drop(key)
        self._record("deleted", key, entry["semantics"], given)
        return True

    def _incr(self, call: Plain, given: Plain) -> Plain:
        key = self._root + call["key"]
        before = self._expect(key, call.get("expected_version"))
        if before is None and call.get("only_if_exists"):
            raise Refusal("KeyNotFound", "key")
        if before is None:
            made = {"created_at": self._now(), "semantics": None, "spec_ref": None}
            deadline = self._deadline(call.get("ttl"))
            return self._change(key, given, old=made, value=call["by"], deadline=deadline)
        number = json.loads(before["value"])
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise Refusal("ValidationError", "value")
        return self._change(key, given, old=before, value=number + call["by"], deadline=before["expires_at"])

    def _append(self, call: Plain, given: Plain) -> Plain:
        name = self._root + call["name"]
        last, first = self.state.logs.get(name, (0, 1))
        number, keep = last + 1, call.get("keep")
        item = self._put(
            f"{name}/{number:012d}",
            given,
            old=None,
            value=call["value"],
            deadline=self._deadline(call.get("ttl")),
            semantics=None,
            spec_ref=given.get("spec_ref"),
        )
        while keep is not None and first <= number - keep:
            self._delete({"key": f"{call['name']}/{first:012d}"}, given)
            first += 1
        self.state.logs[name] = (number, first)
        return item

    def _set_ttl(self, call: Plain, given: Plain) -> Plain:
        key = self._root + call["key"]
        before = self._expect(key, call.get("expected_version"))
        if before is None:
            raise Refusal("KeyNotFound", "key")
        value, deadline = json.loads(before["value"]), self._deadline(call["ttl"])
        return self._change(key, given, old=before, value=value, deadline=deadline)

    def _touch(self, call: Plain, given: Plain) -> Plain | None:
        missing = self._expect(self._root + call["key"], call.get("expected_version")) is None
        return None if missing else self._set_ttl({**call, "expected_version": None}, given)

    def _restore(self, call: Plain, given: Plain) -> Plain:
        key = self._root + call["key"]
        entry = self._expect(key, call.get("expected_version"))
        if entry is not None:
            raise Refusal("VersionConflict", current=dict(entry))
        kept, until = self.state.trash.get(key, ({}, 0))
        if until <= self._now():
            raise Refusal("KeyNotFound", "key")
        del self.state.trash[key]
        deadline = self._deadline(call.get("ttl"))
        value = json.loads(kept["value"])
        return self._change(key, given, old=kept, value=value, deadline=deadline, op="restored")

    def _many(self, apply: Callable[[Plain, Plain], Any]) -> Callable[[Plain, Plain], list[Any]]:
        def each(call: Plain, given: Plain) -> list[Any]:
            results: list[Any] = []
            for item in call["items"]:
                before = self.state.copied()
                try:
                    results.append(apply(item, given))
                except Refusal as refusal:
                    self.state = before
                    results.append(refusal.plain)
            return results

        return each

    def _batch(self, call: Plain, given: Plain) -> list[int | None]:
        conflicts = []
        for check in call["checks"]:
            try:
                self._expect(self._root + check["key"], check["version"])
            except Refusal as refusal:
                key, current = self._root + check["key"], refusal.plain["current"]
                conflicts.append({"key": key, "expected_version": check["version"], "current": current})
        if conflicts:
            raise Refusal("VersionConflict", conflicts=conflicts, current=conflicts[0]["current"])
        return [self._batched(write, given) for write in call["writes"]]

    def _batched(self, write: Plain, given: Plain) -> int | None:
        if "guard" in write:
            self.state.revision += 1
            self.state.guards[write["guard"]] = self.state.revision
        elif "incr" in write:
            self._incr({**write, "by": write["incr"]}, given)
        elif "delete" not in write:
            self._set(write, given)
        elif not self._delete(write, given):
            return None
        return self.state.revision


def legal_ttl(ttl: Any, name: str = "ttl") -> None:
    """Whole seconds, 1 to 2,147,483,647."""
    if ttl is None or ttl is KEEP:
        return
    if type(ttl) is not int or not 1 <= ttl <= 2_147_483_647:
        raise Refusal("ValidationError", name)


def is_refusal(reply: Any) -> bool:
    """Whether a member of a reply is a refusal."""
    return isinstance(reply, dict) and "error" in reply


def as_list(reply: Any) -> list[Any]:
    """The members of a reply that has several, or the reply itself."""
    return reply if isinstance(reply, list) else [reply]
