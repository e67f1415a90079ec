"""`holdfast migrate up`, `down`, `current` and `check`: the revisions of a store's schema.

Law: opening a store upgrades it, so an upgrade is done by opening it. A downgrade may lose data and always
needs a confirmation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.asking import Yes, destroys, require_yes
from holdfast.edges.cli.exit_codes import ERROR, OK
from holdfast.edges.cli.options import WHERE
from holdfast.edges.cli.output import document, line, say
from holdfast.edges.cli.schema import BASE, schema_of
from holdfast.edges.cli.target import Place
from holdfast.edges.settings.read import read_config
from holdfast.engines.sql.layout import KNOWN_REVISIONS, SCHEMA_REVISION
from holdfast.engines.sql.migrate import Need, needed


@Parameter(name="*", group=WHERE)
@dataclass(frozen=True, kw_only=True)
class Database(Place):
    """The store to migrate."""

    url: Annotated[str | None, Parameter(name=("--db", "--url"))] = None
    """A path or a URL. If not given: $HOLDFAST_URL, then the store of the settings, then the user's own."""

    def _configured(self) -> str:
        """Return the store of the settings. A service's schema cannot be reached, so none is considered."""
        return read_config().db


DATABASE: Final = Database()


async def up(*, database: Database = DATABASE) -> None:
    """Bring a store to the newest revision, and print it. An empty database becomes a store."""
    schema = schema_of(database.address)
    before = await schema.revision()
    async with database.opened():
        after = await schema.revision()
    if database.json:
        document({"before": before, "revision": after})
    else:
        say("there was nothing to do" if before == after else f"migrated from {before}")
        line(after)


@destroys
async def down(revision: str | None = None, /, *, yes: Yes = False, database: Database = DATABASE) -> None:
    """Downgrade a store to an older revision, and print it. Data that the older revision can't hold is lost.

    Parameters
    ----------
    revision
        Target revision; base is an empty database. One step back if not given.
    """
    schema = schema_of(database.address)
    before = await schema.revision()
    goal = _older(before, revision)
    lost = "every entry" if goal == BASE else "data"
    require_yes(f"going down from {before} to {goal} loses {lost}, so make a backup first", yes=yes)
    await schema.downgrade(goal)
    if database.json:
        document({"before": before, "revision": goal})
    else:
        line(goal)


async def current(*, database: Database = DATABASE) -> None:
    """Print the revision of a store; base if the database holds none."""
    found = await schema_of(database.address).revision()
    if database.json:
        document({"revision": found, "newest": SCHEMA_REVISION})
    else:
        line(found)


async def check(*, database: Database = DATABASE) -> int:
    """Check that a store has the revision that this version needs; if not, the exit code is 1."""
    found = await schema_of(database.address).revision()
    need = needed(None if found == BASE else found)
    if database.json:
        document({"revision": found, "newest": SCHEMA_REVISION, "needed": need.value})
    elif need is Need.NOTHING:
        line(f"{found} is up to date")
    else:
        line(f"{found} is not up to date: holdfast migrate up brings it to {SCHEMA_REVISION}")
    return OK if need is Need.NOTHING else ERROR


def _older(before: str, goal: str | None) -> str:
    """Return the revision to go back to, which must be older than the current one."""
    needed(None if before == BASE else before)
    known = (BASE, *KNOWN_REVISIONS)
    place = known.index(before)
    if goal is None and place > 0:
        return known[place - 1]
    if goal is not None and goal in known[:place]:
        return goal
    older = ", ".join(known[:place]) or "none"
    raise holdfast.ValidationError(
        f"the store is at {before}; older revisions are: {older}", field="revision"
    )
