"""Settings: one table, five places in the order of their weight, and errors that name what is wrong."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.edges.cli.commands.up import example_json, example_toml, up
from holdfast.edges.nats.service import Settings
from holdfast.edges.serve import settings_of
from holdfast.edges.served_store import defaults_of
from holdfast.edges.settings.read import ignored_settings, read_config, shown
from holdfast.edges.settings.table import SETTINGS
from holdfast.errors import ValidationError
from holdfast.model import Policy

ROOT: Final = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, in which no configuration is found by chance."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_default_store_is_in_the_users_data_folder() -> None:
    """Without any setting the store is under $XDG_DATA_HOME/holdfast."""
    config = read_config(db=None, log_level=None, environment={"XDG_DATA_HOME": "/data"})
    assert (config.db, config.data_dir) == ("/data/holdfast/holdfast.db", "/data/holdfast")
    assert (config.log_level, config.nats, config.nats_port, config.http_port) == ("INFO", None, 4222, 8420)


def test_relative_data_home_is_ignored() -> None:
    """A relative XDG_DATA_HOME is invalid by the XDG rules, so the default folder is used."""
    config = read_config(environment={"XDG_DATA_HOME": "data"})
    assert config.db == str(Path.home() / ".local/share/holdfast/holdfast.db")


def test_another_data_folder_is_another_store() -> None:
    """Another data folder is another store, unless that is named too."""
    assert read_config(data_dir="/srv/h", environment={}).db == "/srv/h/holdfast.db"
    assert read_config(data_dir="~/h", environment={}).db == str(Path.home() / "h" / "holdfast.db")
    assert read_config(data_dir="/srv/h", db="memory://", environment={}).db == "memory://"


def test_flags_precede_variables_files_and_defaults(folder: Path) -> None:
    """Flags, then HOLDFAST_*, then NATS_*, then the file, then the default."""
    (folder / "holdfast.toml").write_text('[nats]\nurl = "file"\nuser = "file"\ntoken = "file"\nport = 1\n')
    environment = {
        "NATS_URL": "nats-variable",
        "NATS_USER": "nats-variable",
        "HOLDFAST_NATS": "variable",
        "HOLDFAST_NATS_PORT": "2",
    }
    config = read_config(nats_port=3, nats_user=None, environment=environment)
    assert (config.nats_port, config.nats, config.nats_user) == (3, "variable", "nats-variable")
    assert (config.nats_token, config.nats_password) == ("file", None)
    assert read_config(environment={}).nats_port == 1


def test_an_empty_variable_is_not_set() -> None:
    """A variable that is empty says nothing, as in most programs."""
    assert read_config(environment={"HOLDFAST_NATS": "", "NATS_URL": ""}).nats is None


def test_variables_are_converted_to_the_type_of_the_setting() -> None:
    """Variables hold text alone: numbers, truth, choices and lists are read from it."""
    config = read_config(
        environment={
            "HOLDFAST_RATE_LIMIT": "2.5",
            "HOLDFAST_EVENTS": "false",
            "HOLDFAST_REPLY_MODE": "Accounts",
            "HOLDFAST_LOG_LEVEL": "debug",
            "HOLDFAST_SUBJECT_PREFIXES": "a, b.c",
            "HOLDFAST_OWN_CONNECTION": "trivia",
        }
    )
    assert (config.rate_limit, config.events, config.reply_mode) == (2.5, False, "accounts")
    assert (config.log_level, config.subject_prefixes) == ("DEBUG", ("a", "b.c"))
    assert config.own_connection == ("trivia",)


@pytest.mark.parametrize(
    ("name", "said", "form"),
    [
        ("http_port", "65536", "a whole number from 0 to 65,535"),
        ("http_port", "many", "a whole number"),
        ("nats_port", "0", "a whole number from 1"),
        ("deadline_ms", "-1", "a whole number from 1"),
        ("kv_cleanup_interval_seconds", "0", "a number from 0.1"),
        ("rate_limit", "0", "a number above 0"),
        ("events", "perhaps", "true or false"),
        ("reply_mode", "closed", "one of accounts, open, permissions"),
        ("log_level", "loud", "one of CRITICAL, DEBUG"),
        ("subject_prefixes", "db.*", "a list of one or more prefixes"),
        ("subject_prefixes", ",", "a list of one or more prefixes"),
        ("own_connection", "No Plugin", "a list of plugins' names"),
        ("metrics_prefix", "9lives", "a name of letters"),
    ],
)
def test_an_invalid_setting_is_refused_by_name(name: str, said: str, form: str) -> None:
    """A wrong type or range names the variable and says what would be right."""
    variable = f"HOLDFAST_{name.upper()}"
    with pytest.raises(ValidationError, match=rf"^{variable} must be {re.escape(form)}") as caught:
        read_config(environment={variable: said})
    assert caught.value.field == name


@pytest.mark.parametrize("said", ["8080", 80.5, True, [1], {}])
def test_a_file_must_have_the_right_types(folder: Path, said: Any) -> None:
    """A file can say what it means: text that looks like a number is none."""
    (folder / "holdfast.json").write_text(json.dumps({"http": {"port": said}}))
    with pytest.raises(ValidationError, match=r"^http\.port must be a whole number") as caught:
        read_config(environment={})
    assert caught.value.field == "http_port"


def test_a_flag_is_named_as_it_is_typed() -> None:
    """An illegal flag is complained of under its own name."""
    with pytest.raises(ValidationError, match=r"^--http-port must be"):
        read_config(http_port=-1, environment={})


def test_unknown_settings_of_a_file_are_named(folder: Path) -> None:
    """A misspelled setting is an error and not silence; all of them are named at once."""
    (folder / "holdfast.toml").write_text("colour = 1\n[http]\nprot = 1\nport = 2\n[nats]\nurls = 3\n")
    with pytest.raises(
        ValidationError, match=r"holdfast\.toml has unknown settings: colour, http\.prot, nats\.urls$"
    ):
        read_config(environment={})


def test_a_bots_own_file_is_read(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that a bot has for itself is read by the names of our sections; one line names the others."""
    (folder / "config.json").write_text(
        json.dumps(
            {
                "channels": [{"name": "lobby"}],
                "database": {"url": "bot.db", "kv_cleanup_interval_seconds": 60, "pool_size": 5},
                "logging": {"level": "DEBUG"},
                "plugins": {"trivia": {"enabled": True}},
                "version": 2,
            }
        )
    )
    config = read_config(config="config.json", environment={})
    assert (config.db, config.kv_cleanup_interval_seconds, config.log_level) == ("bot.db", 60, "DEBUG")
    line = (
        "config.json has settings of another program, which are ignored: "
        "channels, database.pool_size, plugins, version"
    )
    assert caplog.messages == [line]
    assert ignored_settings(config="config.json", environment={}) == line
    (folder / "config.json").write_text(json.dumps({"plugins": {}, "database": {"url": 5}}))
    with pytest.raises(ValidationError, match=r"^database\.url must be"):
        read_config(config="config.json", environment={})
    (folder / "config.json").write_text(json.dumps({"database": {"urll": "bot.db"}}))
    with pytest.raises(ValidationError, match=r"unknown settings: database\.urll$"):
        read_config(config="config.json", environment={})
    (folder / "holdfast.json").write_text(json.dumps({"datbase": {"url": "bot.db"}}))
    with pytest.raises(ValidationError, match=r"unknown settings: datbase\.url$"):
        read_config(environment={})
    assert ignored_settings(environment={}) is None


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "[http]\nport = x\n", r"a\.toml is not valid TOML: .*line 2"),
        ("a.json", '{\n"http": }', r"a\.json is not valid JSON: see line 2, column 9"),
        ("a.json", "[]", r"a\.json must hold a JSON object"),
        ("a.json", None, r"a\.json can't be read: No such file"),
        ("a.json", b"\xff", r"a\.json can't be read: it is no text"),
    ],
)
def test_a_file_that_can_not_be_read_is_named(folder: Path, name: str, text: Any, message: str) -> None:
    """What is wrong with a file is said with the place, whoever named the file."""
    if text is not None:
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    for config, environment in ((name, {}), (None, {"HOLDFAST_CONFIG": name})):
        with pytest.raises(ValidationError, match=message) as caught:
            read_config(config=config, environment=environment)
        assert caught.value.field == "config"


@pytest.mark.parametrize("prefixes", ["db,db.more", "db.more,db", "db,db"])
def test_prefixes_must_be_told_apart(prefixes: str) -> None:
    """A subject must not be read in two ways."""
    with pytest.raises(ValidationError, match="can't be told apart"):
        read_config(environment={"HOLDFAST_SUBJECT_PREFIXES": prefixes})


def test_a_key_needs_its_certificate() -> None:
    """Half of what TLS needs is refused before anything is sent."""
    with pytest.raises(ValidationError, match="nats_tls_key needs nats_tls_cert"):
        read_config(nats_tls_key="key.pem", environment={})


def test_a_password_is_never_shown() -> None:
    """Where a store or a server is can be printed and logged: the password is left out."""
    assert shown("postgresql://me:secret@host:5432/db") == "postgresql://me@host:5432/db"
    assert shown("postgresql://host/db") == "postgresql://host/db"
    assert shown("state.db") == str(Path("state.db").absolute())


def test_defaults_are_those_of_the_service() -> None:
    """Whoever embeds the service and whoever runs it get the same behaviour."""
    assert settings_of(read_config(environment={})) == Settings()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"HOLDFAST_REPLY_MODE": "accounts"}, Policy(quota_bytes=1_000_000_000, rate_limit=5_000)),
        ({"HOLDFAST_REPLY_MODE": "permissions"}, Policy(quota_bytes=1_000_000_000, rate_limit=5_000)),
        ({"HOLDFAST_DEFAULT_QUOTA_BYTES": "5000"}, Policy(quota_bytes=5_000)),
        (
            {"HOLDFAST_REPLY_MODE": "accounts", "HOLDFAST_DEFAULT_QUOTA_BYTES": "0"},
            Policy(rate_limit=5_000),
        ),
        (
            {
                "HOLDFAST_REPLY_MODE": "accounts",
                "HOLDFAST_DEFAULT_QUOTA_BYTES": "0",
                "HOLDFAST_DEFAULT_RATE_LIMIT": "0",
            },
            None,
        ),
    ],
)
def test_default_quotas_hold_where_plugins_are_told_apart(
    given: dict[str, str], expected: Policy | None
) -> None:
    """With credentials a namespace has a quota and a rate, in open mode only if asked for; 0 lifts one."""
    assert defaults_of(read_config(environment=given)) == expected


def test_the_flags_are_those_of_the_table() -> None:
    """`holdfast up` takes the settings that the table marks, and the file, and nothing else."""
    marked = {setting.name for setting in SETTINGS.values() if setting.flag}
    assert set(inspect.signature(up).parameters) == marked | {"config"}


def test_the_example_files_show_the_table() -> None:
    """The example files name every setting with its default; used as they are they change nothing."""
    toml, example = (ROOT / "holdfast.toml.dist").read_text(), (ROOT / "config.json.dist").read_text()
    assert toml == example_toml()
    assert example == example_json()
    uncommented = tomllib.loads(re.sub(r"^#(?=\w+ = )", "", toml, flags=re.MULTILINE))
    paths = {f"{title}.{name}" for title, section in uncommented.items() for name in section}
    assert paths == {setting.path for setting in SETTINGS.values()}


@pytest.mark.parametrize("name", ["holdfast.toml.dist", "config.json.dist"])
def test_the_example_files_can_be_used(folder: Path, name: str) -> None:
    """A copy of an example is a configuration: that of the defaults, also with every mark taken off."""
    defaults = read_config(environment={})
    text = (ROOT / name).read_text()
    copy = folder / name.removesuffix(".dist")
    for variant in (text, re.sub(r"^#(?=\w+ = )", "", text, flags=re.MULTILINE)):
        copy.write_text(variant)
        assert read_config(config=str(copy), environment={}) == defaults
