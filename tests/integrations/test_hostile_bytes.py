"""What is stored is data: nobody who may write to a namespace runs code in a program that reads it.

Each test plants bytes that name code into what an integration has stored, and reads them as a program does.
The code would create a file, and no file may appear.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import struct
import sys
import zlib
from base64 import b64decode, b64encode
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import ormsgpack
import pytest
from agents.memory.session import SessionABC
from agno.db.schemas import UserMemory
from agno.run.agent import RunOutput
from agno.session import AgentSession
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse, HttpResponseNotModified
from django.utils.functional import empty as unset
from django.utils.safestring import SafeString, mark_safe
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Send
from openfeature.evaluation_context import EvaluationContext
from pydantic import BaseModel

import holdfast
from holdfast.integrations.agno import AsyncHoldfastDb
from holdfast.integrations.django import HoldfastCache, stores
from holdfast.integrations.keyvalue import HoldfastStore
from holdfast.integrations.langgraph import CheckpointSerializer, HoldfastGraphStore, HoldfastSaver
from holdfast.integrations.limits import HoldfastStorage
from holdfast.integrations.openai_agents import HoldfastSession
from holdfast.integrations.openfeature import HoldfastProvider
from holdfast.integrations.pydantic_ai import HoldfastConversationStore
from holdfast.integrations.starlette.session import StoredSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from holdfast.store import Store

HASH: Final = sys.hash_info.modulus
"""The hash of a multiple of this is 0."""
THREAD: Final[Any] = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class Touching:
    """An object whose pickle creates a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def touch(path: str) -> str:
    """What hostile bytes call: create a file."""
    Path(path).touch()
    return path


class Trap(BaseModel):
    """A model that hostile bytes name; making one creates a file."""

    path: str

    def __init__(self, path: str) -> None:
        touch(path)
        super().__init__(path=path)


@dataclass
class Order:
    """A class of the program."""

    item: str


class Colour(Enum):
    """An enum of the program."""

    RED = 1


class Customer(BaseModel):
    """A model of the program."""

    name: str


@pytest.fixture
async def opened() -> AsyncIterator[Store]:
    """A store; what stored bytes may do does not depend on where they are."""
    async with holdfast.open("memory://") as store:
        yield store


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """The file that hostile code would create. None may be there in the end."""
    file = tmp_path / "it-ran"
    yield file
    assert not file.exists()


def extension(code: int, *parts: Any) -> bytes:
    """Bytes of msgpack with one extension, as LangGraph writes them, inside a state."""
    return ormsgpack.packb({"channel_values": {"x": ormsgpack.Ext(code, ormsgpack.packb(parts))}})


def hostile_checkpoints(canary: Path) -> dict[str, tuple[str, bytes]]:
    """Forms and bytes that run code in readers that trust them."""
    path, here = str(canary), __name__
    nested = ormsgpack.Ext(0, ormsgpack.packb((here, "touch", path)))
    constructor = {"type": "constructor", "id": [*here.split("."), "touch"], "args": [path], "kwargs": {}}
    secret = {"lc": 1, "type": "secret", "id": ["HOME"]}
    loader = ["langchain_core", "prompts", "loading", "load_prompt"]
    deep = b"\xc0"
    for _ in range(2_000):
        deep = ormsgpack.packb(ormsgpack.Ext(7, deep))
    return {
        "a function with one argument": ("msgpack", extension(0, here, "touch", path)),
        "a function with arguments": ("msgpack", extension(1, here, "touch", [path])),
        "a function with named arguments": ("msgpack", extension(2, here, "touch", {"path": path})),
        "a method": ("msgpack", extension(3, here, "Trap", path, "model_validate_json")),
        "a method of a safe type": ("msgpack", extension(3, "pathlib", "Path", path, "touch")),
        "a model of pydantic 1": ("msgpack", extension(4, here, "Trap", {"path": path})),
        "a model": ("msgpack", extension(5, here, "Trap", {"path": path}, "model_validate_json")),
        "os.system": ("msgpack", extension(0, "os", "system", f"touch {path}")),
        "inside a safe type": ("msgpack", extension(1, "langgraph.types", "Send", ["node", nested])),
        "inside a numpy array": ("msgpack", extension(6, "<f8", [1], "C", nested)),
        "inside a snapshot": ("msgpack", ormsgpack.packb(ormsgpack.Ext(7, ormsgpack.packb([nested])))),
        "an unknown extension": ("msgpack", extension(99, here, "touch", path)),
        "an extension without a name": ("msgpack", ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(7)))),
        "names that are no text": ("msgpack", extension(0, ["os"], {"system": 1}, path)),
        "deep extensions": ("msgpack", deep),
        "no msgpack": ("msgpack", b"\xc1\xc1"),
        "a pickle": ("pickle", pickle.dumps(Touching(canary))),
        "a pickle in an encrypted form": ("pickle+aes", pickle.dumps(Touching(canary))),
        "JSON of version 2": ("json", json.dumps({"x": {"lc": 2, **constructor}}).encode()),
        "JSON of version 1": ("json", json.dumps({"x": {"lc": 1, **constructor}}).encode()),
        "JSON of a class of LangChain": ("json", json.dumps({"lc": 1, **constructor, "id": loader}).encode()),
        "JSON of a secret": ("json", json.dumps({"x": secret}).encode()),
        "deep JSON": ("json", b"[" * 40_000),
    }


@pytest.mark.parametrize("part", ["checkpoint", "metadata", "write", "blob"])
async def test_a_hostile_checkpoint_runs_nothing(opened: Store, canary: Path, part: str) -> None:
    """Whoever may write to the keys or blobs of checkpoints runs nothing; the reader gets a clear refusal."""
    saver, kv = HoldfastSaver(opened), opened.kv("langgraph")
    config = await saver.aput(THREAD, empty_checkpoint(), {"step": 1}, {})
    await saver.aput_writes(config, [("a", 1)], "task")
    [key] = (await kv.list("write/" if part == "write" else "checkpoint/")).keys
    entry = await kv.get(key)
    assert entry is not None
    value = entry.value
    for form, data in hostile_checkpoints(canary).values():
        planted: dict[str, Any] = {"form": form, "data": b64encode(data).decode()}
        if part == "write":
            value["writes"][0]["value"] = planted
        elif part == "blob":
            await opened.blobs("langgraph").put("planted", data)
            value["checkpoint"] = {"form": form, "blob": "planted"}
        else:
            value[part] = planted
        await kv.set(key, value)
        with pytest.raises(holdfast.ValidationError, match="The stored checkpoint is refused: it "):
            await HoldfastSaver(opened).aget_tuple(config)
        with pytest.raises(holdfast.ValidationError, match="refused"):
            assert [one async for one in HoldfastSaver(opened).alist(THREAD)] == []


async def test_foreign_entry_is_refused_as_a_checkpoint(opened: Store) -> None:
    """An entry that no checkpointer has written is refused as such."""
    saver, kv = HoldfastSaver(opened), opened.kv("langgraph")
    config = await saver.aput(THREAD, empty_checkpoint(), {"step": 1}, {})
    [key] = (await kv.list("checkpoint/")).keys
    parts = (1, {"form": "msgpack", "data": "é"}, {"form": 1, "data": ""}, {"form": "null"})
    entries = [{"checkpoint": part, "metadata": part, "parent": None, "run": None} for part in parts]
    for value in [7, [], {}, *entries]:
        await kv.set(key, value)
        with pytest.raises(holdfast.ValidationError, match="checkpoint"):
            await saver.aget_tuple(config)


STATE: Final = [
    *(HumanMessage("hello", id="1"), AIMessage("hi", tool_calls=[{"name": "f", "args": {}, "id": "2"}])),
    *(ToolMessage("done", tool_call_id="2"), Document("text", metadata={"a": 1}), Send("node", {"x": [1]})),
    *(datetime(2026, 11, 18, tzinfo=UTC), UUID(int=7), Decimal("1.10"), {1, 2}, deque([3]), Path("/a")),
    *(re.compile("a+"), timedelta(1), b"bytes", ("a", 1), None),
]


async def test_states_of_langgraph_come_back(opened: Store) -> None:
    """Messages, documents, times and the types of LangGraph itself need no setting."""
    saver = HoldfastSaver(opened)
    checkpoint = empty_checkpoint() | {"channel_values": {"state": STATE}}
    config = await saver.aput(THREAD, checkpoint, {"step": 1}, {})
    found = await HoldfastSaver(opened).aget_tuple(config)
    assert found is not None
    read = found.checkpoint["channel_values"]["state"]
    assert read == [*STATE[:-2], ["a", 1], None]
    assert [type(one) for one in read[:-2]] == [type(one) for one in STATE[:-2]]


@pytest.mark.parametrize("value", [Order("rope"), Customer(name="ada"), Colour.RED])
async def test_classes_of_the_program_are_named(opened: Store, value: Any) -> None:
    """A state with a class of the program is refused when it is stored; the refusal says what to pass."""

    class State(TypedDict):
        value: Any

    builder = StateGraph(State)
    builder.add_node("step", lambda state: {"value": value})
    builder.add_edge(START, "step")
    thread: Any = {"configurable": {"thread_id": "t"}}
    name = type(value).__name__
    with pytest.raises(holdfast.ValidationError, match=rf"serde=CheckpointSerializer\(\[{name}\]\)"):
        await builder.compile(checkpointer=HoldfastSaver(opened)).ainvoke({"value": 1}, thread)
    for number, serde in enumerate([CheckpointSerializer([type(value)]), JsonPlusSerializer()]):
        graph = builder.compile(checkpointer=HoldfastSaver(opened, f"p{number}", serde=serde))
        await graph.ainvoke({"value": 1}, thread)
        assert (await graph.aget_state(thread)).values == {"value": value}


def test_langgraph_may_add_the_classes_of_a_graph() -> None:
    """LangGraph's own way to allow the classes of a graph's state works with this serializer."""
    serde = CheckpointSerializer().with_msgpack_allowlist([Order])
    assert isinstance(serde, CheckpointSerializer)
    assert serde.loads_typed(serde.dumps_typed(Order("rope"))) == Order("rope")
    with pytest.raises(holdfast.ValidationError):
        serde.dumps_typed(Customer(name="ada"))


@pytest.fixture
def configured() -> Iterator[None]:
    """Django with settings of its own, and a store in memory."""
    before, settings._wrapped = settings._wrapped, unset
    settings.configure(SECRET_KEY="for these tests alone", HOLDFAST_SESSION_URL="memory://", USE_TZ=True)
    yield
    stores.close("memory://")
    settings._wrapped = before


def plant(value: Any, plugin: str = "cache") -> None:
    """Replace what the only entry of a namespace holds."""
    kv = stores.opened("memory://").kv(plugin)
    [key] = kv.list().keys
    kv.set(key, value)


def hostile_cache_values(canary: Path) -> dict[str, Any]:
    """Values of entries that run code in readers that trust them, or that are no values of a cache."""
    pickled, here = pickle.dumps(Touching(canary)), __name__

    def text(data: bytes) -> str:
        return b64encode(data).decode()

    def tagged(kind: str, content: Any) -> str:
        return text(b"json" + json.dumps({"~": [kind, content]}).encode())

    return {
        "a pickle": text(pickled),
        "a pickle of protocol 0": text(pickle.dumps(Touching(canary), 0)),
        "a compressed pickle": text(b"zlib" + zlib.compress(pickled)),
        "a pickle behind the mark of JSON": text(b"json" + pickled),
        "an unknown type": tagged("os.system", f"touch {canary}"),
        "a function as an enum": tagged("enum", [here, "touch", str(canary)]),
        "a module as an enum": tagged("enum", ["os", "path", "join"]),
        "an enum of an unknown module": tagged("enum", ["antigravity", "X", "Y"]),
        "an enum without such a member": tagged("enum", [here, "Colour", "__class__"]),
        "a type with the wrong content": tagged("datetime", {"a": 1}),
        "a zone outside": tagged("ZoneInfo", "../../etc/passwd"),
        "a response with two headers in one": tagged("response", [200, "", [["A", "b\r\nC: d"]], [], ""]),
        "a set of lists": tagged("set", [[1]]),
        "no division": tagged("Fraction", "1/0"),
        "a fraction of a billion digits": tagged("Fraction", "1e999999999"),
        "a tuple of a long range": tagged("tuple", {"~": ["range", [0, 10**12]]}),
        "a deque made of a long range": tagged("deque", {"~": ["range", [0, 10**12]]}),
        "an object with a long pair": tagged("dict", [{"~": ["range", [0, 10**12]]}]),
        "a response with a long header": tagged(
            "response", [200, "", [{"~": ["range", [0, 10**12]]}], [], ""]
        ),
        "a set of numbers with one hash": tagged("set", [number * HASH for number in range(1_000)]),
        "an object with keys of one hash": tagged("dict", [[n * HASH, 0] for n in range(1_000)]),
        "a response with a status that is none": tagged("response", [10**9, "OK", [], [], ""]),
        "a response without a status": tagged("response", [None, "OK", [], [], ""]),
        "a response with half a status": tagged("response", [200.5, "OK", [], [], ""]),
        "a response with an illegal cookie": tagged("response", [200, "", [], [["a b", "", "", {}]], ""]),
        "a response with a header in its reason": tagged("response", [200, "OK\r\nA: b", [], [], ""]),
        "no type": text(b'json{"~": 7}'),
        "two types": text(b'json{"~": ["set", []], "a": 1}'),
        "deep JSON": text(b"json" + b"[" * 30_000),
        "a bomb": text(b"zlib" + zlib.compress(bytes(300_000_000), 9)[:40_000]),
        "cut off": text(b"zlib" + zlib.compress(b"json" + b"1" * 100)[:-4]),
        "no base64": "é",
        "a list": [1],
        "a blob without a name": {"blob": 7},
        "a blob of somebody else": {"blob": "letters/1"},
        "a blob with no name at all": {},
    }


@pytest.mark.usefixtures("configured")
def test_a_hostile_value_in_the_cache_runs_nothing(canary: Path) -> None:
    """Whoever may write to the namespace of a cache runs nothing; the reader gets a clear refusal."""
    cache = HoldfastCache("memory://", {})
    cache.set("k", "v")
    stores.opened("memory://").blobs("cache").put("letters/1", b"precious")
    for planted in hostile_cache_values(canary).values():
        cache.set("k", "v")
        plant(planted)
        assert cache.touch("k", 60)
        for read in (lambda: cache.get("k"), lambda: cache.get_many(["k"])):
            with pytest.raises(holdfast.ValidationError, match=r"stored value is refused|was not stored by"):
                read()
        assert cache.delete("k")
    cache.set("k", "v")
    assert cache.get("k") == "v"
    assert stores.opened("memory://").blobs("cache").head("letters/1") is not None


@pytest.mark.usefixtures("configured")
def test_a_time_zone_that_is_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package tzdata is installed too, a planted name of no time zone is refused."""
    folder = tmp_path / "tzdata" / "zoneinfo" / "Europe"
    folder.mkdir(parents=True)
    for package in (folder, *folder.parents[:2]):
        (package / "__init__.py").touch()
        name = ".".join(package.relative_to(tmp_path).parts)
        monkeypatch.setitem(sys.modules, name, None)  # so that it is as before in the end
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    cache = HoldfastCache("memory://", {})
    for zone in ("Europe", "x" * 5_000):
        cache.set("k", "v")
        plant(b64encode(b"json" + json.dumps({"~": ["ZoneInfo", zone]}).encode()).decode())
        with pytest.raises(holdfast.ValidationError, match="stored value is refused"):
            cache.get("k")


VALUES: Final = [
    *(None, True, 1.5, float("inf"), -(2**70), "snow ☃ \ud800", b"\x00\xff", bytearray(b"a"), [1, [2]]),
    *(
        {"a": {"b": (1, 2)}},
        {1: "a", (2, 3): None},
        {"~": 1},
        {},
        (),
        {1, 2},
        frozenset({"a"}),
        deque([1], 3),
    ),
    *(
        OrderedDict(b=1, a=2),
        range(1, 9, 2),
        1j,
        Decimal("1.10"),
        Fraction(1, 3),
        uuid4(),
        date(2026, 11, 18),
    ),
    *(
        datetime(2026, 11, 18, 1, 2, 3, 4),  # noqa: DTZ001
        datetime(2026, 11, 18, tzinfo=UTC),
        time(1, 2, 3),
        timedelta(-1, 2, 3),
    ),
    *(datetime(2026, 10, 25, 2, fold=1, tzinfo=ZoneInfo("Europe/Berlin")), timezone(timedelta(hours=2))),
    *(HTTPStatus.OK, Colour.RED, mark_safe("<b>"), "x" * 100_000),
]


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_values_come_back_from_the_cache(serializer: str) -> None:
    """Values of Python's own types come back as they were, with their types."""
    cache = HoldfastCache("memory://", {"OPTIONS": {"serializer": serializer}})
    for value in VALUES:
        cache.set("k", value)
        found = cache.get("k")
        assert (found, type(found)) == (value, type(value))
    cache.set("k", mark_safe("<b>"))
    assert isinstance(cache.get("k"), SafeString)


@pytest.mark.usefixtures("configured")
def test_a_page_comes_back_from_the_cache() -> None:
    """A response, which is what Django's cache of pages stores, comes back with headers and cookies."""
    cache = HoldfastCache("memory://", {})
    page = HttpResponse("é", status=201, headers={"X-A": "b"}, content_type="text/plain; charset=utf-8")
    page.set_cookie("c", "a b", max_age=7, httponly=True)
    cache.set("page", page)
    again = cache.get("page")
    assert (again.status_code, again.content, again.reason_phrase) == (201, "é".encode(), "Created")
    assert dict(again.headers) == dict(page.headers)
    assert again.cookies.output() == page.cookies.output()


@pytest.mark.usefixtures("configured")
def test_a_page_without_a_type_comes_back_without_one() -> None:
    """A page that has not changed has no content, and no header that says what the content is."""
    cache = HoldfastCache("memory://", {})
    cache.set("page", HttpResponseNotModified())
    assert dict(cache.get("page").headers) == {}


@pytest.mark.usefixtures("configured")
def test_what_could_not_be_read_again_is_not_stored() -> None:
    """It is refused when it is stored: a cache whose entries can't be read breaks what relies on it."""

    class Local(Enum):
        A = 1

    zone = b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + bytes(6) + b"UTC\0"
    nameless = ZoneInfo.from_file(io.BytesIO(zone))
    strange, two_lines = HttpResponse(), HttpResponse()
    strange.status_code = 999
    two_lines.reason_phrase = "a\nb"
    cache = HoldfastCache("memory://", {})
    for value in (
        *(re.IGNORECASE | re.MULTILINE, Local.A, datetime(2026, 11, 18, tzinfo=nameless)),
        *({number * HASH for number in range(200)}, dict.fromkeys(number * HASH for number in range(200))),
        *(strange, two_lines),
    ):
        with pytest.raises(holdfast.ValidationError, match="as JSON"):
            cache.set("k", value)
    cache.set("k", {number * HASH for number in range(50)})
    assert len(cache.get("k")) == 50


@pytest.mark.usefixtures("configured")
def test_pickles_need_their_setting() -> None:
    """An object of another class is refused, naming the setting that allows it. That one reads both forms."""
    safe = HoldfastCache("memory://", {})
    with pytest.raises(holdfast.ValidationError, match=r'Order as JSON.*"serializer".*"pickle"'):
        safe.set("order", Order("rope"))
    assert safe.get("order") is None
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(holdfast.ValidationError, match="JSON"):
        safe.set("circle", circle)
    safe.set("plain", (1, 2))
    pickling = HoldfastCache("memory://", {"OPTIONS": {"serializer": "pickle", "pickle_protocol": 4}})
    pickling.set("order", Order("rope"))
    assert pickling.get("order") == Order("rope")
    assert pickling.get("plain") == (1, 2)
    with pytest.raises(holdfast.ValidationError, match="it is a pickle"):
        safe.get("order")
    with pytest.raises(ImproperlyConfigured, match="serializer"):
        HoldfastCache("memory://", {"OPTIONS": {"serializer": "yaml"}})


@pytest.mark.usefixtures("configured")
def test_a_hostile_session_is_an_empty_one(canary: Path) -> None:
    """Bytes that are not signed with the secret key are no session, whatever they are."""
    from holdfast.integrations.django.sessions import SessionStore

    session = SessionStore()
    session["user"] = "ada"
    session.save()
    for data in (pickle.dumps(Touching(canary)), b"\xff\xfe", b"a:b:c"):
        plant(b64encode(data).decode(), "sessions")
        assert dict(SessionStore(session.session_key).items()) == {}


def hostile_json(canary: Path) -> list[Any]:
    """JSON values that libraries which rebuild objects from JSON would run."""
    path, here = str(canary), __name__
    return [
        {"lc": 1, "type": "constructor", "id": [*here.split("."), "touch"], "kwargs": {"path": path}},
        {"py/reduce": [{"py/function": f"{here}.touch"}, {"py/tuple": [path]}]},
        {"__class__": f"{here}.Trap", "path": path, "__reduce__": [f"{here}.touch", [path]]},
        {"type": f"{here}.Trap", "kind": "Trap", "path": path, "$type": f"{here}.touch"},
        b64encode(pickle.dumps(Touching(canary))).decode(),
        f"!!python/object/apply:{here}.touch ['{path}']",
    ]


async def replaced(store: Store, plugin: str, prefix: str, value: Any) -> None:
    """Replace what the first entry below a prefix holds."""
    kv = store.kv(plugin)
    key = (await kv.list(prefix)).keys[0]
    await kv.set(key, value)


async def test_json_stays_json(opened: Store, canary: Path) -> None:
    """The integrations that store JSON give it back as data, whatever it looks like."""
    for value in hostile_json(canary):
        keyvalue = HoldfastStore(opened.kv("keyvalue"))
        await keyvalue.put("k", {"a": 1})
        await replaced(opened, "keyvalue", "entry/", {"planted": value})
        assert await keyvalue.get("k") == {"planted": value}

        memories = HoldfastGraphStore(opened, "memories")
        await memories.aput(("a",), "k", {"a": 1})
        await replaced(opened, "memories", "memory/", {"value": {"planted": value}})
        item = await memories.aget(("a",), "k")
        assert item is not None
        assert item.value == {"planted": value}

        session: SessionABC = HoldfastSession("s", opened.kv("agents"))
        await session.clear_session()
        await session.add_items([{"role": "user", "content": "hello"}])
        await replaced(opened, "agents", "log/", value)
        assert await session.get_items() == [value]

        visitor = StoredSession(opened.kv("visitors"), 60)
        visitor["a"] = 1
        await visitor.save()
        await replaced(opened, "visitors", "session/", {"planted": value})
        assert await StoredSession.load(opened.kv("visitors"), 60, visitor.cookie) == {"planted": value}
        await opened.kv("visitors").delete_prefix("session/")


async def test_planted_sessions_of_agno_are_refused(opened: Store, canary: Path) -> None:
    """What is no session, run or memory of agno is refused, and nothing that its JSON names is made."""
    kv, db = opened.kv("agno"), AsyncHoldfastDb(opened)
    for value in hostile_json(canary):
        await db.upsert_session(AgentSession("s", session_data={}))
        await db.upsert_run(RunOutput(run_id="r", agent_id="a"), "s")
        await db.upsert_user_memory(UserMemory("m", "m"))
        for prefix, member, read in (
            ("session/", "session_data", partial(db.get_session, "s")),
            ("run/", "run_data", partial(db.get_run, "r")),
            ("memory/", "memory", partial(db.get_user_memory, "m")),
        ):
            [key] = (await kv.list(prefix)).keys
            entry = await kv.get(key)
            assert entry is not None
            await kv.set(key, value)
            with pytest.raises(holdfast.ValidationError, match="is not a "):
                await read()
            await kv.set(key, {**entry.value, "value": {**entry.value["value"], member: value}})
            with contextlib.suppress(holdfast.ValidationError):
                await read()
            await kv.set(key, entry.value)
        await db.delete_session("s")
        await db.clear_memories()


async def test_planted_conversations_are_refused(opened: Store, canary: Path) -> None:
    """A record of a conversation that is none is an error of pydantic, which makes no other objects."""
    kv = opened.kv("desk")
    for value in hostile_json(canary):
        await kv.set("conversation/c", value)
        with pytest.raises(ValueError, match="ConversationRecord"):
            await HoldfastConversationStore(kv).read_record("c")


async def test_planted_flags_and_windows_are_wrong_values(opened: Store, canary: Path) -> None:
    """A flag or a window that holds something else is a wrong value, and no more."""
    for value in hostile_json(canary):
        await opened.kv("flags").set("flag", value)
        async with HoldfastProvider(opened.kv("flags")) as provider:
            assert provider.resolve_boolean_details("flag", False, EvaluationContext()).value is False
        storage = HoldfastStorage(kv=opened.kv("limits"))
        await storage.clear("k")
        await storage.incr("k", 60)
        await replaced(opened, "limits", "", value)
        with pytest.raises(holdfast.ValidationError, match="is not a number"):
            await storage.incr("k", 60)


def test_the_bytes_are_hostile(canary: Path) -> None:
    """The hostile bytes do run code in a reader that trusts them, so the tests here prove something."""
    trusting = JsonPlusSerializer(pickle_fallback=True, allowed_json_modules=True)
    for name in (
        "a function with one argument",
        "a model",
        "inside a safe type",
        "JSON of version 2",
        "a pickle",
    ):
        trusting.loads_typed(hostile_checkpoints(canary)[name])
        assert canary.exists()
        canary.unlink()
    pickle.loads(b64decode(hostile_cache_values(canary)["a pickle"]))
    assert canary.exists()
    canary.unlink()
