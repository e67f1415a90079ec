"""`holdfast help`: the description and the options of a command.

Law: the library that parses the command line shows help.
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
