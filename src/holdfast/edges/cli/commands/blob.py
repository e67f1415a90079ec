"""`holdfast blob put`, `get`, `head`, `list` and `delete`: bytes from and to files.

Bytes go straight from a file to the store and back, a part at a time. A file that `get` writes appears whole
or not at all.
"""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from functools import partial
from mimetypes import guess_type
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast import seams
from holdfast.edges.cli.options import (
    FIRST_PAGE,
    OWNER,
    UNNAMED,
    IfVersion,
    Owner,
    Paging,
    Ttl,
    Viewer,
    Why,
    WriteOptions,
    Yes,
    destroys,
    require_yes,
)
from holdfast.edges.cli.output import (
    answer,
    document,
    line,
    on_terminal,
    opened_input,
    opened_output,
    records,
    require_free,
)

Name = Annotated[str, Parameter(help="The blob's name.")]
_RANGE: Final = re.compile(r"(\d+)-(\d*)", re.ASCII)


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
    owner: Owner = OWNER,
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
    texts = dict(map(_named, metadata or ()))
    with ExitStack() as stack:
        data = sys.stdin.buffer if file == "-" else stack.enter_context(opened_input(file, field="file"))
        async with owner.open() as store:
            blob = await store.blobs(owner.plugin_name).put(
                name,
                data,
                content_type=guessed,
                metadata=texts,
                ttl=ttl,
                expected_version=if_version,
                **origin.fields,
            )
    answer(owner.json, blob, blob.version)


async def get(
    name: Name,
    /,
    *,
    output: Annotated[str | None, Parameter(alias="-o")] = None,
    part: Annotated[str | None, Parameter(name="--range")] = None,
    force: bool = False,
    owner: Owner = OWNER,
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
        reader = await store.blobs(owner.plugin_name).get(name, start=start, end=end)
        await write_blob(name, reader, output, force=force)


async def reveal(
    name: Name,
    /,
    *,
    why: Why = None,
    writer: Viewer = None,
    output: Annotated[str | None, Parameter(alias="-o")] = None,
    force: bool = False,
    owner: Owner = OWNER,
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
        reader = await store.blobs(owner.plugin_name).reveal(name, why, writer=writer)
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
            await seams.aside(file.write, piece)


async def head(name: Name, /, *, owner: Owner = OWNER) -> None:
    """Print what is known about a blob."""
    async with owner.look() as store:
        blob = await store.blobs(owner.plugin_name).head(name)
    if blob is None:
        raise _absent(name)
    if owner.json:
        document(blob)
        return
    for field, known in msgspec.structs.asdict(blob).items():
        line(f"{field}\t{_shown(known)}")


async def list_blobs(prefix: str = "", /, *, paging: Paging = FIRST_PAGE, owner: Owner = OWNER) -> None:
    """List the blobs whose names begin with a prefix: name, size in bytes, version, type, last change.

    Parameters
    ----------
    prefix
        Prefix of the names; all if not given.
    """
    blobs: list[holdfast.Blob] = []
    async with owner.look() as store:
        async for page in paging.pages(partial(store.blobs(owner.plugin_name).list, prefix)):
            blobs += page.blobs
    if owner.json:
        document({"blobs": blobs, "count": len(blobs), "truncated": page.truncated, "cursor": page.cursor})
    else:
        records("name size version content_type updated_at", blobs)


@destroys
async def delete(
    name: Name,
    /,
    *,
    yes: Yes = False,
    if_version: IfVersion = None,
    origin: WriteOptions = UNNAMED,
    owner: Owner = OWNER,
) -> None:
    """Delete a blob. One that does not exist is no error."""
    require_yes(f"blob {name!a} of plugin {owner.plugin_name} is deleted", yes=yes)
    async with owner.open() as store:
        blobs = store.blobs(owner.plugin_name)
        deleted = await blobs.delete(name, expected_version=if_version, **origin.fields)
    answer(owner.json, {"deleted": deleted}, "deleted" if deleted else "not there")


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
    bounds = _RANGE.fullmatch(text)
    if bounds is None:
        raise holdfast.ValidationError(f"--range is FIRST-LAST or FIRST-, not {text!a}", field="range")
    return int(bounds[1]), int(bounds[2]) + 1 if bounds[2] else None


def _shown(known: Any) -> str:
    if isinstance(known, dict):
        return msgspec.json.encode(known).decode()
    return "-" if known is None else str(known)
