"""The OpenAPI document announces every rule of a request: what follows it is not refused as illegal."""

from __future__ import annotations

import asyncio
import json
import string
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from holdfast.edges.calls import FAMILIES
from holdfast.edges.http.openapi import PATHS, document
from tests.edges.http.ground import Served, served
from tests.nats import lasting_nats_server

if TYPE_CHECKING:
    from collections.abc import Iterator

ILLEGAL = ("VALIDATION_ERROR", "MISSING_FIELD", "INVALID_JSON", "INVALID_SUBJECT", "INVALID_PLUGIN_NAME")
OPAQUE = frozenset({"cursor", "checksum"})
"""Fields whose text must come from an earlier answer, or from the bytes beside it."""
ORDERED = frozenset({"ttl_min", "ttl_default", "ttl_max"})
"""Fields of a policy that must be in an order, which a schema can't say."""
GRAMMARS = frozenset({"condition", "filter", "sort_key_condition", "set", "add", "projection", "remove"})
"""Fields with a grammar of their own, which the reference describes."""
AWAY = ("rescue", "escalate")
"""Verbs that would write files, or hold the request of another verb."""
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)


class Drawing:
    """Draws what a schema describes.

    Args:
        whole: The document, in which references lead.
    """

    def __init__(self, whole: dict[str, Any]) -> None:
        self._whole = whole

    def of(self, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
        """Return a strategy for a schema. Rules about several fields are left to a validator."""
        if "$ref" in schema:
            return self.of(self.resolved(schema["$ref"]))
        if "const" in schema:
            return st.just(schema["const"])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        if "anyOf" in schema and "type" not in schema:
            return st.one_of([self.of(part) for part in schema["anyOf"]])
        if "type" not in schema and len(schema.get("allOf", [])) == 1:
            return self.of(schema["allOf"][0])
        return self._typed(schema)

    def resolved(self, ref: str) -> dict[str, Any]:
        """The schema that a reference leads to."""
        found: dict[str, Any] = self._whole["components"]["schemas"][ref.rpartition("/")[2]]
        return found

    def _typed(self, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
        match schema.get("type"):
            case "integer":
                least, most = schema.get("minimum", -5), schema.get("maximum", 10**6)
                most = min(most, schema.get("exclusiveMaximum", most + 1) - 1)
                numbers = st.sampled_from([least, most, min(least + 7, most)])
                return numbers | numbers.filter(lambda number: number < 2**53).map(float)
            case "number":
                return st.sampled_from([0, 1.5, -2])
            case "string":
                return self._text(schema)
            case "boolean":
                return st.booleans()
            case "null":
                return st.none()
            case "array":
                least = schema.get("minItems", 0)
                return st.lists(self.of(schema.get("items", {})), min_size=least, max_size=least + 2)
            case "object":
                return self._object(schema)
            case list(types):
                return st.one_of([self.of(schema | {"type": one}) for one in types])
            case _:
                return st.sampled_from([None, 1, "x", [], {"a": [1]}])

    def _text(self, schema: dict[str, Any]) -> st.SearchStrategy[str]:
        if schema.get("format") == "date-time":
            return st.sampled_from(["2031-05-01T12:30:00Z", "1999-12-31T23:59:59.5+02:00"])
        least, most = schema.get("minLength", 0), schema.get("maxLength", 300)
        texts = st.from_regex(schema["pattern"]) if "pattern" in schema else WORDS
        longest = texts.map(lambda text: (text or "x") * (most // max(len(text), 1)))
        drawn = texts | longest if "pattern" in schema else texts
        return drawn.filter(lambda text: least <= len(text) <= most and _sound(text, schema.get("pattern")))

    def _object(self, schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
        fields = schema.get("properties", {})
        required = schema.get("required", [])
        drawn = [name for name in fields if name not in OPAQUE | ORDERED | GRAMMARS or name in required]
        known = {name: self.of(fields[name]) for name in drawn}
        optional = {name: one for name, one in known.items() if name not in required}
        return st.fixed_dictionaries({name: known[name] for name in required}, optional=optional)


def _sound(text: str, pattern: str | None) -> bool:
    """Whether JSON Schema, whose $ allows no line break after it, takes a text, and UTF-8 has it."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        return False
    return pattern is None or (
        not text.endswith("\n") and jsonschema.Draft202012Validator({"pattern": pattern}).is_valid(text)
    )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Served]]:
    """A service that all requests go to, and the loop that it runs in."""
    path = tmp_path_factory.mktemp("announced") / "state.db"
    with lasting_nats_server() as bus, asyncio.Runner() as runner:
        opened = served(path, bus)
        yield runner, runner.run(opened.__aenter__())
        runner.run(opened.__aexit__(None, None, None))


VERBS = [
    (family, name)
    for family in ("kv", "semantic", "blob", "admin", "table")
    for name in FAMILIES[family]
    if name not in AWAY
]


@pytest.mark.parametrize(("family", "name"), VERBS, ids=str)
def test_what_is_announced_is_not_refused(
    running: tuple[asyncio.Runner, Served], family: str, name: str
) -> None:
    """A request that follows the document is done, or refused because of what is stored, never as illegal."""
    runner, here = running
    whole = document(here.store.now())
    # Each verb has a plugin or project of its own: what one stores is no reason to refuse another.
    project = string.ascii_lowercase[list(FAMILIES[family]).index(name) % 26]  # a key has room beside it
    filled = PATHS[family][0].format(plugin=name, tenant="t", project=project)
    path = f"{filled}:{name}"
    told = whole["paths"][f"{PATHS[family][0]}:{name}"]["post"]
    schema = told["requestBody"]["content"]["application/json"]["schema"]
    drawing = Drawing(whole)
    fields = drawing.resolved(schema["$ref"])
    own = {name: rule for name, rule in schema.get("properties", {}).items() if "pattern" in rule}
    fields = fields | {"properties": {**fields["properties"], **_narrowed(fields["properties"], own)}}
    valid = jsonschema.Draft202012Validator({**schema, "components": whole["components"]})

    @given(drawing.of(fields))
    @settings(max_examples=8, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def ask(request: dict[str, Any]) -> None:
        assume(valid.is_valid(request))
        answer = runner.run(here.ask("POST", path, request))
        if answer.status_code >= 400:
            refused = answer.json()
            assume("is not a number" not in refused["detail"])  # what is stored
            assert refused["code"] not in ILLEGAL, f"{refused['detail']}: {json.dumps(request)[:600]}"
            assert str(answer.status_code) in told["responses"] or "default" in told["responses"]

    ask()


def _narrowed(fields: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return {name: fields[name] | rule for name, rule in more.items()}
