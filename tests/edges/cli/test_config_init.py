"""`holdfast config init`: a file with every setting, which is never lost to a second call."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest

from holdfast.edges.cli.commands.up import example_json, example_toml
from holdfast.edges.settings.read import read_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli


def test_config_init_writes_the_example_for_the_owner_alone(cli: Cli, tmp_path: Path) -> None:
    """Without arguments ./holdfast.toml has every setting as a comment, and `up` takes it as it is."""
    outcome = cli("config", "init")
    path = tmp_path / "holdfast.toml"
    assert (outcome.code, outcome.out) == (0, "")
    assert (
        outcome.err
        == "holdfast: wrote holdfast.toml; edit it, then run: holdfast up --config holdfast.toml\n"
    )
    assert path.read_text() == example_toml()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_config(config=str(path), environment={}) == read_config(environment={})


def test_a_name_in_json_gets_json(cli: Cli, tmp_path: Path) -> None:
    """The ending chooses the form, as it does when the file is read."""
    assert cli("config", "init", "my.json").code == 0
    path = tmp_path / "my.json"
    assert path.read_text() == example_json()
    assert read_config(config=str(path), environment={}) == read_config(environment={})


def test_a_file_that_is_there_is_kept_without_force(cli: Cli, tmp_path: Path) -> None:
    """A second call is refused with what to do, and leaves the file as it was; --force replaces it."""
    path = tmp_path / "holdfast.toml"
    path.write_text("mine")
    outcome = cli("config", "init")
    assert (outcome.code, outcome.err) == (2, "holdfast: holdfast.toml already exists; --force replaces it\n")
    assert path.read_text() == "mine"
    assert cli("config", "init", "--force").code == 0
    assert path.read_text() == example_toml()
    assert [one.name for one in tmp_path.iterdir()] == ["holdfast.toml"]


def test_config_init_answers_with_json(cli: Cli, tmp_path: Path) -> None:
    """A script learns where the file is, and of an error by its code."""
    outcome = cli("config", "init", "--json")
    assert json.loads(outcome.out) == {"path": str(tmp_path / "holdfast.toml")}
    assert outcome.err == ""
    refused = cli("config", "init", "--json")
    assert (refused.code, json.loads(refused.err)["field"]) == (2, "path")


@pytest.mark.parametrize(("path", "reason"), [("none/x.toml", "no such file"), (".", "is a directory")])
def test_a_place_that_can_not_be_written_is_named(cli: Cli, path: str, reason: str) -> None:
    """The line has the path and the reason."""
    outcome = cli("config", "init", path, "--force")
    assert outcome.code == 2
    assert path in outcome.err
    assert reason in outcome.err
