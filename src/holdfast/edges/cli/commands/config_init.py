"""`holdfast config init`: write a file with every setting of `holdfast up`.

Law: the text comes from the table of settings. An existing file is never replaced without `--force`.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from shlex import quote
from typing import Final

from holdfast import private
from holdfast.edges.cli.commands.transfer import require_free
from holdfast.edges.cli.output import document, file_trouble, say
from holdfast.edges.settings.pages import example, toml

NAME: Final = Path("holdfast.toml")


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
    try:
        _write(path, example() if path.suffix == ".json" else toml())
    except OSError as error:
        raise file_trouble(error, path, field="path") from None
    if json:
        document({"path": str(path.absolute())})
    else:
        say(f"wrote {path}; edit it, then run: holdfast up --config {quote(str(path))}")


def _write(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        with open(private.create(unfinished), "w", encoding="utf-8") as file:
            file.write(text)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
