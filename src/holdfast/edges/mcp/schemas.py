"""What tools take and return: arguments and results as structs, and their JSON Schemas.

The arguments of a tool that is one verb are the fields of that verb: `arguments_of` leaves out those that an
agent has no use for, and describes anew those that mean something else to it.

A schema is in the 2020-12 dialect and complete in itself, with the rules about several fields. Arguments that
a tool does not have are refused, and its schema says so. A result is a success or a refusal, and one schema
describes both.
"""

# Annotations are not postponed: schemas are made from them.

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import rules
from holdfast.edges.calls.schemas import schemas_of
from holdfast.forms import PURPOSE, RULES, SCHEMAS, FenceFields, Identity, SpecText, rules_about, unsaid
from holdfast.replies import Deadline, EntryReply, Version

_COMPONENTS = "[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*$"
_SHORT = unsaid(
    f"a `name` whose key has more than {rules.MAX_SEMANTIC_KEY_CHARACTERS} characters in full, with the "
    "tenant and the project before it"
)
RequestId = Annotated[
    Identity | UnsetType,
    Meta(description="Names this call: repeated with the same id, it has no second effect."),
]
Once = Annotated[
    Identity | UnsetType,
    Meta(
        description="Names what you intend, such as a step of your plan: if it was done before, you get the "
        "first result and nothing is written, whatever else you pass. Not together with request_id."
    ),
]
Writer = Annotated[
    Identity | UnsetType,
    Meta(description="Who writes, as agent:task; the name of your client if not given."),
]
Purpose = Annotated[
    Annotated[str, Meta(pattern=PURPOSE)] | UnsetType,
    Meta(description="Why the entry exists: checkpoint, cursor, config, result, or a word of yours."),
]
SpecRef = Annotated[SpecText | UnsetType, Meta(description="The document or ticket that this write follows.")]
Fence = Annotated[
    FenceFields | UnsetType,
    Meta(description="The lock that you hold, by name and token: refuse the write if you have lost it."),
]
LockName = Annotated[
    str,
    Meta(
        description="The name of the lock: a-z, 0-9, '.', '_' and '-', with '/' between components, none of "
        "which is 'waiting'.",
        min_length=1,
        max_length=98,
        pattern=rf"^(?!(.*/)?waiting(/|$)){_COMPONENTS}",
        extra_json_schema=_SHORT,
    ),
]
LockToken = Annotated[
    int, Meta(description="The token that lock_acquire returned.", ge=0, le=rules.MAX_VERSION)
]
LeaseSeconds = Annotated[
    Annotated[float, Meta(ge=rules.MIN_LOCK_TTL, le=rules.MAX_TTL)] | UnsetType,
    Meta(
        description="Seconds until the lock is free again unless it is renewed; 60 if not given. It may be "
        "a fraction, such as 0.5."
    ),
]
Name = Annotated[
    str,
    Meta(
        description="Its name: a-z, 0-9, '.', '_' and '-', with '/' between components.",
        min_length=1,
        max_length=117,
        pattern=f"^{_COMPONENTS}",
        extra_json_schema=_SHORT,
    ),
]


class LockAcquireArguments(Struct, kw_only=True):
    """The arguments of `lock_acquire`."""

    name: LockName
    ttl: LeaseSeconds = UNSET
    last_writer: Writer = UNSET
    request_id: RequestId = UNSET


class LockRenewArguments(Struct, kw_only=True):
    """The arguments of `lock_renew`."""

    name: LockName
    token: LockToken
    ttl: LeaseSeconds = UNSET
    last_writer: Writer = UNSET


class LockReleaseArguments(Struct, kw_only=True):
    """The arguments of `lock_release`."""

    name: LockName
    token: LockToken
    last_writer: Writer = UNSET


class NamedArguments(Struct, kw_only=True):
    """The arguments of a tool that reads something by its name."""

    name: Name


class FlagArguments(NamedArguments, kw_only=True):
    """The arguments of `flag_read`."""

    default: Annotated[Any, Meta(description="The value to assume if the flag is not set.")] = UNSET


class CheckpointSaveArguments(NamedArguments, kw_only=True):
    """The arguments of `checkpoint_save`."""

    value: Annotated[Any, Meta(description="How far the work has come, any JSON.")]
    expected_version: Annotated[
        int,
        Meta(
            description="The version that checkpoint_load returned; 0 if there was no checkpoint.",
            ge=0,
            le=rules.MAX_VERSION,
        ),
    ]
    spec_ref: SpecRef = UNSET
    fence: Fence = UNSET
    last_writer: Writer = UNSET
    request_id: RequestId = UNSET


class CounterAddArguments(NamedArguments, kw_only=True):
    """The arguments of `counter_add`."""

    by: Annotated[float | int | UnsetType, Meta(description="What to add; 1 if not given.")] = UNSET
    fence: Fence = UNSET
    last_writer: Writer = UNSET
    request_id: RequestId = UNSET


class PutReply(Struct, kw_only=True):
    """The result of a tool that writes an entry."""

    version: Version
    expires_at: Deadline


class AppendedReply(PutReply, kw_only=True):
    """The result of a tool that adds an item to a log."""

    key: Annotated[str, Meta(description="The key of the item.")]
    number: Annotated[int, Meta(description="Its number, one more than that of the item before.")]


class LockAcquireReply(Struct, kw_only=True):
    """The result of `lock_acquire`."""

    acquired: Annotated[bool, Meta(description="Whether you hold the lock now.")]
    token: Annotated[
        int | UnsetType, Meta(description="Proves that you hold it: pass it on as the fence of your writes.")
    ] = UNSET
    expires_at: Deadline | UnsetType = UNSET
    holder: Annotated[str | UnsetType, Meta(description="If another caller holds it, its name.")] = UNSET
    waiting: Annotated[bool | UnsetType, Meta(description="Whether others wait for it before you.")] = UNSET
    next: Annotated[str, Meta(description="What to do next.")]


class LockRenewReply(Struct, kw_only=True):
    """The result of `lock_renew`."""

    renewed: Annotated[bool, Meta(description="Whether you still hold the lock.")]
    expires_at: Deadline | UnsetType = UNSET
    next: Annotated[str, Meta(description="What to do next.")]


class LockReleaseReply(Struct, kw_only=True):
    """The result of `lock_release`."""

    released: Annotated[bool, Meta(description="Whether you held the lock until now.")]


class CheckpointReply(EntryReply, kw_only=True):
    """The result of `checkpoint_load`. Without a checkpoint `version` is 0."""

    version: Annotated[int, Meta(description="The `expected_version` of your next checkpoint_save.")]


class FlagReply(Struct, kw_only=True):
    """The result of `flag_read`."""

    set: Annotated[bool, Meta(description="Whether the flag is set.")]
    value: Annotated[Any, Meta(description="Its value, or the default; null without either.")]
    version: Annotated[int | UnsetType, Meta(description="The version of the flag.")] = UNSET
    expires_at: Deadline | UnsetType = UNSET
    last_writer: Annotated[str | UnsetType, Meta(description="Who set it.")] = UNSET
    updated_at: Annotated[datetime | UnsetType, Meta(description="When it was set.")] = UNSET


class CounterReply(Struct, kw_only=True):
    """The result of `counter_read` and `counter_add`."""

    value: Annotated[float | int, Meta(description="The sum; 0 before the first addition.")]


_UNUSED = ("deadline", "deadline_ms", "envelope", "ttl_seconds", "semantics")
"""Fields of verbs that tools do not have: an agent has no use for them, or a simpler argument."""
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SUCCESS: Final = {"type": "boolean", "description": "Whether it was done; if not, error_code says why."}
_REFUSAL: Final[dict[str, Any]] = {
    "error_code": {"type": "string", "description": "Why it was refused, as a word."},
    "message": {"type": "string", "description": "What was wrong."},
    "next": {"type": "string", "description": "What to do next."},
    "retryable": {"type": "boolean", "description": "Whether the same call may succeed later."},
    "field": {"type": "string", "description": "The argument that was wrong."},
    "retry_after": {"type": "number", "description": "Seconds to wait before trying again."},
    "reason": {"type": "string", "description": "Why a version conflicts."},
    "current": {
        "type": ["object", "null"],
        "description": "After a conflict, the entry or item that is there now; null if there is none.",
    },
    "conflicts": {"type": "array", "items": {"type": "object"}, "description": "All that failed."},
}
"""What a refusal adds to the result of every tool."""
COMMON: Mapping[str, Any] = {
    "request_id": RequestId,
    "once": Once,
    "last_writer": Writer,
    "spec_ref": SpecRef,
    "fence": Fence,
}
"""Arguments of many tools, described for agents."""


def arguments_of(
    fields: type[Struct],
    *,
    name: str,
    without: tuple[str, ...] = (),
    instead: Mapping[str, Any] | None = None,
) -> type[Struct]:
    """Make the struct of a tool's arguments from that of a verb's fields.

    Args:
        fields: The verb's fields.
        name: The name of the struct.
        without: Further fields to leave out.
        instead: Types with other descriptions, and optional arguments that the verb does not have.
    """
    left_out = {*_UNUSED, *without}
    described = dict(instead or {})
    kept: list[Any] = []
    for field in msgspec.structs.fields(fields):
        if field.name in left_out:
            continue
        kind = described.pop(field.name, field.type)
        kept.append((field.name, kind) if field.required else (field.name, kind, UNSET))
    kept += [(added, kind, UNSET) for added, kind in described.items()]
    RULES[name] = rules_about(fields, {field[0] for field in kept})
    return msgspec.defstruct(name, sorted(kept, key=_place), kw_only=True)


def _place(field: Any) -> int:
    """Return the place of an argument: required ones come first, those of many tools last."""
    return 0 if len(field) == 2 else 1 + (field[0] in COMMON)


def input_schema(arguments: type[Struct]) -> dict[str, Any]:
    """Return the schema of a tool's arguments."""
    return {"$schema": DIALECT, **_object(arguments), "additionalProperties": False}


def own_properties(struct: type[Struct]) -> dict[str, Any]:
    """Return the schemas of a struct's own fields."""
    properties: dict[str, Any] = _object(struct)["properties"]
    return properties


def output_schema(reply: type[Struct]) -> dict[str, Any]:
    """Return the schema of a tool's result."""
    schema = _object(reply)
    schema["properties"] = {**_REFUSAL, **schema["properties"], "success": _SUCCESS}
    return {"$schema": DIALECT, **schema, "required": ["success"]}


def _object(struct: type[Struct]) -> dict[str, Any]:
    parts = _within(schemas_of([struct]))
    schema: dict[str, Any] = parts.pop(struct.__name__)
    schema.pop("description", None)  # it describes the struct, not the tool
    if parts:
        schema["$defs"] = parts
    return schema


def _within(schema: Any) -> Any:
    """Return a schema whose references lead to definitions within the schema of the tool."""
    if isinstance(schema, list):
        return [_within(member) for member in schema]
    if not isinstance(schema, dict):
        return schema.replace(SCHEMAS, "#/$defs/") if isinstance(schema, str) else schema
    return {name: _within(part) for name, part in schema.items()}
