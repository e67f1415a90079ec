"""The paths of the HTTP door: which namespace and verb a method and a path stand for.

    GET, PUT, DELETE  /v1/{kv or blob}/{plugin}/{key}            /v1/semantic/{tenant}/{project}/{key}
    GET               /v1/{kv or blob}/{plugin}                  /v1/semantic/{tenant}/{project}
    POST              /v1/{kv, table or blob}/{plugin}:{verb}    /v1/semantic/{tenant}/{project}:{verb}
    POST              /v1/admin:{verb}

Law: every verb of the catalogue has the path of a POST, and no path is declared by hand for one of them. The
other methods are a second spelling of four verbs on keys and of five on blobs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import msgspec

from holdfast import families, rules
from holdfast.edges.calls import FAMILIES
from holdfast.errors import InvalidSubject, ValidationError
from holdfast.wire.subjects import KNOWN_SUBJECTS, OPERATOR

if TYPE_CHECKING:
    from holdfast.edges.calls import Verb

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


class Found(msgspec.Struct, frozen=True, gc=False):
    """The meaning of a method and a path. `key` is None where the path names no key."""

    place: PathOwner
    name: str
    verb: Verb | None
    key: str | None = None


def found(method: str, path: bytes) -> Found:
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
        return Found(place, name, FAMILIES[family][name], _key(parts[depth]))
    owner, colon, verb = text.removeprefix(ROOT).partition(":")
    family, _, owner = owner.partition("/")
    place = place_of(family, owner)
    if colon:
        _allowed({"POST": verb}, method)
        return Found(place, verb, FAMILIES[family].get(verb))
    if family not in RESOURCES:
        raise InvalidSubject("the path has no known shape: name a verb after a colon")
    name = _allowed(LIST_METHODS, method)
    return Found(place, name, FAMILIES[family][name])


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
