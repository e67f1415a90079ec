"""The fields and replies of the verbs on keys.

Only declarations; see `holdfast.edges.calls.catalogue`.
"""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from holdfast import rules
from holdfast.forms import (
    NOTHING,
    TEXT,
    CallFields,
    Cursor,
    Identity,
    Key,
    Keys,
    LastWriter,
    Limit,
    Prefix,
    Purpose,
    Since,
    SpecText,
    Timestamp,
    Viewer,
    Why,
    WriteFields,
    ruled,
)


class KeyFields(CallFields, kw_only=True):
    """A call about one key."""

    key: Key


class RevealFields(KeyFields, kw_only=True):
    """The fields of `reveal`."""

    why: Why | UnsetType = UNSET
    last_writer: Viewer | UnsetType = UNSET


class GetManyFields(CallFields, kw_only=True):
    """The fields of `get_many`."""

    keys: Keys


class ListFields(CallFields, kw_only=True):
    """The fields of `list`."""

    prefix: Prefix | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET
    values: Annotated[bool | UnsetType, Meta(description="Return the entries of the keys as well.")] = UNSET
    purpose: Purpose | UnsetType = UNSET
    producer: Annotated[
        Identity | UnsetType, Meta(description="Only entries whose semantics name this producer.")
    ] = UNSET
    last_writer: LastWriter | UnsetType = UNSET
    spec_ref: Annotated[SpecText | UnsetType, Meta(description="Only entries with this `spec_ref`.")] = UNSET
    expires_before: Annotated[
        Timestamp | UnsetType, Meta(description="Only entries that expire before this time, in ISO 8601.")
    ] = UNSET


class ChangesFields(CallFields, kw_only=True):
    """The fields of `changes`."""

    since: Since | UnsetType = UNSET
    prefix: Prefix | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET


class HistoryFields(KeyFields, kw_only=True):
    """The fields of `history`."""

    limit: Limit | UnsetType = UNSET


@ruled({"properties": {"request_id": NOTHING}})
class DeletePrefixFields(WriteFields, kw_only=True):
    """The fields of `delete_prefix`. A `request_id` is refused, because repeating the call is harmless."""

    prefix: Annotated[
        str,
        Meta(
            description="Remove the keys that begin with this.",
            min_length=1,
            max_length=rules.MAX_KEY_CHARACTERS,
            pattern=TEXT,
        ),
    ]
    limit: Limit | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET
    dry_run: Annotated[bool | UnsetType, Meta(description="Return the keys and remove nothing.")] = UNSET
