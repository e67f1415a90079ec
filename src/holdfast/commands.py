"""What can be asked of a store, and what is answered: commands and results.

Law: a command is legal by construction, since only `holdfast.verbs` makes those that come from callers. It
says what to do, never how; it carries nothing random, and no time but the deadline of its caller. Results are
what `decide` returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from holdfast.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator


EMBEDDED: Final = "embedded"
"""The principal of what a program asks for that has the store open itself."""
HOLDFAST: Final = "holdfast"
"""The principal of what the store does by itself, such as noticing that an entry has expired."""
LEAST_COST: Final = 256
"""What a command costs beside what it holds."""


class Fence(msgspec.Struct, frozen=True, gc=False):
    """The write holds only while `token` is the newest of the lock."""

    lock: str
    token: int


class Origin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who asks, under which id and document. `repeatable`: the caller named the id, so remember the reply.

    `deadline` is the store's time, in milliseconds since 1970, after which the command must not take effect,
    because its caller has given up. `principal` is who is known to ask, whatever the writer is said to be; a
    program that has the store open itself if it is not given. Neither is a part of what is asked: a request
    that is sent again may have others.
    """

    writer: str
    request_id: str
    repeatable: bool = False
    spec_ref: str | None = None
    fence: Fence | None = None
    deadline: int | msgspec.UnsetType = msgspec.UNSET
    principal: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def asked(self) -> Origin:
        """The origin of a command's parts, which take effect with it, and of what is remembered of it."""
        if self.deadline is msgspec.UNSET and self.principal is msgspec.UNSET:
            return self
        return msgspec.structs.replace(self, deadline=msgspec.UNSET, principal=msgspec.UNSET)


class Command(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """Something to be done in one namespace.

    A command that is `weighed` is refused if what is stored under its keys is too much for a request to look
    at. One that is `limited` counts towards the rate of its namespace.
    """

    weighed: ClassVar[bool] = False
    limited: ClassVar[bool] = False

    namespace: str

    @property
    def parts(self) -> tuple[Change, ...] | None:
        """The commands that this is made of, where each is done for itself; None if it is but one."""
        return None

    @property
    def cost(self) -> int:
        """About how many bytes this brings along: what bounds a group."""
        return LEAST_COST

    @property
    def rows(self) -> int:
        """How many rows this is about: what bounds the work that is done in one go."""
        return 1

    @property
    def removes(self) -> bool:
        """Whether this only removes, so that it may be done where there is no room."""
        return False


class Get(Command, frozen=True, kw_only=True, gc=False):
    """Read a key in its turn among the writes."""

    key: str


class Change(Command, frozen=True, kw_only=True, gc=False):
    """A command of a caller that writes."""

    limited: ClassVar[bool] = True

    origin: Origin


class KeyChange(Change, frozen=True, kw_only=True, gc=False):
    """A change of one key, if its version is the expected one (0: it must not exist; None: whatever).

    A client sends one that names a `verb` with its fields under their own names.
    """

    verb: ClassVar[str] = ""

    key: str
    expected: int | None = None


class Set(KeyChange, frozen=True, kw_only=True, gc=False):
    """Put a value, in place of whatever is there. `size` is that of the value in bytes."""

    value: str
    size: int
    ttl: int | None = None
    keep_ttl: bool = False
    semantics: str | None = None

    @property
    def cost(self) -> int:
        """About how many bytes this brings along."""
        return self.size + LEAST_COST


class Delete(KeyChange, frozen=True, kw_only=True, gc=False):
    """Remove a key."""

    verb: ClassVar[str] = "delete"

    @property
    def removes(self) -> bool:
        """Whether this only removes."""
        return True


class Incr(KeyChange, frozen=True, kw_only=True, gc=False):
    """Add to a number; `ttl` applies when this makes the key."""

    verb: ClassVar[str] = "incr"

    by: int | float
    ttl: int | None = None


class SetTtl(KeyChange, frozen=True, kw_only=True, gc=False):
    """Move the deadline of a key; None takes it away."""

    ttl: int | None


class Restore(KeyChange, frozen=True, kw_only=True, gc=False):
    """Bring a key back from the trash."""

    verb: ClassVar[str] = "restore"

    ttl: int | None = None


class Guard(Change, frozen=True, kw_only=True, gc=False):
    """Give a lock's guard a new version, which is the newest token of the lock."""

    lock: str


class Check(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a batch expects of a key: its version, or 0 for none."""

    key: str
    version: int


class Batch(Change, frozen=True, kw_only=True):
    """All of these writes if all of the checks hold, else none."""

    weighed: ClassVar[bool] = True

    checks: tuple[Check, ...]
    writes: tuple[Set | Delete | Incr | Guard, ...]

    @property
    def cost(self) -> int:
        """About how many bytes this brings along."""
        return sum(write.cost for write in self.writes) + 64 * len(self.checks)

    @property
    def rows(self) -> int:
        """How many rows this is about."""
        return len(self.checks) + len(self.writes)

    @property
    def removes(self) -> bool:
        """Whether this only removes."""
        return all(write.removes for write in self.writes)


class Many(Change, frozen=True, kw_only=True):
    """Each of these for itself, in one call."""

    weighed: ClassVar[bool] = True

    items: tuple[Set | Delete, ...]

    @property
    def parts(self) -> tuple[Set | Delete, ...]:
        """The items."""
        return self.items

    @property
    def cost(self) -> int:
        """About how many bytes this brings along."""
        return sum(item.cost for item in self.items)

    @property
    def rows(self) -> int:
        """How many rows this is about."""
        return len(self.items)

    @property
    def removes(self) -> bool:
        """Whether this only removes."""
        return all(item.removes for item in self.items)


class Escalate(Change, frozen=True, kw_only=True, gc=False):
    """Keep a request that was given up as a dead letter, which is JSON text, and tell of it.

    `request` is the id of that request, `key` the key that it was about, and `value` the JSON text that it
    would have put there, if any. The origin is that of the escalation, which is a request of its own.
    """

    request: str
    key: str
    letter: str
    code: str
    attempts: int
    value: str | None = None

    @property
    def cost(self) -> int:
        """About how many bytes this brings along."""
        return len(self.letter) + LEAST_COST


class DropLetter(Change, frozen=True, kw_only=True, gc=False):
    """Remove a dead letter."""

    limited: ClassVar[bool] = False

    number: int

    @property
    def removes(self) -> bool:
        """Whether this only removes."""
        return True


class Load(Change, frozen=True, kw_only=True):
    """Put entries with their whole envelope, as another store had them.

    With `keep_versions` an entry keeps its version where that is greater than the namespace's last one, and
    the namespace goes on from there; else it gets a new one.
    """

    entries: tuple[tuple[str, Row], ...]
    keep_versions: bool

    @property
    def cost(self) -> int:
        """About how many bytes this brings along."""
        return sum(row.size + LEAST_COST for _, row in self.entries)

    @property
    def rows(self) -> int:
        """How many rows this is about."""
        return len(self.entries)


class SetPolicy(Change, frozen=True, kw_only=True, gc=False):
    """Put a namespace under a policy, which is JSON text."""

    limited: ClassVar[bool] = False

    policy: str


class BindKey(Command, frozen=True, kw_only=True, gc=False):
    """Have the newest key sign the audit from now on, if another one has signed it so far."""


class PruneAudit(Command, frozen=True, kw_only=True, gc=False):
    """Drop the audit's records from number `first`, which must be the oldest, up to and including `upto`."""

    first: int
    upto: int

    @property
    def rows(self) -> int:
        """How many rows this is about."""
        return self.upto - self.first + 1


class Expire(Command, frozen=True, kw_only=True, gc=False):
    """Notice that the rows at these keys of a space have passed their deadline.

    `before` lets rows go early whose deadline is not later than it: how records that are kept up to a
    number are thinned out. It has no effect on entries.
    """

    space: str
    keys: tuple[str | bytes, ...]
    before: int | None = None

    @property
    def cost(self) -> int:
        """About how many bytes this brings along."""
        return 2 * LEAST_COST * len(self.keys)

    @property
    def rows(self) -> int:
        """How many rows this is about."""
        return len(self.keys)

    @property
    def removes(self) -> bool:
        """Whether this only removes."""
        return True


class ExpireRun(Command, frozen=True, kw_only=True, gc=False):
    """Notice that plain entries have passed their deadline: at most `limit`, the longest overdue first.

    It does nothing where more than a record may be left of an entry, and notices none that has semantics or
    was written past Holdfast: `Expire` does. It never shares a group with another command, but for its like.
    """

    limit: int

    @property
    def removes(self) -> bool:
        """Whether this only removes."""
        return True


class Trim(Command, frozen=True, kw_only=True, gc=False):
    """Drop the journal's records up to and including a version."""

    upto: int

    @property
    def removes(self) -> bool:
        """Whether this only removes."""
        return True


class Recount(Command, frozen=True, kw_only=True, gc=False):
    """Put the counters right that say what a namespace keeps, if SQL has changed what there is."""


class Result(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """What became of a command. `replayed`: it took effect before, and this is the reply of then."""

    replayed: bool = False


class Stored(Result, frozen=True, tag=True, gc=False):
    """The entry as it is after the command."""

    key: str
    row: Row


class Got(Result, frozen=True, tag=True, gc=False):
    """The row that a read found, or None."""

    row: Row | None


class Deleted(Result, frozen=True, tag=True, gc=False):
    """The version of the deletion and the purpose of what was there; None if there was nothing to delete."""

    version: int | None
    purpose: str | None = None


class Versions(Result, frozen=True, tag=True, gc=False):
    """The versions of a batch's writes and the purposes of what they changed, by position."""

    versions: tuple[int | None, ...]
    purposes: tuple[str | None, ...]


class Results(Result, frozen=True, tag=True):
    """What became of the items of a `Many`: a result or the error that refused it, by position."""

    items: tuple[Stored | Deleted | Exception, ...]


class Done(Result, frozen=True, tag=True, gc=False):
    """It is done, and there is nothing more to say."""


class Kept(Result, frozen=True, tag=True, gc=False):
    """The number under which a letter was kept."""

    number: int


class Written(Result, frozen=True, tag=True, gc=False):
    """How many entries were put."""

    count: int


class Removed(Result, frozen=True, tag=True, gc=False):
    """How many rows upkeep removed."""

    count: int


def written_keys(command: Command) -> Iterator[str]:
    """The keys of entries that a caller's command may change."""
    match command:
        case KeyChange():
            yield command.key
        case Batch():
            for write in command.writes:
                yield from written_keys(write)
        case Many():
            for item in command.items:
                yield item.key
        case Load():
            for key, _ in command.entries:
                yield key
        case _:
            pass
