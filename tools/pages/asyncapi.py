"""The subjects, requests, replies and events of a service as an AsyncAPI 3 document.

Everything about a verb comes from its declaration. How dialects change requests and replies is described here
in schemas; `holdfast.wire.dialects` implements it, and a test compares the two.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from holdfast.edges.calls import FAMILIES
from holdfast.edges.calls.schemas import schemas_of
from holdfast.errors import error_classes
from holdfast.forms import SCHEMAS
from holdfast.model import Change
from holdfast.pipeline.outage import Alert
from holdfast.tables.replies import ItemChangeRecord
from holdfast.wire.dialects import SEMANTIC
from holdfast.wire.subjects import FAMILIES as SUBJECTS
from holdfast.wire.subjects import QUEUE

if TYPE_CHECKING:
    from holdfast.edges.calls.catalogue import Verb

VERSION: Final = "1.0.0"
"""The version of the protocol. It changes when clients of an older version can no longer be served."""
_PLUGIN: Final = {"plugin": "The name of the plugin."}
_TENANT: Final = {"tenant": "The name of the tenant.", "project": "The name of the tenant's project."}
_OP: Final = {"op": "The kind of change: `set`, `deleted`, `expired`, `restored` or `escalated`."}
_ADDRESSES: Final = {
    "kv": ("db.kv.{plugin}.", _PLUGIN),
    "payload": ("db.kv.", {}),
    "semantic": ("db.semantic.{tenant}.{project}.", _TENANT),
    "table": ("db.table.{plugin}.", _PLUGIN),
    "blob": ("db.blob.{plugin}.", _PLUGIN),
    "admin": ("db.admin.", {}),
}
_EVENTS: Final = {
    "event_kv": ("db.event.kv.{plugin}.{op}", _PLUGIN | _OP, "Change"),
    "event_semantic": ("db.event.semantic.{tenant}.{project}.{op}", _TENANT | _OP, "SemanticChange"),
    "event_table": ("db.event.table.{plugin}.{op}", _PLUGIN | _OP, "ItemChangeRecord"),
    "event_blob": ("db.event.blob.{plugin}.{op}", _PLUGIN | _OP, "Change"),
    "event_service": ("db.event.service.unavailable", {}, "Alert"),
}
"""The events that a service publishes: the address, its parameters, and the schema of the message."""
_TOLD: Final = {"event_service": "Tell that the storage has taken no write for five minutes, once an outage."}
_DESCRIPTION: Final = (
    "A key-value store with versions, expiry, watches and tables. Requests are JSON objects, and each is "
    "answered at its reply subject. Subjects begin with `db` unless the service has other prefixes. The "
    "discovery subjects that every NATS service has are not listed."
)


def document() -> dict[str, Any]:
    """Return the document."""
    assert set(_ADDRESSES) == set(SUBJECTS) == set(FAMILIES)
    calls = [(family, verb) for family in _ADDRESSES for verb in FAMILIES[family].values()]
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Holdfast", "version": VERSION, "description": _DESCRIPTION},
        "servers": {"local": {"host": "localhost:4222", "protocol": "nats"}},
        "defaultContentType": "application/json",
        "channels": _channels(calls),
        "operations": _operations(calls),
        "components": {"messages": _messages(calls), "schemas": _schemas()},
    }


def text() -> str:
    """Return the document as YAML."""
    content = json.loads(json.dumps(document()))  # a copy without shared parts, which YAML would abbreviate
    return yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=110)


def _channels(calls: list[tuple[str, Verb]]) -> dict[str, Any]:
    channels: dict[str, Any] = {}
    for family, verb in calls:
        start, parameters = _ADDRESSES[family]
        channels[_id(family, verb)] = _channel(
            f"{start}{_spelled(family, verb)}", parameters, _id(family, verb, "request")
        )
    for name, (address, parameters, _) in _EVENTS.items():
        channels[name] = _channel(address, parameters, name)
    channels["ready"] = _channel("db.ready", {}, "admin_ready_request")
    replies = [_id(family, verb, "reply") for family, verb in calls]
    messages = {name: _ref("messages", name) for name in [*replies, *_refusals()]}
    channels["replies"] = {
        "address": None,
        "description": "The reply subject of a request.",
        "messages": messages,
    }
    return channels


def _channel(address: str, parameters: dict[str, str], message: str) -> dict[str, Any]:
    described = {name: {"description": meaning} for name, meaning in parameters.items()}
    channel: dict[str, Any] = {"address": address, "messages": {message: _ref("messages", message)}}
    return channel | ({"parameters": described} if described else {})


def _operations(calls: list[tuple[str, Verb]]) -> dict[str, Any]:
    operations = {_id(family, verb): _operation(family, verb) for family, verb in calls}
    ready = operations["admin_ready"]
    operations["ready"] = ready | {"channel": {"$ref": "#/channels/ready"}}
    for name in _EVENTS:
        operations[name] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{name}"},
            "summary": _TOLD.get(name, "Tell of a change after its commit, at most once."),
        }
    return operations


def _operation(family: str, verb: Verb) -> dict[str, Any]:
    replies = [_id(family, verb, "reply"), _refusal(family)]
    return {
        "action": "receive",
        "channel": {"$ref": f"#/channels/{_id(family, verb)}"},
        "summary": verb.help,
        "bindings": {"nats": {"queue": QUEUE}},
        "reply": {
            "channel": {"$ref": "#/channels/replies"},
            "messages": [{"$ref": f"#/channels/replies/messages/{name}"} for name in replies],
        },
        "x-writes": verb.writes,
        "x-destroys": verb.destroys,
    }


def _messages(calls: list[tuple[str, Verb]]) -> dict[str, Any]:
    messages: dict[str, Any] = {}
    for family, verb in calls:
        fields, reply = _request(family, verb), _reply(family, verb)
        messages[_id(family, verb, "request")] = {"payload": fields}
        messages[_id(family, verb, "reply")] = {"headers": _schema("ReplyHeaders"), "payload": reply}
    for name, schema in _refusals().items():
        messages[name] = {"headers": _schema("RefusalHeaders"), "payload": _schema(schema)}
    for name, (_, _, schema) in _EVENTS.items():
        messages[name] = {"payload": _schema(schema)}
    return messages


def _request(family: str, verb: Verb) -> dict[str, Any]:
    fields = _schema(_named(family, verb.fields))
    return {"allOf": [_schema("PluginName"), fields]} if family == "payload" else fields


def _reply(family: str, verb: Verb) -> dict[str, Any]:
    reply, success = _schema(_named(family, verb.reply)), _schema("Success")
    if family != "payload":
        return {"allOf": [success, reply]}
    nested = {"type": "object", "properties": {"data": reply}, "required": ["data"]}
    return {"allOf": [success, nested]}


def _schemas() -> dict[str, Any]:
    structs = [struct for verbs in FAMILIES.values() for verb in verbs.values() for struct in _structs(verb)]
    plain = schemas_of([*structs, Change, ItemChangeRecord, Alert])
    keys = [struct for verb in FAMILIES["semantic"].values() for struct in _structs(verb)]
    semantic = _camel_schemas(schemas_of([*keys, Change]))
    return dict(sorted((_envelopes() | plain | semantic).items()))


def _structs(verb: Verb) -> tuple[type[msgspec.Struct], type[msgspec.Struct]]:
    return verb.fields, verb.reply


def _named(family: str, struct: type[msgspec.Struct]) -> str:
    return f"{'Semantic' if family == 'semantic' else ''}{struct.__name__}"


def _spelled(family: str, verb: Verb) -> str:
    return "put" if family == SEMANTIC.name and verb.name == "set" else verb.name


def _refusal(family: str) -> str:
    return {"payload": "payload_refusal", "semantic": "semantic_refusal"}.get(family, "refusal")


def _id(family: str, verb: Verb, part: str = "") -> str:
    return "_".join(filter(None, (family, verb.name, part)))


def _ref(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}


def _schema(name: str) -> dict[str, str]:
    return _ref("schemas", name)


def _camel_schemas(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the same schemas in the spelling of the semantic dialect, each named `Semantic…`."""
    return {f"Semantic{name}": _camel(schema) for name, schema in schemas.items()}


def _camel(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_camel(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _camel_part(name, part) for name, part in schema.items()}


def _camel_part(name: str, part: Any) -> Any:
    match name:
        case "properties":
            return {SEMANTIC.spelled(field): _camel(content) for field, content in part.items()}
        case "required":
            return [SEMANTIC.spelled(field) for field in part]
        case "$ref":
            return part.replace(SCHEMAS, f"{SCHEMAS}Semantic")
        case _:
            return _camel(part)


def _refusals() -> dict[str, str]:
    """Return the messages that refuse a request, and the schemas of their payloads."""
    return {
        "refusal": "Refusal",
        "payload_refusal": "PayloadRefusal",
        "semantic_refusal": "SemanticRefusal",
    }


def _envelopes() -> dict[str, Any]:
    """Return the schemas of the envelopes around a verb's fields."""
    codes = [error.code for error in error_classes()]
    text = {"type": "string"}
    time = {"type": "string", "description": "The service's time in milliseconds since 1970."}
    warned = {"type": "string", "description": "Names fields that the verb does not know."}
    headers = {"Holdfast-Time": time, "Holdfast-Warning": warned}
    refused = _refused("error_code", codes)
    nested = _refused("code", codes)
    return {
        "PluginName": _object({"plugin_name": text}, "plugin_name"),
        "Success": _object({"success": {"const": True}}, "success"),
        "ReplyHeaders": _object(headers),
        "RefusalHeaders": _object(
            headers
            | {
                "Nats-Service-Error": text | {"description": "The message."},
                "Nats-Service-Error-Code": text | {"description": "A number, as NATS services have it."},
                "Holdfast-Error-Code": {"enum": codes},
            }
        ),
        "Refusal": _object({"success": {"const": False}, **refused}, "success", *_REQUIRED, "error_code"),
        "PayloadRefusal": _object(
            {"success": {"const": False}, "error": _object(nested, "code", *_REQUIRED)}, "success", "error"
        ),
        "SemanticRefusal": _camel(
            _object(
                {"success": {"const": False}, **_refused("error_code", [code.lower() for code in codes])},
                "success",
                *_REQUIRED,
                "error_code",
            )
        ),
    }


_REQUIRED: Final = ("message", "retryable")


def _refused(code: str, codes: list[str]) -> dict[str, Any]:
    anything = {"type": ["object", "null"], "description": "What is there instead of what was expected."}
    return {
        code: {"enum": codes},
        "message": {"type": "string", "description": "What was wrong and what to do."},
        "retryable": {"type": "boolean", "description": "Whether the same request may succeed later."},
        "field": {"type": "string", "description": "The field that was wrong."},
        "retry_after": {"type": "number", "description": "Seconds to wait before a retry."},
        "reason": {"type": "string", "description": "Why a version conflicts."},
        "current": anything,
        "conflicts": {"type": "array", "items": {"type": "object"}, "description": "All that failed."},
    }


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return schema | ({"required": list(required)} if required else {})
