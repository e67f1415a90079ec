"""Every console block of the documentation: its commands are understood, and what can run does what it shows.

The commands of a page run from top to bottom in an empty folder, with its Python between them, beside
what its scene has. Commands that are not run are listed here with the reason, which `pytest -rA` prints, and
even then the command line must understand those that are ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from holdfast.edges.cli.app import app, command_first
from tests.docs.scenes import SCENES, Hook, Scene
from tests.docs.shell import (
    Command,
    Services,
    Shell,
    commands_in,
    commands_of,
    pattern_of,
    stages_of,
    without_settings,
)
from tests.docs.test_examples import DATABASE_VARIABLE, PAGES, ROOT, Block, blocks_of, compiled, run

NOT_RUN: Final = {
    r"\./dev |source \.venv": "sets up, tests or measures a clone of the repository",
    r"pip install": "asks a package index; tests/distribution installs every extra",
    r"python -m asyncio": "is where a page's Python is typed; tests/docs/test_examples.py runs that",
    r"python examples/": "tests/docs/test_programs.py runs every example",
    r"gunicorn |uvicorn ": "tests/integrations/test_worker_examples.py starts these servers",
    r"pytest ": "tests/docs/test_engine_page.py runs what the page makes",
    r"docker |export HOLDFAST_POSTGRES_PASSWORD=": "needs Docker; tests/deploy reads the files",
    r"scp ": "needs a second machine",
    r"promtool ": "needs promtool; tests/ops runs it where it is",
    r"cat prometheus\.yml": "shows a file of the reader's Prometheus",
    r"export DATABASE_URL": "names a database of the reader's own; the pages' tests have one already",
    r"holdfast up .*db\.example/state": "tests/edges/test_audit_key.py runs it to the first audited write",
    r"NATS_URL=tls:": "needs certificates; tests/docs/test_bus_pages.py runs it on the page about TLS",
}
"""Commands that are not run, each kind with the reason."""

EMULATED: Final = frozenset({"holdfast", "curl", "nats", "python"})
"""Programs that the shell runs in its own way, installed or not."""

RUN_ELSEWHERE: Final = {
    "docs/howto/deployment-checklist.md": "tests/docs/test_checklist.py runs it beside a service",
    "docs/howto/isolate-plugins.md": "tests/docs/test_bus_pages.py runs it beside a NATS server",
    "docs/howto/run-under-systemd.md": "changes the machine; tests/deploy reads the unit",
    "docs/howto/run-with-compose.md": "needs Docker; tests/deploy reads the files",
    "docs/howto/tls.md": "tests/docs/test_bus_pages.py runs it beside a NATS server",
}
"""Pages whose commands need more than a scene, and what runs them instead."""


def name_of(page: Path) -> str:
    """The path of a page within the repository."""
    return str(page.relative_to(ROOT))


def reason_not_to_run(command: Command) -> str | None:
    """Why a command is not run; None if it is."""
    for pattern, reason in NOT_RUN.items():
        if re.match(pattern, command.text):
            return reason
    programs = {without_settings(words)[0] for words in stages_of(command.text) if words[0] != "export"}
    missing = sorted(name for name in programs - EMULATED if shutil.which(name) is None)
    return f"{', '.join(missing)} is not installed" if missing else None


def pages_with(*, run: bool) -> list[Path]:
    """The pages that have a command which is run here, or any command."""
    found = ((page, commands_of(page.read_text(encoding="utf-8"))) for page in PAGES)
    wanted = (one for one in found if not run or name_of(one[0]) not in RUN_ELSEWHERE)
    return [
        page
        for page, commands in wanted
        if any(not run or reason_not_to_run(one) is None for one in commands)
    ]


@pytest.mark.parametrize("page", pages_with(run=True), ids=name_of)
def test_commands_do_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A reader who types the commands of a page sees what it shows; `…` stands for anything."""

    def database() -> str:
        url: str = request.getfixturevalue("pg_url")
        return url

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("EDITOR", "sed -i s/alice/bob/")
    monkeypatch.setattr("holdfast.edges.cli.commands.keys.at_terminal", lambda: True)
    text = page.read_text(encoding="utf-8")
    if DATABASE_VARIABLE in text:
        monkeypatch.setenv(DATABASE_VARIABLE, database())
    with asyncio.Runner() as runner, contextlib.ExitStack() as lent:
        services = Services(tmp_path / "service", runner)
        scene = Scene(tmp_path, Shell(monkeypatch, tmp_path, services), database, lent)
        try:
            show(page, text, scene, runner)
        finally:
            services.stop()


def show(page: Path, text: str, scene: Scene, runner: asyncio.Runner) -> None:
    """Run the blocks of a page."""
    names = {"__name__": "__main__"}
    for block in blocks_of(text):
        if block.info == "python":
            address = scene.shell.services.url if "nats.connect(" in text else ""
            run(compiled(block, page, address), names, runner)
        elif block.info == "console":
            type_in(block, scene, SCENES.get(name_of(page), ()))
        elif block.info == "sql":
            scene.try_sql(block.text)


def type_in(block: Block, scene: Scene, hooks: tuple[tuple[str, Hook], ...]) -> None:
    """Run the commands of a block, each after the hooks that it needs."""
    for command in commands_in(block):
        reason = reason_not_to_run(command)
        if reason is not None:
            print(f"not run: {command.text} ({reason})")
            continue
        for pattern, hook in hooks:
            if re.match(pattern, command.text):
                hook(scene, command)
        scene.shell.require(command)


@pytest.mark.parametrize("page", pages_with(run=False), ids=name_of)
def test_commands_are_understood(page: Path) -> None:
    """Every command of ours on a page is one that there is, with arguments and flags that it takes."""
    for command in commands_of(page.read_text(encoding="utf-8")):
        for words in stages_of(command.text):
            called = without_settings(words) if words[0] != "export" else words
            called = called[: called.index(">")] if ">" in called else called
            if called[0] == "holdfast":
                app.parse_args(command_first(called[1:]), exit_on_error=False, print_error=False)


def test_the_shell_notices() -> None:
    """The tests above would prove nothing if commands were not found, or all of them were left out."""
    page = "```console\n$ a 'b c' | d\n1\n2\n$ e\n```\n"
    assert commands_of(page) == [Command(2, "a 'b c' | d", "1\n2\n"), Command(5, "e", "")]
    assert stages_of("a 'b c' | d >> f # why") == [["a", "b c"], ["d", ">>", "f"]]
    assert re.fullmatch(
        pattern_of("a 9f2c… 1.5 2031-05-01T12:00:00Z …\n"), "a 00ff 2.25 2026-01-02T03:04:05.678Z x\n"
    )
    assert not re.fullmatch(pattern_of("a 1.5\n"), "b 1.5\n")
    run = [one for page in pages_with(run=True) for one in commands_of(page.read_text(encoding="utf-8"))]
    assert sum(reason_not_to_run(one) is None for one in run) > 80
    with pytest.raises(Exception, match="nonsense"):
        app.parse_args(["list", "--nonsense"], exit_on_error=False, print_error=False)
