"""Commands, which a store executes, and the results it returns.

Law: a command is legal by construction, because only `holdfast.verbs` makes commands from callers' input. It
says what to do, never how. It holds nothing random, and no time except its caller's deadline. `decide`
returns the results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from holdfast.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator


EMBEDDED: Final = "embedded"
"""The principal of a program that has opened the store itself."""
HOLDFAST: Final = "holdfast"
"""The principal of changes that the store makes by itself, such as expiring an entry."""
LEAST_COST: Final = 256
"""Fixed cost of a command, in addition to its content."""


class Fence(msgspec.Struct, frozen=True, gc=False):
    """A condition of a write: `token` must be the newest token of the lock."""

    lock: str
    token: int


class Origin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The caller of a command, with its request id and spec_ref.

    `repeatable` means that the caller chose the request id, so the reply is remembered. `deadline` is a time
    of the store in milliseconds, after which the command must not take effect. `principal` is the
    authenticated caller; if unset, the program that has opened the store. A retry may carry others of both.
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
        """This origin without deadline and principal, for a command's parts and for remembered requests."""
        if self.deadline is msgspec.UNSET and self.principal is msgspec.UNSET:
            return self
        return msgspec.structs.replace(self, deadline=msgspec.UNSET, principal=msgspec.UNSET)


class Command(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """An operation in one namespace.

    A `weighed` command is refused if the values under its keys are too large for one request. A `limited`
    one counts towards the rate limit. A `bulky` one has bytes that are passed on unread, in little time.
    """

    weighed: ClassVar[bool] = False
    limited: ClassVar[bool] = False
    bulky: ClassVar[bool] = False

    namespace: str

    @property
    def parts(self) -> tuple[WriteCommand, ...] | None:
        """The commands that this consists of, if each is executed on its own; None for a single command."""
        return None

    @property
    def cost(self) -> int:
        """Approximate size in bytes, which limits the size of a group."""
        return LEAST_COST

    @property
    def rows(self) -> int:
        """Number of rows that this concerns, which limits the work done at once."""
        return 1

    @property
    def removes(self) -> bool:
        """True if this only removes, so that it is allowed when there is no room."""
        return False


class Get(Command, frozen=True, kw_only=True, gc=False):
    """Read a key, in order with the writes."""

    key: str


class WriteCommand(Command, frozen=True, kw_only=True, gc=False):
    """A command of a caller that writes."""

    limited: ClassVar[bool] = True

    origin: Origin

    @property
    def asked(self) -> WriteCommand:
        """This command as its request id is remembered, without deadline and principal."""
        return msgspec.structs.replace(self, origin=self.origin.asked)


class KeyChange(WriteCommand, frozen=True, kw_only=True, gc=False):
    """A change of one key, if it has the expected version (0: it must not exist; None: any version).

    If a command names a `verb`, clients send its fields under their own names.
    """

    verb: ClassVar[str] = ""

    key: str
    expected: int | None = None


class Set(KeyChange, frozen=True, kw_only=True, gc=False):
    """Store a value, replacing any existing one. `size` is its size in bytes."""

    bulky: ClassVar[bool] = True

    value: str
    size: int
    ttl: int | None = None
    keep_ttl: bool = False
    semantics: str | None = None

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return self.size + LEAST_COST


class Delete(KeyChange, frozen=True, kw_only=True, gc=False):
    """Remove a key."""

    verb: ClassVar[str] = "delete"

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


class Incr(KeyChange, frozen=True, kw_only=True, gc=False):
    """Add to a number. `ttl` applies if this creates the key, which `only_if_exists` forbids.

    `only_if_exists` is True or unset, so that requests remembered before it existed keep their content.
    """

    verb: ClassVar[str] = "incr"

    by: int | float
    ttl: int | None = None
    only_if_exists: bool | msgspec.UnsetType = msgspec.UNSET


class SetTtl(KeyChange, frozen=True, kw_only=True, gc=False):
    """Set the deadline of a key; None removes it."""

    ttl: int | None


class Touch(KeyChange, frozen=True, kw_only=True, gc=False):
    """Set the deadline of a key if it exists."""

    verb: ClassVar[str] = "touch"

    ttl_seconds: int


class Restore(KeyChange, frozen=True, kw_only=True, gc=False):
    """Bring a key back from the trash."""

    verb: ClassVar[str] = "restore"

    ttl: int | None = None


class Guard(WriteCommand, frozen=True, kw_only=True, gc=False):
    """Give a lock's guard a new version, which becomes the newest token of the lock."""

    lock: str


class Check(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The version that a batch expects of a key, or 0 if the key must not exist."""

    key: str
    version: int


class Batch(WriteCommand, frozen=True, kw_only=True):
    """Writes that take effect together if all checks hold; otherwise none does."""

    weighed: ClassVar[bool] = True

    checks: tuple[Check, ...]
    writes: tuple[Set | Delete | Incr | Guard, ...]

    @property
    def cost(self) -> int:
        """Approximate size in bytes. A check takes as long to decide as a small write."""
        return sum(write.cost for write in self.writes) + LEAST_COST * len(self.checks)

    @property
    def rows(self) -> int:
        """Number of rows that this concerns."""
        return len(self.checks) + len(self.writes)

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return all(write.removes for write in self.writes)


class Many(WriteCommand, frozen=True, kw_only=True):
    """Several writes in one call, each of which succeeds or fails on its own."""

    weighed: ClassVar[bool] = True

    items: tuple[Set | Delete, ...]

    @property
    def parts(self) -> tuple[Set | Delete, ...]:
        """The items."""
        return self.items

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return sum(item.cost for item in self.items)

    @property
    def rows(self) -> int:
        """Number of rows that this concerns."""
        return len(self.items)

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return all(item.removes for item in self.items)


class Reveal(WriteCommand, frozen=True, kw_only=True, gc=False):
    """Read a key for a person who gives a reason, and record that in the audit."""

    key: str
    why: str | None = None


class Load(WriteCommand, frozen=True, kw_only=True):
    """Store entries with their whole envelope, as another store held them.

    With `keep_versions`, an entry keeps a version that is greater than the namespace's last one.
    """

    entries: tuple[tuple[str, Row], ...]
    keep_versions: bool

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return sum(row.size + LEAST_COST for _, row in self.entries)

    @property
    def rows(self) -> int:
        """Number of rows that this concerns."""
        return len(self.entries)


class SetPolicy(WriteCommand, frozen=True, kw_only=True, gc=False):
    """Set the policy of a namespace, which is JSON text."""

    limited: ClassVar[bool] = False

    policy: str


class Result(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The result of a command. `replayed` means that it took effect earlier; this is the reply from then."""

    replayed: bool = False


class Stored(Result, frozen=True, tag=True, gc=False):
    """The entry after the command."""

    key: str
    row: Row


class Missed(Result, frozen=True, tag=True, gc=False):
    """There was no entry, and nothing has changed."""


class Got(Result, frozen=True, tag=True, gc=False):
    """The row that a read found, or None."""

    row: Row | None


class Deleted(Result, frozen=True, tag=True, gc=False):
    """The version of the deletion and the purpose of the deleted entry; None if nothing was there."""

    version: int | None
    purpose: str | None = None


class Versions(Result, frozen=True, tag=True, gc=False):
    """The versions of a batch's writes and the purposes of the entries they changed, by position."""

    versions: tuple[int | None, ...]
    purposes: tuple[str | None, ...]


class Results(Result, frozen=True, tag=True):
    """The results of the items of a `Many`, by position: a result, or the error that refused the item."""

    items: tuple[Stored | Deleted | Exception, ...]


class Done(Result, frozen=True, tag=True, gc=False):
    """Success, with no further details."""


class Kept(Result, frozen=True, tag=True, gc=False):
    """The number under which a dead letter was kept."""

    number: int


class Written(Result, frozen=True, tag=True, gc=False):
    """The number of entries stored."""

    count: int


class Removed(Result, frozen=True, tag=True, gc=False):
    """The number of rows that upkeep removed."""

    count: int


def written_keys(command: Command) -> Iterator[str]:
    """Yield the keys of entries that a caller's command may change."""
    match command:
        case KeyChange():
            yield command.key
        case Batch():
            for write in command.writes:
                if isinstance(write, KeyChange):
                    yield write.key
        case Many():
            for item in command.items:
                yield item.key
        case Load():
            for key, _ in command.entries:
                yield key
        case _:
            pass
