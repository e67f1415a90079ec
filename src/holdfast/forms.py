"""The forms of fields that callers give: their types with bounds, patterns and one line of help.

Schemas and pages show them. They check nothing: `holdfast.rules` does, so that the same input gets the same
error at every door. In a struct, a field without a default is required; one with `UNSET` is optional.
"""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import rules

S = TypeVar("S", bound=type[Struct])

RULES: Final[dict[str, dict[str, Any]]] = {}
"""What schemas say of structs beyond their fields, by the name of the struct: which fields go together."""
SCHEMAS: Final = "#/components/schemas/"
"""The beginning of a reference to a schema."""
GRAMMARS: Final[dict[str, dict[str, Any]]] = {}
"""Schemas that no struct declares, by name, for fields with a grammar of their own."""
UNSAID: Final = "x-also-refused"
"""The keyword of a field's schema that says what JSON Schema can't: what else is a `VALIDATION_ERROR`."""


def ruled(*rules: dict[str, Any], closed: bool = False) -> Callable[[S], S]:
    """Declare what holds for the fields of a struct together, as parts of its JSON schema.

    With `closed`, other fields are refused.
    """

    def keep(struct: S) -> S:
        RULES[struct.__name__] = ({"allOf": list(rules)} if rules else {}) | (
            {"additionalProperties": False} if closed else {}
        )
        return struct

    return keep


def never(*fields: str) -> dict[str, Any]:
    """Return the rule that fields exclude each other."""
    return {"not": {"required": list(fields)}}


def one_of(*choices: tuple[str, ...]) -> dict[str, Any]:
    """Return the rule that exactly one of several groups of fields is given."""
    return {"oneOf": [{"required": list(fields)} for fields in choices]}


def some_of(*fields: str) -> dict[str, Any]:
    """Return the rule that one of several fields is given."""
    return {"anyOf": [{"required": [field]} for field in fields]}


def rules_about(struct: type[Struct], names: AbstractSet[str]) -> dict[str, Any]:
    """Return what the rules of a struct say of some of its fields."""
    rules = RULES.get(struct.__name__, {})
    kept = [rule for rule in map(partial(_about, names), rules.get("allOf", ())) if rule]
    others = {name: rule for name, rule in rules.items() if name != "allOf"}
    return others | ({"allOf": kept} if kept else {})


def _about(names: AbstractSet[str], rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule about some fields only; nothing if it says nothing about them alone."""
    if "not" in rule:
        return rule if names >= set(rule["not"].get("required", ())) else {}
    for choice in ("anyOf", "oneOf"):
        if choice in rule:
            left = [one for one in rule[choice] if names >= set(one.get("required", ()))]
            return {choice: left} if len(left) > 1 else dict(*left)
    properties = {name: part for name, part in rule.get("properties", {}).items() if name in names}
    return rule | {"properties": properties} if properties else {}


def grammar(name: str) -> dict[str, Any]:
    """Return a reference to a schema of `GRAMMARS`."""
    return {"$ref": f"{SCHEMAS}{name}"}


def unsaid(rule: str) -> dict[str, Any]:
    """Return the part of a field's schema that names a rule which JSON Schema can't express."""
    return {UNSAID: rule}


NOTHING: Final[dict[str, Any]] = {"not": {}}
"""The schema of a field that must not be given. Many tools don't know `false`, which is shorter."""
TEXT: Final = r"^[^\x00]*$"
"""The pattern of text that every engine can store."""
_LETTER: Final = (
    r"0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u0100-\u017f\u0391-\u03a1\u03b1-\u03c9\u0410-\u044f\u4e00-\u9fff"
)
"""Digits and the letters of the most common scripts, as a range of a pattern."""
REASON: Final = rf"^[^\x00]*([{_LETTER}][^\x00]*){{3}}$"
"""The pattern of a reason that says something."""
_REPEATED: Final = rf"^[^{_LETTER}]*([{_LETTER}])([^{_LETTER}]*\1)*[^{_LETTER}]*$"
"""The pattern of text in which one letter is repeated and no other is used."""
NAMED: Final = r"^[^\x00-\x1f\x7f-\x9f]+$"
"""The pattern of the name of a writer, a request or a lock."""
PURPOSE: Final = "^[a-z][a-z0-9_]{0,31}$"
PLUGIN: Final = "^[a-z0-9_-]{1,100}$"
TENANT: Final = "^[a-z0-9][a-z0-9_-]{0,62}$"
NAMESPACE: Final = (
    "^((kv|table|blob)/[a-z0-9_-]{1,100}|semantic/[a-z0-9][a-z0-9_-]{0,62}/[a-z0-9][a-z0-9_-]{0,62})$"
)
COMPONENTS: Final = "^(?!tenant/)[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*$"
"""The pattern of a key of a tenant's project, without the part that all its keys begin with."""
TIME: Final = {"format": "date-time"}
LATEST: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_FEW: Final = rules.MAX_IDENTITY_CHARACTERS
_NOT_TWICE: Final = tuple(
    {
        "not": {
            "required": [field, "semantics"],
            "properties": {"semantics": {"required": ["ttl_seconds"]}},
        }
    }
    for field in ("ttl", "ttl_seconds", "keep_ttl")
)
NO_KEEPING: Final = (never("ttl", "ttl_seconds"), never("keep_ttl"))
"""A time to live is given once, and there is none to keep."""
TTLS: Final = (never("ttl", "ttl_seconds"), never("ttl", "keep_ttl"), never("ttl_seconds", "keep_ttl"))
"""A time to live is given once."""
MEANT_TTLS: Final = (*TTLS, *_NOT_TWICE)
"""The same where semantics may name one."""

Key = Annotated[
    str, Meta(description="The key.", min_length=1, max_length=rules.MAX_KEY_CHARACTERS, pattern=TEXT)
]
Keys = Annotated[list[str], Meta(description="At most 1,000 keys.", max_length=rules.MAX_BATCH)]
LogName = Annotated[
    str,
    Meta(
        description="The name of the log. Its items have the keys `<name>/` and a number of 12 digits.",
        min_length=1,
        max_length=rules.MAX_LOG_NAME_CHARACTERS,
        pattern=TEXT,
    ),
]
Prefix = Annotated[
    str,
    Meta(
        description="Only keys that begin with this; all if not given.",
        max_length=rules.MAX_KEY_CHARACTERS,
        pattern=TEXT,
    ),
]
Value = Annotated[Any, Meta(description="The value, any JSON.")]
Identity = Annotated[str, Meta(min_length=1, max_length=_FEW, pattern=NAMED)]
Timestamp = Annotated[str, Meta(extra_json_schema=TIME)]
Cursor = Annotated[
    str,
    Meta(
        description="The cursor of the page before; the listing goes on after it. Any other is refused.",
        pattern="^[A-Za-z0-9_-]+$",
        extra_json_schema=unsaid("a `cursor` that is not from a page of the same listing"),
    ),
]
# A type that others describe has no description of its own: msgspec would keep that one.
PageLimit = Annotated[int, Meta(ge=1, le=rules.MAX_LIMIT)]
Limit = Annotated[PageLimit, Meta(description="The most to return, from 1 to 10,000; 1,000 if not given.")]
Ttl = Annotated[
    int, Meta(description="The time to live in seconds; none if not given.", ge=1, le=rules.MAX_TTL)
]
TtlSeconds = Annotated[int, Meta(description="Another name for `ttl`.", ge=1, le=rules.MAX_TTL)]
KeepTtl = Annotated[bool, Meta(description="Keep the deadline that the entry has, instead of a `ttl`.")]
ExpectedVersion = Annotated[
    int,
    Meta(
        description="The version that must be there, 0 for none; else `VERSION_CONFLICT`.",
        ge=0,
        le=rules.MAX_VERSION,
    ),
]


class SemanticsFields(Struct, kw_only=True):
    """Why an entry exists, and for whom. All fields are optional."""

    purpose: Annotated[str, Meta(pattern=PURPOSE)] | None = None
    producer: Identity | None = None
    consumer_hints: Annotated[
        list[Annotated[str, Meta(max_length=rules.MAX_HINT_CHARACTERS, pattern=TEXT)]],
        Meta(max_length=rules.MAX_HINTS),
    ] = []
    ttl_seconds: Annotated[int, Meta(ge=1, le=rules.MAX_TTL)] | None = None


Meaning = Annotated[SemanticsFields, Meta(description="Why the entry exists and for whom.")]
Since = Annotated[
    int, Meta(description="The version after which to begin; 0 if not given.", ge=0, le=rules.MAX_VERSION)
]
After = Annotated[
    int, Meta(description="The number after which to begin; 0 if not given.", ge=0, le=rules.MAX_VERSION)
]
ItemNumber = Annotated[
    int,
    Meta(
        description="List the items after this number; `prefix` is the name of a log and a slash.",
        ge=0,
        le=rules.MAX_VERSION,
        extra_json_schema=unsaid("an `after` with a `prefix` that does not end with a slash"),
    ),
]
LastWriter = Annotated[
    str, Meta(description="Only what this writer wrote last.", min_length=1, max_length=_FEW, pattern=NAMED)
]
Purpose = Annotated[str, Meta(description="Only entries whose semantics name this purpose.", pattern=PURPOSE)]

Why = Annotated[
    str,
    Meta(
        description="Why a person looks at the value: 3 letters or digits or more, not all the same, and at "
        "most 500 characters. Required in a namespace with an audit, which records it; the policy `reveal` "
        "can say otherwise.",
        max_length=rules.MAX_SPEC_REF_CHARACTERS,
        pattern=REASON,
        extra_json_schema={
            "not": {"pattern": _REPEATED},
            **unsaid("no `why` where the policy `reveal` of the namespace wants one"),
        },
    ),
]
Viewer = Annotated[
    str,
    Meta(
        description="Who looks at the value; the name in the subject if not given.",
        min_length=1,
        max_length=_FEW,
        pattern=NAMED,
    ),
]


class CallFields(Struct, kw_only=True):
    """The fields of every call."""

    deadline: (
        Annotated[
            int,
            Meta(
                description="When the caller gives up, in milliseconds since 1970 by the service's clock. A "
                "time that has passed is answered with `TIMEOUT`.",
                ge=0,
                le=LATEST,
            ),
        ]
        | UnsetType
    ) = UNSET
    deadline_ms: (
        Annotated[
            int,
            Meta(
                description="The same in milliseconds after the service received the request.",
                ge=0,
                le=rules.MAX_TTL * 1000,
            ),
        ]
        | UnsetType
    ) = UNSET


class ViewFields(CallFields, kw_only=True):
    """The fields of every call that shows something to a person."""

    last_writer: Viewer | UnsetType = UNSET


SpecText = Annotated[str, Meta(max_length=rules.MAX_SPEC_REF_CHARACTERS, pattern=TEXT)]
SpecRef = Annotated[SpecText, Meta(description="The document that the write follows.")]


@ruled(closed=True)
class FenceFields(Struct, kw_only=True):
    """The lock that a write relies on."""

    lock: Annotated[
        str, Meta(description="The name of the lock.", min_length=1, max_length=_FEW, pattern=NAMED)
    ]
    token: Annotated[int, Meta(description="The token that its holder has.", ge=0, le=rules.MAX_VERSION)]
    live: Annotated[
        bool | UnsetType, Meta(description="Also refuse the write if the lock has expired or was released.")
    ] = UNSET


class WriteFields(CallFields, kw_only=True):
    """The fields of every write."""

    request_id: (
        Annotated[
            str,
            Meta(
                description="Names the request: sent again, it gets the first answer and has no second "
                "effect.",
                min_length=1,
                max_length=_FEW,
                pattern=NAMED,
            ),
        ]
        | UnsetType
    ) = UNSET
    once: (
        Annotated[
            str,
            Meta(
                description="Names what the caller intends: a write with a known id gets the first answer "
                "and has no effect, whatever else it says.",
                min_length=1,
                max_length=_FEW,
                pattern=NAMED,
                extra_json_schema=unsaid("`once` together with `request_id`"),
            ),
        ]
        | UnsetType
    ) = UNSET
    last_writer: (
        Annotated[
            str,
            Meta(
                description="Who writes; the name in the subject if not given.",
                min_length=1,
                max_length=_FEW,
                pattern=NAMED,
            ),
        ]
        | UnsetType
    ) = UNSET
    spec_ref: SpecRef | UnsetType = UNSET
    fence: Annotated[
        FenceFields | UnsetType, Meta(description="Refuse the write unless the lock has this newest token.")
    ] = UNSET


class KeyWriteFields(WriteFields, kw_only=True):
    """The fields of every write on keys."""

    envelope: Annotated[
        bool | Literal["bare"] | UnsetType,
        Meta(description="Return the whole entry that the write leaves; with `bare`, without its value."),
    ] = UNSET
