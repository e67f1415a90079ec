"""The display of help: in boxes on a terminal, elsewhere as plain text with one line for each option.

Law: the library that parses the command line also describes it. This module only chooses between its two
styles, and imports neither before help is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts.help import DefaultFormatter, HelpPanel, PlainFormatter
    from rich.console import Console, ConsoleOptions

_WIDE = 10_000
"""Longer than any line of help, so that lines are never wrapped in output for programs."""


class Help:
    """Chooses a style by the output."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Show one group of commands or options; a command and its aliases are on one line."""
        if panel.format == "command":
            entries = [entry.copy(positive_names=_joined(entry.positive_names)) for entry in panel.entries]
            panel = panel.copy(entries=entries)
        _style(console)(console, options, panel)

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Show the usage of the command."""
        _style(console).render_usage(console, options, usage)

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        """Show the description of the command."""
        style = _style(console)
        if console.is_terminal:
            style.render_description(console, options, description)
            return
        with console.capture() as captured:
            style.render_description(console, options, description)
        console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _joined(names: tuple[str, ...]) -> tuple[str, ...]:
    return (", ".join(names),) if names else ()


def _style(console: Console) -> DefaultFormatter | PlainFormatter:
    # late: it takes 12 ms, and only help needs it
    from cyclopts.help import DefaultFormatter, PlainFormatter

    if console.is_terminal:
        return DefaultFormatter()
    console.width = _WIDE
    return PlainFormatter()
