"""`holdfast migrate --reset-clock`: resets a store's time to the present.

Law: only here does a store's time go back, and no process may have the store open meanwhile: a running
process would continue with its own time and store it again.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

import holdfast
from holdfast.clock import moment
from holdfast.edges.cli.asking import Yes, destroys, require_yes
from holdfast.edges.cli.commands.migrate import DATABASE, Database
from holdfast.edges.cli.output import document, line
from holdfast.edges.cli.schema import BASE, schema_of, writing
from holdfast.engines.sqlite import setup

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from holdfast.edges.cli.schema import Schema


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    """The result: the store's time before and after, and the number of namespaces that were ahead of it."""

    before: datetime
    after: datetime
    namespaces: int


@destroys
async def reset_clock(*, yes: Yes = False, database: Database = DATABASE) -> None:
    """Reset the time of a store that was written with a clock far ahead.

    The time that the store remembers goes back, and so does the last change of each namespace. Entries,
    versions and deadlines stay as they are: an entry that was seen to be gone may be there again, until its
    deadline by the right clock. No process may have the store open.
    """
    schema = schema_of(database.address)
    if await schema.revision() == BASE:
        raise holdfast.ValidationError("there is no store, and so no clock to reset", field="db")
    require_yes(
        "going back may show entries again that were seen to be gone, so make a backup first", yes=yes
    )
    done = await _reset(schema)
    if database.json:
        document(done)
    else:
        line(
            f"the store's time was {done.before.isoformat()} and is {done.after.isoformat()}; "
            f"namespaces whose last change was later: {done.namespaces}"
        )


async def _reset(schema: Schema) -> Reset:
    if schema.file is not None:
        before, after, changed = await asyncio.to_thread(_in_file, schema.file)
    else:
        before, after, changed = await _in_database(schema.dsn or "")
    return Reset(before=moment(before), after=moment(after), namespaces=changed)


def _in_file(path: Path) -> tuple[int, int, int]:
    with writing(path):
        return setup.reset_clock(path, round(time.time() * 1000))


async def _in_database(dsn: str) -> tuple[int, int, int]:
    # late: optional driver
    from holdfast.engines.postgres.connections import Connections
    from holdfast.engines.postgres.setup import reset_clock

    connections = Connections(dsn)
    try:
        return await connections.use(reset_clock)
    finally:
        await connections.aclose()
