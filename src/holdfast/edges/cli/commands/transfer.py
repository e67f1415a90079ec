"""`holdfast export` and `import`: a namespace as a file, and back.

This module moves entries: `export_format` defines a line, and `import_entries` writes it. A file gets its
name only when it is complete.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast import families, private
from holdfast.clock import moment
from holdfast.edges.cli.commands.list import pages
from holdfast.edges.cli.export_format import FORMAT, Header, lines_of, sorting
from holdfast.edges.cli.export_tables import (
    TableCounts,
    TableImporter,
    definitions,
    item_lines,
    require_definitions,
)
from holdfast.edges.cli.import_entries import ImportCounts, Importer
from holdfast.edges.cli.output import document, file_trouble, on_terminal, say
from holdfast.edges.cli.target import HERE, Target
from holdfast.edges.screen import harmless

if TYPE_CHECKING:
    from holdfast.engine.moving import Movable


async def export_entries(
    *,
    prefix: str = "",
    tables: bool = False,
    out: str | None = None,
    force: bool = False,
    target: Target = HERE,
) -> None:
    """Write the entries of a namespace as JSON Lines, ordered by version. Expired ones are left out.

    The first line has the namespace's policy, if it has one. To copy a whole store, see backup and copy.

    Parameters
    ----------
    prefix
        Prefix of the keys; all if not given.
    tables
        Write the plugin's tables with their definitions, indexes and items, instead of its keys.
    out
        The file to write instead of stdout; it appears when it is complete, and only its owner can read it.
    force
        Replace the file if it exists.
    """
    require_free(out, force=force)
    if tables:
        await _export_tables(out, force=force, target=target)
        return
    async with target.look() as store:
        keys = target.keys(store)
        total = await _count(store, keys, prefix)
        with sorting() as sorter:
            with progress("export", total) as advance:
                async for page in pages(keys, prefix, limit=None, cursor=None, values=True, follow=True):
                    for entry in page.entries or ():
                        sorter.add(entry)
                    advance(page.count)
            header = await _header(store, keys.namespace)
            with opened_output(out, force=force) as file:
                file.write(header.line())
                file.writelines(sorter.lines())
    if out is not None and target.json:
        document({"namespace": keys.namespace, "entries": sorter.count, "file": out})
    elif out is not None:
        say(f"exported {_entries(sorter.count)} of {keys.namespace} to {out}")


async def import_entries(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    dry_run: bool = False,
    resume: bool = False,
    target: Target = HERE,
) -> None:
    """Write the entries of an export into a namespace.

    They keep their versions if the namespace was never written to, else they get new ones; items of tables
    always get new ones. Entries that have expired since are left out. A namespace without a policy gets that
    of the export. Without --plugin or --tenant it is the namespace that they were exported from.

    Parameters
    ----------
    file
        The file, or - for stdin.
    dry_run
        Check every line and write nothing.
    resume
        Continue an interrupted import into a namespace that was empty when it began.
    """
    with _input(file) as lines:
        header = Header.read(next(lines, b""))
        if header.tables is not None:
            await _import_tables(file, lines, header, dry_run=dry_run, target=target)
            return
        async with target.open() as store:
            keys = target.keys(store) if target.named else _exported_from(store, header.namespace)
            version = (await store.stats(keys.namespace)).version
            intake = Importer(
                store,
                keys,
                after=version if resume else 0,
                keeps_versions=version == 0 or resume,
                dry_run=dry_run,
                most=(await store.policy(keys.namespace)).max_value_bytes,
            )
            if not intake.tally.keeps_versions and not target.json:
                say(f"{keys.namespace} has been written to before, so the entries get new versions")
            intake.tally.policy_set = await _set_policy(store, keys.namespace, header, dry_run=dry_run)
            with progress("import", _size(file), in_bytes=True) as advance:
                for number, line in enumerate(lines, start=2):
                    if line.strip():
                        await intake.take(number, line)
                    advance(len(line))
            await intake.finish()
    _report(intake, target)


async def _export_tables(out: str | None, *, force: bool, target: Target) -> None:
    async with target.look() as store:
        plugin = _plugin(target)
        handle, name = store.tables(plugin), families.tables(plugin)
        described = await definitions(handle)
        header = await _header(store, name, tables=described)
        total = (await store.stats(name)).keys
        with opened_output(out, force=force) as file, progress("export", total) as advance:
            file.write(header.line())
            items = 0
            async for lines in item_lines(handle, described):
                file.writelines(lines)
                items += len(lines)
                advance(len(lines))
    if out is not None and target.json:
        document({"namespace": name, "tables": len(described), "items": items, "file": out})
    elif out is not None:
        say(f"exported {_items(items)} of {_tables(len(described))} of {name} to {out}")


async def _import_tables(
    name: str, lines: Iterator[bytes], header: Header, *, dry_run: bool, target: Target
) -> None:
    plugin = target.chosen.plugin if target.named else header.namespace.rpartition("/")[2]
    if not plugin:
        raise holdfast.ValidationError("tables belong to a plugin: give --plugin NAME", field="plugin")
    require_definitions(header.tables)
    namespace = families.tables(plugin)
    async with target.open() as store:
        tally = TableCounts(namespace=namespace, dry_run=dry_run)
        tally.policy_set = await _set_policy(store, namespace, header, dry_run=dry_run)
        intake = TableImporter(store.tables(plugin), header.tables or [], tally)
        await intake.begin()
        with progress("import", _size(name), in_bytes=True) as advance:
            for number, line in enumerate(lines, start=2):
                if line.strip():
                    await intake.take(number, line)
                advance(len(line))
        await intake.finish()
    if target.json:
        document(tally)
        return
    done = "would be imported" if dry_run else "imported"
    say(f"{_items(tally.written)} {done} into {namespace}, new tables: {tally.tables}{_and_policy(tally)}")


async def _header(
    store: holdfast.Store, namespace: str, *, tables: list[dict[str, Any]] | None = None
) -> Header:
    policy = msgspec.to_builtins(await store.policy(namespace))
    return Header(
        holdfast=FORMAT,
        namespace=namespace,
        exported_at=moment(store.now()),
        policy={name: value for name, value in policy.items() if value is not None} or None,
        tables=tables,
    )


async def _set_policy(store: holdfast.Store, namespace: str, header: Header, *, dry_run: bool) -> bool:
    """Set the policy of the export if the namespace has none. Returns whether it is or would be set."""
    if header.policy is None or await store.policy(namespace) != holdfast.Policy():
        return False
    if not dry_run:
        await store.set_policy(namespace, header.policy)
    return True


def _plugin(target: Target) -> str:
    plugin = target.chosen.plugin
    if not plugin:
        raise holdfast.MissingField(
            "whose tables? Give --plugin NAME (or set HOLDFAST_PLUGIN)", field="plugin"
        )
    return plugin


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count} items"


def _tables(count: int) -> str:
    return "1 table" if count == 1 else f"{count} tables"


def _and_policy(tally: ImportCounts | TableCounts) -> str:
    return ", with its policy" if tally.policy_set else ""


async def _count(store: holdfast.Store, keys: holdfast.KV, prefix: str) -> int:
    """Return the number of entries to export. Those with a prefix are counted only if a progress bar shows
    it."""
    if not prefix or not sys.stderr.isatty():
        return (await store.stats(keys.namespace)).keys
    walk = pages(keys, prefix, limit=None, cursor=None, values=False, follow=True)
    return sum([page.count async for page in walk])


def _size(name: str) -> int | None:
    """Return the size of a file; None if unknown, as for stdin."""
    return None if name == "-" else Path(name).stat().st_size


def _report(intake: Importer, target: Target) -> None:
    tally = intake.tally
    if target.json:
        document(tally)
        return
    done = "would be imported" if tally.dry_run else "imported"
    left_out = [
        f"{count} {what}"
        for count, what in ((tally.skipped, "there already"), (tally.expired, "expired"))
        if count
    ]
    say(
        f"{_entries(tally.written)} {done} into {tally.namespace}"
        + "".join(f", {part}" for part in left_out)
        + _and_policy(tally)
    )


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _exported_from(store: holdfast.Store, namespace: str) -> holdfast.KV:
    match namespace.split("/"):
        case [families.PLAIN, plugin]:
            return store.kv(plugin)
        case [families.SEMANTIC, tenant, project]:
            return store.semantic(tenant, project)
        case _:
            raise holdfast.ValidationError(
                f"the export is of {namespace!r}: name a namespace with --plugin, or --tenant and --project",
                field="plugin",
            )


@contextlib.contextmanager
def _input(name: str) -> Iterator[Iterator[bytes]]:
    """Open the lines of a file or of stdin."""
    if name == "-":
        yield lines_of(sys.stdin.buffer, field="line")
        return
    try:
        with Path(name).open("rb") as file:
            yield lines_of(file, field="line")
    except OSError as error:
        raise file_trouble(error, name, field="file") from None


def require_free(name: str | Path | None, *, force: bool, field: str = "out") -> None:
    """Refuse to overwrite a file before any work is done for it.

    Raises:
        ValidationError: The file exists, and `force` is not set.
    """
    if name is not None and not force and os.path.lexists(name):
        raise holdfast.ValidationError(f"{name} already exists; --force replaces it", field=field)


@contextlib.contextmanager
def opened_output(name: str | None, *, force: bool) -> Iterator[Output]:
    """Open stdout, or a file that gets its name once it is complete."""
    if name is None:
        yield _Screen() if on_terminal() else sys.stdout.buffer
        return
    path = Path(name)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(private.create(unfinished), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        require_free(name, force=force)
        unfinished.replace(path)
    except OSError as error:
        raise file_trouble(error, name, field="out") from None
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


class Output(Protocol):
    """A destination for lines of JSON."""

    def write(self, line: bytes, /) -> object:
        """Write a line."""

    def writelines(self, lines: Iterable[bytes], /) -> object:
        """Write several lines."""


class _Screen:
    """A terminal, to which text is written escaped."""

    def write(self, line: bytes, /) -> None:
        sys.stdout.write(harmless(line.decode(), lines=True))

    def writelines(self, lines: Iterable[bytes], /) -> None:
        for line in lines:
            self.write(line)


@contextlib.contextmanager
def progress(what: str, total: int | None, *, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts entries or bytes, with a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    # late: it takes 35 ms, and only a terminal needs it
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    far = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = TextColumn("{task.description}"), BarColumn(), far, TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def advance(count: int) -> None:
            bar.advance(task, count)
            done, most = bar.tasks[task].completed, bar.tasks[task].total
            if most is not None and done > most:  # the store grows meanwhile
                bar.update(task, total=done)

        yield advance


async def counted(store: Movable) -> int | None:
    """Return how many things a store holds, for a progress bar; None where no bar is shown."""
    if not sys.stderr.isatty():
        return None
    async with store.snapshot() as snapshot:
        return await snapshot.count()
