"""The AsyncAPI document is valid, complete, and true of what goes over the wire."""

from __future__ import annotations

import copy
import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from holdfast.edges.calls import FAMILIES
from holdfast.errors import VersionConflict
from holdfast.wire.dialects import ADMIN, PAYLOAD, PLUGIN, SEMANTIC
from tests.edges.calls.script import SCRIPT
from tests.edges.calls.test_catalogue import filled, served, subject
from tests.edges.nats.ground import calling, serving
from tests.edges.nats.test_events import Ear
from tools.pages import asyncapi

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.edges.nats.server import NatsServer

PAGE: Final = Path(__file__).resolve().parents[3] / "docs/reference/asyncapi.yaml"
DIALECTS: Final = {
    **{"kv": PLUGIN, "payload": PAYLOAD, "semantic": SEMANTIC, "table": PLUGIN, "blob": PLUGIN},
    "admin": ADMIN,
}
document: Final = functools.cache(asyncapi.document)
"""Makes the document once, since nothing here changes it."""


def test_the_document_is_made_from_the_catalogue() -> None:
    """The file reads as what it was made of."""
    assert yaml.load(PAGE.read_text(encoding="utf-8"), yaml.CSafeLoader) == document()


def test_a_validator_accepts_the_document() -> None:
    """A validator of AsyncAPI 3 finds nothing wrong, and does find what is wrong."""
    wrong = copy.deepcopy(document())
    wrong["operations"]["kv_get"]["action"] = "get"
    right, told = _complaints(document(), wrong)
    assert right == ""
    assert "send" in told


VALIDATE = """
import json, sys
from asyncapi3 import AsyncAPI3

def complaint(content):
    try:
        AsyncAPI3.model_validate(content)
    except ValueError as error:
        return str(error)
    return ""

print(json.dumps([complaint(content) for content in json.load(sys.stdin)]))
"""


def _complaints(*contents: Any) -> list[str]:
    """Return what the validator says, run apart: cyclopts would use the pydantic that it imports."""
    words = [sys.executable, "-W", "ignore", "-c", VALIDATE]
    done = subprocess.run(words, input=json.dumps(contents), capture_output=True, text=True, check=True)
    told: list[str] = json.loads(done.stdout)
    return told


def references(part: Any) -> Iterator[str]:
    """Every reference in a part of the document."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for member in part.values():
            yield from references(member)
    elif isinstance(part, list):
        for member in part:
            yield from references(member)


def resolved(whole: dict[str, Any], reference: str) -> Any:
    """The part of the document that a reference leads to."""
    part: Any = whole
    for name in reference.removeprefix("#/").split("/"):
        part = part[name]
    return part


def test_references_lead_somewhere() -> None:
    """Every reference leads to a part of the document, and every schema and message is used."""
    whole = document()
    found = set(references(whole))
    for reference in found:
        assert resolved(whole, reference) is not None
    for kind in ("schemas", "messages"):
        for name in whole["components"][kind]:
            assert f"#/components/{kind}/{name}" in found


def test_every_verb_is_described() -> None:
    """Every verb of every family has a channel and an operation, which say whether it writes or destroys."""
    whole = document()
    for family, verbs in FAMILIES.items():
        for verb in verbs.values():
            told = whole["operations"][f"{family}_{verb.name}"]
            assert (told["x-writes"], told["x-destroys"]) == (verb.writes, verb.destroys)
            address = whole["channels"][f"{family}_{verb.name}"]["address"]
            assert address.endswith(".put" if (family, verb.name) == ("semantic", "set") else f".{verb.name}")


def require_described(whole: dict[str, Any], schemas: list[Any], content: Any, where: str) -> None:
    """Fail unless an object has all the names that schemas together require, and no other than they know."""
    known: dict[str, Any] = {}
    required: set[str] = set()
    patterns: dict[str, Any] = {}
    pending = [(schema, True) for schema in schemas]
    while pending:
        schema, certain = pending.pop()
        if "$ref" in schema:
            pending.append((resolved(whole, schema["$ref"]), certain))
        pending += [(part, certain) for part in schema.get("allOf", [])]
        pending += [(part, False) for part in schema.get("anyOf", [])]  # one of them holds
        known |= {name: part for name, part in schema.get("properties", {}).items() if part.get("not") != {}}
        required |= set(schema.get("required", []) if certain else [])
        patterns |= schema.get("patternProperties", {})
        if "items" in schema and isinstance(content, list):
            for member in content:
                require_described(whole, [schema["items"]], member, f"{where}[]")
    if known and isinstance(content, dict) and not where.endswith("results[]"):
        assert required <= content.keys(), where
        for pattern, part in patterns.items():
            known |= {name: part for name in content if name not in known and re.search(pattern, name)}
        assert content.keys() <= known.keys(), where
        for name, member in content.items():
            require_described(whole, [known[name]], member, f"{where}.{name}")


async def test_messages_are_as_described(nats_server: NatsServer, tmp_path: Path) -> None:
    """What is sent and answered in each dialect has the names that the document says, at every depth."""
    whole, letter = document(), 0
    messages = whole["components"]["messages"]
    async with served(nats_server, tmp_path) as caller:
        for family, verb, told in SCRIPT:
            fields = filled(told, path=str(tmp_path / "copy"), letter=letter)
            fields = {name: field for name, field in fields.items() if field is not None or name == "value"}
            reply = await caller.ask(subject(family, verb), fields)
            assert reply.pop("success") is True
            letter = reply["letter"] if verb == "escalate" else letter
            for kind in ("kv", "payload", "semantic") if family == "kv" else (family,):
                dialect, name = DIALECTS[kind], f"{kind}_{verb}"
                named = {"plugin_name": "trivia"} if kind == "payload" else {}
                sent = json.loads(dialect.request(fields | named))
                if verb != "set_many":  # one of its items is refused on purpose
                    require_described(whole, [messages[f"{name}_request"]["payload"]], sent, name)
                answer = json.loads(dialect.reply(reply))
                require_described(whole, [messages[f"{name}_reply"]["payload"]], answer, name)


async def test_events_are_as_described(nats_server: NatsServer) -> None:
    """What is published after a commit comes at the address and with the names that the document says."""
    whole, ear = document(), Ear()
    async with serving(nats_server.url) as running, calling(nats_server.url) as caller:
        await ear.listen(caller, "db.event.>")
        await running.store.kv("trivia").set("k", 1)
        await running.store.semantic("acme", "web").set("k", 1, semantics={"purpose": "cache"})
        tables = running.store.tables("trivia")
        await tables.create_table("t", partition_key=("id", "string"), sort_key=("at", "number"))
        await tables.put_item("t", {"id": "a", "at": 1})
        for name in ("event_kv", "event_semantic", "event_table"):
            subject, content = await ear.next()
            address = whole["channels"][name]["address"]
            assert re.fullmatch(re.sub(r"\{\w+\}", "[^.]+", address), subject)
            require_described(whole, [whole["components"]["messages"][name]["payload"]], content, name)


@pytest.mark.parametrize("family", ["kv", "payload", "semantic"])
def test_refusals_are_as_described(family: str) -> None:
    """A refusal has the names and the code that the document says."""
    whole = document()
    told = json.loads(DIALECTS[family].refusal(VersionConflict("late", reason="request_id_reused")))
    name = {"kv": "refusal"}.get(family, f"{family}_refusal")
    payload = whole["components"]["messages"][name]["payload"]
    require_described(whole, [payload], told, name)
    schema = resolved(whole, payload["$ref"])["properties"]
    if family == "payload":
        assert told["error"]["code"] in schema["error"]["properties"]["code"]["enum"]
    else:
        code = "errorCode" if family == "semantic" else "error_code"
        assert told[code] in schema[code]["enum"]
