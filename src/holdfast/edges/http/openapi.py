"""The HTTP door as an OpenAPI 3.1 document, served at `/openapi.json`.

    python -m holdfast.edges.http.openapi > openapi.json

Everything about a verb comes from its declaration. Only the second spelling of a few verbs, with a key in the
path, is described here. The document is the same whenever and wherever it is served.

Where two spellings of a field exclude each other, or one of them is a time, which no schema can bound, only
the other one has a schema, and its description names the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec

import holdfast
from holdfast import rules
from holdfast.edges.calls import FAMILIES
from holdfast.edges.calls.schemas import schemas_of
from holdfast.edges.http.requests import RESOURCES
from holdfast.errors import error_classes
from holdfast.forms import COMPONENTS, PLUGIN, RULES, SCHEMAS, TENANT, UNSAID, FenceFields, unsaid
from holdfast.model import Change
from holdfast.replies import DeletedReply, EntryReply, ListReply, StoredReply

PATH: Final = "/openapi.json"
_PLUGIN: Final = {"plugin": ("The name of the plugin.", PLUGIN)}
_TENANT: Final = {
    "tenant": ("The name of the tenant.", TENANT),
    "project": ("The name of the tenant's project.", TENANT),
}
_LONGEST_KEY: Final = rules.MAX_SEMANTIC_KEY_CHARACTERS - len("tenant/t/project/p/")
_FULL: Final = unsaid(
    f"a `key` that has more than {rules.MAX_SEMANTIC_KEY_CHARACTERS} characters in full, with "
    "`tenant/<tenant>/project/<project>/` before it"
)
_KEY: Final = {"pattern": COMPONENTS, "maxLength": _LONGEST_KEY, **_FULL}
_LOG: Final = {
    "pattern": COMPONENTS,
    "maxLength": _LONGEST_KEY - len(rules.item_key("", 1)),
    **unsaid(
        "a log, by its `name` or as `append` in a batch, whose items have keys of more than "
        f"{rules.MAX_SEMANTIC_KEY_CHARACTERS} characters in full"
    ),
}
_KEYED: Final = {"items": {"properties": {"key": _KEY}}}
_WRITES: Final = {"items": {"properties": {"key": _KEY, "append": _LOG}}}
_OF_KEYS: Final[dict[str, Any]] = {
    "key": _KEY,
    "name": _LOG,
    "checks": _KEYED,
    "writes": _WRITES,
    "items": _KEYED,
}
_IN_A_PROJECT: Final = {
    **_OF_KEYS,
    "prefix": {"pattern": r"^(?!tenant/)[^\x00]*$", "maxLength": _LONGEST_KEY},
    "request": {"properties": _OF_KEYS},
}
"""What holds for keys of projects beside what holds for all keys: they are short, and made of components."""
PATHS: Final = {
    "kv": ("/v1/kv/{plugin}", _PLUGIN),
    "semantic": ("/v1/semantic/{tenant}/{project}", _TENANT),
    "table": ("/v1/table/{plugin}", _PLUGIN),
    "blob": ("/v1/blob/{plugin}", _PLUGIN),
    "admin": ("/v1/admin", {}),
}
"""The path of each family, and the parameters in it, with their patterns."""
_LONGEST: Final = {"plugin": 100, "tenant": 63, "project": 63, "key": rules.MAX_KEY_CHARACTERS}
_TAGS: Final = {
    "kv": "Keys of a plugin",
    "semantic": "Keys of a tenant's project",
    "table": "Tables of a plugin",
    "blob": "Blobs of a plugin",
    "admin": "Verbs for operators",
}
_DESCRIPTION: Final = (
    "A key-value store with versions, expiry, watches, tables and blobs. Every verb is a POST of its fields. "
    "A key is also a resource: its value is the body, and its version the entity tag. So is a blob, whose "
    "body is its bytes."
)
_VERSION: Final = r'^"(0|[1-9][0-9]{0,17})"$'
_PRINTED: Final = "^[!-~]([ -~]{0,198}[!-~])?$"
_IF_MATCH: Final = (
    "If-Match",
    'Write only if the entry has this version, in quotes, "0" for no entry; else 412. Instead of "0", '
    "`If-None-Match: *` is accepted too.",
    _VERSION,
)
_KNOWN: Final = (
    "If-None-Match",
    "The entity tag of a known version; 304 if it is still current.",
    _VERSION,
)
_REQUEST_ID: Final = (
    "Holdfast-Request-Id",
    "Names the request: sent again, it has no second effect.",
    _PRINTED,
)
_ONCE: Final = (
    "Holdfast-Once",
    "Names what the caller intends: a known id gets the first answer, whatever else the request says.",
    _PRINTED,
)
_FENCE: Final = ("Holdfast-Fence", "The lock that the write relies on; 409 if it is lost.")
_WRITER: Final = ("Holdfast-Writer", "Who writes; the plugin or project if not given.", _PRINTED)
_TTL: Final = (
    "Holdfast-TTL",
    "The time to live in seconds; none if not given. The word `keep` is accepted too: it keeps the present "
    "one.",
    # Generators of clients refuse a header that is either a number or a word.
    {"type": "integer", "minimum": 1, "maximum": rules.MAX_TTL},
)
_DEADLINE: Final = (
    "Holdfast-Deadline-Ms",
    "Milliseconds after which a request that waits is refused. Few are likely to be too few.",
    {"type": "integer", "minimum": 1_000, "maximum": 9_999_999_999},
)
_METADATA: Final = ("Holdfast-Metadata", "The metadata: a JSON object whose members are texts.")
_CHECKSUM: Final = ("Holdfast-Checksum", "The checksum of the blob; bytes with another one are refused.")
_DEADLINE_MS: Final = {
    "description": "The milliseconds after which a request that still waits is answered with `TIMEOUT`. "
    "Fewer are accepted too, and are likely to be too few. So is a `deadline`, the time itself in "
    "milliseconds since 1970 by the service's clock.",
    "minimum": _DEADLINE[2]["minimum"],
}
_REFUSED: Final = ("400", "401", "403", "404", "408", "409", "413", "429", "503")
"""The statuses of refusals that every verb may have."""
_BYTES: Final[dict[str, Any]] = {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
}
_NOT_IN_QUERIES: Final = frozenset({"deadline", "deadline_ms"})


def document() -> dict[str, Any]:
    """Return the document."""
    schemas = _schemas()
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": holdfast.__version__, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "tags": [{"name": name, "description": said} for name, said in _TAGS.items()],
        "paths": dict(_resources()) | dict(_verbs(schemas)),
        "components": {
            "schemas": schemas,
            "responses": {"Problem": _problem()},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token that `holdfast token create` made. In open mode processes of the "
                    "service's machine need none.",
                }
            },
        },
    }


@cache
def document_bytes() -> bytes:
    """Return the document as JSON."""
    return msgspec.json.encode(document())


def _verbs(schemas: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for family, (path, parameters) in PATHS.items():
        for verb in FAMILIES[family].values():
            # Bytes are the body of the reply; if there are none, it is JSON that says so.
            content = _json(_schema(verb.reply))
            if "data" in verb.reply.__struct_fields__:
                content |= _BYTES
            operation = _operation(family, verb.name, verb.help, content)
            needed = any(field.required for field in msgspec.structs.fields(verb.fields)) or (
                verb.fields.__name__ in RULES
            )
            fields = _schema(verb.fields, of_project=family == "semantic")
            _tell(operation, sorted(set(_unsaid(fields, schemas))))
            operation["requestBody"] = {"required": needed, "content": _json(fields)}
            operation |= {"x-writes": verb.writes, "x-destroys": verb.destroys}
            yield f"{path}:{verb.name}", _path(parameters) | {"post": operation}


def _resources() -> Iterator[tuple[str, dict[str, Any]]]:
    for family in RESOURCES:
        path, parameters = PATHS[family]
        pattern = COMPONENTS if family == "semantic" else r"^[^\x00]+$"
        key = {"key": ("The key or name, percent-encoded. It may contain slashes.", pattern)}
        methods = _of_a_blob() if family == "blob" else _of_a_key(family)
        if family == "semantic":
            for operation in methods.values():
                _tell(operation, [_FULL[UNSAID]])
        yield f"{path}/{{key}}", _path(parameters | key) | methods
        yield path, _path(parameters) | {"get": _listing(family)}


def _of_a_key(family: str) -> dict[str, Any]:
    verbs = FAMILIES[family]
    get = _operation(family, "get_value", verbs["get"].help, _json({}))
    get["parameters"] = [
        _query("entry", {"type": "boolean"}, "Return the whole entry instead of its value."),
        _header(*_KNOWN),
        _header(*_DEADLINE),
    ]
    get["responses"]["200"]["headers"] = _tag()
    get["responses"]["304"] = {"description": "The caller has the current version.", "headers": _tag()}
    put = _operation(family, "put_value", verbs["set"].help, _json(_schema(StoredReply)))
    put["requestBody"] = {"required": True, "content": _json({}), "description": "The value, any JSON."}
    conditions = _conditions()
    put["parameters"] = [_header(*_TTL), *conditions]
    put["responses"]["200"]["headers"] = _tag()
    delete = _operation(family, "delete_value", verbs["delete"].help, _json(_schema(DeletedReply)))
    delete["parameters"] = conditions
    for one in (put, delete):
        one["responses"]["412"] = {"$ref": "#/components/responses/Problem"}
    return {"get": get, "put": put, "delete": delete}


def _conditions() -> list[dict[str, Any]]:
    """Return the headers of a write."""
    name, description = _FENCE
    fence = {"name": name, "in": "header", "description": description, "content": _json(_schema(FenceFields))}
    return [*(_header(*one) for one in (_IF_MATCH, _REQUEST_ID, _ONCE, _WRITER, _DEADLINE)), fence]


def _of_a_blob() -> dict[str, Any]:
    put = _operation("blob", "put_bytes", "Put a blob of any size.", _json(_schema(StoredReply)))
    text = "The bytes. If `Holdfast-Checksum` names another checksum than theirs, they are refused."
    put["requestBody"] = {"required": True, "content": _BYTES, "description": text}
    conditions = _conditions()
    put["parameters"] = [_header(*_TTL), _told_header(*_METADATA), *conditions]
    put["responses"]["200"]["headers"] = _tag()
    help = FAMILIES["blob"]["delete"].help
    delete = _operation("blob", "delete_bytes", help, _json(_schema(DeletedReply)))
    delete["parameters"] = conditions
    for one in (put, delete):
        one["responses"]["412"] = {"$ref": "#/components/responses/Problem"}
    return {"get": _get_bytes(), "put": put, "delete": delete}


def _get_bytes() -> dict[str, Any]:
    get = _operation("blob", "get_bytes", "Return the bytes of a blob, or a range of them.", _BYTES)
    get["parameters"] = [
        _header(
            "Range", "One range of bytes, such as bytes=0-99.", "^bytes=([0-9]{1,9}-[0-9]{0,9}|-[0-9]{1,9})$"
        ),
        _header("If-Range", "Apply the range only to this version, in quotes.", _VERSION),
        _header(*_KNOWN),
        _header(*_DEADLINE),
    ]
    headers = {
        name: {"description": said, "schema": {"type": "string"}} for name, said in (_METADATA, _CHECKSUM)
    }
    get["responses"]["200"]["headers"] = _tag() | headers
    get["responses"] |= {
        "206": {"description": "The range.", "content": _BYTES, "headers": _tag() | headers},
        "304": {"description": "The caller has the current version.", "headers": _tag()},
        "416": {"$ref": "#/components/responses/Problem"},
    }
    return get


def _listing(family: str) -> dict[str, Any]:
    listing = _operation(family, "list_keys", FAMILIES[family]["list"].help, _json(_schema(ListReply)))
    fields = schemas_of([FAMILIES[family]["list"].fields])["ListFields"]["properties"]
    listing["parameters"] = [
        _query(name, {key: part for key, part in about.items() if key != "description"}, about["description"])
        for name, about in fields.items()
        if name not in _NOT_IN_QUERIES
    ]
    _tell(listing, sorted(_unsaid(fields, {})))
    listing["description"] = (
        "A page that is not the last has a `Link` to the next one. With the parameter `watch` the response "
        "is a stream of server-sent events instead, whose ids are versions and whose data is a `Change`; "
        "`Last-Event-ID` resumes it."
    )
    return listing


def _operation(family: str, name: str, summary: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": f"{family}_{name}",
        "tags": [family],
        "summary": summary,
        "responses": {
            "200": {"description": "Done.", "content": content},
            **{status: {"$ref": "#/components/responses/Problem"} for status in _REFUSED},
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }


def _path(parameters: dict[str, tuple[str, str]]) -> dict[str, Any]:
    listed = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": said,
            "schema": {"type": "string", "pattern": pattern, "minLength": 1, "maxLength": _LONGEST[name]},
        }
        for name, (said, pattern) in parameters.items()
    ]
    return {"parameters": listed} if listed else {}


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _header(name: str, description: str, said: str | dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a header: any text, text of a pattern, or what a schema says."""
    pattern = {"pattern": said} if isinstance(said, str) else {}
    schema = said if isinstance(said, dict) else {"type": "string", **pattern}
    return {"name": name, "in": "header", "description": description, "schema": schema}


def _told_header(name: str, description: str) -> dict[str, Any]:
    """Return a header that holds an object of texts as JSON."""
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    return {"name": name, "in": "header", "description": description, "content": _json(texts)}


def _tag() -> dict[str, Any]:
    return {"ETag": {"description": "The version, in quotes.", "schema": {"type": "string"}}}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _schema(struct: type[msgspec.Struct], *, of_project: bool = False) -> dict[str, Any]:
    named = {"$ref": f"{SCHEMAS}{struct.__name__}"}
    own = {name: rule for name, rule in _IN_A_PROJECT.items() if name in struct.__struct_fields__}
    return named | ({"properties": own} if of_project and own else {})


def _problem() -> dict[str, Any]:
    return {
        "description": "The request was refused or failed.",
        "content": {"application/problem+json": {"schema": {"$ref": f"{SCHEMAS}Problem"}}},
    }


def _schemas() -> dict[str, Any]:
    verbs = [verb for family in PATHS for verb in FAMILIES[family].values()]
    structs = [struct for verb in verbs for struct in (verb.fields, verb.reply)]
    schemas = schemas_of([*structs, EntryReply, Change]) | {"Problem": _problem_schema()}
    return {name: _with_milliseconds(_explicit(schema)) for name, schema in sorted(schemas.items())}


def _with_milliseconds(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in which deadlines are given in milliseconds from now."""
    fields = schema.get("properties", {})
    if fields.pop("deadline", None) is not None:
        fields["deadline_ms"] |= _DEADLINE_MS
    return schema


def _unsaid(schema: Any, schemas: dict[str, Any], seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the rules that the schema of a request names but can't express."""
    if isinstance(schema, list):
        for member in schema:
            yield from _unsaid(member, schemas, seen)
    elif isinstance(schema, dict):
        for name, part in schema.items():
            if name == UNSAID:
                yield part
            elif name != "$ref":
                yield from _unsaid(part, schemas, seen)
            elif part not in seen:
                yield from _unsaid(schemas[part.removeprefix(SCHEMAS)], schemas, seen | {part})


def _tell(operation: dict[str, Any], refused: list[str]) -> None:
    """Name in an operation what is refused although it follows the schemas."""
    if refused:
        said = "The request was refused. Beside what the schemas forbid these are illegal: "
        operation["responses"]["400"] = _problem() | {"description": f"{said}{'; '.join(refused)}."}


def _explicit(schema: Any) -> Any:
    """Return a schema that says what generators of clients need: the type of booleans and of members."""
    if isinstance(schema, list):
        return [_explicit(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    said = {name: _explicit(part) for name, part in schema.items()}
    if said.get("type") == "array" and "items" not in said:
        said["items"] = {}
    if said.get("enum") == [True]:
        del said["enum"]
        said |= {"type": "boolean", "const": True}
    return said


def _problem_schema() -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        "description": "An error, as a problem document of RFC 9457.",
        "required": ["type", "title", "status", "detail", "code", "retryable"],
        "properties": {
            "type": text | {"description": "A name for this kind of error."},
            "title": text,
            "status": {"type": "integer", "description": "The status of the response."},
            "detail": text | {"description": "What was wrong and what to do."},
            "code": {"type": "string", "enum": sorted(error.code for error in error_classes())},
            "retryable": {"type": "boolean", "description": "Whether the same request may succeed later."},
            "field": text | {"description": "The field that was wrong."},
            "retry_after": {"type": "number", "description": "Seconds to wait before a retry."},
            "reason": text | {"description": "Why a version conflicts."},
            "current": {"description": "What is there instead of what was expected."},
            "conflicts": {"type": "array", "items": {"type": "object"}, "description": "All that failed."},
        },
    }


if __name__ == "__main__":
    print(json.dumps(document(), indent=2))
