"""The OpenAPI document: valid, complete, and good enough for a client that a foreign generator makes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.edges.calls import FAMILIES
from holdfast.edges.http.openapi import document
from tests.edges.http.ground import Served, served

PROCESS = Path(__file__).with_name("generated_process.py")
PATIENCE = 120
VALIDATE = """
import json
from openapi_spec_validator import OpenAPIV31SpecValidator, validate
from referencing import Registry

crawl, crawled = Registry.crawl, {}

def crawl_once(self):
    if id(self) not in crawled:
        crawled[id(self)] = self, crawl(self)
    return crawled[id(self)][1]

Registry.crawl = crawl_once
validate(json.load(open("openapi.json")), cls=OpenAPIV31SpecValidator)
"""
"""Run in a process of its own: cyclopts would use the pydantic that the validator imports.

Left alone, the validator would look through the schema of schemas again for each schema of the document.
"""
GENERATE = """
import copy
from openapi_python_client import cli
from openapi_python_client.parser import openapi

openapi.deepcopy = copy.copy
cli.app()
"""
"""The generator, as its command runs it. Left alone, it would copy all schemas along with each operation."""


async def run(*command: object, cwd: Path) -> str:
    """Run a program and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(PATIENCE):
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


async def test_the_document_is_served_and_valid(here: Served, tmp_path: Path) -> None:
    """`/openapi.json` needs no token and is a valid OpenAPI 3.1 document."""
    response = await here.ask("GET", "/openapi.json")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    found = response.json()
    (tmp_path / "openapi.json").write_bytes(response.content)
    await run(sys.executable, "-c", VALIDATE, cwd=tmp_path)
    assert (found["openapi"], found) == ("3.1.0", json.loads(json.dumps(document())))


def test_every_verb_is_described() -> None:
    """Every verb of every family has a path, with its own fields and reply."""
    paths = document()["paths"]
    starts = {"kv": "/v1/kv/{plugin}", "semantic": "/v1/semantic/{tenant}/{project}"}
    starts |= {"table": "/v1/table/{plugin}", "admin": "/v1/admin"}
    for family, start in starts.items():
        for verb in FAMILIES[family].values():
            told = paths[f"{start}:{verb.name}"]["post"]
            assert told["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith(
                f"/{verb.fields.__name__}"
            )
            assert told["summary"] == verb.help


def test_names_of_operations_are_unique() -> None:
    """A generator makes a function of each operation, so no two have the same name."""
    operations: list[Any] = [
        told["operationId"]
        for path in document()["paths"].values()
        for method, told in path.items()
        if method != "parameters"
    ]
    assert len(operations) == len(set(operations))


@pytest.mark.unmeasured
async def test_a_generated_client_makes_a_round_trip(bus: str, tmp_path: Path) -> None:
    """A client made by openapi-python-client puts, gets, lists and removes, without its maker warning."""
    async with served(tmp_path / "state.db", bus, open_mode=False) as here:
        token = (await here.store.tokens().create(plugin="trivia")).token
        (tmp_path / "openapi.json").write_text((await here.ask("GET", "/openapi.json")).text)
        (tmp_path / "config.yaml").write_text("post_hooks: []\n")
        options = ("--meta", "none", "--output-path", "made", "--config", "config.yaml", "--fail-on-warning")
        await run(
            sys.executable, "-c", GENERATE, "generate", "--path", "openapi.json", *options, cwd=tmp_path
        )
        said = await run(sys.executable, PROCESS, tmp_path, here.url, token, cwd=tmp_path)
    assert said.splitlines() == [
        'put 1 "1" True',
        "get {'turn': 'alice'} \"1\"",
        "refused 412 VERSION_CONFLICT 1",
        "incr 2",
        "list {'keys': ['game/42 é'], 'count': 1, 'truncated': True, 'cursor': 'Z2FtZS80MiDDqQ'}",
        "table events",
        "removed True",
    ]
