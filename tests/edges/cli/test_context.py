"""Contexts, and the settings with where they come from."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli


def test_a_context_leads_to_its_store(cli: Cli, tmp_path: Path) -> None:
    """A short name stands for a store and a namespace, from every folder, and outweighs variables."""
    added = cli("context", "add", "prod", "--url", "other.db", "--plugin", "web")
    assert (added.code, str(tmp_path / "other.db") in added.err) == (0, True)
    cli.did("-c", "prod", "set", "k", "1")
    cli.did("set", "mine", "1")
    assert cli.did("-c", "prod", "list").out == "k\n"
    assert cli.did("list", "--context", "prod").out == "k\n"
    assert cli.did("get", "k", "-c", "prod").out == "1\n"
    assert cli.did("list").out == "mine\n"
    assert cli.did("list", "-c", "prod", "-p", "none").out == ""
    assert cli.did("stats", "-c", "prod").out.startswith("kv/web\t1\t")
    assert cli.did("-c", "prod", "table", "list").out == ""


def test_the_variable_of_a_context(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context can be set for a shell; a URL that is set outweighs it, and so does an option."""
    cli("context", "add", "prod", "--url", "other.db", "--tenant", "acme", "--project", "web")
    monkeypatch.setenv("HOLDFAST_CONTEXT", "prod")
    monkeypatch.delenv("HOLDFAST_URL")
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    cli.did("set", "color", "1")
    assert cli.did("list").out == "tenant/acme/project/web/color\n"
    monkeypatch.setenv("HOLDFAST_URL", "third.db")
    assert cli.did("list").out == ""


def test_the_default_context(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that name no store use the chosen context, also after it is replaced, until none is chosen."""
    cli.did("set", "mine", "1")
    cli("context", "add", "prod", "--url", "other.db", "--plugin", "web")
    cli("context", "add", "test", "--url", "third.db", "--plugin", "web")
    assert cli("context", "use", "prod").err == "holdfast: commands use context prod by default\n"
    assert cli.did("list").out == "mine\n"
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    assert cli("list").err.startswith("holdfast: whose keys?")
    monkeypatch.delenv("HOLDFAST_URL")
    cli.did("set", "theirs", "1")
    assert cli.did("list").out == "theirs\n"
    assert cli.did("list", "-c", "test").out == ""
    assert cli.did("get", "theirs", "--url", "other.db", "--plugin", "web").out == "1\n"
    cli("context", "add", "prod", "--url", "other.db", "--plugin", "none", "--force")
    assert cli.did("list").out == ""
    assert cli.did("context", "use", "test", "--json").json == {"default": "test"}
    shown = cli.did("context", "list", "--json").json["contexts"]
    assert {one["name"]: one["default"] for one in shown} == {"prod": False, "test": True}
    assert cli("context", "use", "--none").code == 0
    assert cli("list").err.startswith("holdfast: whose keys?")
    assert cli("context", "use", "nowhere").code == cli("context", "use").code == 2


def test_commands_of_other_stores_are_recognized(cli: Cli) -> None:
    """A word that is no command is named, with the command that was probably meant."""
    assert "'expire' is not a command. Did you mean holdfast ttl set?" in cli("expire", "k", "10").err
    assert "Did you mean holdfast table list?" in cli("table", "lst").err
    assert "Did you mean" not in cli("frobnicate").err


def test_the_file_of_contexts(cli: Cli, tmp_path: Path) -> None:
    """Only its owner can read it, and what it holds is shown without secrets."""
    cli("context", "add", "bus", "--url", "nats://u:secret@h:1", "--creds", "my.creds", "--tls-ca", "ca.pem")
    cli("context", "add", "db", "--url", "postgresql://u:secret@h/x", "-p", "jobs")
    file = tmp_path / "config" / "holdfast" / "contexts.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert f"creds={tmp_path}/my.creds&tls_ca={tmp_path}/ca.pem" in file.read_text()
    shown = cli.did("context", "list").out
    assert "secret" not in shown + cli.did("context", "ls", "--json").out
    assert [row.split("\t")[0] for row in shown.splitlines()] == ["bus", "db"]
    assert "kv/jobs" in shown


def test_unknown_and_existing_contexts_are_refused(cli: Cli, tmp_path: Path) -> None:
    """A name that is not there is told with those that are; nothing is overwritten or half written."""
    assert "holdfast context add" in cli("-c", "nowhere", "list").err
    cli("context", "add", "prod", "--url", "a.db")
    assert "the contexts are: prod" in cli("-c", "nowhere", "list").err
    for wrong in (
        "context add prod --url b.db",
        "context add Bad/Name --url b.db",
        "context add x --url ftp://h",
        "context add x --url a.db --tenant t",
        "context add x --url a.db --tenant t --project p --plugin q",
        "context add x",
    ):
        assert cli(*wrong.split()).code == 2, wrong
    cli("context", "add", "prod", "--url", "b.db", "--force")
    assert "b.db" in cli.did("context", "list").out
    assert "is removed" in cli("context", "rm", "prod").err
    assert cli("context", "rm", "prod", "--json").json == {"removed": False}
    (tmp_path / "config" / "holdfast" / "contexts.json").write_text("[]")
    assert cli("-c", "prod", "list").code == 2


def test_settings_and_where_they_come_from(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting has its value and its place: a variable, a file or the default. Secrets stay secret."""
    (tmp_path / "holdfast.toml").write_text('[service]\nslow_ms = 7\n[nats]\npassword = "pst"\n')
    monkeypatch.setenv("NATS_URL", "nats://u:pst@h:1")
    monkeypatch.setenv("HOLDFAST_HTTP_PORT", "0")
    outcome = cli.did("config", "show")
    assert "pst" not in outcome.out
    rows = {row.split("\t")[0]: tuple(row.split("\t")[1:]) for row in outcome.out.splitlines()}
    assert rows["slow_ms"] == ("7", "service.slow_ms in holdfast.toml")
    assert rows["http_port"] == ("0", "HOLDFAST_HTTP_PORT")
    assert rows["nats"][1] == "NATS_URL"
    assert rows["nats_password"] == ("***", "nats.password in holdfast.toml")
    assert rows["log_level"] == ("INFO", "default")
    settings = cli.did("config", "show", "--json").json["settings"]
    assert len(settings) == len(rows)
