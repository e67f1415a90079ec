"""What the errors of asyncpg become.

Every row of the translator's tables is looked at, and no word of the driver's may get through.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from holdfast import errors
from holdfast.engines.postgres.errors import may_have_committed, server, translate, unreachable


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("08000", errors.Unavailable),
        ("08003", errors.Unavailable),
        ("08006", errors.Unavailable),
        ("25006", errors.Unavailable),
        ("25P03", errors.Unavailable),
        ("40001", errors.Busy),
        ("40P01", errors.Busy),
        ("53100", errors.StorageFull),
        ("53300", errors.Unavailable),
        ("55P03", errors.Busy),
        ("57014", errors.Unavailable),
        ("57P01", errors.Unavailable),
        ("57P02", errors.Unavailable),
        ("57P03", errors.Unavailable),
        ("57P05", errors.Unavailable),
        ("22P05", errors.DatabaseError),
        ("23505", errors.DatabaseError),
        ("42P01", errors.DatabaseError),
        ("XX000", errors.DatabaseError),
    ],
)
def test_each_sqlstate_has_one_error_without_the_text_of_the_driver(
    state: str, expected: type[errors.HoldfastError]
) -> None:
    """Each SQLSTATE has one meaning, and none of the driver's words are passed on."""
    error: Any = asyncpg.PostgresError.new({"C": state, "M": "secret text", "S": "ERROR"})
    assert type(translate(error)) is expected
    assert "secret" not in str(translate(error))


@pytest.mark.parametrize(
    ("state", "unknown"),
    [
        ("08006", True),
        ("57014", True),
        ("57P01", True),
        ("57P02", True),
        ("0A000", False),
        ("22P05", False),
        ("25006", False),
        ("40001", False),
        ("53100", False),
        ("55P03", False),
    ],
)
def test_nothing_was_written_is_said_only_if_the_server_refused(state: str, unknown: bool) -> None:
    """The caller learns that nothing was written only if the server says that it refused."""
    error: Any = asyncpg.PostgresError.new({"C": state, "M": "", "S": "ERROR"})
    assert may_have_committed(error) is unknown


def test_a_lost_connection_leaves_the_outcome_unknown() -> None:
    """Silence and a broken line say nothing of what was kept."""
    assert may_have_committed(TimeoutError())
    assert may_have_committed(ConnectionResetError())
    assert may_have_committed(asyncpg.InterfaceError(""))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionResetError("secret"), errors.Unavailable),
        (TimeoutError("secret"), errors.Unavailable),
        (asyncpg.InterfaceError("secret"), errors.Unavailable),
        (asyncpg.InternalClientError("secret"), errors.Unavailable),
        (asyncpg.exceptions.InvalidCachedStatementError("secret"), errors.Unavailable),
    ],
)
def test_errors_without_a_sqlstate_are_told_apart_by_type(
    error: Exception, expected: type[errors.HoldfastError]
) -> None:
    """Errors without a SQLSTATE are told apart by their type."""
    assert type(translate(error)) is expected


@pytest.mark.parametrize(
    ("state", "expected", "sentence"),
    [
        ("28P01", errors.Unavailable, "refuses the login"),
        ("3D000", errors.Unavailable, "has no such database"),
        ("53300", errors.Unavailable, "has no connection left"),
        ("57P03", errors.Unavailable, "is starting or stopping"),
        ("08P01", errors.Unavailable, "can't be reached"),
        ("42704", errors.Unsupported, "does not know a setting"),
    ],
)
def test_a_failed_connection_is_explained_with_its_address(
    state: str, expected: type[errors.HoldfastError], sentence: str
) -> None:
    """What keeps a connection from being made is said in a sentence, with the place."""
    error: Any = asyncpg.PostgresError.new({"C": state, "M": "secret text", "S": "FATAL"})
    refusal = unreachable(error, "postgresql://u:p@db.example:5433/x")
    assert type(refusal) is expected
    assert f"PostgreSQL at db.example:5433 {sentence}" in refusal.message


def test_an_unreadable_address_is_a_validation_error() -> None:
    """An address that can't be read is the caller's mistake."""
    error = asyncpg.exceptions.ClientConfigurationError("secret")
    assert type(unreachable(error, "nonsense")) is errors.ValidationError


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://u:p@db.example:5433/x", "db.example:5433"),
        ("postgresql://u:p@a:1,b:2/x", "a:1,b:2"),
        ("postgresql:///x?host=/run/pg&port=5433&password=p", "/run/pg:5433"),
        ("postgresql:///x?password=p", "the default address"),
    ],
)
def test_messages_name_host_and_port_only(dsn: str, shown: str) -> None:
    """Messages name host and port, and nothing else of the address."""
    assert server(dsn) == shown
