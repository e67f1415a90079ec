"""`holdfast migrate` and `adopt`: the revisions of a store's schema, and a database of another program.

Opening a store upgrades it, so an upgrade is done by opening it. A downgrade may lose data and always needs a
confirmation. Only `--reset-clock` turns a store's time back, and no process may have the store open
meanwhile: a running process would continue with its own time and store it again. Adopting a table is done as
a whole or not at all, and the table is kept under another name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

import holdfast
from holdfast.clock import moment
from holdfast.edges.cli.options import WHERE, Yes, destroys, require_yes
from holdfast.edges.cli.output import ERROR, OK, answer, document, line, say
from holdfast.edges.cli.schema import BASE, schema_of
from holdfast.edges.cli.target import Place
from holdfast.edges.settings.read import read_config
from holdfast.engines.sql.adopting import OLD_TABLE, TABLE, Report
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
    if not database.json:
        say("there was nothing to do" if before == after else f"migrated from {before}")
    answer(database.json, {"before": before, "revision": after}, after)


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
    answer(database.json, {"before": before, "revision": goal}, goal)


async def current(*, database: Database = DATABASE) -> None:
    """Print the revision of a store; base if the database holds none."""
    revision = await schema_of(database.address).revision()
    answer(database.json, {"revision": revision, "newest": SCHEMA_REVISION}, revision)


async def check(*, database: Database = DATABASE) -> int:
    """Check that a store has the revision that this version needs; if not, the exit code is 1."""
    revision = await schema_of(database.address).revision()
    need = needed(None if revision == BASE else revision)
    if database.json:
        document({"revision": revision, "newest": SCHEMA_REVISION, "needed": need.value})
    elif need is Need.NOTHING:
        line(f"{revision} is up to date")
    else:
        line(f"{revision} is not up to date: holdfast migrate up brings it to {SCHEMA_REVISION}")
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
    *times, changed = await schema.reset_clock()
    before, after = map(moment, times)
    answer(
        database.json,
        {"before": before, "after": after, "namespaces": changed},
        f"the store's time was {before.isoformat()} and is {after.isoformat()}; "
        f"namespaces whose last change was later: {changed}",
    )


async def adopt(*, dry_run: bool = False, database: Database = DATABASE) -> None:
    """Turn a database with another program's table plugin_kv_storage into a store that has its rows.

    Values, times and deadlines come along; times without a timezone are in UTC. Rows that break a rule, such
    as that of plugin names, are left out and printed, each with the reason. Rows past their deadline are left
    out too. The old table is kept as holdfast_adopted, with all of its rows. Run a second time, the command
    does nothing.

    Parameters
    ----------
    dry_run
        Only say what would be adopted and left out, and change nothing.
    """
    report = await schema_of(database.address).adopt(dry_run=dry_run)
    if database.json:
        document(report)
        return
    for one in report.left_out:
        line(f"{one.plugin}\t{one.key}\t{one.reason}")
    say(_summary(report))


def _summary(report: Report) -> str:
    if not report.found:
        return f"{report.place} has no table {TABLE} of another program: there was nothing to do"
    done, kept = ("would be", "") if report.dry_run else ("were", f"; the old table is kept as {OLD_TABLE}")
    plugins = ", ".join(sorted(report.plugins))
    of_plugins = f" (of the plugins {plugins})" if plugins else ""
    return (
        f"of {report.rows} rows {report.adopted} {done} adopted, {report.skipped} left out because "
        f"they break a rule{of_plugins}, and {report.expired} left out because they have expired{kept}"
    )
