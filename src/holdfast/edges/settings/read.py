"""The reader of the settings, which are read once.

Only this module reads the environment and configuration files. A flag takes precedence over a `HOLDFAST_`
variable, that over a variable of NATS' own tools, that over a file, and that over the default. An error names
the setting that is unknown or invalid.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect

from holdfast import masking
from holdfast.audit.keyring import FileKeyring, Keyring
from holdfast.edges.settings.table import SETTINGS, Config, Setting
from holdfast.errors import ValidationError
from holdfast.registry import brings_key, keyring_for

FILES: Final = ("holdfast.toml", "holdfast.json")
"""The files to try in the working directory if none is named."""
FILE_VARIABLE: Final = "HOLDFAST_CONFIG"
KEY_FILE: Final = "audit-key"
"""The name of the key file in the data folder, for a store that is not a file."""

DEFAULT: Final = "default"
"""The source of a setting that was not given."""
_SECRETS: Final = frozenset({"audit_key", "nats_password", "nats_token"})
_ADDRESSES: Final = frozenset({"db", "nats"})
_FILES_OF_SECRETS: Final = frozenset({"nats_creds", "nats_nkey", "nats_tls_key"})
_NEED_NATS: Final = frozenset({"reply_mode", "request_users"})
"""Settings outside the sections of NATS and clusters that have no meaning without NATS."""
_PATHS: Final = {setting.path: setting for setting in SETTINGS.values()}
_SECTIONS: Final = frozenset(path.partition(".")[0] for path in _PATHS)

_log = logging.getLogger("holdfast.settings")


def read_config(
    *, config: str | None = None, environment: Mapping[str, str] = os.environ, **flags: object
) -> Config:
    """Read all settings.

    Args:
        config: The file to read. It takes precedence over the file in `HOLDFAST_CONFIG`, and that over those
            in the working directory.
        environment: The environment variables.
        **flags: Settings by name; None means not given.

    Raises:
        ValidationError: A setting is unknown or invalid; `field` names it.
    """
    return read_settings(config=config, environment=environment, **flags)[0]


def read_settings(
    *, config: str | None = None, environment: Mapping[str, str] = os.environ, **flags: object
) -> tuple[Config, dict[str, str]]:
    """Read all settings as `read_config` does. Returns them and the source of each one that was given."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    path = _path(config or environment.get(FILE_VARIABLE))
    file = {} if path is None else _settings_in(path)
    for name, setting in SETTINGS.items():
        value_and_source = _value_of(setting, flags, environment, file)
        if value_and_source is not None:
            values[name], source = value_and_source
            sources[name] = f"{setting.path} in {path}" if source is None else source
    folder = Path(values.get("data_dir") or default_folder(environment)).expanduser()
    values["data_dir"] = str(folder)
    values.setdefault("db", str(folder / "holdfast.db"))
    if values.get("no_nats"):
        _drop_hints_of_nats(values, sources)
        _require_no_nats(values, sources)
    return _agreeing(Config(**values)), sources


def ignored_settings(*, config: str | None = None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a line about what a file shared with another program has of that program; None for nothing."""
    path = _path(config or environment.get(FILE_VARIABLE))
    if path is None:
        return None
    foreign = _of_others(path, _document(path))
    return _about(path, foreign) if foreign else None


def default_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the user's own store: `$XDG_DATA_HOME/holdfast`, following the XDG rules."""
    home = environment.get("XDG_DATA_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share"
    return base / "holdfast"


def audit_key_of(config: Config) -> str | Path | None:
    """Return the configured signing key of the audit, or the file with it, if any."""
    if config.audit_key is not None and config.audit_key_file is not None:
        raise ValidationError("audit_key and audit_key_file can't both be given", field="audit_key")
    return config.audit_key if config.audit_key_file is None else Path(config.audit_key_file)


def keys_of(config: Config) -> Keyring | None:
    """Return the keyring that signs the audit of the configured store; None if the store brings its own key.

    A database has no folder, so its default key is in the data folder.
    """
    keyring = keyring_for(audit_key_of(config))
    if keyring is None and not brings_key(config.db):
        return FileKeyring(Path(config.data_dir) / KEY_FILE, make=True)
    return keyring


def open_mode(config: Config) -> str | None:
    """Describe what others can do to a service with these settings; None if the NATS server isolates them."""
    if config.no_nats:
        return "any process on this machine can read, write and administer all data"
    if config.nats is None and config.nats_config is None:
        who = "any process on this machine"
    elif config.reply_mode == "open":
        who = "everybody whom the NATS server lets in"
    else:
        return None
    return f"{who} can read, write and administer all data, and take requests meant for the service"


def shown(url: str) -> str:
    """Return the location of a store without credentials."""
    return masking.shown(url) if "://" in url else str(Path(url).absolute())


def variable_of(name: str, value: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the variable that holds a setting's value, for a shell to name instead of a secret."""
    return next((one for one in SETTINGS[name].variables if environment.get(one) == value), None)


def _value_of(
    setting: Setting, flags: Mapping[str, object], environment: Mapping[str, str], file: Mapping[str, Any]
) -> tuple[Any, str | None] | None:
    """Return the value of a setting and its source, from the place with the highest precedence, if any.

    The source is a flag or a variable, and None for the file.
    """
    flag = flags.get(setting.name)
    if flag is not None:
        source = f"--{setting.name.replace('_', '-')}"
        return _checked(setting, flag, source=source), source
    for variable in setting.variables:
        if environment.get(variable):
            return _checked(setting, environment[variable], source=variable), variable
    value = file.get(setting.path)
    if value in (None, ""):
        return None
    return _checked(setting, value, source=setting.path, strict=True), None


def _checked(setting: Setting, value: object, *, source: str, strict: bool = False) -> Any:
    """Convert a value to the setting's type. Flags and variables may give numbers and lists as text."""
    kind = inspect.type_info(setting.kind)
    if isinstance(value, str):
        value = _as_choice(value, kind)
        if not strict and isinstance(kind, inspect.VarTupleType):
            value = [part.strip() for part in value.split(",") if part.strip()]
    try:
        return msgspec.convert(value, setting.kind, strict=strict)
    except msgspec.ValidationError:
        raise ValidationError(f"{source} must be {setting.form}", field=setting.name) from None


def _as_choice(text: str, kind: inspect.Type) -> str:
    """Return the choice that matches, ignoring case."""
    choices = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    for choice in choices:
        if isinstance(choice, inspect.LiteralType):
            return next((str(one) for one in choice.values if str(one).lower() == text.lower()), text)
    return text


def _path(named: str | None) -> Path | None:
    """Return the file to read; None if none is named and none exists."""
    if named:
        return Path(named)
    return next((path for path in map(Path, FILES) if path.is_file()), None)


def _settings_in(path: Path) -> dict[str, Any]:
    document = _document(path)
    values = _named(document)
    foreign = _of_others(path, document)
    if foreign:
        _log.warning(_about(path, foreign))
        return {name: value for name, value in values.items() if name in _PATHS}
    unknown = sorted(values.keys() - _PATHS.keys())
    if unknown:
        raise ValidationError(f"{path} has unknown settings: {', '.join(unknown)}", field=unknown[0])
    return values


def _about(path: Path, foreign: set[str]) -> str:
    return f"{path} has settings of another program, which are ignored: {', '.join(sorted(foreign))}"


def _named(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a document by section and name."""
    values: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            values |= {f"{name}.{inner}": one for inner, one in value.items()}
        else:
            values[name] = value
    return values


def _of_others(path: Path, document: Mapping[str, Any]) -> set[str]:
    """Return what a file has of another program: sections, and what it adds to those of ours.

    Holdfast's own files are for Holdfast alone. A file of another name is shared if it has a section that is
    not one of ours; if it has none, an unknown setting there is a misspelled one.
    """
    if path.name in FILES:
        return set()
    sections = {name for name, value in document.items() if isinstance(value, (dict, list))} - _SECTIONS
    if not sections:
        return set()
    unknown = _named({name: value for name, value in document.items() if name not in sections})
    return sections | (unknown.keys() - _PATHS.keys())


def _document(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValidationError(f"the configuration {path} can't be read: {reason}", field="config") from None
    document = _json(text, path) if path.suffix == ".json" else _toml(text, path)
    if not isinstance(document, dict):
        raise ValidationError(f"{path} must hold a JSON object", field="config")
    return document


def _json(text: str, path: Path) -> Any:
    # late: it takes 2 ms, and few settings are JSON
    import json

    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ValidationError(f"{path} is not valid JSON: see {where}", field="config") from None


def _toml(text: str, path: Path) -> Any:
    # late: it takes 2 ms, and only a file needs it
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValidationError(f"{path} is not valid TOML: {error}", field="config") from None


def _drop_hints_of_nats(values: dict[str, Any], sources: dict[str, str]) -> None:
    """Drop what variables of NATS' own tools say. They are not about Holdfast, which serves no NATS."""
    for name, setting in SETTINGS.items():
        if sources.get(name) in setting.variables[1:]:
            del values[name], sources[name]


def _require_no_nats(values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Refuse settings that only make sense with NATS, for a service without it."""
    off = sources["no_nats"]
    for name in sources:
        needs_nats = SETTINGS[name].section in ("nats", "cluster") or name in _NEED_NATS
        is_set = values[name] != SETTINGS[name].default or sources[name].startswith("--")
        if name != "no_nats" and needs_nats and is_set:
            raise ValidationError(
                f"{sources[name]} needs NATS, which {off} turns off: leave one of them out", field=name
            )
    if values["db"].startswith("cluster://"):
        raise ValidationError(
            f"a cluster keeps its log in NATS, which {off} turns off: name another store with db", field="db"
        )
    if values.get("http_port") == 0:
        raise ValidationError(
            f"{off} leaves only HTTP, which {sources['http_port']} turns off: leave one of them out",
            field="http_port",
        )


def _agreeing(config: Config) -> Config:
    """Return the settings after checking that they are consistent."""
    for one, other in permutations(config.subject_prefixes, 2):
        if f"{other}.".startswith(f"{one}."):
            raise ValidationError(
                f"subject_prefixes: the subjects of {one!r} and {other!r} can't be told apart",
                field="subject_prefixes",
            )
    if config.request_users and config.reply_mode != "accounts":
        raise ValidationError(
            "request_users needs reply_mode to be accounts: otherwise callers could claim to be any user",
            field="request_users",
        )
    for door in ("nats", "http"):
        if getattr(config, f"{door}_tls_key") and not getattr(config, f"{door}_tls_cert"):
            raise ValidationError(f"{door}_tls_key needs {door}_tls_cert", field=f"{door}_tls_cert")
    return config


def settings_in_force(config: Config, sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return every setting with its value, where that comes from, and its purpose. Credentials are masked."""
    return [
        {
            "setting": name,
            "value": _masked(name, getattr(config, name)),
            "source": sources.get(name, DEFAULT),
            "help": setting.help,
        }
        for name, setting in SETTINGS.items()
    ]


def _masked(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _SECRETS:
        return masking.MASK
    if name in _ADDRESSES:
        return shown(value) if name == "db" else masking.shown(value)
    return masking.shown_path(value) if name in _FILES_OF_SECRETS else value
