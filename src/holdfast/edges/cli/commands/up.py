"""`holdfast up` and `config`: run the service, and see or write its settings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from json import dumps
from pathlib import Path
from shlex import quote
from textwrap import wrap
from typing import Annotated, Any, Final

from cyclopts import Group, Parameter

from holdfast import extras
from holdfast.edges.cli.output import document, report, require_free, rows, whole_file
from holdfast.edges.settings.read import ignored_settings, read_settings, settings_in_force
from holdfast.edges.settings.table import SETTINGS, Setting, sections

LOGIN: Final = Group("Logging in to NATS", sort_key=5)
CLUSTER: Final = Group("Being part of a cluster", sort_key=4)
_NO_LOGIN: Final = frozenset({"nats", "no_nats", "nats_port", "nats_config"})
"""The settings about NATS that are not about logging in."""
ConfigFile = Annotated[
    str | None,
    Parameter(
        help="The file with settings. If not given: $HOLDFAST_CONFIG, or ./holdfast.toml or ./holdfast.json."
    ),
]


def _option(setting: Setting) -> inspect.Parameter:
    """Return the option of `holdfast up` for a setting."""
    words = setting.help
    more: dict[str, Any] = {}
    if setting.default is True:
        more["negative"] = f"--no-{setting.name}"
    elif setting.default not in (None, False, ()):
        words += f" {setting.default} if not given."
    elif setting.otherwise:
        words += f" If not given: {setting.otherwise}."
    group = {"cluster": CLUSTER, "nats": None if setting.name in _NO_LOGIN else LOGIN}.get(setting.section)
    if group is not None:  # a group of None would mean one without a heading, which help leaves out
        more["group"] = group
    kind: Any = type(setting.default) if isinstance(setting.default, int) else str
    annotation = Annotated[kind, Parameter(help=words, **more)]
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def up(**flags: Any) -> None:
    """Serve a store over NATS and HTTP until Ctrl-C, with health and metrics.

    Without any option a NATS server is started on this machine and the store is the user's own. Every option
    is also a variable and a setting of a file; the reference of settings lists them all.
    """
    with extras.needed("server", "holdfast up"):
        # late: optional driver; the service takes 250 ms, and help imports this module
        import uvloop

        from holdfast.edges.serve import serve
    settings, sources = read_settings(**flags)
    uvloop.run(serve(settings, sources=sources, ignored=ignored_settings(config=flags.get("config"))))


_OPTIONS: Final = [
    inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigFile),
    *(_option(setting) for setting in SETTINGS.values() if setting.flag),
]
up.__signature__ = inspect.Signature(_OPTIONS)  # type: ignore[attr-defined]
up.__annotations__ = {option.name: option.annotation for option in _OPTIONS}


NAME: Final = Path("holdfast.toml")
_WIDTH: Final = 100
_TOML_HEADING: Final = """\
# Settings of `holdfast up`. Copy this file to holdfast.toml and take the mark off the lines that you change;
# each shows the default, or "" where there is none. The reference of settings says more.
"""


def config_init(path: Path = NAME, /, *, force: bool = False, json: bool = False) -> None:
    """Write a file with every setting, its meaning and its default.

    In TOML each setting is a comment: take the mark off the lines that you change. Only the owner can read
    the file, because it may come to hold passwords.

    Parameters
    ----------
    path
        The file to write; ./holdfast.toml if not given. A name that ends in .json gets JSON.
    force
        Replace the file if it exists.
    json
        Print JSON. Errors are JSON too.
    """
    require_free(path, force=force, field="path")
    with whole_file(path, field="path") as file:
        file.write((example_json() if path.suffix == ".json" else example_toml()).encode())
    report(
        json,
        {"path": str(path.absolute())},
        f"wrote {path}; edit it, then run: holdfast up --config {quote(str(path))}",
    )


def example_toml() -> str:
    """Return a file in TOML with every setting commented out, at its default."""
    return "\n".join(
        [_TOML_HEADING, *(line for title, settings in sections() for line in _toml_section(title, settings))]
    )


def _toml_section(title: str, settings: list[Setting]) -> Iterator[str]:
    yield f"[{title}]"
    for setting in settings:
        yield from (f"# {line}" for line in wrap(_described(setting).replace("`", ""), _WIDTH))
        default = "" if setting.default is None else setting.plain_default
        yield f"#{setting.name_in_file} = {dumps(default)}"  # for these values, JSON is valid TOML
    yield ""


def _described(setting: Setting) -> str:
    words = [setting.help]
    if setting.form != "text":
        words.append(f"It must be {setting.form}.")
    if setting.otherwise:
        words.append(f"Default: {setting.otherwise}.")
    return " ".join(words)


def example_json() -> str:
    """Return a file in JSON with every setting at its default, null where there is none."""
    content = {
        title: {setting.name_in_file: setting.plain_default for setting in settings}
        for title, settings in sections()
    }
    return dumps(content, indent=2) + "\n"


def config_show(
    *,
    config: ConfigFile = None,
    json: Annotated[bool, Parameter(alias="-j")] = False,
) -> None:
    """Print every setting with its value and where that comes from: a variable, a file, or the default.

    Parameters
    ----------
    json
        Print JSON.
    """
    settings, sources = read_settings(config=config)
    columns = ("setting", "value", "source")
    in_force = [{name: row[name] for name in columns} for row in settings_in_force(settings, sources)]
    if json:
        document({"settings": in_force})
        return
    rows(columns, ((row["setting"], _cell(row["value"]), row["source"]) for row in in_force))


def _cell(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(value) or None
    return None if value is None else str(value)
