"""Settings: a flag outweighs a variable, a variable outweighs the default."""

from __future__ import annotations

from pathlib import Path

from holdfast.edges.config import read_config
from holdfast.edges.serve import shown


def test_default_store_is_in_the_users_data_folder() -> None:
    """Without any setting the store is under $XDG_DATA_HOME/holdfast."""
    config = read_config(db=None, log_level=None, environment={"XDG_DATA_HOME": "/data"})
    assert (config.db, config.log_level) == ("/data/holdfast/holdfast.db", "INFO")


def test_relative_data_home_is_ignored() -> None:
    """A relative XDG_DATA_HOME is invalid by the XDG rules, so the default folder is used."""
    config = read_config(db=None, log_level=None, environment={"XDG_DATA_HOME": "data"})
    assert config.db == str(Path.home() / ".local/share/holdfast/holdfast.db")


def test_variables_outweigh_defaults() -> None:
    """HOLDFAST_* variables are honoured."""
    environment = {"HOLDFAST_DB": "other.db", "HOLDFAST_LOG_LEVEL": "debug"}
    config = read_config(db=None, log_level=None, environment=environment)
    assert (config.db, config.log_level) == ("other.db", "DEBUG")


def test_flags_outweigh_variables() -> None:
    """What is said on the command line wins."""
    environment = {"HOLDFAST_DB": "other.db", "HOLDFAST_LOG_LEVEL": "debug"}
    config = read_config(db="mine.db", log_level="error", environment=environment)
    assert (config.db, config.log_level) == ("mine.db", "ERROR")


def test_a_password_is_never_shown() -> None:
    """Where the store is can be printed and logged: the password is left out."""
    assert shown("postgresql://me:secret@host:5432/db") == "postgresql://me@host:5432/db"
    assert shown("postgresql://host/db") == "postgresql://host/db"
    assert shown("state.db") == str(Path("state.db").absolute())
