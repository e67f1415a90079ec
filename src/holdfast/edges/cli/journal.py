"""`holdfast watch` and `history`: what has changed.

Law: a change is printed as the journal has it, one line each. A watch goes on until it is interrupted or
nobody reads on.
"""

from __future__ import annotations

import logging
from typing import Annotated

from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.options import Key, number
from holdfast.edges.cli.output import document, on_terminal, rows, shown_key, shown_time
from holdfast.edges.cli.target import HERE, Target
from holdfast.edges.screen import harmless


async def watch(
    prefix: str = "",
    /,
    *,
    since: Annotated[int | None, Parameter(converter=number)] = None,
    target: Target = HERE,
) -> None:
    """Print changes as they come, until Ctrl-C: time, what was done, version, key and writer.

    Parameters
    ----------
    prefix
        The beginning of the keys to watch; all if not given.
    since
        Begin after this version instead of now; 0 begins with all that the journal has.
    """
    logging.getLogger("holdfast.watch").setLevel(logging.WARNING)
    async with target.look(reap=True, required=True) as store:
        async for change in target.keys(store).watch(prefix, since=since):
            if target.json:
                document(change)
            else:
                print(_line(change), flush=True)


async def history(
    key: Key,
    /,
    *,
    limit: Annotated[int | None, Parameter(converter=number)] = None,
    target: Target = HERE,
) -> None:
    """Print what is known of the changes of a key, the newest first.

    Parameters
    ----------
    limit
        At most so many, 1 to 10,000; 1,000 if not given.
    """
    async with target.look() as store:
        changes = await target.keys(store).history(key, limit=limit)
    if target.json:
        document({"changes": changes})
    else:
        rows(("time", "op", "version", "key", "writer"), map(_cells, changes))


def _cells(change: holdfast.Change) -> tuple[str, str, int, str, str | None]:
    return shown_time(change.at), change.op, change.version, shown_key(change.key), change.last_writer


def _line(change: holdfast.Change) -> str:
    """A change with tabs between its cells, or in columns for eyes."""
    at, op, version, key, writer = _cells(change)
    who = harmless(writer or "-")
    if on_terminal():
        return f"{at}  {op:<8}  {version:>7}  {key}  {who}"
    return f"{at}\t{op}\t{version}\t{key}\t{who}"
