"""The default address for commands that name no store: the configured store or service.

Nothing is opened here.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlencode

from holdfast.edges.settings.read import read_settings
from holdfast.edges.settings.table import Config

_ANY: Final = ("0.0.0.0", "::")
"""The hosts that stand for every address of this machine."""
_OPTIONS: Final = {
    "creds": "nats_creds",
    "nkey": "nats_nkey",
    "tls_ca": "nats_tls_ca",
    "tls_cert": "nats_tls_cert",
    "tls_key": "nats_tls_key",
}
"""The options of a service's URL, and the settings that they come from."""


def store_address() -> str:
    """Return the URL of the configured store or service; by default that of the user's own store."""
    config, sources = read_settings()
    if "db" in sources or not config.nats:
        return config.db
    return service_url(config, config.nats)


def service_url(config: Config, servers: str) -> str:
    """Return the URL of the service behind these NATS servers, with the login from the settings."""
    login = _login(config)
    listed = [_with_login(one.strip(), login) for one in servers.split(",")]
    options = {name: getattr(config, setting) for name, setting in _OPTIONS.items()}
    query = {name: value for name, value in options.items() if value is not None}
    if config.nats_tls_first:
        query["tls_first"] = "true"
    if config.subject_prefixes[0] != "db":
        query["prefix"] = config.subject_prefixes[0]
    return ",".join(listed) + (f"?{urlencode(query)}" if query else "")


def public_url(config: Config, servers: str) -> str:
    """Return the URL of the service behind these NATS servers, without credentials."""
    listed = [_with_login(one.strip(), "").partition("://") for one in servers.split(",")]
    prefix = config.subject_prefixes[0]
    option = "" if prefix == "db" else f"?prefix={prefix}"
    return ",".join(f"{scheme}://{place.rpartition('@')[2]}" for scheme, _, place in listed) + option


def local_http_url(config: Config) -> str | None:
    """Return the URL at which processes of this machine need neither a token nor a certificate, if any."""
    if config.http_tls_cert:
        return None
    if config.http_host in _ANY:
        return f"http://127.0.0.1:{config.http_port}"
    return http_url(config) if is_loopback(config.http_host) else None


def http_url(config: Config) -> str:
    """Return the URL of the service over HTTP, as it is configured."""
    scheme = "https" if config.http_tls_cert else "http"
    host = f"[{config.http_host}]" if ":" in config.http_host else config.http_host
    return f"{scheme}://{host}:{config.http_port}"


def _login(config: Config) -> str:
    """Return the user information of a URL, for logging in with a password or a token."""
    if config.nats_user is not None and config.nats_password is not None:
        return f"{quote(config.nats_user, safe='')}:{quote(config.nats_password, safe='')}@"
    return "" if config.nats_token is None else f"{quote(config.nats_token, safe='')}@"


def _with_login(server: str, login: str) -> str:
    scheme, separator, place = server.partition("://") if "://" in server else ("nats", "://", server)
    return f"{scheme}{separator}{place if '@' in place else login + place}"


@lru_cache(maxsize=256)
def is_loopback(address: str) -> bool:
    """Return whether an address is one of this machine only."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address == "localhost"
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback
