"""A verb that is added by the steps of docs/howto/add-a-verb.md works at every door.

The verb is `multiply`, which multiplies a number. What the page has a developer write into a file stands here
in the same words, and is put into the tables for the length of a test.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Unpack

import pytest

import holdfast
from holdfast import rules
from holdfast.commands import KeyChange, Listed, Read, Stored
from holdfast.decide import decision
from holdfast.decide.draft import Draft
from holdfast.decide.keys import _expected, _needs_key, _store
from holdfast.declare import DECLARED, Says, verb
from holdfast.edges.calls import keys, reading
from holdfast.edges.cli import app, run
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import Settings
from holdfast.errors import KeyNotFound, ValidationError
from holdfast.forms import KeyWriteFields
from holdfast.handles.kv import KV, entry_in
from holdfast.model import Entry
from holdfast.replies import DeletePrefixReply, StoredReply
from holdfast.stored import value_of
from holdfast.verbs.fields import Provenance
from tests.docs.test_examples import blocks_of
from tests.edges.nats.ground import Running, calling, serving
from tools.pages import asyncapi
from tools.pages.verbs import verb_tables

PAGE = Path(__file__).resolve().parents[3] / "docs/howto/add-a-verb.md"


@verb("multiply", reply=StoredReply, options=KeyWriteFields, in_order=True)
class Multiply(KeyChange, frozen=True, kw_only=True, gc=False):
    """Multiply a number."""

    by: Annotated[float | int, Says(rule=rules.increment, help="The factor.")]


@verb("clear", reply=DeletePrefixReply, writes=True, destroys=True, walks=True)
class Clear(Read, frozen=True, kw_only=True, gc=False):
    """Remove keys, one by one."""

    key: Annotated[str, Says(rule="key", help="The beginning of the keys.")]


for name in ("multiply", "clear"):
    DECLARED.pop(name)  # until a test adds it


def _multiply(draft: Draft, command: Multiply) -> Stored:
    before = _expected(draft, command)
    if before is None:
        raise KeyNotFound(f"key {command.key!r} does not exist", field="key")
    number = value_of(command.key, before)
    if type(number) is not int and type(number) is not float:
        raise ValidationError(f"the value of key {command.key!r} is not a number", field="value")
    value, size = rules.encode_value(number * command.by)
    return _store(
        draft,
        command.key,
        before,
        command.origin,
        value=value,
        size=size,
        expires_at=before.expires_at,
        semantics=before.semantics,
        spec_ref=command.origin.spec_ref or before.spec_ref,
    )


class InKV(KV):
    """What is added to `KeyWrites`."""

    async def multiply(
        self, key: str, by: float, *, expected_version: int | None = None, **provenance: Unpack[Provenance]
    ) -> Entry:
        """Multiply a number. Raises `KeyNotFound` if the key is not there."""
        made = self._perform("multiply", key=key, by=by, expected_version=expected_version, **provenance)
        return entry_in(await made)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb is there, as it would be if these lines stood in the files that the page names."""
    monkeypatch.setitem(decision._NEEDS, Multiply, _needs_key)  # which has all of `decide.keys.NEEDS`
    monkeypatch.setitem(decision._APPLY, Multiply, _multiply)
    monkeypatch.setattr(KV, "multiply", InKV.multiply, raising=False)
    assert Multiply.declaration is not None
    monkeypatch.setitem(DECLARED, "multiply", Multiply.declaration)
    monkeypatch.setitem(keys.VERBS, "multiply", keys.declared(Multiply.declaration))


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize(
    ("root", "named", "data"),
    [("db.kv.trivia", {}, None), ("db.kv", {"plugin_name": "trivia"}, "data"), ("db.semantic.a.b", {}, None)],
    ids=["plugin", "payload", "semantic"],
)
async def test_a_new_verb_is_answered_in_every_dialect(
    nats_server: NatsServer, root: str, named: dict[str, str], data: str | None
) -> None:
    """A call over NATS does it, shows the entry on request, and refuses what the verb does not allow."""
    async with serving(nats_server.url) as running, calling(nats_server.url) as caller:

        async def ask(verb: str, **fields: Any) -> Any:
            reply = await caller.ask(f"{root}.{verb}", fields | named)
            return reply[data] if data and reply["success"] else reply

        await ask("set" if root != "db.semantic.a.b" else "put", key="n", value=6)
        assert (await ask("multiply", key="n", by=7))["version"] == 2
        assert (await ask("get", key="n"))["value"] == 42
        assert (await ask("multiply", key="n", by=0.5, envelope=True))["value"] == 21
        assert (await ask("multiply", key="nothing", by=2))["success"] is False
        assert (await ask("multiply", key="n"))["success"] is False
        assert running.recorder.unknown == {}


@pytest.mark.usefixtures("added")
def test_a_new_verb_has_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line has the verb as well, with the arguments, help and answer of its declaration."""
    place = ["--url", str(tmp_path / "store.db"), "--plugin", "trivia"]
    app.add_verbs()
    try:
        assert run(["set", "n", "6", *place]) == 0
        assert run(["multiply", "n", "7", "--if-version", "1", *place, "--json"]) == 0
        assert run(["multiply", "nothing", "7", *place]) == 3
        assert run(["multiply", "n", "much", *place]) == 2
        assert run(["multiply", "--help"]) == 0
    finally:
        del app.app["multiply"]
    shown = capsys.readouterr().out
    assert '{"key":"n","version":2,"expires_at":null}' in shown
    assert "Multiply a number. Prints the entry's new version." in shown
    assert "BY: The factor. [required]" in shown


@pytest.mark.usefixtures("added")
async def test_a_new_verb_has_order_versions_requests_and_letters(nats_server: NatsServer) -> None:
    """Order, versions, request ids, dead letters and unknown fields need no more than its declaration."""
    async with (
        serving(nats_server.url, settings=Settings(strict_fields=True)) as running,
        calling(nats_server.url) as caller,
    ):
        begun = await caller.ask_all(
            [
                ("db.kv.trivia.set", {"key": "n", "value": 2}),
                ("db.kv.trivia.multiply", {"key": "n", "by": 3, "request_id": "r"}),
                ("db.kv.trivia.get", {"key": "n"}),
                ("db.kv.trivia.multiply", {"key": "n", "by": 3, "request_id": "r"}),
                ("db.kv.trivia.multiply", {"key": "n", "by": 3, "expected_version": 1}),
                ("db.kv.trivia.multiply", {"key": "n", "by": 3, "tll": 5}),
            ]
        )
        _, first, got, again, late, wrong = [answer.fields for answer in begun]
        assert got["value"] == 6
        assert first == again == {"success": True, "version": 2, "expires_at": None}
        assert late["error_code"] == "VERSION_CONFLICT"
        assert "unknown field tll; known are" in wrong["message"]
        await _keep_and_retry(running, caller)


async def _keep_and_retry(running: Running, caller: Any) -> None:
    letter = {
        "verb": "multiply",
        "request": {"key": "n", "by": 2, "request_id": "lost"},
        "error_code": "BUSY",
        "attempts": 5,
    }
    number = (await caller.ask("db.kv.trivia.escalate", letter))["letter"]
    retried = {"namespace": "kv/trivia", "number": number}
    assert (await caller.ask("db.admin.deadletter_retry", retried))["success"] is True
    assert (await caller.ask("db.kv.trivia.get", {"key": "n"}))["value"] == 12


@pytest.mark.usefixtures("added")
async def test_programs_can_call_it(nats_server: NatsServer) -> None:
    """The handle's method works on a store of one's own and, without another line, through a service."""
    async with (
        serving(nats_server.url),
        holdfast.open(nats_server.url) as remote,
        holdfast.open("memory://") as own,
    ):
        for store in (own, remote):
            kv: Any = store.kv("trivia")
            await kv.set("n", 6)
            entry = await kv.multiply("n", 7, writer="w")
            assert (entry.value, entry.version, entry.last_writer) == (42, 2, "w")
            with pytest.raises(KeyNotFound):
                await kv.multiply("nothing", 2)


async def test_a_verb_of_several_steps(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verb that `decide` does not know is a class of commands, and an answer of the pipeline."""
    declaration = Clear.declaration
    assert declaration is not None
    monkeypatch.setitem(keys.VERBS, "clear", keys.declared(declaration))
    assert "clear" not in reading("kv")
    async with serving(nats_server.url) as running, calling(nats_server.url) as caller:
        kv = running.store.kv("trivia")

        async def clear(command: Clear) -> Listed:
            page = await kv.list(command.key)
            return Listed([key for key in page.keys if await kv.delete(key)], [], None)

        running.store.pipeline.answer({Clear: clear})
        set_a, cleared = await caller.ask_all(
            [("db.kv.trivia.set", {"key": "a", "value": 1}), ("db.kv.trivia.clear", {"key": "a", "kye": 1})]
        )
        assert set_a.fields["version"] == 1
        assert (cleared.fields["success"], cleared.fields["keys"]) == (True, ["a"])
        assert cleared.headers["Holdfast-Warning"] == "unknown field kye"
        assert (await kv.list()).keys == []


@pytest.mark.usefixtures("added")
def test_a_new_verb_is_documented_and_can_be_granted() -> None:
    """The document, the tables of the reference and the permissions have it from its declaration."""
    told = asyncapi.document()
    assert told["operations"]["semantic_multiply"]["x-writes"] is True
    assert told["channels"]["kv_multiply"]["address"] == "db.kv.{plugin}.multiply"
    assert "MultiplyFields" in told["components"]["schemas"]
    row = "| `multiply` | writes | Multiply a number. | **`key`**, **`by`**, `expected_version`, *write* |"
    assert any(line.startswith(row) for line in verb_tables(keys.VERBS))
    assert "multiply" not in reading("kv")


def test_the_page_shows_these_lines() -> None:
    """The code on the page is, but for its white space, code that is run here."""
    source = re.sub(r"# type: ignore.*", "", inspect.getsource(sys.modules[__name__]))
    blocks = [block for block in blocks_of(PAGE.read_text(encoding="utf-8")) if "python" in block.info]
    assert len(blocks) == 3
    for block in blocks:
        assert "".join(block.text.split()) in "".join(source.split()), block.text
