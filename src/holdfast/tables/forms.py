"""The forms of fields of calls on tables, with bounds and one line of help; see `holdfast.forms`."""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import rules
from holdfast.forms import GRAMMARS, TEXT, grammar, unsaid
from holdfast.tables.conditions import MAX_TESTS, TYPES
from holdfast.tables.paths import MAX_PATHS, MAX_POSITION
from holdfast.tables.updates import MAX_ACTIONS

_NAME = "^[A-Za-z0-9_.-]{1,100}$"
Table = Annotated[str, Meta(description="The name of the table.", pattern=_NAME)]
CommonTable = Annotated[str, Meta(description="The table of the writes that name none.", pattern=_NAME)]
Index = Annotated[str, Meta(description="The name of the index.", pattern=_NAME)]
Attribute = Annotated[str, Meta(min_length=1, max_length=255, pattern=TEXT)]
_OF_THE_KEY = (
    "a `partition_key` or `sort_key` that the key of the table does not have, or has in another type"
)
PartitionKey = Annotated[
    str | int | float,
    Meta(description="The partition key; a binary is base64.", extra_json_schema=unsaid(_OF_THE_KEY)),
]
SortKey = Annotated[
    str | int | float,
    Meta(description="The sort key, if the table has one.", extra_json_schema=unsaid(_OF_THE_KEY)),
]
ReturnValues = Annotated[
    Literal["none", "old", "new"], Meta(description="The item to return; `none` if not given.")
]
_STEPS = rules.MAX_NESTING - 1  # after the first one
_PATH = rf"[^.\[\]]+(\.[^.\[\]]+|\[(0|[1-9][0-9]{{0,5}})\]){{0,{_STEPS}}}$"
_ORDERABLE = {"type": ["string", "number"]}
_COMPARISONS = {
    "eq": {},
    "ne": {},
    "lt": _ORDERABLE,
    "lte": _ORDERABLE,
    "gt": _ORDERABLE,
    "gte": _ORDERABLE,
    "between": {"type": "array", "items": _ORDERABLE, "minItems": 2, "maxItems": 2},
    "in": {"type": "array", "items": {}, "minItems": 1, "maxItems": MAX_TESTS},
}
_TESTS = {
    **_COMPARISONS,
    "begins_with": {"type": "string"},
    "contains": {},
    "exists": {"type": "boolean"},
    "not_exists": {"type": "boolean"},
    "type": {"type": "string", "enum": list(TYPES)},
    "size": grammar("SizeTests"),
}
_CONDITIONS = {"type": "array", "items": grammar("Condition"), "minItems": 1, "maxItems": MAX_TESTS}
GRAMMARS.update(
    {
        "Path": {
            "description": "A path to a value within an item: text such as `meta.tag` or `list[0].x`, or the "
            "list of its steps.",
            "anyOf": [
                {"type": "string", "pattern": f"^{_PATH}"},
                {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": rules.MAX_NESTING,
                    "prefixItems": [{"type": "string"}],
                    "items": {
                        "anyOf": [
                            {"type": "string"},
                            {"type": "integer", "minimum": 0, "maximum": MAX_POSITION},
                        ]
                    },
                },
            ],
        },
        "Condition": {
            "description": 'What an item must meet, such as `{"score": {"gt": 5}}`; all of it must hold.',
            "anyOf": [grammar("ConditionOnPaths"), grammar("ConditionOnOnePath")],
        },
        "ConditionOnPaths": {
            "type": "object",
            "description": "Tests by path, as text, and `and`, `or` and `not` of other conditions.",
            "properties": {"and": _CONDITIONS, "or": _CONDITIONS, "not": grammar("Condition")},
            "patternProperties": {f"^(?!(and|or|not)$){_PATH}": grammar("Tests")},
            "additionalProperties": False,
            "minProperties": 1,
        },
        "ConditionOnOnePath": {
            "type": "object",
            "description": "Tests beside the `path` that they are about.",
            "properties": {"path": grammar("Path"), **_TESTS},
            "required": ["path"],
            "additionalProperties": False,
            "minProperties": 2,
        },
        "SizeTests": {
            "type": "object",
            "description": "Comparisons of the length of a text, a list or an object. All must hold.",
            "properties": _COMPARISONS,
            "additionalProperties": False,
            "minProperties": 1,
        },
        "Tests": {
            "type": "object",
            "description": "Operators with their operands. All must hold.",
            "properties": _TESTS,
            "additionalProperties": False,
            "minProperties": 1,
        },
    }
)
_RANGED = ("eq", "lt", "lte", "gt", "gte", "between")
GRAMMARS["SortKeyCondition"] = {
    "type": "object",
    "description": "Operators with their operands, which are of the sort key's type. All must hold.",
    "properties": {name: _COMPARISONS[name] or _ORDERABLE for name in _RANGED}
    | {"begins_with": {"type": "string"}},
    "additionalProperties": False,
    "minProperties": 1,
}
_MANY = "a `condition` or `filter` of more than 1,000 comparisons or 64 levels"
_APART = "paths of `set`, `remove` and `add` that overlap, or lead where the item has another kind of value"
_Path = Annotated[Any, Meta(extra_json_schema=grammar("Path"))]
_SET = {"type": "array", "minItems": 1}
_ADDED = {
    "anyOf": [
        {"type": "number"},
        _SET | {"items": {"type": "string"}},
        _SET | {"items": {"type": "number"}},
    ]
}


def _by_path(value: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of values by path: an object, or a list of pairs of a path and a value."""
    pair = {"type": "array", "prefixItems": [grammar("Path"), value], "minItems": 2, "maxItems": 2}
    return {
        "anyOf": [
            {
                "type": "object",
                "patternProperties": {f"^{_PATH}": value},
                "additionalProperties": False,
                "maxProperties": MAX_ACTIONS,
            },
            {"type": "array", "items": pair, "maxItems": MAX_ACTIONS},
        ]
    }


GRAMMARS.update(ValuesByPath=_by_path({}), AddedByPath=_by_path(_ADDED))
ConditionField = Annotated[
    dict[str, Any],
    Meta(
        description="What the item that is there must meet; else `CONDITION_FAILED`.",
        extra_json_schema=grammar("Condition") | unsaid(_MANY),
    ),
]
Projection = Annotated[
    list[_Path],
    Meta(description="The paths to return; the whole item if not given.", min_length=1, max_length=MAX_PATHS),
]
SetPaths = Annotated[
    Any,
    Meta(description="Values by path.", extra_json_schema=grammar("ValuesByPath") | unsaid(_APART)),
]
RemovePaths = Annotated[
    list[_Path],
    Meta(description="Paths to remove.", max_length=MAX_PATHS, extra_json_schema=unsaid(_APART)),
]
AddPaths = Annotated[
    Any,
    Meta(
        description="Numbers to add, or members of sets, by path.",
        extra_json_schema=grammar("AddedByPath") | unsaid(_APART),
    ),
]
ACTS = {
    "anyOf": [
        {"required": [name], "properties": {name: {"minItems": 1, "minProperties": 1}}}
        for name in ("set", "remove", "add")
    ]
}
"""An update does something."""
ItemField = Annotated[
    dict[str, Any],
    Meta(
        description="The item, with its key.",
        extra_json_schema=unsaid("an `item` without the attributes of the table's key, in their types"),
    ),
]
Binary = Annotated[
    list[str],
    Meta(
        description="The key attributes that the caller gave as bytes.",
        max_length=rules.MAX_BATCH,
        extra_json_schema=unsaid("a name in `binary` that is not a binary of the `item`'s key"),
    ),
]


class KeyDefinitionFields(Struct, kw_only=True):
    """An attribute of a key and its type."""

    name: Annotated[Attribute, Meta(description="The name of the attribute.")]
    type: Annotated[Literal["string", "number", "binary"], Meta(description="Its type.")]


PartitionDefinition = Annotated[
    KeyDefinitionFields, Meta(description="The attribute that items are found by.")
]
SortDefinition = Annotated[
    KeyDefinitionFields,
    Meta(
        description="The attribute that orders items of a partition.",
        extra_json_schema=unsaid("a `sort_key` of the same name as the partition key"),
    ),
]
TtlAttribute = Annotated[
    Attribute,
    Meta(
        description="The attribute that holds when an item expires.",
        extra_json_schema=unsaid("a `ttl_attribute` that is part of the key"),
    ),
]
StreamForm = Literal["keys", "new", "old", "both"]
ImagesKept = Annotated[
    StreamForm, Meta(description="The images that `changes` can show; `both` if not given.")
]
ImagesShown = Annotated[StreamForm, Meta(description="The images of items to return; `keys` if not given.")]
NewIndex = Annotated[Index, Meta(extra_json_schema=unsaid("an `index` that the table has already"))]
IndexDefinition = Annotated[KeyDefinitionFields, Meta(description="The attribute that is indexed.")]
ItemTtl = Annotated[int, Meta(description="The time to live in seconds, from now.", ge=1, le=rules.MAX_TTL)]
Filter = Annotated[
    dict[str, Any],
    Meta(
        description="Only items that meet this condition.",
        extra_json_schema=grammar("Condition") | unsaid(_MANY),
    ),
]
Reverse = Annotated[bool, Meta(description="Begin at the end.")]
SortKeyCondition = Annotated[
    dict[str, Any],
    Meta(
        description='What the sort key must meet, such as `{"gte": 7}`.',
        extra_json_schema=grammar("SortKeyCondition")
        | unsaid("a `sort_key_condition` on a table without a sort key, or of another type"),
    ),
]
IndexedValue = Annotated[
    str | int | float,
    Meta(
        description="The value of the index's attribute; a binary is base64.",
        extra_json_schema=unsaid("a `key_value` of another type than the index has"),
    ),
]


class ItemKey(Struct, kw_only=True):
    """The key of an item."""

    partition_key: PartitionKey
    sort_key: SortKey | UnsetType = UNSET


ItemKeys = Annotated[list[ItemKey], Meta(description="At most 1,000 keys.", max_length=rules.MAX_BATCH)]
_EACH = {name: {"required": ["table"]} for name in ("put", "delete", "update", "check")}
TABLES = {
    "anyOf": [
        {"required": ["table"]},
        {"properties": {"writes": {"items": {"properties": _EACH}}}},
    ]
}
"""A write names its table, unless all of them have one in common."""
