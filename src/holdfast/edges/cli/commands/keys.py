"""`holdfast set`, `delete` and `restore`: the verbs that change one key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.confirmation import Yes, destroys, require_yes
from holdfast.edges.cli.options import UNNAMED, IfVersion, Key, Ttl, WriteOptions
from holdfast.edges.cli.output import document, line, say, shown_key
from holdfast.edges.cli.target import HERE, Target
from holdfast.edges.cli.values import read_value

if TYPE_CHECKING:
    import holdfast
    from holdfast.edges.cli.options import WriteOptions
    from holdfast.edges.cli.target import Target

Hyphened = Parameter(allow_leading_hyphen=True)


async def set_value(
    key: Key,
    value: Annotated[str, Hyphened],
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
    if target.json:
        document({"deleted": deleted})
    else:
        line("deleted" if deleted else "not there")


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
    from holdfast.edges.cli.commands.backup import is_backup, is_file, restore_backup

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
    if target.json:
        document({"key": entry.key, "version": entry.version, "expires_at": entry.expires_at})
    else:
        line(entry.version)


async def delete_all(prefix: str, *, dry_run: bool, yes: bool, origin: WriteOptions, target: Target) -> None:
    """Delete the keys with a prefix and print how many there were, or only print the keys."""
    if dry_run:
        async with target.look() as store:
            count = await _walk(target.keys(store), prefix, origin, target, dry_run=True)
        if not target.json:
            say(f"{_keys(count)} would be deleted")
        return
    require_yes(f"every key of {target.owner} that begins with {prefix!a} is deleted", yes=yes)
    async with target.open() as store:
        count = await _walk(target.keys(store), prefix, origin, target, dry_run=False)
    if target.json:
        document({"deleted": count})
    else:
        line(f"deleted {_keys(count)}")


async def _walk(kv: holdfast.KV, prefix: str, origin: WriteOptions, target: Target, *, dry_run: bool) -> int:
    count, cursor = 0, None
    while True:
        page = await kv.delete_prefix(
            prefix, cursor=cursor, dry_run=dry_run, writer=origin.writer, spec_ref=origin.spec_ref
        )
        count += page.count
        for key in page.keys if dry_run else ():
            if target.json:
                document({"key": key})
            else:
                line(shown_key(key))
        cursor = page.cursor
        if cursor is None:
            return count


def _keys(count: int) -> str:
    return "1 key" if count == 1 else f"{count} keys"
