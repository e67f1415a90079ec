"""`holdfast set`, `delete`, `restore`, `batch`, `edit` and `reveal`: commands about single keys.

An edited value replaces exactly the version that was read. Nothing typed is lost: if it can't be written, it
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
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.commands.get import print_entry, require_one_form
from holdfast.edges.cli.options import (
    ALL_PAGES,
    UNNAMED,
    IfVersion,
    Key,
    Long,
    Ttl,
    Viewer,
    Why,
    WriteOptions,
    Yes,
    destroys,
    parse,
    read_value,
    require_yes,
)
from holdfast.edges.cli.output import amount, answer, document, line, say, shown_key
from holdfast.edges.cli.target import HERE, Target

Hyphened = Annotated[str, Parameter(allow_leading_hyphen=True)]


async def set_value(
    key: Key,
    value: Hyphened,
    /,
    *,
    text: bool = False,
    ttl: Ttl = None,
    keep_ttl: bool = False,
    if_version: IfVersion = None,
    purpose: str | None = None,
    producer: str | None = None,
    origin: WriteOptions = UNNAMED,
    target: Target = HERE,
) -> None:
    """Set a key, and print the entry's version.

    Parameters
    ----------
    value
        JSON; - reads it from stdin, @FILE from a file.
    text
        Take the value as a string, without JSON quotes.
    keep_ttl
        Keep the entry's present deadline.
    purpose
        Why the entry exists: config, checkpoint, feature_flag, lock, ...
    producer
        Name of the producer.
    """
    if keep_ttl and ttl is not None:
        raise holdfast.ValidationError("--ttl and --keep-ttl exclude each other", field="ttl")
    content = read_value(value, text=text)
    async with target.open() as store:
        entry = await target.keys(store).set(
            key,
            content,
            ttl=holdfast.KEEP if keep_ttl else ttl,
            expected_version=if_version,
            semantics={"purpose": purpose, "producer": producer} if purpose or producer else None,
            **origin.fields,
        )
    print_stored(entry, target)


@destroys
async def delete(
    key: Annotated[str | None, Parameter(help="The key.")] = None,
    /,
    *,
    prefix: str | None = None,
    dry_run: Annotated[bool, Parameter(alias="-n")] = False,
    yes: Yes = False,
    if_version: IfVersion = None,
    origin: WriteOptions = UNNAMED,
    target: Target = HERE,
) -> None:
    """Delete a key, or all keys that begin with a prefix. A key that does not exist is no error.

    Parameters
    ----------
    prefix
        Delete all keys that begin with this, page by page. If the command is interrupted, run it again.
    dry_run
        With --prefix: print the keys and delete nothing.
    """
    if (key is None) is (prefix is None):
        raise holdfast.MissingField("which key? Give a key, or --prefix for many", field="key")
    if prefix is not None:
        if if_version is not None or origin.request_id is not None:
            raise holdfast.ValidationError("--prefix excludes --if-version and --request-id", field="prefix")
        await delete_all(prefix, dry_run=dry_run, yes=yes, origin=origin, target=target)
        return
    if dry_run:
        raise holdfast.ValidationError("--dry-run needs --prefix", field="dry_run")
    assert key is not None
    require_yes(f"key {key!a} of {target.owner} is deleted", yes=yes)
    async with target.open() as store:
        deleted = await target.keys(store).delete(key, expected_version=if_version, **origin.fields)
    answer(target.json, {"deleted": deleted}, "deleted" if deleted else "not there")


@destroys
async def restore(
    key_or_file: str,
    /,
    *,
    ttl: Ttl = None,
    yes: Yes = False,
    origin: WriteOptions = UNNAMED,
    target: Target = HERE,
) -> None:
    """Restore a key from the trash and print the entry's new version, or restore a whole store from a backup.

    The argument is a file if no namespace is given and `holdfast backup` wrote the file. The store then holds
    what the backup holds and nothing else, and what it held before is lost. The whole file is checked first,
    and a restore that is interrupted changes nothing. No other process may have the store open.

    Parameters
    ----------
    key_or_file
        The key, or the file of a backup.
    """
    # late: it takes a while, and most restores are of keys
    from holdfast.edges.cli.commands.stores import is_backup, is_file, restore_backup

    if not target.named and is_backup(key_or_file):
        await restore_backup(key_or_file, yes=yes, target=target)
        return
    if not any(target.chosen) or (not target.named and is_file(key_or_file)):
        raise holdfast.MissingField(
            f"{key_or_file} is not a file that holdfast backup wrote. To restore the key of that name, give"
            " --plugin NAME, or --tenant and --project",
            field="plugin",
        )
    key = key_or_file
    async with target.open() as store:
        entry = await target.keys(store).restore(key, ttl=ttl, **origin.fields)
    print_stored(entry, target)


def print_stored(entry: holdfast.Entry, target: Target) -> None:
    """Print the answer of a write that leaves an entry: its version."""
    answer(
        target.json,
        {"key": entry.key, "version": entry.version, "expires_at": entry.expires_at},
        entry.version,
    )


async def delete_all(prefix: str, *, dry_run: bool, yes: bool, origin: WriteOptions, target: Target) -> None:
    """Delete the keys with a prefix and print how many there were, or only print the keys."""
    if not dry_run:
        require_yes(f"every key of {target.owner} that begins with {prefix!a} is deleted", yes=yes)
    count = 0
    async with target.look() if dry_run else target.open() as store:
        delete_page = partial(target.keys(store).delete_prefix, prefix, dry_run=dry_run, **origin.fields)
        async for page in ALL_PAGES.pages(delete_page):
            count += page.count
            for key in page.keys if dry_run else ():
                answer(target.json, {"key": key}, shown_key(key))
    if not dry_run:
        answer(target.json, {"deleted": count}, f"deleted {amount(count, 'key')}")
    elif not target.json:
        say(f"{amount(count, 'key')} would be deleted")


_BATCH_HINT: Final = 'write a list such as \'[{"key": "a", "value": 1}]\', or @FILE to read it from a file'


@destroys
async def batch(
    content: Hyphened,
    /,
    *,
    yes: Yes = False,
    origin: WriteOptions = UNNAMED,
    target: Target = HERE,
) -> None:
    """Write several keys, all or none, and print the version of each on a line.

    A write is {"key": …, "value": …} with the fields of set, {"key": …, "delete": true} or
    {"key": …, "incr": 1}. With checks, {"checks": [{"key": …, "version": 3}], "writes": […]}, nothing is
    written unless each key has that version; 0 means that it is not there. A batch that deletes keys asks
    first.

    Parameters
    ----------
    content
        A list of writes as JSON, or an object with checks and writes; - reads stdin, @FILE a file.
    """
    checks, writes = _parts(read_value(content, text=False, hint=_BATCH_HINT))
    if count := _deletions(writes):
        require_yes(f"the batch deletes {amount(count, 'key')} of {target.owner}", yes=yes)
    async with target.open() as store:
        done = await target.keys(store).batch(checks=checks, writes=writes, **origin.fields)
    if target.json:
        document(done)
        return
    for version in done.versions:
        line("-" if version is None else version)


def _deletions(writes: Any) -> int:
    """Return how many of the writes delete a key."""
    if not isinstance(writes, list):
        return 0
    return sum(isinstance(one, dict) and one.get("delete") is True for one in writes)


def _parts(content: Any) -> tuple[Any, Any]:
    if isinstance(content, list):
        return (), content
    if not isinstance(content, dict) or "writes" not in content or content.keys() - {"checks", "writes"}:
        raise holdfast.ValidationError(
            'a batch is a list of writes, or {"checks": [...], "writes": [...]}', field="writes"
        )
    return content.get("checks", ()), content["writes"]


_EDIT_HINT: Final = 'write text in double quotes, as in "hello"'


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
            value = parse(after, hint=_EDIT_HINT)
            async with target.open() as store:
                stored = await target.keys(store).set(key, value, **_unchanged(entry), **origin.fields)
        except holdfast.VersionConflict as conflict:
            _show_both(conflict.current, after)
            raise
    print_stored(stored, target)


def at_terminal() -> bool:
    """Return whether an editor has a terminal to read from."""
    return sys.stdin.isatty()


def _unchanged(entry: holdfast.Entry | None) -> dict[str, Any]:
    """Return the fields of a write that keep what an edit does not change."""
    if entry is None:
        return {"expected_version": 0}
    return {"ttl": holdfast.KEEP, "expected_version": entry.version, "semantics": entry.semantics}


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
    for difference in difflib.unified_diff(
        theirs.splitlines(), mine.splitlines(), fromfile=name, tofile="yours", lineterm=""
    ):
        say(difference)


def _text(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


async def reveal(
    key: str,
    /,
    *,
    why: Why = None,
    writer: Viewer = None,
    long: Annotated[bool, Long] = False,
    raw: bool = False,
    target: Target = HERE,
) -> None:
    """Print the value of a key; an audit records who looked at it and why.

    The policy `reveal` of the namespace decides whether a reason is needed, and may refuse.

    Parameters
    ----------
    key
        The key.
    long
        Print the whole entry: also version, times, writer and semantics.
    raw
        Print a string without JSON quotes.
    """
    require_one_form(target, long=long, raw=raw)
    async with target.open() as store:
        entry = await target.keys(store).reveal(key, why, writer=writer)
    print_entry(key, entry, target, long=long, raw=raw)
