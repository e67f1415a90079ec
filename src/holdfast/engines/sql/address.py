"""Addresses of PostgreSQL that name several servers, of which one accepts writes.

A store writes, so an address never leads to a standby.
"""

from __future__ import annotations

from typing import Final

from holdfast.errors import ValidationError

_OPTION: Final = "target_session_attrs"
_WRITING: Final = ("read-write", "primary")
"""The values of the option that lead to a server that accepts writes."""


def writable(dsn: str) -> str:
    """Return an address with which the driver accepts only a server that accepts writes.

    Raises:
        ValidationError: The address asks for a standby, or for any server.
    """
    targets = [value for name, value in _options(dsn) if name == _OPTION]
    if not targets:
        head = dsn.rstrip("?&")
        return f"{head}{'&' if '?' in head else '?'}{_OPTION}={_WRITING[0]}"
    if targets[-1] not in _WRITING:
        raise ValidationError(
            f"{_OPTION} must be {' or '.join(_WRITING)} in the address of a store, which is also written to",
            field="url",
        )
    return dsn


def one_by_one(dsn: str) -> list[str]:
    """Return an address for each server that an address names, in its order."""
    head, mark, query = dsn.partition("?")
    scheme, separator, rest = head.partition("://")
    authority, slash, path = rest.partition("/")
    login, at, hosts = authority.rpartition("@")
    if hosts:
        each = (f"{scheme}{separator}{login}{at}{host}{slash}{path}" for host in hosts.split(","))
        return [f"{alone}{mark}{query}" for alone in each]
    options = dict(_options(dsn))
    names, ports = options.pop("host", "").split(","), options.pop("port", "").split(",")
    ports = ports * len(names) if len(ports) == 1 else ports
    if len(names) == 1 or len(ports) != len(names):
        return [dsn]  # the driver says what is wrong with it
    others = [f"{name}={value}" for name, value in options.items()]
    each = (
        f"host={host}&port={port}" if port else f"host={host}"
        for host, port in zip(names, ports, strict=True)
    )
    return [f"{head}?{'&'.join([place, *others])}" for place in each]


def _options(dsn: str) -> list[tuple[str, str]]:
    """Return the options of an address, as they are written."""
    pairs = (option.partition("=") for option in dsn.partition("?")[2].split("&") if option)
    return [(name, value) for name, _, value in pairs]
