"""`holdfast config`: a file with every setting of `holdfast up`, and the settings in force."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from shlex import quote
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from holdfast.edges.cli.files import require_free, whole_file
from holdfast.edges.cli.output import document, rows, say
from holdfast.edges.settings.read import read_settings, settings_in_force
from holdfast.edges.settings.table import Setting, sections

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME: Final = Path("holdfast.toml")
_WIDTH: Final = 100
_TOML_HEADING: Final = """\
# Settings of `holdfast up`. Copy this file to holdfast.toml and take the mark off the lines that you change;
# each shows the default, or "" where there is none. The reference of settings says more.
"""


def init(path: Path = NAME, /, *, force: bool = False, json: bool = False) -> None:
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
    if json:
        document({"path": str(path.absolute())})
    else:
        say(f"wrote {path}; edit it, then run: holdfast up --config {quote(str(path))}")


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
    words = [setting.about.help]
    if setting.form != "text":
        words.append(f"It must be {setting.form}.")
    if setting.about.otherwise:
        words.append(f"Default: {setting.about.otherwise}.")
    return " ".join(words)


def example_json() -> str:
    """Return a file in JSON with every setting at its default, null where there is none."""
    content = {
        title: {setting.name_in_file: setting.plain_default for setting in settings}
        for title, settings in sections()
    }
    return dumps(content, indent=2) + "\n"


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
