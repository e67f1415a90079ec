"""The catalogue says of every verb what is true of it: fields, reply, effect."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.declare import DECLARED
from holdfast.edges.calls import FAMILIES
from holdfast.edges.intake.request_log import SlowLog
from holdfast.handles.kv import KV
from holdfast.tables.commands import VERBS as TABLE_VERBS
from holdfast.wire.dialects import PAYLOAD, PLUGIN, SEMANTIC, Dialect
from tests.edges.calls.script import SCRIPT
from tests.edges.nats.ground import Caller, calling, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.edges.calls import Verb
    from holdfast.edges.nats.server import NatsServer

BY_THE_DOOR = {"deadline", "deadline_ms"}
"""Fields that the door reads itself."""
WITHOUT_EFFECT = {"envelope"}
"""Fields that clients send with every write, also where no entry is returned."""


@contextlib.asynccontextmanager
async def served(nats_server: NatsServer, folder: Path) -> AsyncIterator[Caller]:
    """A caller of a service on a file that can be audited and copied."""
    async with (
        serving(nats_server.url, storage=str(folder / "store.db")),
        calling(nats_server.url) as caller,
    ):
        yield caller


def subject(family: str, verb: str) -> str:
    """Where a verb is called in the plugin dialect."""
    return f"db.admin.{verb}" if family == "admin" else f"db.{family}.trivia.{verb}"


def filled(fields: dict[str, Any], **known: Any) -> dict[str, Any]:
    """The fields of a request of the script, with what stands for something else filled in."""
    return {
        name: known.get(field[1:-1]) if isinstance(field, str) and field.startswith("{") else field
        for name, field in fields.items()
    }


async def test_requests_and_replies_are_as_declared(nats_server: NatsServer, tmp_path: Path) -> None:
    """Every verb takes a request of the declared fields, knows all of them, and answers as declared."""
    letter = 0
    async with served(nats_server, tmp_path) as caller:
        for family, name, fields in SCRIPT:
            verb, request = FAMILIES[family][name], filled(fields, path=str(tmp_path / "copy"), letter=letter)
            given = {key: field for key, field in request.items() if field is not None or key == "value"}
            if name != "set_many":  # one of its items is refused on purpose
                msgspec.convert(given, verb.fields)
            assert list(verb.shape.unknown(request)) == [], (family, name)
            reply = await caller.ask(subject(family, name), request)
            assert reply.pop("success") is True, (family, name, reply)
            letter = reply["letter"] if name == "escalate" else letter
            msgspec.convert(reply, verb.reply)


def test_every_verb_is_in_the_script() -> None:
    """The test above proves nothing about a verb that it does not call."""
    for family in ("kv", "table", "admin"):
        assert {name for of, name, _ in SCRIPT if of == family} == FAMILIES[family].keys()


class Noted(dict[str, Any]):
    """Fields that note which of them were looked for."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """See `dict.get`."""
        self.names.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


async def called(store: holdfast.Store, family: str, verb: Verb, fields: Noted) -> Any:
    """Have a verb answered as a door would."""
    if family == "admin":
        fields["principal"] = "test"
        fields["slow_log"] = partial(SlowLog().page, instance="one")
        return await verb.call(store, fields)
    if family == "table":
        return await verb.call(store.tables_in("table/trivia", writer="trivia"), fields)
    kv = KV(store.pipeline, store.pipeline.verbs("kv/trivia", writer="trivia"))
    if not verb.in_order:
        return await verb.call(kv, fields)
    write = verb.call(kv, fields)
    return write.show(await store.pipeline.call(write.command))


async def test_every_field_that_is_read_is_declared(tmp_path: Path) -> None:
    """A verb looks for exactly the fields that it declares, so that no known field is called unknown.

    One that is declared by its command does so by construction.
    """
    seen: dict[tuple[str, str], set[str]] = {}
    letter: Any = 0
    async with holdfast.open(str(tmp_path / "store.db"), clock=ManualClock(), reap=False) as store:
        for family, name, fields in SCRIPT:
            noted = Noted(filled(fields, path=str(tmp_path / "copy"), letter=letter))
            reply = await called(store, family, FAMILIES[family][name], noted)
            letter = reply["letter"] if name == "escalate" else letter
            if name not in {"kv": DECLARED, "table": TABLE_VERBS}.get(family, ()):
                seen.setdefault((family, name), set()).update(noted.names)
    seen["admin", "rescue"].add("number")  # asked for instead of a path
    for (family, name), names in seen.items():
        declared = FAMILIES[family][name].shape.names
        assert names - {"principal", "door", "slow_log", "timeout"} <= declared, (family, name)
        assert declared - BY_THE_DOOR - WITHOUT_EFFECT <= names | BY_THE_DOOR, (family, name)


@pytest.mark.parametrize("dialect", [PLUGIN, PAYLOAD, SEMANTIC], ids=lambda dialect: dialect.name)
async def test_a_get_is_answered_alike_both_ways(nats_server: NatsServer, dialect: Dialect) -> None:
    """The quick way of a get over NATS gives, byte for byte, what the catalogue's answer gives."""
    root = {PLUGIN: "db.kv.trivia", PAYLOAD: "db.kv", SEMANTIC: "db.semantic.acme.web"}[dialect]
    named = {"plugin_name": "trivia"} if dialect is PAYLOAD else {}
    async with serving(nats_server.url) as running, calling(nats_server.url) as caller:
        store = running.store
        kv = store.semantic("acme", "web") if dialect is SEMANTIC else store.kv("trivia")
        await kv.set("plain", {"a": [1, None]})
        semantics = {"purpose": "cache", "producer": "a"}
        await kv.set("full", "x", ttl=60, semantics=semantics, request_id="r", spec_ref="s", writer="w")
        for key in ("plain", "full", "nothing"):
            slow = await FAMILIES["kv"]["get"].call(kv, {"key": key})
            quick = await caller.ask(f"{root}.get", {"key": key, **named})
            assert quick == json.loads(dialect.reply(slow))
