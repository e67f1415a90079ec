"""What a namespace holds, as plain dictionaries, and what happens to it below the verbs.

Written from the contract alone; it imports nothing of the library. Answers are plain data: an entry, a
page and an error are dictionaries, times are milliseconds, values JSON text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

DAY: Final = 86_400_000
MADE: Final = "made"
"""Stands for a request id that the store made up."""
CODES: Final = {
    "ValidationError": "VALIDATION_ERROR",
    "VersionConflict": "VERSION_CONFLICT",
    "KeyNotFound": "KEY_NOT_FOUND",
    "Fenced": "FENCED",
}

Plain = dict[str, Any]


class Refusal(Exception):
    """The call is refused, and nothing has happened."""

    def __init__(self, name: str, field: str | None = None, **more: Any) -> None:
        super().__init__(name)
        self.plain: Plain = {"error": name, "code": CODES[name], "field": field}
        if name == "VersionConflict":
            self.plain |= {"current": None, "conflicts": [], "reason": None, **more}


@dataclass
class State:
    """Everything that a namespace holds."""

    revision: int = 0
    entries: dict[str, Plain] = field(default_factory=dict)
    journal: list[Plain] = field(default_factory=list)
    floor: int = 0
    trash: dict[str, tuple[Plain, int]] = field(default_factory=dict)
    requests: dict[str, tuple[str, Any, int]] = field(default_factory=dict)
    guards: dict[str, int] = field(default_factory=dict)
    logs: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The last number of each log, and the first that may still have an item."""

    def copied(self) -> State:
        """The same. Entries, records and replies are never changed, only replaced: they need no copy."""
        return replace(
            self,
            entries=dict(self.entries),
            journal=list(self.journal),
            trash=dict(self.trash),
            requests=dict(self.requests),
            guards=dict(self.guards),
            logs=dict(self.logs),
        )


class Ledger:
    """The entries, journal and trash of one namespace.

    Args:
        now: Tells the time.
        root: What full keys begin with, in the semantic family, where everything goes to the trash.
    """

    def __init__(self, now: Callable[[], int], root: str = "") -> None:
        self._now = now
        self._root = root
        self.state = State()

    def live(self, key: str) -> Plain | None:
        """The entry of a full key, unless its deadline is reached."""
        entry = self.state.entries.get(key)
        if entry is None or (entry["expires_at"] is not None and entry["expires_at"] <= self._now()):
            return None
        return entry

    def _deadline(self, ttl: int | None) -> int | None:
        return None if ttl is None else self._now() + ttl * 1000

    def _change(
        self, key: str, given: Plain, *, old: Plain, value: Any, deadline: int | None, op: str = "set"
    ) -> Plain:
        """Put a value and a deadline; the rest of the entry is that of an old one."""
        spec_ref = given.get("spec_ref") or old["spec_ref"]
        meaning = old["semantics"]
        return self._put(
            key, given, old=old, value=value, deadline=deadline, semantics=meaning, spec_ref=spec_ref, op=op
        )

    def _put(
        self,
        key: str,
        given: Plain,
        *,
        old: Plain | None,
        value: Any,
        deadline: int | None,
        semantics: Plain | None,
        spec_ref: str | None,
        op: str = "set",
    ) -> Plain:
        """Put an entry in the place of an old one, if there is one."""
        self._record(op, key, semantics, given)
        self.state.entries[key] = {
            "key": key,
            "value": json.dumps(value, sort_keys=True),
            "version": self.state.revision,
            "created_at": self._now() if old is None else old["created_at"],
            "updated_at": self._now(),
            "expires_at": deadline,
            "last_writer": given.get("writer") or "embedded",
            "semantics": semantics,
            "request_id": given.get("request_id") or MADE,
            "spec_ref": spec_ref,
        }
        return dict(self.state.entries[key])

    def _notice(self, key: str) -> None:
        """An entry whose deadline is reached goes, and the journal says so."""
        entry = self.state.entries.get(key)
        if entry is None or self.live(key) is not None:
            return
        self._drop(key)
        self._record("expired", key, entry["semantics"], {})
        self.state.journal[-1] |= {
            "last_writer": entry["last_writer"],
            "request_id": None,
            "lag_ms": self._now() - entry["expires_at"],
            "expired_version": entry["version"],
        }

    def _drop(self, key: str) -> None:
        """An entry goes, to the trash if it is of a kind that is kept."""
        entry = self.state.entries.pop(key)
        purpose = (entry["semantics"] or {}).get("purpose")
        plain = entry["semantics"] is None and not self._root
        if plain or purpose in ("lock", "cache", "session"):
            return
        self.state.trash[key] = (entry, self._now() + 7 * DAY)

    def _record(self, op: str, key: str, semantics: Plain | None, given: Plain) -> None:
        self.state.revision += 1
        self.state.journal.append(
            {
                "op": op,
                "key": key,
                "version": self.state.revision,
                "at": self._now(),
                "last_writer": given.get("writer") or "embedded",
                "request_id": given.get("request_id") or MADE,
                "purpose": (semantics or {}).get("purpose"),
                "lag_ms": None,
                "expired_version": None,
                "error_code": None,
                "attempts": None,
                "value_hash": None,
            }
        )


def compact(text: str) -> bytes:
    """The compact form of a value."""
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False).encode()
