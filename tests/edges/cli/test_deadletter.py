"""`holdfast deadletter`: letters are listed, shown, done again and dropped, wherever the store is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.handles.recipes.retry import Retry
from tests.edges.nats.ground import serving

if TYPE_CHECKING:
    from holdfast.edges.nats.server import NatsServer
    from tests.edges.cli.conftest import Cli


async def give_up(kv: holdfast.KV, key: str, value: object) -> int:
    """The number of the letter of a set that lost a race; the key is taken from then on."""

    async def sleep(seconds: float) -> None:
        """Don't."""

    await kv.set(key, "theirs")
    with pytest.raises(holdfast.Escalated) as caught:
        await Retry(kv, sleep=sleep).set(key, value, expected_version=0, request_id=f"r-{key}", writer="a:b")
    assert caught.value.letter is not None
    return caught.value.letter


def given_up(url: str, *keys: str) -> list[int]:
    """Letters of sets of these keys, in a store that nobody has open."""

    async def give_all_up() -> list[int]:
        async with holdfast.open(url, reap=False) as store:
            return [await give_up(store.kv("jobs"), key, {"k": key}) for key in keys]

    return asyncio.run(give_all_up())


def test_letters_are_listed(cli: Cli, url: str) -> None:
    """A row or a document for each letter, oldest first, page by page; nothing where there is none."""
    assert cli.did("deadletter", "list").out == ""
    one, two = given_up(url, "a", "b")
    cells = [row.split("\t") for row in cli.did("deadletter", "list").out.splitlines()]
    assert [[cell for position, cell in enumerate(row) if position != 1] for row in cells] == [
        [str(number), "set", key, "VERSION_CONFLICT", "7", "a:b", f"r-{key}"]
        for number, key in ((one, "a"), (two, "b"))
    ]
    first = cli("deadletter", "list", "--limit", 1)
    assert first.out.count("\n") == 1
    assert first.err == f"holdfast: there are more letters: --all lists them, --after {one} continues\n"
    assert cli.did("deadletter", "list", "--after", one).out.startswith(f"{two}\t")
    assert cli.did("deadletter", "list", "--limit", 1, "--all").out.count("\n") == 2
    documents = cli.did("deadletter", "list", "--json").jsons
    assert [document["number"] for document in documents] == [one, two]
    assert documents[0]["request"]["value"] == "***"
    assert cli.did("deadletter", "list", "--plugin", "others").out == ""


def test_a_letter_is_shown(cli: Cli, url: str) -> None:
    """All that was asked for but the value, and why it was given up; one that is not there ends with 3."""
    [number] = given_up(url, "a")
    shown = dict(row.split("\t") for row in cli.did("deadletter", "show", number).out.splitlines())
    assert (shown["number"], shown["error_code"], shown["request_id"]) == (
        str(number),
        "VERSION_CONFLICT",
        "r-a",
    )
    assert '"value":"***"' in shown["request"]
    assert cli.did("deadletter", "show", number, "--json").json["request"]["expected_version"] == 0
    assert cli("deadletter", "show", number + 1).code == 3
    assert cli("deadletter", "show", "0").code == 2


def test_the_value_of_a_letter_is_shown_to_who_says_why(cli: Cli, url: str) -> None:
    """A reason shows the whole letter, and the audit has it; `never` refuses, and `open` needs no reason."""
    [number] = given_up(url, "a")
    cli("namespace", "set", "kv/jobs", "--audit")
    whole = cli.did("deadletter", "show", number, "--why", "OPS-12", "--writer", "ann", "--json").json
    assert whole["request"]["value"] == {"k": "a"}
    [told] = [one for one in cli.did("audit", "log", "kv/jobs", "--json").jsons if one["op"] == "revealed"]
    assert (told["writer"], told["spec_ref"]) == ("ann", "OPS-12")
    empty = cli("deadletter", "show", number, "--why", "x")
    assert (empty.code, "at least 3 letters or digits" in empty.err) == (2, True)
    assert cli("deadletter", "show", number + 1_000, "--why", "OPS-12").code == 3
    cli("namespace", "set", "kv/jobs", "--reveal", "never")
    assert '"k"' not in cli.did("deadletter", "show", number).out
    assert cli("deadletter", "show", number, "--why", "OPS-12").code != 0
    cli("namespace", "set", "kv/jobs", "--reveal", "open")
    assert cli.did("deadletter", "show", number, "--json").json["request"]["value"] == {"k": "a"}
    assert cli.did("deadletter", "list", "--json").jsons[0]["request"]["value"] == {"k": "a"}


def test_letters_are_done_again(cli: Cli, url: str) -> None:
    """What can be done is, once, and its letter goes; what can't is told with its code, and stays."""
    one, two, three = given_up(url, "a", "b", "c")
    cli.did("delete", "a", "--yes")
    cli.did("delete", "c", "--yes")
    both = cli("deadletter", "retry", "--all")
    assert (both.code, both.out) == (4, f"{one} done\n{two} VERSION_CONFLICT\n{three} done\n")
    assert "key 'b' is at version" in both.err
    assert [cli.did("get", key).json for key in "ac"] == [{"k": "a"}, {"k": "c"}]
    cli.did("delete", "b", "--yes")
    done = cli.did("deadletter", "retry", two, "--json").json
    assert (done["number"], done["done"], done["reply"]["expires_at"]) == (two, True, None)
    assert cli.did("deadletter", "list").out == ""
    gone = cli("deadletter", "retry", two, "--json")
    assert (gone.code, gone.json["error"]["error_code"]) == (3, "KEY_NOT_FOUND")
    assert cli("deadletter", "retry").code == 2
    assert cli("deadletter", "retry", "1", "--all").code == 2


def test_letters_are_dropped(cli: Cli, url: str) -> None:
    """Those that are named go, and no others; one that is not there is told."""
    one, two = given_up(url, "a", "b")
    assert cli.did("deadletter", "drop", one, 9_999, "--yes").out == f"{one} dropped\n9999 not there\n"
    assert cli.did("deadletter", "drop", one, "--json", "--yes").json == {"number": one, "dropped": False}
    assert [letter["number"] for letter in cli.did("deadletter", "list", "--json").jsons] == [two]
    assert cli("deadletter", "drop").code == 2


async def test_over_nats(cli: Cli, nats_server: NatsServer) -> None:
    """The same commands deal with the letters of a running service, in both families."""
    async with serving(nats_server.url) as running:
        jobs, web = running.store.kv("jobs"), running.store.semantic("acme", "web")
        plugin, project = await give_up(jobs, "a", 1), await give_up(web, "a", 1)
        await jobs.delete("a")
        await asyncio.to_thread(_over_nats, cli, nats_server.url, plugin, project)


def _over_nats(cli: Cli, url: str, plugin: int, project: int) -> None:
    on, web = ["--url", url], ["--url", url, "--tenant", "acme", "--project", "web"]
    assert cli.did("deadletter", "list", *on).out.startswith(f"{plugin}\t")
    assert cli.did("deadletter", "retry", plugin, *on).out == f"{plugin} done\n"
    assert cli.did("get", "a", *on).json == 1
    shown = cli.did("deadletter", "show", project, *web, "--json").json
    assert shown["key"] == "tenant/acme/project/web/a"
    assert cli("deadletter", "retry", project, *web).code == 4
    assert cli.did("deadletter", "drop", project, "--yes", *web).out == f"{project} dropped\n"
    assert cli("deadletter", "show", project, *web).code == 3
