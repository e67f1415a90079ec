"""The OpenAPI document announces every rule of a request: what follows it is not refused as illegal."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import string
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from holdfast.edges.calls import FAMILIES
from holdfast.edges.http.openapi import PATHS, document
from tests.edges.http.ground import Served, served
from tests.nats import lasting_nats_server

if TYPE_CHECKING:
    from collections.abc import Iterator

ILLEGAL = ("VALIDATION_ERROR", "MISSING_FIELD", "INVALID_JSON", "INVALID_SUBJECT", "INVALID_PLUGIN_NAME")
OPAQUE = frozenset({"cursor", "checksum"})
"""Fields whose text must come from an earlier answer, or from the bytes beside it: nothing drawn is legal."""
AWAY = ("rescue",)
"""A verb that would write files."""
WHOLE = document()
REFERENCE = re.compile('"#/components/schemas/([^"]+)"')
SURROGATE = re.compile("[\ud800-\udfff]")
TABLE = "events"
"""The table that all requests about tables name."""
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)


class Drawing:
    """Draws what a schema describes.

    Args:
        whole: The document, in which references lead.
    """

    def __init__(self, whole: dict[str, Any]) -> None:
        self._whole = whole
        self._strategies: dict[str, st.SearchStrategy[Any]] = {}

    def of(self, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
        """Return a strategy for a schema. Rules about several fields are left to a validator."""
        if "$ref" in schema:
            return self._named(schema["$ref"])
        if "const" in schema:
            return st.just(schema["const"])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        if "anyOf" in schema and "properties" not in schema:
            return st.deferred(lambda: st.one_of([self.of(part) for part in schema["anyOf"]]))
        if "properties" not in schema and len(schema.get("allOf", [])) == 1:
            return self.of(schema["allOf"][0])
        return self._typed(schema)

    def _named(self, ref: str) -> st.SearchStrategy[Any]:
        """Return the one strategy for a schema that may contain itself."""
        if ref not in self._strategies:
            self._strategies[ref] = st.deferred(lambda: self.of(self.resolved(ref)))
        return self._strategies[ref]

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
                return self._list(schema)
            case "object":
                return self._object(schema)
            case list(types):
                return st.one_of([self.of(schema | {"type": one}) for one in types])
            case _:
                return st.sampled_from([None, 1, "x", [], {"a": [1]}])

    def _text(self, schema: dict[str, Any]) -> st.SearchStrategy[str]:
        if schema.get("format") == "date-time":
            return st.sampled_from(["2031-05-01T12:30:00Z", "1999-12-31T23:59:59.5+02:00"])
        return _texts(schema.get("pattern"), schema.get("minLength", 0), schema.get("maxLength", 300))

    def _list(self, schema: dict[str, Any]) -> st.SearchStrategy[list[Any]]:
        first = [self.of(one) for one in schema.get("prefixItems", ())]
        least = max(schema.get("minItems", 0) - len(first), 0)
        most = min(schema.get("maxItems", least + 2) - len(first), least + 2)
        rest = st.lists(self.of(schema.get("items", {})), min_size=least, max_size=most)
        return st.tuples(st.tuples(*first), rest).map(lambda both: [*both[0], *both[1]])

    def _variants(self, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The schema with the fields of each of its variants: those of a verb, where it names one."""
        for variant in schema["allOf"][0]["anyOf"]:
            verb, request = (
                variant["properties"]["verb"],
                self.resolved(variant["properties"]["request"]["$ref"]),
            )
            required = [*request.get("required", ()), *schema["properties"]["request"]["required"]]
            fields = {"verb": verb, "request": request | {"required": required}}
            yield schema | {"properties": schema["properties"] | fields, "allOf": []}

    def _object(self, schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
        fields = schema.get("properties", {})
        if "verb" in fields and schema.get("allOf"):
            return st.one_of([self._object(variant) for variant in self._variants(schema)])
        required = schema.get("required", [])
        known = {name: self.of(told) for name, told in fields.items() if name not in OPAQUE}
        known |= {name: self.of(fields[name]) for name in required}
        optional = {name: one for name, one in known.items() if name not in required}
        drawn = st.fixed_dictionaries({name: known[name] for name in required}, optional=optional)
        for pattern, told in schema.get("patternProperties", {}).items():
            names = self._text({"pattern": pattern, "maxLength": 40})
            more = st.dictionaries(names, self.of(told), max_size=2)
            drawn = st.tuples(drawn, more).map(lambda both: both[1] | both[0])
        least = schema.get("minProperties", 0)
        return drawn.filter(lambda members: len(members) >= least) if least else drawn


@functools.cache
def _texts(pattern: str | None, least: int, most: int) -> st.SearchStrategy[str]:
    """Return the one strategy for texts of a pattern and a length: making one takes longer than a request."""
    texts = WORDS if pattern is None else st.from_regex(pattern, fullmatch=True)
    longest = texts.map(lambda text: (text or "x") * (most // max(len(text), 1)))
    drawn = texts if pattern is None else texts | longest
    return drawn.filter(lambda text: least <= len(text) <= most and _sound(text, pattern))


def _sound(text: str, pattern: str | None) -> bool:
    """Whether JSON Schema, whose $ allows no line break after it, takes a text, and UTF-8 has it."""
    if SURROGATE.search(text):
        return False
    return pattern is None or (not text.endswith("\n") and re.search(pattern, text) is not None)


def _validator(whole: dict[str, Any], schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    """A validator of a schema, with those of the document that it refers to: it is slow with all of them."""
    named = whole["components"]["schemas"]
    reached: dict[str, Any] = {}
    refs = REFERENCE.findall(json.dumps(schema))
    while refs:
        name = refs.pop()
        if name not in reached:
            reached[name] = named[name]
            refs += REFERENCE.findall(json.dumps(named[name]))
    return jsonschema.Draft202012Validator({**schema, "components": {"schemas": reached}})


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


def _path(family: str, name: str) -> str:
    """The path of a verb. Each has a plugin or project of its own: what one stores is no reason to refuse
    another."""
    project = string.ascii_lowercase[list(FAMILIES[family]).index(name) % 26]  # a key has room beside it
    return f"{PATHS[family][0].format(plugin=name, tenant='t', project=project)}:{name}"


@pytest.mark.parametrize(("family", "name"), VERBS, ids=str)
def test_a_request_that_follows_the_document_is_not_refused(
    running: tuple[asyncio.Runner, Served], family: str, name: str
) -> None:
    """A request that follows the document is done, or refused because of what is stored. It is refused as
    illegal only if the document names the field and the rule, which no schema can express."""
    runner, here = running
    whole = WHOLE
    path = _path(family, name)
    told = whole["paths"][f"{PATHS[family][0]}:{name}"]["post"]
    schema = told["requestBody"]["content"]["application/json"]["schema"]
    drawing = Drawing(whole)
    fields = drawing.resolved(schema["$ref"])
    own = {name: rule for name, rule in schema.get("properties", {}).items() if "pattern" in rule}
    fields = fields | {"properties": {**fields["properties"], **_narrowed(fields["properties"], own)}}
    valid = _validator(whole, schema)
    if family == "table" and name not in ("create_table", "drop_table"):
        fields["properties"] |= {"table": {"const": TABLE}} if "table" in fields["properties"] else {}
        create = {"table": TABLE, "partition_key": KEY}
        runner.run(here.ask("POST", path.replace(f":{name}", ":create_table"), create))

    @given(drawing.of(fields))
    @settings(
        max_examples=5,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # making a counterexample smaller takes minutes
        suppress_health_check=list(HealthCheck),
    )
    def ask(request: dict[str, Any]) -> None:
        assume(valid.is_valid(request))
        answer = runner.run(here.ask("POST", path, request))
        if answer.status_code >= 400:
            assert str(answer.status_code) in told["responses"] or "default" in told["responses"]
            refused = answer.json()
            assert refused["code"] not in ILLEGAL or _announced(told, refused["field"]), (
                f"{refused['detail']}: {json.dumps(request)[:600]}"
            )

    ask()


def _announced(operation: dict[str, Any], field: str) -> bool:
    """Whether an operation says that a value of this field may be refused although it follows the schema."""
    return f"`{field.partition('.')[0]}`" in operation["responses"]["400"].get("description", "")


KEY = {"name": "id", "type": "string"}
KEYED: dict[str, Any] = {"table": TABLE, "partition_key": "a"}
EMPTY: dict[str, Any] = {"items": [], "keys": [], "request_id": "r"}
LETTER = {"key": "k", "value": 1, "request_id": "r"}
BEYOND: list[tuple[str, str, dict[str, Any], str]] = [
    ("kv", "list", {"cursor": "mT"}, "cursor"),
    ("kv", "list", {"cursor": "YQ", "prefix": "b"}, "cursor"),
    ("kv", "delete_prefix", {"prefix": "a", "cursor": "YQ-_"}, "cursor"),
    ("kv", "incr", {"key": "text"}, "value"),
    ("semantic", "get", {"key": "k" * 109}, "key"),
    ("semantic", "reveal", {"key": "k"}, "why"),
    ("admin", "namespaces", {"cursor": "mT"}, "cursor"),
    ("admin", "trash", {"namespace": "kv/x", "cursor": "mT"}, "cursor"),
    ("admin", "set_policy", {"namespace": "kv/x", "policy": {"ttl_min": 9, "ttl_default": 8}}, "ttl_default"),
    ("admin", "set_policy", {"namespace": "kv/x", "policy": {"ttl_min": 9, "ttl_max": 8}}, "ttl_min"),
    ("admin", "rescue", {"number": 7}, "number"),
    ("blob", "put", {"key": "k", "data": "", "checksum": "0" * 64}, "checksum"),
    ("blob", "list", {"cursor": "mT"}, "cursor"),
    ("table", "create_table", {"table": "t", "partition_key": KEY, "sort_key": KEY}, "sort_key"),
    ("table", "create_table", {"table": "t", "partition_key": KEY, "ttl_attribute": "id"}, "ttl_attribute"),
    ("table", "scan", {"table": TABLE, "cursor": "mT"}, "cursor"),
    ("table", "get_item", KEYED | {"partition_key": 5}, "partition_key"),
    ("table", "get_item", KEYED | {"sort_key": 5}, "sort_key"),
    ("table", "put_item", {"table": TABLE, "item": {}}, "item.id"),
    ("table", "put_item", {"table": TABLE, "item": {"id": "a", "x": ""}, "binary": ["x"]}, "item.x"),
    ("table", "query", KEYED | {"sort_key_condition": {"eq": 5}}, "sort_key_condition"),
    ("table", "query", KEYED | {"filter": {"x": {"in": [1] * 600}, "y": {"in": [1] * 600}}}, "filter"),
    ("table", "update_item", KEYED | {"set": {"a": 1}, "remove": ["a.b"]}, "remove"),
    (
        "table",
        "transact_write",
        {"table": TABLE, "writes": [{"check": {"partition_key": "a"}}] * 2},
        "writes",
    ),
]
"""Requests that follow the schemas, and the field for which they are refused."""


@pytest.mark.parametrize(("family", "name", "request_", "field"), BEYOND, ids=str)
def test_rules_beyond_the_schema_are_announced_in_words(
    running: tuple[asyncio.Runner, Served], family: str, name: str, request_: dict[str, Any], field: str
) -> None:
    """Where a request that follows the schema is refused as illegal, the operation names field and rule."""
    runner, here = running
    whole = WHOLE
    path = _path(family, name)
    if name == "incr":
        runner.run(here.call(path.replace(":incr", ":set"), key="text", value="x"))
    if family == "table" and name != "create_table":
        runner.run(here.call(path.replace(f":{name}", ":create_table"), table=TABLE, partition_key=KEY))
    told = whole["paths"][f"{PATHS[family][0]}:{name}"]["post"]
    schema = told["requestBody"]["content"]["application/json"]["schema"]
    _validator(whole, schema).validate(request_)
    answer = runner.run(here.ask("POST", path.replace("/t/", "/tenant/"), request_))
    refused = answer.json()
    assert (answer.status_code, refused["field"]) == (400, field)
    assert refused["code"] in ("VALIDATION_ERROR", "MISSING_FIELD")
    assert _announced(told, field)


WRONG: list[tuple[str, str, dict[str, Any]]] = [
    ("kv", "batch", {"writes": [{"key": "k", "incr": 1, "keep_ttl": True}]}),
    ("kv", "escalate", {"verb": "get", "request": {}, "error_code": "BUSY", "attempts": 1}),
    ("kv", "escalate", {"verb": "set", "request": LETTER, "error_code": "BUSY", "attempts": 10_001}),
    ("kv", "escalate", {"verb": "set_many", "request": EMPTY, "error_code": "BUSY", "attempts": 1}),
    ("kv", "escalate", {"verb": "delete_many", "request": EMPTY, "error_code": "BUSY", "attempts": 1}),
    ("semantic", "list", {"prefix": "tenant/other/"}),
    ("table", "batch_write_item", {"table": TABLE, "writes": [{"put": {"item": {"id": "a"}}, "more": 1}]}),
    ("table", "get_item", KEYED | {"projection": []}),
    ("table", "get_item", KEYED | {"projection": [[1, "a"]]}),
    ("table", "get_item", KEYED | {"projection": ["a..b"]}),
    ("table", "query", KEYED | {"sort_key_condition": {"ne": 5}}),
    ("table", "query", KEYED | {"filter": {"a": 5}}),
    ("table", "query", KEYED | {"filter": {"or": []}}),
    ("table", "query", KEYED | {"filter": {"a": {"between": [1]}}}),
    ("table", "query", KEYED | {"filter": {"a": {"size": {"contains": 1}}}}),
    ("table", "query", KEYED | {"filter": {"path": ["a"]}}),
    ("table", "update_item", KEYED | {"set": {}}),
    ("table", "update_item", KEYED | {"add": {"a": ["x", 1]}}),
    ("table", "update_item", KEYED | {"set": [["a"]]}),
]


@pytest.mark.parametrize(("family", "name", "request_"), WRONG, ids=str)
def test_an_illegal_request_breaks_the_schema(
    running: tuple[asyncio.Runner, Served], family: str, name: str, request_: dict[str, Any]
) -> None:
    """A request that is refused as illegal breaks the schema: it need not be sent to find that out."""
    runner, here = running
    whole = WHOLE
    path = _path(family, name)
    if family == "table":
        runner.run(here.call(path.replace(f":{name}", ":create_table"), table=TABLE, partition_key=KEY))
    told = whole["paths"][f"{PATHS[family][0]}:{name}"]["post"]
    valid = _validator(whole, told["requestBody"]["content"]["application/json"]["schema"])
    assert not valid.is_valid(request_)
    answer = runner.run(here.ask("POST", path, request_)).json()
    assert answer.get("code") in ILLEGAL or answer["results"][0]["error_code"] in ILLEGAL


def test_the_document_is_the_same_whenever_it_is_made() -> None:
    """The document depends on the version alone, so that a copy of it stays right."""
    assert document() == WHOLE
    assert "deadline" not in WHOLE["components"]["schemas"]["SetFields"]["properties"]


def _narrowed(fields: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return {name: fields[name] | rule for name, rule in more.items()}
