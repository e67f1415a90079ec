"""The tables of the reference page about settings, one for each section of a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from holdfast.edges.settings.table import Setting, sections

if TYPE_CHECKING:
    from collections.abc import Iterator


def _settings() -> Iterator[str]:
    for number, (title, settings) in enumerate(sections()):
        yield from ("",) if number else ()
        yield from (f"## {title}", "", "| setting | variable | in a file | must be | default | meaning |")
        yield "|---|---|---|---|---|---|"
        for setting in settings:
            yield f"| {' | '.join(_cells(setting))} |"


def _cells(setting: Setting) -> Iterator[str]:
    flag = f", `--{setting.name.replace('_', '-')}`" if setting.flag else ""
    yield f"`{setting.name}`{flag}"
    yield ", ".join(f"`{variable}`" for variable in setting.variables)
    yield f"`{setting.path}`"
    yield setting.form
    if setting.default is None:
        yield setting.otherwise or "none"
    else:
        yield f"`{json.dumps(setting.plain_default)}`"
    yield setting.help


BLOCKS: Final = {"settings": _settings}
"""The lines of each block."""
