"""Commands, which a store executes, and the results it returns.

A command is legal by construction, because only `holdfast.verbs` makes commands from callers' input. It says
what to do, never how. It holds nothing random, and no time except its caller's deadline. `decide` returns the
results.

The class of a command also declares its verb; see `holdfast.declare`.
"""

# Annotations are not postponed: verbs are derived from them.

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holdfast import rules
from holdfast.clock import moment
from holdfast.cursors import cursor_after
from holdfast.declare import DECLARED, Declaration, Members, Part, Says, Wire, missing, verb
from holdfast.errors import HoldfastError, ValidationError
from holdfast.forms import (
    MEANT_TTLS,
    NO_KEEPING,
    NOTHING,
    TEXT,
    Cursor,
    ExpectedVersion,
    Identity,
    ItemNumber,
    KeepTtl,
    Key,
    Keys,
    KeyWriteFields,
    LastWriter,
    Limit,
    LogName,
    Meaning,
    Prefix,
    Purpose,
    Since,
    SpecText,
    Timestamp,
    Ttl,
    TtlSeconds,
    Value,
    ViewFields,
    Why,
    WriteFields,
    never,
    one_of,
    some_of,
)
from holdfast.model import KEEP, Policy, Stats
from holdfast.origin import Origin
from holdfast.replies import (
    AppendReply,
    BatchReply,
    ChangesReply,
    DeletedReply,
    DeleteManyReply,
    DeletePrefixReply,
    EntryReply,
    ExistsReply,
    GetManyReply,
    GetTtlReply,
    HistoryReply,
    IncrReply,
    ListReply,
    ReadyReply,
    SetManyReply,
    StatsReply,
    StoredReply,
    TouchReply,
)
from holdfast.rows import Record, Row

EMBEDDED: Final = "embedded"
"""The principal of a program that has opened the store itself."""
HOLDFAST: Final = "holdfast"
"""The principal of changes that the store makes by itself, such as expiring an entry."""
Touched: TypeAlias = tuple[str, str | None]
"""A namespace and a key that a command may change; no key for the namespace as a whole."""
LEAST_COST: Final = 256
"""Fixed cost of a command, in addition to its content."""


def _lifetime(
    ttl: object, seconds: object, keep: object, semantics: object
) -> tuple[int | float | None, bool, str | None]:
    """Return the TTL of a set, whether the old deadline stays, and the semantics, which may name a TTL.

    Only a lock has a TTL with a fraction.
    """
    ttl = rules.one_ttl(ttl, seconds, keep)
    meaning = rules.semantics(semantics)
    declared = None if meaning is None else meaning.ttl_seconds
    kept = ttl is KEEP
    if type(ttl) is float and meaning is not None and meaning.purpose == "lock":
        checked: int | float | None = rules.lock_ttl(ttl)
    else:
        checked = None if kept else rules.ttl(ttl)
    if declared is not None and declared != checked:
        if ttl is not None:
            raise ValidationError(f"ttl and semantics.ttl_seconds ({declared}) differ", field="ttl")
        checked = declared
    return checked, kept, None if meaning is None else msgspec.json.encode(meaning).decode()


def _first_ttl(ttl: object, seconds: object, keep: object) -> int | None:
    """Return the TTL of an entry that a command creates."""
    return rules.ttl(rules.one_ttl(ttl, seconds, keep))


def _first_lifetime(
    ttl: object, seconds: object, keep: object, semantics: object
) -> tuple[int | float | None, str | None]:
    """Return the TTL of an entry that a command creates, and its semantics, which may name a TTL."""
    checked, kept, meaning = _lifetime(ttl, seconds, keep, semantics)
    if kept:
        raise ValidationError("an item that is appended has no deadline to keep", field="keep_ttl")
    return checked, meaning


def _required_ttl(seconds: object, ttl: object, keep: object) -> int:
    """Return a TTL that must be given, under one of its names."""
    lifetime = rules.one_ttl(ttl, None if seconds is UNSET else seconds, keep)
    if lifetime is None and seconds is UNSET:
        raise missing("ttl_seconds")
    return rules.required_ttl(lifetime, field="ttl_seconds")


def _only_if_exists(value: object) -> bool | UnsetType:
    return rules.boolean(value, field="only_if_exists") or UNSET


def _switch(value: object, *, field: str) -> bool:
    if not isinstance(value, bool):
        raise ValidationError(f"{field} must be true or false", field=field)
    return value


def _guard(name: object) -> str:
    return rules.lock_name(name, field="guard")


def _check_version(number: object) -> int:
    return rules.version(number, field="version")


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


_TTL_SECONDS: Final = Wire("ttl_seconds", TtlSeconds)
_KEEP_TTL: Final = Wire("keep_ttl", KeepTtl)
_KEY: Final = Says(rule="key", form=Key)
_PREFIX: Final = Says(rule="prefix", form=Prefix, otherwise="")
_LIMIT: Final = Says(rule=rules.limit, form=Limit)
_CURSOR: Final = Says(rule="after", wire="cursor", form=Cursor, takes=("prefix",), sent=cursor_after)


class Command(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """An operation in one namespace.

    A `weighed` command is refused if the values under its keys are too large for one request. A `limited`
    one counts towards the rate limit. A `bulky` one has bytes that are passed on unread, in little time. One
    that `shares` may be in a group with commands of other namespaces. One that `forwards` may be sent to
    another node of a cluster, which decides it.
    """

    weighed: ClassVar[bool] = False
    limited: ClassVar[bool] = False
    bulky: ClassVar[bool] = False
    shares: ClassVar[bool] = False
    forwards: ClassVar[bool] = False
    declaration: ClassVar[Declaration | None] = None

    namespace: str

    @property
    def declared(self) -> Declaration:
        """The verb of which this is a call."""
        if self.declaration is None:
            raise TypeError(f"{type(self).__name__} is no call of a client")
        return self.declaration

    @property
    def parts(self) -> "tuple[WriteCommand, ...] | None":
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

    @property
    def touched(self) -> Sequence[Touched]:
        """What this may change: keys of entries, with None for the namespace as a whole.

        Upkeep changes nothing that a reader can see, so reads do not wait for it.
        """
        return ()


@verb("get", help="Return an entry.", reply=EntryReply)
class Get(Command, frozen=True, kw_only=True, gc=False):
    """Read a key, in order with the writes."""

    forwards: ClassVar[bool] = True

    key: Annotated[str, _KEY]


class Read(Command, frozen=True, kw_only=True, gc=False):
    """A question about the keys of a namespace. The pipeline answers it; `decide` never gets one."""


@verb(
    "get_many",
    help="Return the entries of several keys.",
    reply=GetManyReply,
    walks=True,
    several="keys",
)
class GetMany(Read, frozen=True, kw_only=True, gc=False):
    """Read several keys."""

    keys: Annotated[tuple[str, ...], Says(rule="keys", form=Keys, sent=list)]


@verb("exists", reply=ExistsReply)
class Exists(Read, frozen=True, kw_only=True, gc=False):
    """Return whether there is an entry."""

    key: Annotated[str, _KEY]


@verb("get_ttl", reply=GetTtlReply)
class GetTtl(Read, frozen=True, kw_only=True, gc=False):
    """Return the seconds that an entry has left."""

    key: Annotated[str, _KEY]


@verb(
    "list",
    help="List keys in order, a page at a time.",
    reply=ListReply,
    walks=True,
    rules=(
        never("after", "cursor"),
        {"not": {"required": ["after"], "properties": {"reverse": {"const": True}}}},
    ),
)
class ListKeys(Read, frozen=True, kw_only=True, gc=False):
    """Read a page of the keys with a prefix, those after `after`, whose entries match all that is given."""

    prefix: Annotated[str, _PREFIX]
    limit: Annotated[int, _LIMIT] = rules.DEFAULT_LIMIT
    after: Annotated[
        str | None,
        Says(
            rule="start",
            wire="cursor",
            form=Cursor,
            takes=("prefix", Wire("after", ItemNumber), "reverse"),
            sent=cursor_after,
        ),
    ] = None
    reverse: Annotated[
        bool,
        Says(
            rule=partial(_switch, field="reverse"),
            help="Go backwards, from the last key to the first.",
            flag=True,
        ),
    ] = False
    values: Annotated[
        bool,
        Says(rule=partial(_switch, field="values"), help="Return the entries of the keys as well."),
    ] = False
    purpose: Annotated[str | None, Says(rule=partial(rules.purpose, field="purpose"), form=Purpose)] = None
    producer: Annotated[
        str | None,
        Says(
            rule=partial(rules.identity, field="producer"),
            form=Identity,
            help="Only entries whose semantics name this producer.",
        ),
    ] = None
    writer: Annotated[
        str | None,
        Says(rule=partial(rules.identity, field="last_writer"), wire="last_writer", form=LastWriter),
    ] = None
    spec_ref: Annotated[
        str | None, Says(rule=rules.spec_ref, form=SpecText, help="Only entries with this `spec_ref`.")
    ] = None
    expires_before: Annotated[
        int | None,
        Says(
            rule=partial(rules.time, field="expires_before"),
            form=Timestamp,
            help="Only entries that expire before this time, in ISO 8601.",
            sent=moment,
        ),
    ] = None


@verb("changes", help="Return the changes after a version, oldest first.", reply=ChangesReply, walks=True)
class ReadChanges(Read, frozen=True, kw_only=True, gc=False):
    """Read a page of the journal. One that a watch reads does not count towards the rate limit."""

    since: Annotated[int, Says(rule=partial(rules.version, field="since"), form=Since)] = 0
    prefix: Annotated[str, _PREFIX]
    limit: Annotated[int, _LIMIT] = rules.DEFAULT_LIMIT
    watching: bool = False


@verb("history", help="Return the changes of one key, newest first.", reply=HistoryReply, walks=True)
class ReadHistory(Read, frozen=True, kw_only=True, gc=False):
    """Read the newest changes of one key from the journal."""

    key: Annotated[str, _KEY]
    limit: Annotated[int, _LIMIT] = rules.DEFAULT_LIMIT


@verb("ready", reply=ReadyReply)
class Ready(Read, frozen=True, kw_only=True, gc=False):
    """Succeed if a write would be accepted now."""


@verb("stats", help="Return what the namespace holds, its policy and its default limits.", reply=StatsReply)
class ReadStats(Read, frozen=True, kw_only=True, gc=False):
    """Read what a namespace holds, and its limits."""


class WriteCommand(Command, frozen=True, kw_only=True, gc=False):
    """A command of a caller that writes."""

    limited: ClassVar[bool] = True

    origin: Origin

    @property
    def touched(self) -> Sequence[Touched]:
        """The namespace."""
        return ((self.namespace, None),)

    @property
    def asked(self) -> "WriteCommand":
        """This command as its request id is remembered, without deadline, principal and trace."""
        return msgspec.structs.replace(self, origin=self.origin.asked)


@verb(
    "reveal",
    help="Return an entry to a person; an audit records who looked and why.",
    reply=EntryReply,
    options=ViewFields,
    writes=True,
)
class Reveal(WriteCommand, frozen=True, kw_only=True, gc=False):
    """Read a key for a person who gives a reason, and record that in the audit."""

    key: Annotated[str, _KEY]
    why: Annotated[str | None, Says(rule=rules.why, form=Why)] = None


class KeyChange(WriteCommand, frozen=True, kw_only=True, gc=False):
    """A change of one key, if it has the expected version (0: it must not exist; None: any version)."""

    key: Annotated[str, _KEY]
    expected: Annotated[
        int | None, Says(rule=rules.version, wire="expected_version", form=ExpectedVersion)
    ] = None

    @property
    def touched(self) -> Sequence[Touched]:
        """The key."""
        return (self.namespace, None), (self.namespace, self.key)


@verb(
    "set",
    help="Put a value.",
    reply=StoredReply,
    options=KeyWriteFields,
    in_order=True,
    part=Part("value", of="value"),
    order=("key", "expected_version", "ttl", "value", "keep_ttl", "semantics"),
    rules=MEANT_TTLS,
)
class Set(KeyChange, frozen=True, kw_only=True, gc=False):
    """Store a value, replacing any existing one. `size` is its size in bytes."""

    bulky: ClassVar[bool] = True
    shares: ClassVar[bool] = True
    forwards: ClassVar[bool] = True

    value: Annotated[
        str, Says(rule=rules.encode_value, form=Value, fills=("size",), nullable=True, sent=_raw)
    ]
    size: int
    ttl: Annotated[
        int | float | None,
        Says(
            rule=_lifetime,
            form=Ttl,
            takes=(_TTL_SECONDS, "keep_ttl", "semantics"),
            fills=("keep_ttl", "semantics"),
        ),
    ] = None
    keep_ttl: Annotated[bool, Says(form=KeepTtl, flag=True)] = False
    # Not raw, since dialects respell the names in it.
    semantics: Annotated[str | None, Says(form=Meaning, sent=msgspec.json.decode)] = None

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return self.size + LEAST_COST


@verb(
    "delete",
    reply=DeletedReply,
    options=KeyWriteFields,
    in_order=True,
    destroys=True,
    part=Part("delete", help="Remove the key."),
)
class Delete(KeyChange, frozen=True, kw_only=True, gc=False):
    """Remove a key."""

    shares: ClassVar[bool] = True
    forwards: ClassVar[bool] = True

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


@verb(
    "incr",
    help="Add to a number.",
    reply=IncrReply,
    options=KeyWriteFields,
    in_order=True,
    part=Part("incr", of="by", help="Add this to a number."),
    rules=NO_KEEPING,
)
class Incr(KeyChange, frozen=True, kw_only=True, gc=False):
    """Add to a number. `ttl` applies if this creates the key, which `only_if_exists` forbids.

    `only_if_exists` is True or unset, so that requests remembered before it existed keep their content.
    """

    shares: ClassVar[bool] = True
    forwards: ClassVar[bool] = True

    by: Annotated[
        float | int,
        Says(
            rule=rules.increment,
            help="What to add; 1 if not given.",
            unsaid="a sum that no number can hold, or a `value` that is not a number",
        ),
    ] = 1
    ttl: Annotated[int | None, Says(rule=_first_ttl, form=Ttl, takes=(_TTL_SECONDS, _KEEP_TTL))] = None
    only_if_exists: Annotated[
        bool | UnsetType, Says(rule=_only_if_exists, help="Refuse to add to a key that does not exist.")
    ] = UNSET


@verb(
    "append",
    help="Add an item to a log, under the next number.",
    reply=AppendReply,
    options=KeyWriteFields,
    in_order=True,
    part=Part("append", of="name", help="Add an item to this log."),
    order=("name", "value", "ttl", "semantics", "keep"),
    rules=(*MEANT_TTLS, never("keep_ttl")),
)
class Append(WriteCommand, frozen=True, kw_only=True, gc=False):
    """Store a value under the name of a log and the next number. `size` is its size in bytes."""

    bulky: ClassVar[bool] = True
    forwards: ClassVar[bool] = True

    name: Annotated[str, Says(rule="log_name", form=LogName)]
    value: Annotated[
        str, Says(rule=rules.encode_value, form=Value, fills=("size",), nullable=True, sent=_raw)
    ]
    size: int
    ttl: Annotated[
        int | float | None,
        Says(
            rule=_first_lifetime,
            form=Ttl,
            takes=(_TTL_SECONDS, _KEEP_TTL, "semantics"),
            fills=("semantics",),
        ),
    ] = None
    semantics: Annotated[str | None, Says(form=Meaning, sent=msgspec.json.decode)] = None
    keep: Annotated[
        int | None,
        Says(
            rule=partial(rules.positive, field="keep", most=rules.MAX_LOG_NUMBER),
            form=Annotated[int, Meta(ge=1, le=rules.MAX_LOG_NUMBER)],
            help="Remove all but this many of the newest items; at most 100 are removed with each call.",
        ),
    ] = None

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return self.size + LEAST_COST


@verb(
    "remove_ttl",
    help="Let an entry live for ever.",
    reply=StoredReply,
    options=KeyWriteFields,
    in_order=True,
    without={"ttl": None},
)
@verb(
    "set_ttl",
    help="Expire an entry after this many seconds.",
    reply=StoredReply,
    options=KeyWriteFields,
    in_order=True,
    rules=(*NO_KEEPING, some_of("ttl", "ttl_seconds")),
)
class SetTtl(KeyChange, frozen=True, kw_only=True, gc=False):
    """Set the deadline of a key; None removes it."""

    shares: ClassVar[bool] = True
    forwards: ClassVar[bool] = True

    ttl: Annotated[
        int | None,
        Says(rule=_required_ttl, wire="ttl_seconds", form=TtlSeconds, takes=(Wire("ttl", Ttl), _KEEP_TTL)),
    ]

    @property
    def declared(self) -> Declaration:
        """The verb of which this is a call: the deadline is set, or it is removed."""
        return DECLARED["remove_ttl" if self.ttl is None else "set_ttl"]


@verb(
    "touch",
    help="Expire an entry after this many seconds, if it is there.",
    reply=TouchReply,
    options=KeyWriteFields,
    in_order=True,
    rules=(*NO_KEEPING, some_of("ttl", "ttl_seconds")),
)
class Touch(KeyChange, frozen=True, kw_only=True, gc=False):
    """Set the deadline of a key if it exists."""

    shares: ClassVar[bool] = True
    forwards: ClassVar[bool] = True

    ttl_seconds: Annotated[
        int, Says(rule=_required_ttl, form=TtlSeconds, takes=(Wire("ttl", Ttl), _KEEP_TTL))
    ]


@verb("restore", reply=StoredReply, options=KeyWriteFields, in_order=True, rules=NO_KEEPING)
class Restore(KeyChange, frozen=True, kw_only=True, gc=False):
    """Bring a key back from the trash."""

    forwards: ClassVar[bool] = True

    ttl: Annotated[int | None, Says(rule=_first_ttl, form=Ttl, takes=(_TTL_SECONDS, _KEEP_TTL))] = None


@verb("", reply=None, part=Part("guard", of="lock"))
class Guard(WriteCommand, frozen=True, kw_only=True, gc=False):
    """Give a lock's guard a new version, which becomes the newest token of the lock."""

    forwards: ClassVar[bool] = True

    lock: Annotated[str, Says(rule=_guard, form=Identity, help="Give this lock a new token.")]


@verb("", reply=None)
class Check(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The version that a batch expects of a key, or 0 if the key must not exist."""

    declaration: ClassVar[Declaration]

    key: Annotated[str, _KEY]
    version: Annotated[
        int,
        Says(
            rule=_check_version,
            form=Annotated[int, Meta(ge=0, le=rules.MAX_VERSION)],
            help="The version that must be there, 0 for no entry.",
        ),
    ]


BatchPart: TypeAlias = Set | Delete | Incr | Append | Guard
"""One of the writes of a batch."""


def _parts(writes: tuple[BatchPart, ...]) -> list[dict[str, Any]]:
    return [write.declared.part_of(write) for write in writes]


CHECKS: Final = Members(
    "BatchCheck",
    Check,
    help="What must hold, or nothing is written.",
    help_of_one="One of the checks of a batch.",
)
"""The checks of a batch."""
WRITES: Final = Members(
    "BatchWrite",
    help="At most 1,000 writes, in their order.",
    help_of_one="One of the writes of a batch: exactly one of `value`, `incr`, `delete` and `guard` is set. "
    "With a `value`, either `key` or `append` is.",
    instead={
        "expected_version": Annotated[
            int, Meta(description="Refused: a batch expects versions in its checks.")
        ]
    },
    rules=(
        one_of(("value",), ("incr",), ("delete",), ("guard",)),
        some_of("key", "guard", "append"),
        *(never("append", other) for other in ("key", "incr", "delete", "guard", "keep_ttl")),
        {"properties": {"expected_version": NOTHING}},
        never("incr", "keep_ttl"),
        *MEANT_TTLS,
    ),
)
"""The writes of a batch: each has exactly one of `value`, `incr`, `delete` and `guard`.

One with a `value` has a `key` or, if it adds an item to a log, the log's name as `append`.
"""


@verb(
    "batch",
    help="Do all of several writes or none.",
    reply=BatchReply,
    options=KeyWriteFields,
    in_order=True,
    destroys=True,
)
class Batch(WriteCommand, frozen=True, kw_only=True):
    """Writes that take effect together if all checks hold; otherwise none does."""

    weighed: ClassVar[bool] = True
    forwards: ClassVar[bool] = True

    checks: Annotated[
        tuple[Check, ...], Says(rule="checks", form=CHECKS, of_origin=True, sent=msgspec.to_builtins)
    ] = ()
    writes: Annotated[
        tuple[BatchPart, ...],
        Says(rule="writes", form=WRITES, of_origin=True, sent=_parts),
    ]

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

    @property
    def touched(self) -> Sequence[Touched]:
        """The keys of the writes."""
        changes = [write for write in self.writes if isinstance(write, KeyChange)]
        return [(self.namespace, None), *((self.namespace, change.key) for change in changes)]


def _items(items: tuple[Set, ...]) -> list[dict[str, Any]]:
    return [item.declared.fields_of(item) for item in items]


def _keys(items: tuple[Delete, ...]) -> list[str]:
    return [item.key for item in items]


ITEMS: Final = Members(
    "SetItem",
    Set,
    help="At most 1,000 items, each with the fields of a set.",
    help_of_one="One of the items of `set_many`.",
    rules=MEANT_TTLS,
)
"""The items of `set_many`."""


@verb(
    "delete_many",
    help="Remove several keys, each for itself.",
    reply=DeleteManyReply,
    options=KeyWriteFields,
    in_order=True,
    destroys=True,
    several="items",
    rules=({"properties": {"once": NOTHING}},),
    instead={"items": Says(rule="deletes", wire="keys", form=Keys, sent=_keys)},
)
@verb(
    "set_many",
    help="Put several values, each for itself.",
    reply=SetManyReply,
    options=KeyWriteFields,
    in_order=True,
    several="items",
    rules=({"properties": {"once": NOTHING}},),
    instead={"items": Says(rule="sets", form=ITEMS, sent=_items)},
)
class Many(WriteCommand, frozen=True, kw_only=True):
    """Several writes in one call, each of which succeeds or fails on its own."""

    weighed: ClassVar[bool] = True

    items: tuple[Set | Delete, ...]

    @property
    def declared(self) -> Declaration:
        """The verb of which this is a call, as its items show."""
        return DECLARED["set_many" if all(isinstance(item, Set) for item in self.items) else "delete_many"]

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

    @property
    def touched(self) -> Sequence[Touched]:
        """The keys of the items."""
        return [(self.namespace, None), *((self.namespace, item.key) for item in self.items)]


@verb(
    "delete_prefix",
    help="Remove the keys that begin with a prefix, a page at a time.",
    reply=DeletePrefixReply,
    options=WriteFields,
    writes=True,
    destroys=True,
    walks=True,
    rules=({"properties": {"request_id": NOTHING, "once": NOTHING}},),
)
class DeletePrefix(WriteCommand, frozen=True, kw_only=True, gc=False):
    """Remove a page of the keys with a prefix. The pipeline reads the page and removes what it has read.

    An id is refused: the pages of two calls are not the same request, and repeating one is harmless.
    """

    prefix: Annotated[
        str,
        Says(
            rule="removed_prefix",
            of_origin=True,
            form=Annotated[str, Meta(min_length=1, max_length=rules.MAX_KEY_CHARACTERS, pattern=TEXT)],
            help="Remove the keys that begin with this.",
        ),
    ]
    limit: Annotated[int, _LIMIT] = rules.DEFAULT_LIMIT
    after: Annotated[str | None, _CURSOR] = None
    dry_run: Annotated[
        bool, Says(rule=partial(_switch, field="dry_run"), help="Return the keys and remove nothing.")
    ] = False


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

    @property
    def touched(self) -> Sequence[Touched]:
        """The keys of the entries."""
        return [(self.namespace, None), *((self.namespace, key) for key, _ in self.entries)]


class SetPolicy(WriteCommand, frozen=True, kw_only=True, gc=False):
    """Set the policy of a namespace, which is JSON text."""

    limited: ClassVar[bool] = False

    policy: str


def kinds_of(kind: type[Command]) -> Iterator[type[Command]]:
    """Yield all classes of commands that a class stands for, and itself."""
    yield kind
    for inner in kind.__subclasses__():
        yield from kinds_of(inner)


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


class Present(Result, frozen=True, tag=True, gc=False):
    """Whether there is an entry."""

    exists: bool


class Rows(Result, frozen=True, tag=True):
    """The row of each key of a `GetMany`, by position: None if there is none, or why it can't be read."""

    rows: Sequence[Row | HoldfastError | None]


class Remaining(Result, frozen=True, tag=True, gc=False):
    """The seconds that an entry has left, rounded up: None for ever, 0 if there is no entry."""

    seconds: int | None


class Listed(Result, frozen=True, tag=True):
    """A page of keys, their rows if values were asked for, and the key to continue after; None at the end."""

    keys: list[str]
    rows: list[Row]
    last: str | None


class Records(Result, frozen=True, tag=True):
    """Records of a journal that fit one reply, its bounds at that instant, and where the next ones begin.

    `floor` is the newest version whose record was dropped, `head` the last version given. A gap means that
    the journal no longer has what would be next.
    """

    records: Sequence[Record]
    next: int = 0
    gap: bool = False
    floor: int = 0
    head: int = 0
    epoch: str = ""

    @property
    def oldest(self) -> int | None:
        """The oldest known version after a gap; None if there is none."""
        return self.floor + 1 if self.gap else None


class Deleted(Result, frozen=True, tag=True, gc=False):
    """The version of the deletion and the purpose of the deleted entry; None if nothing was there."""

    version: int | None
    purpose: str | None = None


class Versions(Result, frozen=True, tag=True, gc=False):
    """The versions of a batch's writes and the purposes of the entries they changed, by position.

    `numbers` are those of appended items, by position; unset if the batch has appended nothing.
    """

    versions: tuple[int | None, ...]
    purposes: tuple[str | None, ...]
    numbers: tuple[int | None, ...] | UnsetType = UNSET


class Results(Result, frozen=True, tag=True):
    """The results of the items of a `Many`, by position: a result, or the error that refused the item."""

    items: tuple[Stored | Deleted | Exception, ...]


class Measured(Result, frozen=True, tag=True):
    """What a namespace holds, its policy, and the quota and rate that hold where the policy has none."""

    stats: Stats
    policy: Policy
    defaults: Policy


class Done(Result, frozen=True, tag=True, gc=False):
    """Success, with no further details."""


class LetterStored(Result, frozen=True, tag="Kept", gc=False):
    """The number under which a dead letter was stored. The tag is part of remembered replies."""

    number: int


class Written(Result, frozen=True, tag=True, gc=False):
    """The number of entries stored."""

    count: int


class Removed(Result, frozen=True, tag=True, gc=False):
    """The number of rows that upkeep removed."""

    count: int
