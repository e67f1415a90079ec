"""The message that `holdfast up` prints once everything runs: data, addresses, and a command to try.

The command works as printed in the shell that started `up`, and no lasting secret is printed. Where one
is needed, the command names the file or the variable that holds it. The link to the console has a secret that
works once, and is printed only on a terminal.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Final, NamedTuple
from urllib.parse import quote as escaped
from urllib.parse import urlencode

from holdfast import masking
from holdfast.edges.http.app import MCP
from holdfast.edges.nats.cluster_server import login_file
from holdfast.edges.settings.addresses import http_url, is_loopback, local_http_url, store_address
from holdfast.edges.settings.read import open_mode, shown, variable_of
from holdfast.edges.settings.table import Config
from holdfast.engines.cluster.servers import ACCEPTED, RISK
from holdfast.errors import HoldfastError
from holdfast.model import Stats

PLUGIN: Final = "demo"
"""The plugin to try where every client may write to any plugin."""
PLACEHOLDER: Final = "SECRET"
_NAME: Final = re.compile(r"[a-z0-9_-]{1,100}")
_FILES: Final = ("nats_creds", "nats_nkey", "nats_tls_ca", "nats_tls_cert", "nats_tls_key")


class Caller(NamedTuple):
    """A caller for the example command: plugin and login, as text for a shell within double quotes."""

    plugin: str
    user: str
    options: dict[str, str]


def greeting(
    config: Config,
    url: str | None,
    namespaces: Sequence[Stats] | None,
    *,
    no_key: HoldfastError | None = None,
    once: str | None = None,
) -> Iterator[str]:
    """Yield the lines to print for a service at this NATS URL, or for one without NATS.

    `namespaces` is None if they can't be read. `no_key` is the reason why audited writes are refused, if they
    are. `once` is the secret of a link to the console, if a person reads the lines.
    """
    if namespaces is None:
        held = "it can't be read just now: see the log"
    else:
        keys = sum(stats.keys for stats in namespaces)
        held = f"keys: {keys}, namespaces: {len(namespaces)}"
    yield "Holdfast is up."
    yield f"Data  {data_place(config)} ({held})"
    yield "NATS  not served: callers use HTTP" if url is None else f"NATS  {masking.shown(url)}"
    if config.cluster is not None and url is not None:
        place = f"cluster://{masking.hosts(url.partition('://')[2])}/{config.cluster}"
        log = quote(f"{place}?login={escaped(str(login_file(config)), safe='/')}")
        yield f"      ({program()} cluster status --url {log} shows the cluster)"
    if ACCEPTED in config.db:
        yield f"Risk  NATS may acknowledge a write before the disk has it (allow_lazy_sync): {RISK}"
    if no_key is not None:
        yield f"Key   audited writes are refused: {no_key.message}"
    exposed = open_mode(config)
    if exposed is not None:
        yield f"Open  {exposed}"
        if url is not None:
            yield f"      ({program()} nats config writes a configuration that keeps callers apart)"
    if config.http_port:
        yield from _http(config, url, open_mode=exposed is not None)
        yield from _console(config, open_mode=exposed is not None, once=once)
    yield from _to_try_over_http(config) if url is None else _to_try(config, url)
    yield "Ctrl-C stops."


def data_place(config: Config) -> str:
    """Return where the data is, for people."""
    if config.cluster is None:
        return shown(config.db)
    return f"{config.cluster}, with a replica in {config.data_dir}"


def _http(config: Config, url: str | None, *, open_mode: bool) -> Iterator[str]:
    """Yield where HTTP is served, and who needs a token there."""
    address = http_url(config)
    yield f"HTTP  {address}/v1, /readyz and /metrics"
    near = "processes on this machine need no token, others do" if open_mode else "every caller needs a token"
    yield f"      ({near}: {program()} token create{_store_option(config, url)})"
    if open_mode and config.http_hosts:
        yield f"      (callers by the name {', '.join(config.http_hosts)} need one too, as through a proxy)"
    if not config.http_tls_cert and not is_loopback(config.http_host):
        yield "      (without TLS, so tokens and data can be read on the network: see http_tls_cert)"
    if find_spec("mcp") is not None:
        yield f"MCP   {address}{MCP}, {_agents(open_mode=open_mode)}"


def _store_option(config: Config, url: str | None) -> str:
    """Return the option with which a command finds this store, if it would not do so without one."""
    if config.cluster is not None and url is not None:
        return f" --url {_address(config, url, Caller(PLUGIN, _user(config, url), _options(config)))}"
    if store_address() == config.db:
        return ""
    variable = variable_of("db", config.db)
    return f" --url {quote(shown(config.db))}" if variable is None else f' --url "${variable}"'


def _console(config: Config, *, open_mode: bool, once: str | None) -> Iterator[str]:
    """Yield where the console is, and how to log in there."""
    if not config.console:
        return
    near = is_loopback(config.http_host)
    address = f"{http_url(config)}/"
    if once is None or open_mode or not near:
        login = "it needs no login on this machine" if open_mode and near else "log in with a token"
        yield f"Look  {address} ({login})"
    else:
        yield f"Look  {address}ui/login?once={once}"
        yield "      (this link works once, within ten minutes and on this machine; after that use a token)"


def _agents(*, open_mode: bool) -> str:
    """Return for whom the address of the MCP server is."""
    with_token = "for agents with the token of a plugin or project"
    return f"{with_token}; {MCP}/kv/{PLUGIN} needs none on this machine" if open_mode else with_token


def _to_try(config: Config, url: str) -> Iterator[str]:
    caller, prefix = _caller(config, url), config.subject_prefixes[0]
    if prefix != "db":
        caller.options["prefix"] = prefix
    where = _address(config, url, caller)
    yield f"Try   {program()} set greeting '\"hello\"' --plugin {caller.plugin} --url {where}"
    if PLACEHOLDER in where:
        yield f"      (with the secret that this service logs in with in the place of {PLACEHOLDER})"
    yield f'      or with any NATS client: request {prefix}.kv.{caller.plugin}.get with {{"key": "greeting"}}'


def _to_try_over_http(config: Config) -> Iterator[str]:
    """Yield a command to try, and the same with any HTTP client, for a service without NATS."""
    local = local_http_url(config)
    address, token = local or http_url(config), "" if local else f"?token={PLACEHOLDER}"
    where = quote(f"{address}{token}")
    yield f"Try   {program()} set greeting '\"hello\"' --plugin {PLUGIN} --url {where}"
    if token:
        yield f"      (with a token in the place of {PLACEHOLDER})"
    yield f"      or with any HTTP client: GET {address}/v1/kv/{PLUGIN}/greeting"


def program() -> str:
    """Return the shell command of this installation."""
    scripts = (Path(sys.argv[0]), Path(sys.executable).with_name("holdfast"))
    own = next((path.absolute() for path in scripts if path.name == "holdfast" and path.is_file()), None)
    if own is None:
        return f"{quote(sys.executable)} -m holdfast"
    on_path = shutil.which("holdfast")
    return "holdfast" if on_path is not None and own.samefile(on_path) else quote(str(own))


def _caller(config: Config, url: str) -> Caller:
    """Return a plugin with its own credentials, or else the demo plugin with those of the service."""
    return _plugin_beside(config) or Caller(PLUGIN, _user(config, url), _options(config))


def _plugin_beside(config: Config) -> Caller | None:
    """Return the first plugin whose credentials are where `holdfast nats config --out` puts them."""
    files = (config.nats_config, config.nats_nkey)
    for folder in [Path(path).absolute().parent / "plugins" for path in files if path]:
        for file in sorted((*folder.glob("*.nk"), *folder.glob("*.password"))):
            if _NAME.fullmatch(file.stem):
                return _plugin_of(file, _options(config))
    return None


def _plugin_of(file: Path, options: dict[str, str]) -> Caller:
    plugin = file.stem
    options = {name: said for name, said in options.items() if name.startswith("tls")}
    options["inbox"] = f"_INBOX.{plugin}"
    if file.suffix == ".nk":
        return Caller(plugin, "", {"nkey": str(file), **options})
    return Caller(plugin, f"{plugin}:$(cat {quote(str(file))})@", options)


def _options(config: Config) -> dict[str, str]:
    """Return the URL options with which a client logs in like the service."""
    named = {name.removeprefix("nats_"): getattr(config, name) for name in _FILES}
    options = {name: str(Path(path).absolute()) for name, path in named.items() if path is not None}
    return options | ({"tls_first": "true"} if config.nats_tls_first else {})


def _user(config: Config, url: str) -> str:
    """Return the user information of a URL if the service logs in with a password or a token."""
    if config.nats_user is not None and config.nats_password is not None:
        return f"{escaped(config.nats_user, safe='')}:{_secret('nats_password', config.nats_password)}@"
    if config.nats_token is not None:
        return f"{_secret('nats_token', config.nats_token)}@"
    user, at, _ = _first(url).partition("://")[2].rpartition("@")
    if not at:
        return ""
    return f"{PLACEHOLDER}@" if user == masking.MASK else f"{user}:{PLACEHOLDER}@"


def _secret(name: str, value: str) -> str:
    """Return the variable that holds a secret, if the secret needs no escaping in a URL."""
    variable = variable_of(name, value)
    return PLACEHOLDER if variable is None or escaped(value, safe="") != value else f"${variable}"


def _address(config: Config, url: str, caller: Caller) -> str:
    """Return the URL for a caller, quoted for a shell."""
    options = f"?{urlencode(caller.options, safe='/')}" if caller.options else ""
    variable = variable_of("nats", url) if PLACEHOLDER in caller.user else None
    if variable is not None:
        return f'"${variable}{options}"'
    scheme, _, rest = _first(url).partition("://")
    address = f"{scheme}://{caller.user}{rest.rpartition('@')[2]}{options}"
    return f'"{address}"' if "$" in address else quote(address)


def _first(url: str) -> str:
    """Return the first server as a URL, without secrets."""
    first = masking.shown(url).partition(",")[0]
    return first if "://" in first else f"nats://{first}"
