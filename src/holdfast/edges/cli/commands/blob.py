"""`holdfast blob put`, `get`, `head`, `list` and `delete`: bytes from and to files.

Bytes go straight from a file to the store and back, a part at a time. A file that `get` writes appears whole
or not at all.
"""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from mimetypes import guess_type
from pathlib import Path
from typing import IO, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.options import (
    UNNAMED,
    WHERE,
    IfVersion,
    Ttl,
    Viewer,
    Why,
    WriteOptions,
    Yes,
    destroys,
    number,
    require_yes,
)
from holdfast.edges.cli.output import (
    document,
    line,
    on_terminal,
    opened_output,
    require_free,
    rows,
    shown_time,
)
from holdfast.edges.cli.target import Place

Name = Annotated[str, Parameter(help="The blob's name.")]
_RANGE: Final = re.compile(r"(\d+)-(\d*)", re.ASCII)


@Parameter(name="*", group=WHERE)
@dataclass(frozen=True, kw_only=True)
class BlobOwner(Place):
    """The blobs of a plugin."""

    plugin: Annotated[str | None, Parameter(alias="-p")] = None
    """The plugin whose blobs are meant. If not given: $HOLDFAST_PLUGIN."""

    def blobs(self, store: holdfast.Store) -> holdfast.Blobs:
        """Return the handle on the blobs."""
        return store.blobs(self.plugin_name)

    @property
    def plugin_name(self) -> str:
        """The name of the plugin, from the option, a variable or a context."""
        plugin = self._spoken().plugin if self.plugin is None else self.plugin
        if not plugin:
            raise holdfast.MissingField(
                "whose blobs? Give --plugin NAME (or set HOLDFAST_PLUGIN)", field="plugin"
            )
        return plugin


HERE: Final = BlobOwner()


async def put(
    name: Name,
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    content_type: str | None = None,
    metadata: Annotated[list[str] | None, Parameter(name="--meta")] = None,
    ttl: Ttl = None,
    if_version: IfVersion = None,
    origin: WriteOptions = UNNAMED,
    owner: BlobOwner = HERE,
) -> None:
    """Put a file, and print the blob's version.

    Parameters
    ----------
    file
        The file; - reads stdin.
    content_type
        The content type; by default what the file's name suggests.
    metadata
        Text to keep with the blob, as NAME=TEXT; may be given several times.
    """
    guessed = guess_type(file)[0] if content_type is None else content_type
    given = dict(map(_named, metadata or ()))
    with ExitStack() as stack:
        data = sys.stdin.buffer if file == "-" else stack.enter_context(_read(file))
        async with owner.open() as store:
            blob = await owner.blobs(store).put(
                name,
                data,
                content_type=guessed,
                metadata=given,
                ttl=ttl,
                expected_version=if_version,
                **origin.fields,
            )
    if owner.json:
        document(blob)
    else:
        line(blob.version)


async def get(
    name: Name,
    /,
    *,
    output: Annotated[str | None, Parameter(alias="-o")] = None,
    part: Annotated[str | None, Parameter(name="--range")] = None,
    force: bool = False,
    owner: BlobOwner = HERE,
) -> None:
    """Write a blob to stdout, or to a file.

    Parameters
    ----------
    output
        The file. It appears when all bytes have arrived, and only its owner can read it.
    part
        Only these bytes, as FIRST-LAST, counted from 0; FIRST- for all from there on.
    force
        Replace the file if it exists.
    """
    start, end = _bounds(part)
    require_output(output, force=force)
    async with owner.look() as store:
        reader = await owner.blobs(store).get(name, start=start, end=end)
        await write_blob(name, reader, output, force=force)


async def reveal(
    name: Name,
    /,
    *,
    why: Why = None,
    writer: Viewer = None,
    output: Annotated[str | None, Parameter(alias="-o")] = None,
    force: bool = False,
    owner: BlobOwner = HERE,
) -> None:
    """Write a blob to stdout or to a file; an audit records who looked at it and why.

    Parameters
    ----------
    output
        The file. It appears when all bytes have arrived, and only its owner can read it.
    force
        Replace the file if it exists.
    """
    require_output(output, force=force)
    async with owner.open() as store:
        reader = await owner.blobs(store).reveal(name, why, writer=writer)
        await write_blob(name, reader, output, force=force)


def require_output(output: str | None, *, force: bool) -> None:
    """Refuse to write bytes to a terminal, or over a file."""
    require_free(output, force=force, field="output")
    if output is None and on_terminal():
        raise holdfast.ValidationError("bytes don't belong on a terminal: give --output FILE", field="output")


async def write_blob(
    name: str, reader: holdfast.BlobReader | None, output: str | None, *, force: bool
) -> None:
    """Write the bytes of a blob to a file or to stdout."""
    if reader is None:
        raise _absent(name)
    with opened_output(output, force=force) as file:
        async for piece in reader:
            await asyncio.to_thread(file.write, piece)


async def head(name: Name, /, *, owner: BlobOwner = HERE) -> None:
    """Print what is known about a blob."""
    async with owner.look() as store:
        blob = await owner.blobs(store).head(name)
    if blob is None:
        raise _absent(name)
    if owner.json:
        document(blob)
        return
    for field, known in msgspec.structs.asdict(blob).items():
        line(f"{field}\t{_shown(known)}")


async def list_blobs(
    prefix: str = "",
    /,
    *,
    limit: Annotated[int | None, Parameter(converter=number)] = None,
    cursor: str | None = None,
    everything: Annotated[bool, Parameter(name="--all")] = False,
    owner: BlobOwner = HERE,
) -> None:
    """List the blobs whose names begin with a prefix: name, size in bytes, version, type, last change.

    Parameters
    ----------
    prefix
        Prefix of the names; all if not given.
    limit
        Return at most this many, 1 to 10000; 1000 if not given. With --all, the size of a page.
    cursor
        Continue after an earlier page; the cursor is in its JSON.
    everything
        All blobs, page by page.
    """
    async with owner.look() as store:
        blobs = owner.blobs(store)
        page = await blobs.list(prefix, limit=limit, cursor=cursor)
        found = [*page.blobs]
        while everything and page.cursor is not None:
            page = await blobs.list(prefix, limit=limit, cursor=page.cursor)
            found += page.blobs
    if owner.json:
        document({"blobs": found, "count": len(found), "truncated": page.truncated, "cursor": page.cursor})
        return
    rows(
        ("name", "size", "version", "content_type", "updated_at"),
        [[b.name, b.size, b.version, b.content_type, shown_time(b.updated_at)] for b in found],
    )


@destroys
async def delete(
    name: Name,
    /,
    *,
    yes: Yes = False,
    if_version: IfVersion = None,
    origin: WriteOptions = UNNAMED,
    owner: BlobOwner = HERE,
) -> None:
    """Delete a blob. One that does not exist is no error."""
    require_yes(f"blob {name!a} of plugin {owner.plugin_name} is deleted", yes=yes)
    async with owner.open() as store:
        deleted = await owner.blobs(store).delete(name, expected_version=if_version, **origin.fields)
    if owner.json:
        document({"deleted": deleted})
    else:
        line("deleted" if deleted else "not there")


def _absent(name: str) -> holdfast.KeyNotFound:
    return holdfast.KeyNotFound(f"blob {name!r} does not exist", field="key")


def _named(text: str) -> tuple[str, str]:
    name, equals, content = text.partition("=")
    if not equals:
        raise holdfast.ValidationError(f"--meta is NAME=TEXT, not {text!a}", field="metadata")
    return name, content


def _bounds(text: str | None) -> tuple[int, int | None]:
    """Return the first position and the one after the last."""
    if text is None:
        return 0, None
    found = _RANGE.fullmatch(text)
    if found is None:
        raise holdfast.ValidationError(f"--range is FIRST-LAST or FIRST-, not {text!a}", field="range")
    return int(found[1]), int(found[2]) + 1 if found[2] else None


def _shown(known: Any) -> str:
    if isinstance(known, dict):
        return msgspec.json.encode(known).decode()
    return "-" if known is None else str(known)


def _read(file: str) -> IO[bytes]:
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise holdfast.ValidationError(f"{file} can't be read: {error.strerror}", field="file") from None
