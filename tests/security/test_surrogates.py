"""A lone surrogate is a VALIDATION_ERROR in every field of every verb, at every door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import holdfast
from holdfast.client.http import HttpConnection, HttpRequest, http_address
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import Settings
from holdfast.store import Store
from tests.edges.http.ground import served
from tests.edges.nats.ground import calling, serving
from tests.security.malformed import CODES
from tests.security.surrogates import KEYS, LONE, OPERATORS, TABLES, ignored, spoilt, usual
from tests.verbs import table_calls

NAMED: Final = {verb: fields | {"plugin_name": "p"} for verb, fields in KEYS.items()}
PUT: Final = {"put" if verb == "set" else verb: fields for verb, fields in KEYS.items()}
REFUSED: Final = frozenset({"VALIDATION_ERROR", "INVALID_PLUGIN_NAME"})


async def prepare(store: Store) -> None:
    """Have the table that requests ask for, with an item and an index."""
    await table_calls(store, "table/p")("create_table", usual(TABLES["create_table"]))
    tables = store.tables("p")
    await tables.put_item("t", {"id": "a", "at": "b", "n": "x", "deep": {"list": ["x"]}})
    await tables.create_index("t", "s", key=("n", "string"))


def codes(reply: dict[str, Any]) -> set[str]:
    """With which codes a request, or members of it, were refused."""
    if reply["success"]:
        members = reply.get("data", reply).get("results", ())
        return {code for member in members if "success" in member for code in codes(member)}
    return {str(reply.get("error_code") or reply.get("errorCode") or reply["error"]["code"]).upper()}


@pytest.mark.parametrize(
    ("subject", "requests"),
    [
        ("db.kv.p", KEYS),
        ("db.kv", NAMED),
        ("db.semantic.acme.web", PUT),
        ("db.table.p", TABLES),
        ("db.admin", OPERATORS),
    ],
)
async def test_surrogates_over_nats_are_validation_errors(
    nats_server: NatsServer, tmp_path: Path, subject: str, requests: dict[str, dict[str, Any]]
) -> None:
    """Every such request is answered, with VALIDATION_ERROR; none is an internal error."""
    async with (
        serving(nats_server.url, storage=str(tmp_path / "state.db")) as running,
        calling(nats_server.url) as caller,
    ):
        await prepare(running.store)
        for verb, fields in requests.items():
            assert not codes(await caller.ask(f"{subject}.{verb}", usual(fields))) & REFUSED, verb
        made = [*spoilt(requests)]
        replies = await caller.ask_all([(f"{subject}.{verb}", fields) for verb, _, fields in made])
    for (verb, place, _), reply in zip(made, replies, strict=True):
        found = codes(reply.fields)
        assert found <= CODES if ignored(place) else found & REFUSED, (verb, place, reply.fields)


@pytest.mark.parametrize(
    ("path", "requests"),
    [
        ("/v1/kv/p", KEYS),
        ("/v1/semantic/acme/web", KEYS),
        ("/v1/table/p", TABLES),
        ("/v1/admin", OPERATORS),
    ],
)
async def test_surrogates_over_http_are_validation_errors(
    nats_server: NatsServer, tmp_path: Path, path: str, requests: dict[str, dict[str, Any]]
) -> None:
    """What holds over NATS holds over HTTP: every such request is answered, with VALIDATION_ERROR."""
    made = [*spoilt(requests)]
    settings = Settings(deadline_ms=60_000)
    async with served(tmp_path / "state.db", nats_server.url, settings=settings) as here:
        await prepare(here.store)
        line = await HttpConnection.to(http_address(here.url), None)
        asked = [(f"{path}:{verb}", json.dumps(fields).encode()) for verb, _, fields in made]
        replies = await asyncio.gather(*(line.ask(HttpRequest("POST", where, body)) for where, body in asked))
        line.end()
    for (verb, place, _), reply in zip(made, replies, strict=True):
        told = json.loads(reply.body)
        refusal = {"error_code": told["code"]} if "code" in told else {}
        found = codes(told | refusal | {"success": not refusal})
        assert found <= CODES if ignored(place) else found & REFUSED, (verb, place, told)


@pytest.fixture(params=["memory://", "sqlite://"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store in this process."""
    async with holdfast.open(request.param, reap=False) as store:
        await prepare(store)
        yield store


async def refused(call: Callable[[], Awaitable[Any]]) -> bool:
    """Whether a call, or a member of it, was refused as not valid."""
    try:
        result = await call()
    except holdfast.ValidationError:
        return True
    members = result.get("results", ()) if isinstance(result, dict) else result
    return isinstance(members, list) and any(
        isinstance(member, holdfast.ValidationError)
        or (isinstance(member, dict) and member.get("error_code") == "VALIDATION_ERROR")
        for member in members
    )


async def test_surrogates_in_keys_raise_validation_error(store: Store) -> None:
    """What holds over NATS holds for programs: `ValidationError` and nothing else is raised."""
    verbs = {verb: KEYS[verb] for verb in KEYS if verb not in ("stats", "ready", "escalate")}
    for kv in (store.kv("p"), store.semantic("acme", "web")):
        for verb, place, fields in spoilt(verbs):
            said = {"writer" if name == "last_writer" else name: field for name, field in fields.items()}
            if not ignored(place):
                assert await refused(partial(getattr(kv, verb), **said)), (verb, place)


async def test_surrogates_in_tables_raise_validation_error(store: Store) -> None:
    """What holds over NATS holds for programs: `ValidationError` and nothing else is raised."""
    call = table_calls(store, "table/p")
    for verb, place, fields in spoilt({verb: TABLES[verb] for verb in TABLES if verb != "stats"}):
        if not ignored(place):
            assert await refused(partial(call, verb, fields)), (verb, place)


OPERATIONS: Final[dict[str, Callable[[Store], Any]]] = {
    "stats": lambda store: store.stats(f"kv/{LONE}"),
    "policy": lambda store: store.policy(f"kv/{LONE}"),
    "set_policy": lambda store: store.set_policy(f"kv/{LONE}", {}),
    "a policy": lambda store: store.set_policy("kv/p", {LONE: 1}),
    "load": lambda store: store.load(f"kv/{LONE}", [], keep_versions=True),
    "purge": lambda store: store.purge(f"table/{LONE}"),
    "trash": lambda store: store.trash(f"kv/{LONE}"),
    "a prefix of the trash": lambda store: store.trash("kv/p", LONE),
    "a cursor of the trash": lambda store: store.trash("kv/p", cursor=LONE),
    "audit": lambda store: store.audit(f"kv/{LONE}").log(),
    "a prefix of the audit": lambda store: store.audit("kv/p").log(prefix=LONE),
    "a writer of the audit": lambda store: store.audit("kv/p").log(writer=LONE),
    "an anchor": lambda store: store.audit("kv/p").verify_part(after=1, anchor=LONE),
    "letters": lambda store: store.letters(f"kv/{LONE}").list(),
}


@pytest.mark.parametrize("name", OPERATIONS)
async def test_surrogates_in_operator_calls_raise_validation_error(store: Store, name: str) -> None:
    """What holds over NATS holds for programs: `ValidationError` and nothing else is raised."""
    with pytest.raises((holdfast.ValidationError, holdfast.InvalidPluginName)):
        await OPERATIONS[name](store)
