"""A generator for the tables of verbs and fields in the reference pages.

    python -m holdfast.edges.calls.pages docs/reference

Law: only the text between two markers of a page is generated, and only from the declarations.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.edges.calls import blobs, keys, operators, tables
from holdfast.forms import CallFields, KeyWriteFields, WriteFields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.edges.calls.catalogue import Verb

SHARED: Final = (CallFields, WriteFields, KeyWriteFields)
"""Structs whose fields many verbs share; a page describes them once."""
_BEGIN: Final = "<!-- begin: {}, made by python -m holdfast.edges.calls.pages -->"
_END: Final = "<!-- end: {} -->"
_BETWEEN: Final = re.compile(r"<!-- begin: (\w+),.*?<!-- end: \1 -->", re.DOTALL)
_NAMES: Final = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "object": "object",
    "null": "null",
}
_COUNTED: Final = frozenset({"integer", "number", "boolean", "object", "list"})


def page(text: str) -> str:
    """Return a page with the text between its markers regenerated."""
    return _BETWEEN.sub(lambda found: _block(found[1]), text)


def _block(name: str) -> str:
    return f"{_BEGIN.format(name)}\n\n{BLOCKS[name]}\n{_END.format(name)}"


def schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a struct."""
    _, components = msgspec.json.schema_components([struct], ref_template="{name}")
    found: dict[str, Any] = components[struct.__name__]
    return found


def own_fields(struct: type[msgspec.Struct]) -> list[str]:
    """Return the names of the fields that are not shared, required ones first, else in declared order."""
    shared = {name for one in SHARED if issubclass(struct, one) for name in one.__struct_fields__}
    required = schema(struct)["required"]
    names = [name for name in struct.__struct_fields__ if name not in shared]
    return sorted(names, key=lambda name: name not in required)


def verbs_text(verbs: dict[str, Verb]) -> str:
    """Return a table of verbs and a table of their fields."""
    return "\n".join([*_verb_rows(verbs), "", *_field_rows(verbs), ""])


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
            told = (name, kind(properties[name]), properties[name]["description"])
            meanings.setdefault(told, []).append(f"`{verb.name}`")
    yield from ("| field | type | meaning | of |", "|---|---|---|---|")
    for (name, form, meaning), names in sorted(meanings.items()):
        yield f"| `{name}` | {form} | {meaning} | {', '.join(names)} |"


def _shared(*structs: type[msgspec.Struct]) -> str:
    """Return a table of the fields of some structs, each field once."""
    rows = ["| field | type | meaning |", "|---|---|---|"]
    seen: set[str] = set()
    for struct in structs:
        for name, told in schema(struct)["properties"].items():
            if name not in seen:
                rows.append(f"| `{name}` | {kind(told)} | {told['description']} |")
                seen.add(name)
    return "\n".join([*rows, ""])


def kind(told: dict[str, Any]) -> str:
    """Return the type of a field in readable form."""
    if "enum" in told:
        return " or ".join(f"`{choice}`" for choice in told["enum"])
    if "const" in told:
        return f"`{msgspec.json.encode(told['const']).decode()}`"
    if "anyOf" in told:
        return " or ".join(dict.fromkeys(kind(one) for one in told["anyOf"]))
    if "$ref" in told:
        return "object"
    if told.get("type") == "array":
        inner = kind(told.get("items", {}))
        return f"list of {inner + 's' if inner in _COUNTED else inner}"
    return _NAMES.get(told.get("type", ""), "any JSON")


BLOCKS: Final = {
    "keys": verbs_text(keys.VERBS),
    "tables": verbs_text(tables.VERBS),
    "blobs": verbs_text({name: verb for name, verb in blobs.VERBS.items() if name not in blobs.SHARED}),
    "operators": verbs_text(operators.VERBS),
    "every_call": _shared(*SHARED),
}
"""The generated text for each marker name."""


def main(folder: Path) -> None:
    """Regenerate the text between the markers of all pages in a folder."""
    for path in sorted(folder.glob("*.md")):
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
