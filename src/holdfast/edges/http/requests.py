"""Requests over HTTP: which namespace and verb a path stands for, and the fields of headers, query and body.

    GET, PUT, DELETE  /v1/{kv or blob}/{plugin}/{key}            /v1/semantic/{tenant}/{project}/{key}
    GET               /v1/{kv or blob}/{plugin}                  /v1/semantic/{tenant}/{project}
    POST              /v1/{kv, table or blob}/{plugin}:{verb}    /v1/semantic/{tenant}/{project}:{verb}
    POST              /v1/admin:{verb}

Every verb of the catalogue has the path of a POST, and no path is declared by hand for one of them. The other
methods are a second spelling of four verbs on keys and of five on blobs. A number that is none stays text, so
that the rules refuse it with the same words as at every other door.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import inspect

from holdfast import families, rules
from holdfast.edges.calls import FAMILIES, Verb
from holdfast.edges.calls.catalogue import Shape
from holdfast.errors import InvalidJson, InvalidSubject, ValidationError
from holdfast.wire.dialects import Dialect
from holdfast.wire.payload import decode, fields_of
from holdfast.wire.subjects import KNOWN_SUBJECTS, OPERATOR

ROOT: Final = "/v1/"
KEY_METHODS: Final = {"GET": "get", "HEAD": "get", "PUT": "set", "DELETE": "delete"}
"""The verbs of the methods on the path of a key."""
BLOB_METHODS: Final = {"GET": "get", "HEAD": "head", "PUT": "put", "DELETE": "delete"}
"""The verbs of the methods on the path of a blob."""
RESOURCES: Final = ("kv", "semantic", "blob")
"""The families whose keys have paths."""
LIST_METHODS: Final = {"GET": "list", "HEAD": "list"}
"""The verbs of the methods on the path of a namespace."""


class WrongMethod(InvalidSubject):
    """The path exists, but not for this method. `allowed` are the methods that it has."""

    allowed: str = ""


class PathOwner(msgspec.Struct, frozen=True, gc=False):
    """The namespace of a path. `owner` is a plugin, a `tenant/project`, or the operator."""

    family: str
    owner: str
    namespace: str
    root: str | None = None


class Target(msgspec.Struct, frozen=True, gc=False):
    """The meaning of a method and a path. `key` is None where the path names no key."""

    place: PathOwner
    name: str
    verb: Verb | None
    key: str | None = None


def target_of(method: str, path: bytes) -> Target:
    """Return the meaning of a method and a path, as sent.

    Raises:
        InvalidSubject: There is no such path, or it has no such method.
        InvalidPluginName: The plugin's name is illegal.
        ValidationError: The tenant's or the project's name is illegal, or the key is not UTF-8.
    """
    text = path.decode("ascii", "replace")
    family, _, rest = text.removeprefix(ROOT).partition("/")
    depth = 2 if family == "semantic" else 1
    parts = rest.split("/", depth)
    if len(parts) > depth:
        if family not in RESOURCES:
            raise InvalidSubject("the path has no known shape: only kv, semantic and blob have paths of keys")
        place = place_of(family, "/".join(parts[:depth]))
        name = _allowed(BLOB_METHODS if family == "blob" else KEY_METHODS, method)
        return Target(place, name, FAMILIES[family][name], _key(parts[depth]))
    owner, colon, verb = text.removeprefix(ROOT).partition(":")
    family, _, owner = owner.partition("/")
    place = place_of(family, owner)
    if colon:
        _allowed({"POST": verb}, method)
        return Target(place, verb, FAMILIES[family].get(verb))
    if family not in RESOURCES:
        raise InvalidSubject("the path has no known shape: name a verb after a colon")
    name = _allowed(LIST_METHODS, method)
    return Target(place, name, FAMILIES[family][name])


@lru_cache(maxsize=KNOWN_SUBJECTS)
def place_of(family: str, owner: str) -> PathOwner:
    """Return the namespace that a family and an owner name in a path.

    Raises:
        InvalidSubject: They have no known shape.
        InvalidPluginName: The plugin's name is illegal.
        ValidationError: The tenant's or the project's name is illegal.
    """
    match family, owner.split("/"):
        case (("kv" | "table" | "blob"), [plugin]):
            plugin = rules.plugin_name(unquote(plugin))
            return PathOwner(family, plugin, f"{family}/{plugin}")
        case "semantic", [tenant, project]:
            rules.tenant_part(tenant, field="tenant")
            rules.tenant_part(project, field="project")
            namespace = families.semantic(tenant, project)
            return PathOwner(family, f"{tenant}/{project}", namespace, rules.semantic_root(namespace))
        case "admin", [""]:
            return PathOwner(family, OPERATOR, "")
        case _:
            raise InvalidSubject("the path has no known shape; /openapi.json describes all that there are")


def _allowed(methods: dict[str, str], method: str) -> str:
    if method in methods:
        return methods[method]
    refusal = WrongMethod(f"this path answers {', '.join(methods)}, not {method[:20]}")
    refusal.allowed = ", ".join(methods)
    raise refusal


def _key(text: str) -> str:
    try:
        return unquote(text, errors="strict") if "%" in text else text
    except UnicodeDecodeError:
        raise ValidationError("the key in the path is not UTF-8", field="key") from None


HEADERS: Final = {
    b"holdfast-request-id": "request_id",
    b"holdfast-once": "once",
    b"holdfast-fence": "fence",
    b"holdfast-ttl": "ttl",
    b"holdfast-writer": "last_writer",
    b"holdfast-spec-ref": "spec_ref",
    b"holdfast-deadline": "deadline",
    b"holdfast-deadline-ms": "deadline_ms",
    b"if-match": "if_match",
    b"if-none-match": "if_none_match",
}
"""The headers that are fields of a call. The last two become `expected_version`."""
_NUMBERS: Final = frozenset({"ttl", "deadline", "deadline_ms"})
_TAG: Final = re.compile(r'"(0|[1-9][0-9]{0,18})"')
MOST_PARAMETERS: Final = 100
"""Maximum number of parameters in a query."""


class HttpDialect(Dialect, frozen=True, kw_only=True):
    """The spelling of one request: `outside` holds the fields outside its body.

    With `bare` the body is the value itself and not an object of fields. With `header` the body is bytes, and
    that header holds the fields. `shape` is that of the verb's fields.
    """

    outside: dict[str, Any]
    bare: bool = False
    header: bytes | None = None
    shape: Shape | None = None

    def fields(self, payload: bytes) -> dict[str, Any]:
        """Decode the fields of the request."""
        if self.bare:
            return {"value": decode(payload), **self.outside}
        fields = fields_of(payload) if self.header is None else fields_of(self.header) | {"data": payload}
        if self.shape is not None:
            self.shape.make_whole(fields)
        for name, field in self.outside.items():
            if fields.setdefault(name, field) != field:
                raise ValidationError(f"{name} in the body and outside of it differ", field=name)
        return fields


def header_fields(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    """Return the fields that headers give.

    Raises:
        ValidationError: A header occurs twice or is not UTF-8.
    """
    fields: dict[str, Any] = {}
    for header, said in headers:
        name = HEADERS.get(header)
        if name is None:
            continue
        if name in fields:
            raise ValidationError(f"the header {header.decode()} occurs twice", field=name)
        try:
            text = said.decode()
        except UnicodeDecodeError:
            raise ValidationError(f"the header {header.decode()} is not UTF-8", field=name) from None
        if name == "fence":
            fields[name] = _fence(text)
        else:
            fields[name] = int(text) if name in _NUMBERS and _decimal(text) else text
    if fields.get("ttl") == "keep":
        del fields["ttl"]
        fields["keep_ttl"] = True
    return fields


def _fence(text: str) -> Any:
    """Return the fence that a header gives as JSON. The rules judge what it has."""
    try:
        return decode(text.encode())
    except InvalidJson:
        raise ValidationError(
            'the header holdfast-fence must be JSON, such as {"lock": "a", "token": 7}', field="fence"
        ) from None


def expected_version(fields: dict[str, Any]) -> int | None:
    """Take `If-Match` and `If-None-Match` out of the fields, and return the version that they expect.

    Raises:
        ValidationError: They are not one version, or both are given.
    """
    match, none = fields.pop("if_match", None), fields.pop("if_none_match", None)
    if none is not None:
        if none != "*" or match is not None:
            raise ValidationError(
                "If-None-Match must be * for a write, without an If-Match", field="if_none_match"
            )
        return 0
    if match is None:
        return None
    tag = _TAG.fullmatch(match)
    if tag is None:
        raise ValidationError('If-Match must be one version in quotes, such as "7"', field="if_match")
    return int(tag[1])


def tagged(version: int) -> str:
    """Return the entity tag of a version."""
    return f'"{version}"'


def query_fields(verb: Verb, query: bytes) -> dict[str, Any]:
    """Return the parameters of a query as the fields of a verb.

    Raises:
        ValidationError: The query is not UTF-8, or has too many parameters.
    """
    if not query:
        return {}
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS
        )
    except ValueError:
        raise ValidationError(
            f"the query must be UTF-8 with at most {MOST_PARAMETERS} parameters", field="query"
        ) from None
    kinds = _kinds(verb.fields)
    return {name: _read(kinds.get(name), text) for name, text in pairs}


def _read(kind: str | None, text: str) -> Any:
    if kind == "integer" and _decimal(text):
        return int(text)
    if kind == "boolean":
        return {"true": True, "": True, "false": False}.get(text, text)
    return text


def _decimal(text: str) -> bool:
    return len(text) <= 20 and text.isascii() and text.isdecimal()


@cache
def _kinds(struct: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return which fields of a struct are integers and booleans."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: _kind(field.type) for field in info.fields}


def _kind(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata(type=inner):
            return _kind(inner)
        case inspect.UnionType(types=types):
            return next((name for one in types if (name := _kind(one))), "")
        case inspect.IntType():
            return "integer"
        case inspect.BoolType():
            return "boolean"
        case _:
            return ""
