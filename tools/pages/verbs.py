"""The tables of verbs and fields in the reference pages, from the declarations in the catalogue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.edges.calls import blobs, keys, operators, tables
from holdfast.forms import GRAMMARS, CallFields, KeyWriteFields, WriteFields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.edges.calls.catalogue import Verb

SHARED: Final = (CallFields, WriteFields, KeyWriteFields)
"""Structs whose fields many verbs share; a page describes them once."""
_NAMES: Final = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "object": "object",
    "null": "null",
}
_COUNTED: Final = frozenset({"integer", "number", "boolean", "object", "list", "path"})


def schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a struct."""
    _, components = msgspec.json.schema_components([struct], ref_template="{name}")
    own: dict[str, Any] = components[struct.__name__]
    return own


def own_fields(struct: type[msgspec.Struct]) -> list[str]:
    """Return the names of the fields that are not shared, required ones first, else in declared order."""
    shared = {name for one in SHARED if issubclass(struct, one) for name in one.__struct_fields__}
    required = schema(struct)["required"]
    names = [name for name in struct.__struct_fields__ if name not in shared]
    return sorted(names, key=lambda name: name not in required)


def verb_tables(verbs: dict[str, Verb]) -> Iterator[str]:
    """Yield a table of verbs and a table of their fields."""
    yield from (*_verb_rows(verbs), "", *_field_rows(verbs))


def _verb_rows(verbs: dict[str, Verb]) -> Iterator[str]:
    yield from ("| verb | effect | what it does | fields | reply |", "|---|---|---|---|---|")
    for verb in verbs.values():
        effect = "destroys" if verb.destroys else "writes" if verb.writes else "reads"
        yield f"| `{verb.name}` | {effect} | {verb.help} | {_named(verb.fields)} | {_replied(verb.reply)} |"


def _named(struct: type[msgspec.Struct]) -> str:
    """Return the names of a verb's fields: required ones in bold, and *write* for those of every write."""
    required = schema(struct)["required"]
    named = [f"**`{name}`**" if name in required else f"`{name}`" for name in own_fields(struct)]
    return ", ".join([*named, *(["*write*"] if issubclass(struct, WriteFields) else [])])


def _replied(struct: type[msgspec.Struct]) -> str:
    """Return the names of a reply's fields: those in every reply first, the others in parentheses."""
    required = schema(struct)["required"]
    always = [f"`{name}`" for name in struct.__struct_fields__ if name in required]
    others = [f"`{name}`" for name in struct.__struct_fields__ if name not in required]
    return ", ".join([*always, *([f"({', '.join(others)})"] if others else [])])


def _field_rows(verbs: dict[str, Verb]) -> Iterator[str]:
    """Yield a row for each meaning of each field, with the verbs that use it."""
    meanings: dict[tuple[str, str, str], list[str]] = {}
    for verb in verbs.values():
        properties = schema(verb.fields)["properties"]
        for name in own_fields(verb.fields):
            row = (name, _kind(properties[name]), properties[name]["description"])
            meanings.setdefault(row, []).append(f"`{verb.name}`")
    yield from ("| field | type | meaning | of |", "|---|---|---|---|")
    for (name, form, meaning), names in sorted(meanings.items()):
        yield f"| `{name}` | {form} | {meaning} | {', '.join(names)} |"


def _shared_fields() -> Iterator[str]:
    """Yield a table of the fields that many verbs share, each field once."""
    yield from ("| field | type | meaning |", "|---|---|---|")
    fields: dict[str, Any] = {}
    for struct in SHARED:
        for name, field in schema(struct)["properties"].items():
            fields.setdefault(name, field)
    for name, field in fields.items():
        yield f"| `{name}` | {_kind(field)} | {field['description']} |"


def _kind(field: dict[str, Any]) -> str:
    """Return the type of a field in readable form."""
    if "enum" in field:
        return " or ".join(f"`{choice}`" for choice in field["enum"])
    if "const" in field:
        return f"`{msgspec.json.encode(field['const']).decode()}`"
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_kind(choice) for choice in field["anyOf"]))
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return "path" if name == "Path" else _kind(GRAMMARS.get(name, {"type": "object"}))
    if field.get("type") == "array":
        inner = _kind(field.get("items", {}))
        return f"list of {inner + 's' if inner in _COUNTED else inner}"
    return _NAMES.get(field.get("type", ""), "any JSON")


_OF_BLOBS: Final = {name: verb for name, verb in blobs.VERBS.items() if name not in blobs.SHARED}
BLOCKS: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "keys": partial(verb_tables, keys.VERBS),
    "tables": partial(verb_tables, tables.VERBS),
    "blobs": partial(verb_tables, _OF_BLOBS),
    "operators": partial(verb_tables, operators.VERBS),
    "every_call": _shared_fields,
}
"""The lines of each block."""
