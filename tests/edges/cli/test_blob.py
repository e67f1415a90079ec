"""Blobs from a shell: files in and out, ranges, metadata, and what is refused."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from tests.edges.cli.conftest import EVERYWHERE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli

DATA = bytes(range(256)) * 1500


@EVERYWHERE
def test_a_file_goes_in_and_comes_out(cli: Cli, tmp_path: Path) -> None:
    """What `put` takes from a file `get` writes into another, on every kind of store."""
    (tmp_path / "in.png").write_bytes(DATA)
    version = int(cli.did("blob", "put", "a/b", tmp_path / "in.png", "--meta", "who=me=you").out)
    assert cli.did("blob", "get", "a/b", "-o", tmp_path / "out").out == ""
    assert (tmp_path / "out").read_bytes() == DATA
    told = cli.did("blob", "head", "a/b", "--json").json
    assert (told["size"], told["version"], told["content_type"]) == (len(DATA), version, "image/png")
    assert (told["metadata"], told["last_writer"]) == ({"who": "me=you"}, "cli")
    assert f"size\t{len(DATA)}\n" in cli.did("blob", "head", "a/b").out
    assert cli.did("blob", "list").out.startswith(f"a/b\t{len(DATA)}\t{version}\timage/png\t")
    assert cli.did("blob", "list", "b", "--json").json["blobs"] == []
    cli.did("blob", "get", "a/b", "--range", "262140-262149", "-o", tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == DATA[262140:262150]
    assert cli("blob", "delete", "a/b", "--yes", "--if-version", version + 9).code == 4
    assert [cli.did("blob", "delete", "a/b", "--yes").out for _ in range(2)] == ["deleted\n", "not there\n"]


def test_stdin_and_what_is_missing(cli: Cli, tmp_path: Path) -> None:
    """`-` is stdin; what is missing or of no form is refused, and no file is left behind."""
    put = cli.did(
        "blob", "put", "b", "-", "--content-type", "text/plain", "--ttl", "1h", "--json", stdin=DATA
    )
    assert (put.json["size"], put.json["content_type"]) == (len(DATA), "text/plain")
    assert put.json["expires_at"] is not None
    gone = cli("blob", "get", "c", "-o", tmp_path / "out", "--json")
    assert (gone.code, gone.error["error_code"]) == (3, "KEY_NOT_FOUND")
    assert cli("blob", "head", "c").code == 3
    for wrong in (
        ("put", "b", tmp_path / "none"),
        ("put", "b", "-", "--meta", "x"),
        ("get", "b", "--range", "5", "-o", tmp_path / "out"),
        ("get", "b", "-o", tmp_path / "no" / "folder"),
        ("list", "--plugin", ""),
    ):
        assert cli("blob", *wrong).code == 2, wrong
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []


def test_a_file_is_replaced_only_by_force(cli: Cli, tmp_path: Path) -> None:
    """`get` refuses to overwrite a file without `--force`, and only its owner can read what it writes."""
    cli.did("blob", "put", "b", "-", stdin=DATA)
    out = tmp_path / "out"
    out.write_bytes(b"mine")
    refused = cli("blob", "get", "b", "-o", out)
    assert (refused.code, out.read_bytes()) == (2, b"mine")
    assert "--force replaces it" in refused.err
    cli.did("blob", "get", "b", "-o", out, "--force")
    assert (out.read_bytes(), stat.S_IMODE(out.stat().st_mode)) == (DATA, 0o600)


def test_a_page_and_all_pages(cli: Cli) -> None:
    """A listing ends at its limit and goes on at its cursor; `--all` follows it to the end."""
    for name in "abc":
        cli.did("blob", "put", name, "-", stdin=b"x")
    page = cli.did("blob", "ls", "--limit", 2, "--json").json
    assert ([blob["name"] for blob in page["blobs"]], page["truncated"]) == (["a", "b"], True)
    rest = cli.did("blob", "ls", "--cursor", page["cursor"], "--json").json
    assert ([blob["name"] for blob in rest["blobs"]], rest["cursor"]) == (["c"], None)
    listed = cli.did("blob", "ls", "--all", "--limit", 1).out.splitlines()
    assert [row.partition("\t")[0] for row in listed] == ["a", "b", "c"]
