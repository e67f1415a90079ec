"""`holdfast edit`: a value in the user's editor.

The new value replaces exactly the version that was read. Nothing typed is lost: if it cannot be written, it
stays in a file that only its owner can read.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

import holdfast
from holdfast.edges.cli.commands.keys import print_stored
from holdfast.edges.cli.options import UNNAMED, Key, WriteOptions
from holdfast.edges.cli.output import say
from holdfast.edges.cli.target import HERE, Target
from holdfast.edges.cli.values import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

_HINT: Final = 'write text in double quotes, as in "hello"'


async def edit(key: Key, /, *, origin: WriteOptions = UNNAMED, target: Target = HERE) -> None:
    """Open the value of a key in $VISUAL or $EDITOR as JSON, write it back, and print the new version.

    A key that does not exist starts empty. The entry keeps its deadline and its semantics. If another writer
    has changed the key meanwhile, nothing is written, both values are shown, and your text stays in a file.
    """
    if not at_terminal():
        raise holdfast.ValidationError(
            "edit needs a terminal for the editor: use holdfast get and holdfast set instead", field="editor"
        )
    async with target.look() as store:
        entry = await target.keys(store).get(key)
    before = "" if entry is None else _text(entry.value)
    with _draft(before) as draft:
        _open_editor(draft)
        after = draft.read_text(encoding="utf-8")
        if after.strip() == before.strip():
            draft.unlink()
            say("nothing was changed")
            return
        try:
            stored = await _written(key, parse(after, hint=_HINT), entry, origin, target)
        except holdfast.VersionConflict as conflict:
            _show_both(conflict.current, after)
            raise
    print_stored(stored, target)


def at_terminal() -> bool:
    """Return whether an editor has a terminal to read from."""
    return sys.stdin.isatty()


async def _written(
    key: str, value: Any, entry: holdfast.Entry | None, origin: WriteOptions, target: Target
) -> holdfast.Entry:
    async with target.open() as store:
        return await target.keys(store).set(
            key,
            value,
            ttl=None if entry is None else holdfast.KEEP,
            expected_version=0 if entry is None else entry.version,
            semantics=None if entry is None else entry.semantics,
            **origin.fields,
        )


@contextlib.contextmanager
def _draft(text: str) -> Iterator[Path]:
    """Yield a file for the editor. It is removed on success, and kept otherwise if it was edited."""
    number, name = tempfile.mkstemp(prefix="holdfast-", suffix=".json")
    with open(number, "w", encoding="utf-8") as file:
        file.write(text)
    try:
        yield Path(name)
    except BaseException:
        if Path(name).read_text(encoding="utf-8") != text:
            say(f"what you typed is in {name}")
        else:
            Path(name).unlink()
        raise
    Path(name).unlink(missing_ok=True)


def _open_editor(draft: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(editor), str(draft)], check=False).returncode
    except OSError:
        raise holdfast.ValidationError(
            f"the editor {editor!a} can't be started: set EDITOR to one that is installed", field="editor"
        ) from None
    if code:
        raise holdfast.ValidationError(
            f"the editor ended with code {code}: nothing was written", field="editor"
        )


def _show_both(current: holdfast.Entry | None, mine: str) -> None:
    theirs = "" if current is None else _text(current.value)
    name = "no entry" if current is None else f"version {current.version} of {current.last_writer}"
    for line in difflib.unified_diff(
        theirs.splitlines(), mine.splitlines(), fromfile=name, tofile="yours", lineterm=""
    ):
        say(line)


def _text(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
