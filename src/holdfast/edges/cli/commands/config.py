"""`holdfast config show`: the settings in force, and the source of each.

Law: settings are read as `holdfast up` reads them. Credentials are not shown.
"""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from holdfast.edges.cli.output import document, rows
from holdfast.edges.settings.read import read_settings
from holdfast.edges.settings.sources import settings_in_force


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
        {name: one[name] for name in ("setting", "value", "source")}
        for one in settings_in_force(settings, sources)
    ]
    if json:
        document({"settings": found})
        return
    rows(
        ("setting", "value", "source"),
        ((one["setting"], _cell(one["value"]), one["source"]) for one in found),
    )


def _cell(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(value) or None
    return None if value is None else str(value)
