"""The tables behind the sections of a store (`holdfast.engine.raw`), which both SQL engines share.

Each engine makes its own statements from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.engine.raw import Positioned, Section, StoreInfo
from holdfast.engines.sql.layout import PARTS as COUNTS
from holdfast.engines.sql.layout import plugin_column
from holdfast.rows import Namespace, Record, Row

_ENVELOPE: Final = (
    *("version", "created_at", "updated_at", "last_writer"),
    *("request_id", "expires_at", "semantics", "spec_ref"),
)


class SectionTable(msgspec.Struct, frozen=True, kw_only=True):
    """The table of a section: its columns for the namespace, the position and the content.

    `fields` are the names of the content's columns in a `Row` or a `Record`.
    """

    table: str
    owner: str = "namespace"
    positions: tuple[str, ...] = ("space", "key")
    columns: tuple[str, ...]
    fields: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key."""
        return (self.owner, *self.positions)


_RECORD: Final = (
    *("op", "key", "at", "last_writer", "request_id", "purpose", "lag_ms", "expired_version", "detail"),
)
_PART: Final = ("value", "version", "created_at", "updated_at", "last_writer", "data")

TABLES: Final = {
    Section.ENTRIES: SectionTable(
        table="plugin_kv_storage",
        owner="plugin_name",
        positions=("key",),
        columns=("value_json", *_ENVELOPE),
        fields=("value", *_ENVELOPE),
    ),
    Section.ROWS: SectionTable(
        table="holdfast_rows", columns=("value", *_ENVELOPE), fields=("value", *_ENVELOPE)
    ),
    Section.PARTS: SectionTable(table="holdfast_parts", columns=_PART, fields=_PART),
    Section.JOURNAL: SectionTable(
        table="holdfast_journal", positions=("version",), columns=_RECORD, fields=_RECORD
    ),
}
"""The table of each section."""

NAMESPACE: Final = (
    *("name", "revision", "keys", "bytes", "requests", "journal_floor", "created_at", "changed_at"),
    *COUNTS,
    "policy",
)
"""The columns of the table of namespaces, which are the fields of `Namespace`."""

CLOSABLE: Final = ("holdfast_namespaces", *(one.table for one in TABLES.values()))
"""The tables that a closed store does not let anyone change."""


def owner_of(namespace: str, section: Section) -> str:
    """Return a namespace as the table of a section names it."""
    return plugin_column(namespace) if section is Section.ENTRIES else namespace


def held(namespace: str, section: Section, values: Sequence[Any]) -> Positioned:
    """Build what is in a section from the columns of its position and its content."""
    table = TABLES[section]
    width = len(table.positions)
    position, fields = tuple(values[:width]), dict(zip(table.fields, values[width:], strict=True))
    if section is Section.JOURNAL:
        return Positioned(position, Record(namespace=namespace, version=position[0], **fields))
    size = len(fields["value"].encode()) + len(fields.get("data") or b"")
    return Positioned(position, Row(size=size, **fields))


def columns(section: Section, things: Iterable[Positioned]) -> list[tuple[Any, ...]]:
    """Return the columns of positions and contents, a tuple for each thing."""
    fields = TABLES[section].fields
    return [(*position, *(getattr(content, name) for name in fields)) for position, content in things]


def namespace_of(values: Sequence[Any]) -> Namespace:
    """Build the row of a namespace from its columns."""
    return Namespace(**dict(zip(NAMESPACE, values, strict=True)))


def namespace_columns(namespaces: Iterable[Namespace]) -> list[tuple[Any, ...]]:
    """Return the columns of the rows of namespaces."""
    return [tuple(getattr(one, name) for name in NAMESPACE) for one in namespaces]


def facts_of(found: Iterable[Sequence[Any]]) -> StoreInfo:
    """Build the facts about a store from the names and values of its table.

    In a replica of a cluster, `epoch` is that of the log, and `store_epoch` that of what was loaded.
    """
    kept = dict(map(tuple, found))
    return StoreInfo(
        epoch=kept.get("store_epoch") or kept.get("epoch", ""),
        clock=int(kept.get("clock", 0)),
        audit_key=kept.get("audit_key"),
        closed=kept.get("closed"),
    )


def facts_rows(facts: StoreInfo) -> list[tuple[str, str | None]]:
    """Return the names and values in which a store keeps facts; None for a name that it does not keep."""
    return [
        ("epoch", facts.epoch),
        ("clock", str(facts.clock)),
        ("audit_key", facts.audit_key),
        ("closed", facts.closed),
    ]
