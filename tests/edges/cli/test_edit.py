"""What a key held before, following changes with values, and editing."""

from __future__ import annotations

import signal
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.edges.cli.conftest import EVERYWHERE, fill

if TYPE_CHECKING:
    from tests.edges.cli.conftest import Cli, Program

pytestmark = EVERYWHERE
WEB = ("--tenant", "acme", "--project", "web")


def test_history_with_values(cli: Cli) -> None:
    """The values that the store still has are shown beside the changes, and no others."""
    cli.did("set", "color", '"red"', *WEB)
    cli.did("set", "color", '"green"', *WEB)
    cli.did("delete", "color", "--yes", *WEB)
    cli.did("set", "color", '"blue"', *WEB)
    changes = cli.did("history", "color", "--values", "--json", *WEB).json["changes"]
    assert [(one["op"], one.get("value"), one.get("value_from")) for one in changes] == [
        ("set", "blue", "entry"),
        ("deleted", None, None),
        ("set", "green", "trash"),
        ("set", None, None),
    ]
    shown = cli.did("history", "color", "--values", *WEB).out.splitlines()
    assert [row.rpartition("\t")[2] for row in shown] == ['"blue"', "-", '"green"', "-"]


def test_watch_with_values(program: Program, url: str) -> None:
    """A change comes with the value that it left, if that is still there."""
    fill(url, ("k", 1, {}), ("k", {"n": 2}, {}))
    process = program.start("watch", "--since", "0", "--values")
    assert process.stdout is not None
    rows = [process.stdout.readline().rstrip("\n").split("\t") for _ in range(2)]
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert [(row[2], row[-1]) for row in rows] == [("1", "-"), ("2", '{"n":2}')]


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An editor that replaces the text by what is in a file, and keeps what it was shown."""
    script = tmp_path / "editor.py"
    script.write_text(
        "import sys, pathlib, shutil\n"
        "here = pathlib.Path(__file__).parent\n"
        "shutil.copy(sys.argv[1], here / 'shown')\n"
        "if (here / 'during.py').exists(): exec((here / 'during.py').read_text())\n"
        "pathlib.Path(sys.argv[1]).write_text((here / 'typed').read_text())\n"
    )
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "drafts"))
    monkeypatch.setattr("holdfast.edges.cli.commands.keys.at_terminal", lambda: True)
    (tmp_path / "drafts").mkdir()
    return tmp_path


def test_edit(cli: Cli, url: str, editor: Path) -> None:
    """A value is set out for the editor and written back; its deadline and meaning stay."""
    fill(url, ("k", {"a": [1]}, {"ttl": 5000, "semantics": {"purpose": "config"}}))
    (editor / "typed").write_text('{"a": [1, 2]}')
    cli.did("edit", "k")
    assert (editor / "shown").read_text() == '{\n  "a": [\n    1\n  ]\n}\n'
    entry = cli.did("get", "k", "-lj").json
    assert (entry["value"], entry["semantics"]["purpose"]) == ({"a": [1, 2]}, "config")
    assert entry["expires_at"] is not None
    assert not list((editor / "drafts").iterdir())


def test_edit_without_a_change_or_a_key(cli: Cli, editor: Path) -> None:
    """A key that is not there begins empty; nothing typed, nothing written."""
    (editor / "typed").write_text("")
    assert "nothing was changed" in cli("edit", "new").err
    assert cli("get", "new").code == 3
    (editor / "typed").write_text("[1]")
    cli.did("edit", "new")
    assert cli.did("get", "new").json == [1]


def test_edit_that_is_no_json_is_kept(cli: Cli, editor: Path) -> None:
    """What can't be written stays in a file that only its owner can read."""
    (editor / "typed").write_text("{nonsense")
    outcome = cli("edit", "k")
    assert outcome.code == 2
    [draft] = (editor / "drafts").iterdir()
    assert str(draft) in outcome.err
    assert (draft.read_text(), stat.S_IMODE(draft.stat().st_mode)) == ("{nonsense", 0o600)


def test_edit_shows_both_sides_of_a_conflict(cli: Cli, url: str, editor: Path) -> None:
    """If somebody else was faster, both values are shown, theirs stays, and what was typed is kept."""
    fill(url, ("k", "old", {}))
    (editor / "typed").write_text('"mine"')
    (editor / "during.py").write_text(
        "import asyncio, holdfast\n"
        "async def write():\n"
        f"    async with holdfast.open({url!r}, reap=False) as store:\n"
        "        await store.kv('jobs').set('k', 'theirs', writer='ann')\n"
        "asyncio.run(write())\n"
    )
    outcome = cli("edit", "k")
    assert outcome.code == 4
    for part in ("version 2 of ann", '-"theirs"', '+"mine"', "what you typed is in"):
        assert part in outcome.err
    assert cli.did("get", "k").json == "theirs"


def test_an_editor_that_is_not_there(cli: Cli, editor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the variable to set."""
    monkeypatch.setenv("EDITOR", "/no/such/editor")
    assert "set EDITOR" in cli("edit", "k").err


def test_edit_without_a_terminal(cli: Cli, url: str, editor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a script no editor is started, which would wait for ever; the message says what to use."""
    monkeypatch.undo()
    fill(url, ("k", "old", {}))
    outcome = cli("edit", "k")
    assert outcome.code == 2
    assert "edit needs a terminal" in outcome.err
    assert not (editor / "shown").exists()
