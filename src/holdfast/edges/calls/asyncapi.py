"""The subjects, requests, replies and events of a service as an AsyncAPI 3 document.

    python -m holdfast.edges.calls.asyncapi > docs/reference/asyncapi.yaml

Law: everything about a verb comes from its declaration. This module describes in schemas how dialects change
requests and replies; `holdfast.wire.dialects` implements it, and a test compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.edges.calls import FAMILIES
from holdfast.edges.calls.schemas import (
    camel_schemas,
    envelopes,
    refusals,
    schemas_of,
)
from holdfast.edges.calls.table_replies import ItemChangeRecord
from holdfast.edges.calls.yaml import document_text
from holdfast.model import Change
from holdfast.pipeline.outage import Alert
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
    messages = {name: _ref("messages", name) for name in [*replies, *refusals()]}
    channels["replies"] = {
        "address": None,
        "description": "The reply subject of a request.",
        "messages": messages,
    }
    return channels


def _channel(address: str, parameters: dict[str, str], message: str) -> dict[str, Any]:
    told = {name: {"description": text} for name, text in parameters.items()}
    channel: dict[str, Any] = {"address": address, "messages": {message: _ref("messages", message)}}
    return channel | ({"parameters": told} if told else {})


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
    for name, schema in refusals().items():
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
    semantic = camel_schemas(schemas_of([*keys, Change]))
    return dict(sorted((envelopes() | plain | semantic).items()))


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


if __name__ == "__main__":
    print(document_text(document()), end="")
