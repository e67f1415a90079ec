"""`holdfast help`: what a command does and which options it has.

Law: help is shown by the library that reads the command line.
"""

from __future__ import annotations

from holdfast.edges.cli.app import obey


def show(*command: str) -> int:
    """Show what a command does and which options it has; without one, list all commands.

    Parameters
    ----------
    command
        The words of the command.
    """
    return obey([*command, "--help"])
