"""The commands of the deployment checklist show what the page says, beside a service that was just started.

The commands are taken from the page and run from top to bottom. Only addresses are others. What asks a
part of the reader's own machine is listed here, and everything else runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.shell import Command, Services, Shell, commands_of, stages_of
from tests.docs.test_reference import read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE: Final = "howto/deployment-checklist.md"
THE_READERS: Final = {
    "systemctl": "the machine must run systemd",
    "nats": "the tool nats is the reader's own",
    "openssl": "the certificate is the reader's own",
    "timedatectl": "the time service is the machine's own",
    "psql": "the database is the reader's own",
    "promtool": "the rules are tested by tests/ops",
    "journalctl": "the machine must run systemd",
}
"""Programs that are not started, with the reason."""
TOPICS: Final = (
    *("The store", "Backup", "Credentials", "TLS", "Limits, rates and quotas", "Monitoring", "The audit"),
    *("The clock", "Updates", "Rollback", "The service"),
)


def runs(command: Command) -> bool:
    """Whether a command can be run here."""
    started = {words[0] for words in stages_of(command.text)}
    return not started & set(THE_READERS) and "bus.example" not in command.text


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell in the folder where a service has its store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path))
    with asyncio.Runner() as runner:
        services = Services(tmp_path, runner)
        services.start("--db", "state.db")
        try:
            yield Shell(monkeypatch, tmp_path, services)
        finally:
            services.stop()


def test_the_checklist_works_from_top_to_bottom(shell: Shell) -> None:
    """An operator who types the commands in the page's order sees what the page says."""
    commands = [command for command in commands_of(read(PAGE)) if runs(command)]
    assert len(commands) > 25
    for command in commands:
        shell.require(command)


def test_every_item_can_be_ticked() -> None:
    """Each topic that decides about going live has items to tick, each with the command that shows it."""
    sections = dict(part.split("\n", 1) for part in read(PAGE).split("\n## ")[1:])
    assert set(TOPICS) <= set(sections)
    for title, text in sections.items():
        _, *items = text.split("\n- [ ] **")
        assert items, title
        assert [item[:40] for item in items if "\n```console\n$ " not in item] == []
