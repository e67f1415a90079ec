"""`holdfast adopt`: make a store of a database in which another program keeps its `plugin_kv_storage`.

All of it is done or nothing, and the other program's table is kept under another name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.edges.cli.commands.migrate import DATABASE, Database
from holdfast.edges.cli.output import document, line, say
from holdfast.edges.cli.schema import schema_of
from holdfast.engines.sql.adopting import OLD_TABLE, TABLE

if TYPE_CHECKING:
    from holdfast.engines.sql.adopting import Report


async def adopt(*, dry_run: bool = False, database: Database = DATABASE) -> None:
    """Turn a database with another program's table plugin_kv_storage into a store that has its rows.

    Values, times and deadlines come along; times without a timezone are in UTC. Rows that break a rule, such
    as that of plugin names, are left out and printed, each with the reason. Rows past their deadline are left
    out too. The old table is kept as holdfast_adopted, with all of its rows. Run a second time, the command
    does nothing.

    Parameters
    ----------
    dry_run
        Only say what would be brought and left out, and change nothing.
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
    brought, kept = (
        ("would be", "") if report.dry_run else ("were", f"; the old table is kept as {OLD_TABLE}")
    )
    plugins = ", ".join(sorted(report.plugins))
    of_plugins = f" (of the plugins {plugins})" if plugins else ""
    return (
        f"of {report.rows} rows {report.adopted} {brought} brought, {report.skipped} left out because "
        f"they break a rule{of_plugins}, and {report.expired} left out because they have expired{kept}"
    )
