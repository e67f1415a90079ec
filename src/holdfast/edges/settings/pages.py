"""The settings as text: the two example files and the tables of the reference page.

    python -m holdfast.edges.settings.pages toml > holdfast.toml.dist
    python -m holdfast.edges.settings.pages json > config.json.dist
    python -m holdfast.edges.settings.pages markdown

Law: all content comes from the table of settings; this module only arranges it.
"""

from __future__ import annotations

import json
import sys
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from holdfast.edges.settings.parts import Setting
from holdfast.edges.settings.table import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WIDTH: Final = 100
_TOML_HEADING: Final = """\
# Settings of `holdfast up`. Copy this file to holdfast.toml and take the mark off the lines that you change;
# each shows the default, or "" where there is none. The reference of settings says more.
"""


def toml() -> str:
    """Return an example file in TOML with every setting commented out, at its default."""
    return "\n".join([_TOML_HEADING, *(line for one in _sections() for line in _toml_section(*one))])


def example() -> str:
    """Return an example file in JSON: every setting at its default, null where there is none."""
    sections = {
        title: {_name(setting): _plain(setting.default) for setting in settings}
        for title, settings in _sections()
    }
    return json.dumps(sections, indent=2) + "\n"


def markdown() -> str:
    """Return the tables of the reference page, one for each section of the files."""
    return "\n".join(line for one in _sections() for line in _markdown_section(*one))


def _sections() -> Iterator[tuple[str, list[Setting]]]:
    for title, settings in groupby(SETTINGS.values(), key=lambda one: one.about.path.partition(".")[0]):
        yield title, list(settings)


def _name(setting: Setting) -> str:
    return setting.about.path.partition(".")[2]


def _toml_section(title: str, settings: list[Setting]) -> Iterator[str]:
    yield f"[{title}]"
    for setting in settings:
        yield from (f"# {line}" for line in wrap(_described(setting).replace("`", ""), _WIDTH))
        default = "" if setting.default is None else _plain(setting.default)
        yield f"#{_name(setting)} = {json.dumps(default)}"  # for these values, JSON is valid TOML
    yield ""


def _described(setting: Setting) -> str:
    words = [setting.about.help]
    if setting.form != "text":
        words.append(f"It must be {setting.form}.")
    if setting.about.otherwise:
        words.append(f"Default: {setting.about.otherwise}.")
    return " ".join(words)


def _markdown_section(title: str, settings: list[Setting]) -> Iterator[str]:
    yield from (f"## {title}", "", "| setting | variable | in a file | must be | default | meaning |")
    yield "|---|---|---|---|---|---|"
    for setting in settings:
        name = f"`{setting.name}`"
        if setting.about.flag:
            name += f", `--{setting.name.replace('_', '-')}`"
        variables = ", ".join(f"`{variable}`" for variable in setting.variables)
        cells = (
            name,
            variables,
            f"`{setting.about.path}`",
            setting.form,
            _default(setting),
            setting.about.help,
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def _default(setting: Setting) -> str:
    if setting.default is None:
        return setting.about.otherwise or "none"
    return f"`{json.dumps(_plain(setting.default))}`"


def _plain(value: Any) -> Any:
    """Return a value in its shortest form: 300, not 300.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


FORMS: Final[dict[str, Callable[[], str]]] = {"toml": toml, "json": example, "markdown": markdown}

if __name__ == "__main__":
    sys.stdout.write(FORMS[sys.argv[1]]())
