"""The settings in force as people see them: value, source and purpose, without credentials.

Law: a credential leaves this module only as a mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast import masking
from holdfast.edges.settings.read import shown
from holdfast.edges.settings.table import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.edges.settings.table import Config

DEFAULT: Final = "default"
"""The source of a setting that was not given."""
_SECRET: Final = frozenset({"audit_key", "nats_password", "nats_token"})
_ADDRESSES: Final = frozenset({"db", "nats"})
_PATHS: Final = frozenset({"nats_creds", "nats_nkey", "nats_tls_key"})


def settings_in_force(config: Config, sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return every setting with its value, where that comes from, and its purpose."""
    return [
        {
            "setting": name,
            "value": _masked(name, getattr(config, name)),
            "source": sources.get(name, DEFAULT),
            "help": setting.about.help,
        }
        for name, setting in SETTINGS.items()
    ]


def _masked(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _SECRET:
        return masking.MASK
    if name in _ADDRESSES:
        return shown(value) if name == "db" else masking.shown(value)
    return masking.shown_path(value) if name in _PATHS else value
