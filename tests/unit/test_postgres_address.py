"""Addresses of PostgreSQL with several servers: which are tried, and that a standby is never accepted."""

from __future__ import annotations

import pytest

from holdfast import masking
from holdfast.engines.sql.address import one_by_one, writable
from holdfast.errors import ValidationError

HOSTS = "postgresql://u:p@h1:1,h2:2/db"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (HOSTS, f"{HOSTS}?target_session_attrs=read-write"),
        (f"{HOSTS}?", f"{HOSTS}?target_session_attrs=read-write"),
        (f"{HOSTS}?sslmode=require", f"{HOSTS}?sslmode=require&target_session_attrs=read-write"),
        (f"{HOSTS}?target_session_attrs=primary", f"{HOSTS}?target_session_attrs=primary"),
    ],
)
def test_address_means_a_server_that_accepts_writes(given: str, used: str) -> None:
    """Without a word about it an address means the server that accepts writes."""
    assert writable(given) == used


@pytest.mark.parametrize("asked", ["any", "standby", "prefer-standby", "read-only", ""])
def test_a_standby_is_refused(asked: str) -> None:
    """An address that may lead to a standby is refused: what is read there may be old."""
    with pytest.raises(ValidationError, match="target_session_attrs must be read-write or primary"):
        writable(f"{HOSTS}?target_session_attrs={asked}")


@pytest.mark.parametrize(
    ("given", "each"),
    [
        ("postgresql://h/db", ["postgresql://h/db"]),
        (f"{HOSTS}?a=b", ["postgresql://u:p@h1:1/db?a=b", "postgresql://u:p@h2:2/db?a=b"]),
        ("postgresql://[::1]:1,[::2]", ["postgresql://[::1]:1", "postgresql://[::2]"]),
        ("postgresql:///db", ["postgresql:///db"]),
        ("postgresql:///db?host=a,b", ["postgresql:///db?host=a", "postgresql:///db?host=b"]),
        (
            "postgresql:///db?host=a,b&port=1,2&user=u",
            ["postgresql:///db?host=a&port=1&user=u", "postgresql:///db?host=b&port=2&user=u"],
        ),
        (
            "postgresql:///db?host=a,b&port=1",
            ["postgresql:///db?host=a&port=1", "postgresql:///db?host=b&port=1"],
        ),
        ("postgresql:///db?host=a,b,c&port=1,2", ["postgresql:///db?host=a,b,c&port=1,2"]),
    ],
)
def test_an_address_for_each_server(given: str, each: list[str]) -> None:
    """Each server gets an address of its own, with everything else that the address says."""
    assert one_by_one(given) == each


def test_shown_address_has_all_servers_and_no_password() -> None:
    """The address in messages names all servers and no password."""
    url = f"{HOSTS}?target_session_attrs=read-write"
    assert masking.shown(url) == url.replace(":p@", "@")
    assert masking.hosts(url) == "h1:1,h2:2"
