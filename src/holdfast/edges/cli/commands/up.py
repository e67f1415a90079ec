"""`holdfast up`: run the service."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Group, Parameter

from holdfast import extras
from holdfast.edges.settings.read import ignored_settings, read_settings
from holdfast.edges.settings.table import SETTINGS

LOGIN = Group("Logging in to NATS", sort_key=5)
CLUSTER = Group("Being part of a cluster", sort_key=4)


def _flag(name: str, group: Group | None = None) -> Parameter:
    setting = SETTINGS[name]
    words = setting.about.help
    if setting.default is not None:
        words += f" {setting.default} if not given."
    elif setting.about.otherwise:
        words += f" If not given: {setting.about.otherwise}."
    # A group of None would mean a group without a heading, which help leaves out.
    return Parameter(help=words) if group is None else Parameter(help=words, group=group)


def _switch(name: str) -> Parameter:
    """Return a flag that is on unless its opposite is given."""
    return Parameter(help=SETTINGS[name].about.help, negative=f"--no-{name}")


def up(
    *,
    db: Annotated[str | None, _flag("db")] = None,
    nats: Annotated[str | None, _flag("nats")] = None,
    nats_port: Annotated[int | None, _flag("nats_port")] = None,
    nats_config: Annotated[str | None, _flag("nats_config")] = None,
    http_port: Annotated[int | None, _flag("http_port")] = None,
    console: Annotated[bool | None, _switch("console")] = None,
    data_dir: Annotated[str | None, _flag("data_dir")] = None,
    cluster: Annotated[str | None, _flag("cluster", CLUSTER)] = None,
    peers: Annotated[str | None, _flag("peers", CLUSTER)] = None,
    cluster_host: Annotated[str | None, _flag("cluster_host", CLUSTER)] = None,
    cluster_port: Annotated[int | None, _flag("cluster_port", CLUSTER)] = None,
    allow_lazy_sync: Annotated[bool | None, _flag("allow_lazy_sync", CLUSTER)] = None,
    config: str | None = None,
    log_level: Annotated[str | None, _flag("log_level")] = None,
    nats_user: Annotated[str | None, _flag("nats_user", LOGIN)] = None,
    nats_password: Annotated[str | None, _flag("nats_password", LOGIN)] = None,
    nats_token: Annotated[str | None, _flag("nats_token", LOGIN)] = None,
    nats_creds: Annotated[str | None, _flag("nats_creds", LOGIN)] = None,
    nats_nkey: Annotated[str | None, _flag("nats_nkey", LOGIN)] = None,
    nats_tls_ca: Annotated[str | None, _flag("nats_tls_ca", LOGIN)] = None,
    nats_tls_cert: Annotated[str | None, _flag("nats_tls_cert", LOGIN)] = None,
    nats_tls_key: Annotated[str | None, _flag("nats_tls_key", LOGIN)] = None,
    nats_tls_first: Annotated[bool | None, _flag("nats_tls_first", LOGIN)] = None,
) -> None:
    """Serve a store over NATS and HTTP until Ctrl-C, with health and metrics.

    Without any option a NATS server is started on this machine and the store is the user's own. Every option
    is also a variable and a setting of a file; the reference of settings lists them all.

    Parameters
    ----------
    config
        The file with settings. If not given: $HOLDFAST_CONFIG, or ./holdfast.toml or ./holdfast.json.
    """
    flags = dict(locals())
    with extras.needed("server", "holdfast up"):
        # late: optional driver; the service takes 250 ms, and help imports this module
        import uvloop

        from holdfast.edges.serve import serve
    settings, sources = read_settings(**flags)
    uvloop.run(serve(settings, sources=sources, ignored=ignored_settings(config=config)))
