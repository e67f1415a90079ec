"""`holdfast config show`: the settings in force, and the source of each.

Law: settings are read as `holdfast up` reads them. Credentials are not shown.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from cyclopts import Parameter

from holdfast import masking
from holdfast.edges.cli.output import document, rows
from holdfast.edges.settings.read import read_settings, shown
from holdfast.edges.settings.table import SETTINGS

_SECRET: Final = frozenset({"audit_key", "nats_password", "nats_token"})
_ADDRESSES: Final = frozenset({"db", "nats"})
_PATHS: Final = frozenset({"nats_creds", "nats_nkey", "nats_tls_key"})
DEFAULT: Final = "default"


def show(
    *,
    config: str | None = None,
    json: Annotated[bool, Parameter(alias="-j")] = False,
) -> None:
    """Print every setting with its value and where that comes from: a variable, a file, or the default.

    Parameters
    ----------
    config
        The file with settings. If not given: $HOLDFAST_CONFIG, or ./holdfast.toml or ./holdfast.json.
    json
        Print JSON.
    """
    settings, sources = read_settings(config=config)
    found = [
        {
            "setting": name,
            "value": _masked(name, getattr(settings, name)),
            "source": sources.get(name, DEFAULT),
        }
        for name in SETTINGS
    ]
    if json:
        document({"settings": found})
        return
    rows(
        ("setting", "value", "source"),
        ((one["setting"], _cell(one["value"]), one["source"]) for one in found),
    )


def _masked(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _SECRET:
        return masking.MASK
    if name in _ADDRESSES:
        return shown(value) if name == "db" else masking.shown(value)
    return masking.shown_path(value) if name in _PATHS else value


def _cell(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(value) or None
    return None if value is None else str(value)
