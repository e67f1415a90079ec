"""The settings of a running Holdfast, read once.

Law: this is the only module that looks at the environment and at configuration files. A flag outweighs a
variable of ours, that outweighs one of NATS' own tools, that a file, and that the default. What is not known
or not legal is refused by its name.
"""

from __future__ import annotations

import os
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import inspect

from holdfast import masking
from holdfast.audit.keyring import FileKeyring, Keyring
from holdfast.edges.settings.table import SETTINGS, Config, Setting
from holdfast.errors import ValidationError
from holdfast.registry import brings_key, keyring_for

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES: Final = ("holdfast.toml", "holdfast.json")
"""The files that are looked for in the working folder when none is named."""
FILE_VARIABLE: Final = "HOLDFAST_CONFIG"
KEY_FILE: Final = "audit-key"
"""The name of the key's file in the folder for data, of a store that is no file."""

_PATHS: Final = {setting.about.path: setting for setting in SETTINGS.values()}


def read_config(
    *, config: str | None = None, environment: Mapping[str, str] = os.environ, **flags: object
) -> Config:
    """All settings.

    Args:
        config: The file to read, before the one that `HOLDFAST_CONFIG` names and those of the working folder.
        environment: The variables.
        **flags: Settings by name; None is one that was not given.

    Raises:
        ValidationError: A setting is not known, or not legal; `field` names it.
    """
    return read_settings(config=config, environment=environment, **flags)[0]


def read_settings(
    *, config: str | None = None, environment: Mapping[str, str] = os.environ, **flags: object
) -> tuple[Config, dict[str, str]]:
    """All settings as `read_config` reads them, and for each one that was given where that was."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    path = _path(config or environment.get(FILE_VARIABLE))
    file = {} if path is None else _settings_in(path)
    for name, setting in SETTINGS.items():
        found = _found(setting, flags, environment, file)
        if found is not None:
            values[name], source = found
            sources[name] = f"{setting.about.path} in {path}" if source is None else source
    folder = Path(values.get("data_dir") or default_folder(environment)).expanduser()
    values["data_dir"] = str(folder)
    values.setdefault("db", str(folder / "holdfast.db"))
    return _agreeing(Config(**values)), sources


def default_folder(environment: Mapping[str, str]) -> Path:
    """The folder of the user's own store: `$XDG_DATA_HOME/holdfast`, as the XDG rules have it."""
    home = environment.get("XDG_DATA_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share"
    return base / "holdfast"


def audit_key_of(config: Config) -> str | Path | None:
    """What signs the audit, if the configuration says so."""
    if config.audit_key is not None and config.audit_key_file is not None:
        raise ValidationError("audit_key and audit_key_file can't both be given", field="audit_key")
    return config.audit_key if config.audit_key_file is None else Path(config.audit_key_file)


def keys_of(config: Config) -> Keyring | None:
    """What signs the audit of the store that the settings name; None if the store brings its own key.

    A database has no folder: a key that nobody configured is in the folder for data.
    """
    given = keyring_for(audit_key_of(config))
    if given is None and not brings_key(config.db):
        return FileKeyring(Path(config.data_dir) / KEY_FILE, make=True)
    return given


def open_mode(config: Config) -> str | None:
    """What others can do to a service with these settings; None if the NATS server keeps them apart."""
    if config.nats is None and config.nats_config is None:
        who = "any process on this machine"
    elif config.reply_mode == "open":
        who = "everybody whom the NATS server lets in"
    else:
        return None
    return f"{who} can read, write and administer all data, and take requests meant for the service"


def shown(url: str) -> str:
    """Where a store is, without what lets one in."""
    return masking.shown(url) if "://" in url else str(Path(url).absolute())


def variable_of(name: str, value: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The variable that says the same as a setting, for a shell to name instead of showing a secret."""
    return next((one for one in SETTINGS[name].variables if environment.get(one) == value), None)


def _found(
    setting: Setting, flags: Mapping[str, object], environment: Mapping[str, str], file: Mapping[str, Any]
) -> tuple[Any, str | None] | None:
    """What is said about a setting in the strongest place that says anything, and where; None if none does.

    The place is a flag or a variable, and None for the file.
    """
    flag = flags.get(setting.name)
    if flag is not None:
        source = f"--{setting.name.replace('_', '-')}"
        return _checked(setting, flag, source=source), source
    for variable in setting.variables:
        if environment.get(variable):
            return _checked(setting, environment[variable], source=variable), variable
    said = file.get(setting.about.path)
    if said in (None, ""):
        return None
    return _checked(setting, said, source=setting.about.path, strict=True), None


def _checked(setting: Setting, said: object, *, source: str, strict: bool = False) -> Any:
    """What was said, as the setting's type; numbers and lists may be text where a place has only text."""
    kind = inspect.type_info(setting.kind)
    if isinstance(said, str):
        said = _as_choice(said, kind)
        if not strict and isinstance(kind, inspect.VarTupleType):
            said = [part.strip() for part in said.split(",") if part.strip()]
    try:
        return msgspec.convert(said, setting.kind, strict=strict)
    except msgspec.ValidationError:
        raise ValidationError(f"{source} must be {setting.form}", field=setting.name) from None


def _as_choice(said: str, kind: inspect.Type) -> str:
    """The choice that is meant, whatever its case."""
    choices = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    for choice in choices:
        if isinstance(choice, inspect.LiteralType):
            return next((str(one) for one in choice.values if str(one).lower() == said.lower()), said)
    return said


def _path(named: str | None) -> Path | None:
    """The file to read; None if none is named and none is there."""
    if named:
        return Path(named)
    return next((path for path in map(Path, FILES) if path.is_file()), None)


def _settings_in(path: Path) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, said in _document(path).items():
        given |= (
            {f"{name}.{inner}": one for inner, one in said.items()}
            if isinstance(said, dict)
            else {name: said}
        )
    unknown = sorted(given.keys() - _PATHS.keys())
    if unknown:
        raise ValidationError(f"{path} has unknown settings: {', '.join(unknown)}", field=unknown[0])
    return given


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
    import json

    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ValidationError(f"{path} is not valid JSON: see {where}", field="config") from None


def _toml(text: str, path: Path) -> Any:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValidationError(f"{path} is not valid TOML: {error}", field="config") from None


def _agreeing(config: Config) -> Config:
    """The settings, if they go together."""
    for one, other in permutations(config.subject_prefixes, 2):
        if f"{other}.".startswith(f"{one}."):
            raise ValidationError(
                f"subject_prefixes: the subjects of {one!r} and {other!r} can't be told apart",
                field="subject_prefixes",
            )
    if config.request_users and config.reply_mode != "accounts":
        raise ValidationError(
            "request_users needs reply_mode to be accounts: otherwise callers say themselves who they are",
            field="request_users",
        )
    if config.nats_tls_key and not config.nats_tls_cert:
        raise ValidationError("nats_tls_key needs nats_tls_cert", field="nats_tls_cert")
    return config
