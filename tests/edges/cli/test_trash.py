"""Looking through the trash from a shell, and bringing something back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import holdfast

if TYPE_CHECKING:
    from tests.edges.cli.conftest import Cli

PROJECT = ("--tenant", "acme", "--project", "web")
ROOT = "tenant/acme/project/web/"


def remove(url: str, *keys: str) -> None:
    """Put entries into the trash of a project."""

    async def put_and_delete() -> None:
        async with holdfast.open(url, reap=False) as store:
            project = store.semantic("acme", "web")
            for key in keys:
                await project.set(key, {"of": key}, semantics={"purpose": "config"})
                await project.delete(key, writer="ops:cleanup")

    asyncio.run(put_and_delete())


def test_the_trash_is_listed(cli: Cli, url: str) -> None:
    """A line tells the key, how it went, when, by whom, its version, its purpose and how long it stays."""
    assert cli.did("trash", "list", *PROJECT).out == ""
    remove(url, "a", "b")
    cells = [line.split("\t") for line in cli.did("trash", "list", *PROJECT).out.splitlines()]
    assert [row[0] for row in cells] == [f"{ROOT}a", f"{ROOT}b"]
    assert [row[1:2] + row[3:6] for row in cells] == [
        ["deleted", "ops:cleanup", "1", "config"],
        ["deleted", "ops:cleanup", "3", "config"],
    ]
    assert all(row[2].endswith("Z") and row[6].endswith("Z") for row in cells)
    assert cli.did("trash", "list", "b", *PROJECT).out.count("\n") == 1


def test_pages_and_values(cli: Cli, url: str) -> None:
    """A page goes on with its cursor or with --all, and shows values only when it is asked to."""
    remove(url, "a", "b", "c")
    page = cli.did("trash", "list", "--limit", 2, "--json", *PROJECT).json
    assert [entry["key"] for entry in page["entries"]] == [f"{ROOT}a", f"{ROOT}b"]
    assert all("value" not in entry for entry in page["entries"])
    rest = cli.did("trash", "list", "--cursor", page["cursor"], "--values", "--json", *PROJECT).json
    assert [entry["value"] for entry in rest["entries"]] == [{"of": "c"}]
    assert (rest["truncated"], rest["cursor"]) == (False, None)
    everything = cli.did("trash", "list", "--all", "--limit", 1, "--json", *PROJECT).jsons
    assert [entry["key"] for entry in everything] == [f"{ROOT}a", f"{ROOT}b", f"{ROOT}c"]
    more = cli("trash", "list", "--limit", 1, *PROJECT)
    assert (more.code, more.out.count("\n")) == (0, 1)
    assert "--all" in more.err


def test_a_listed_key_can_be_restored(cli: Cli, url: str) -> None:
    """A key of the list can be restored as it is shown, and is in the trash no longer."""
    remove(url, "a")
    [entry] = cli.did("trash", "list", "--all", "--json", *PROJECT).jsons
    cli.did("restore", entry["key"], *PROJECT)
    assert cli.did("get", "a", *PROJECT).json == {"of": "a"}
    assert cli.did("trash", "list", *PROJECT).out == ""
