"""`holdfast up` when the file of its store is removed: health and commands say so, and all is saved."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

import holdfast
from tests.edges.running import ask, get, holdfast_up, plain_client
from tests.vanishing import entries, unlinked

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli


async def test_the_file_of_a_service_is_removed(cli: Cli, tmp_path: Path) -> None:
    """It is not ready, the doctor fails, the log has a line; what was acknowledged is in the rescued copy."""
    async with holdfast_up(tmp_path / "home") as up:
        data = tmp_path / "home" / "holdfast"
        async with plain_client(up.url) as client:
            await ask(client, "db.kv.trivia.set", key="k", value=1)
            unlinked(data / "holdfast.db")
            late = [await ask(client, "db.kv.trivia.set", key="late", value=2) for _ in range(2)]
        assert [reply["success"] for reply in late] == [False, False]
        told = late[1]["message"]
        assert (late[1]["error_code"], f"process {up.pid} has open" in told) == ("DATABASE_ERROR", True)
        status, said = await get(up.http_port, "/readyz")
        assert (status, json.loads(said)["store"]) == (503, f"DATABASE_ERROR: {told}")
        doctor = await asyncio.to_thread(cli, "doctor", "--url", up.url, "--json")
        [writing] = [one for one in doctor.json["checks"] if one["check"] == "writing"]
        assert (doctor.code, writing["level"], writing["message"]) == (1, "fail", told)
        assert [line["message"] for line in up.log if line["level"] == "critical"] == [told]
        done = await asyncio.to_thread(cli, "rescue", "rescued.db", "--url", up.url)
        assert (done.code, f"copied to {tmp_path / 'rescued.db'}: " in done.err) == (0, True)
    async with holdfast.open(tmp_path / "rescued.db") as store:
        assert (await entries(store, "trivia"))["k"] == 1


@pytest.mark.parametrize("size", [None, 7])
def test_a_copy_that_is_elsewhere(
    cli: Cli, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    """A copy that a service has made on another machine is no success: it says where to fetch it."""
    cli.did("set", "k", "1")
    place = tmp_path / "there.db"

    async def elsewhere(store: holdfast.Store, path: str) -> holdfast.Rescued:
        if size is not None:
            place.write_bytes(bytes(size))
        return holdfast.Rescued(path=path, bytes=4096, pages=1, namespaces=1, entries=1, trouble=None)

    monkeypatch.setattr(holdfast.Store, "rescue", elsewhere)
    done = cli("rescue", "there.db", "--url", url)
    assert (done.code, f"not on this machine: the service has written {place}" in done.err) == (1, True)


def test_a_path_where_nothing_is(cli: Cli, tmp_path: Path) -> None:
    """Looking for a store to rescue makes none, and says that the service is to be asked."""
    outcome = cli("rescue", "copy.db", "--url", tmp_path / "gone.db")
    assert (outcome.code, "give the URL of that service" in outcome.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_plain_copy(cli: Cli, tmp_path: Path) -> None:
    """Of a store of which nothing is wrong it is an online backup; --json has every field."""
    cli.did("set", "k", "1")
    copied = cli.did("rescue", "copy.db", "--json").json
    assert copied == {
        "path": str(tmp_path / "copy.db"),
        "bytes": (tmp_path / "copy.db").stat().st_size,
        "pages": (tmp_path / "copy.db").stat().st_size // 4096,
        "namespaces": 1,
        "entries": 1,
        "trouble": None,
    }
    assert cli.did("get", "k", "--url", tmp_path / "copy.db").json == 1
    refused = cli("rescue", "copy.db")
    assert (refused.code, "already exists" in refused.err) == (2, True)


def test_a_corrupt_copy(cli: Cli, url: str, tmp_path: Path) -> None:
    """A copy of a corrupt store is made all the same; the exit code and a line say that it is corrupt."""
    for number in range(20):
        cli.did("set", f"k{number}", json.dumps("x" * 3_000))
    with open(url, "r+b") as file:
        file.seek(-4096 * 3, 2)
        file.write(bytes(range(256)) * 16)
    outcome = cli("rescue", "copy.db")
    assert (outcome.code, "corrupt" in outcome.err, "doctor --deep" in outcome.err) == (1, True, True)
    assert (tmp_path / "copy.db").exists()
