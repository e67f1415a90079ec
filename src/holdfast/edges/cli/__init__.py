"""The command line: one file per group of commands.

Law: a command reads its arguments, calls a store and prints. It imports what it needs when it runs, so that
`--help` is quick.
"""

from __future__ import annotations

import sys
from importlib.metadata import version

from cyclopts import App

from holdfast.errors import HoldfastError

app = App(
    name="holdfast", help="A key-value store with versions, expiry and watches.", version=version("holdfast")
)
app.command("holdfast.edges.cli.up:up", name="up")


def main() -> None:
    """Run a command; an error of ours is one line and exit code 1."""
    try:
        app()
    except HoldfastError as error:
        print(f"holdfast: {error.message}", file=sys.stderr)
        sys.exit(1)
