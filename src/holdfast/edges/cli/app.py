"""Every command by its name, for the library that reads the command line.

Law: a command is registered here and imported when it runs, so that every command is quick. What the library
does not understand becomes an error of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cyclopts import App, CycloptsError, MissingArgumentError

import holdfast
from holdfast.edges.cli.help import Help
from holdfast.edges.cli.options import EVERY
from holdfast.errors import HoldfastError, MissingField, ValidationError

if TYPE_CHECKING:
    from collections.abc import Sequence


app = App(
    name="holdfast",
    help="A key-value store with versions, expiry and watches.",
    version=holdfast.__version__,
    help_formatter=Help(),
    default_parameter=EVERY,
)
app.command("holdfast.edges.cli.up:up", name="up")

app.command("holdfast.edges.cli.reading:get", name="get")
app.command("holdfast.edges.cli.keys:set_value", name="set")
app.command("holdfast.edges.cli.keys:delete", name="delete")
app.command("holdfast.edges.cli.keys:incr", name="incr")
app.command("holdfast.edges.cli.keys:restore", name="restore")
app.command("holdfast.edges.cli.listing:list_keys", name="list")
app.command("holdfast.edges.cli.journal:watch", name="watch")
app.command("holdfast.edges.cli.journal:history", name="history")
app.command("holdfast.edges.cli.transfer:export_entries", name="export")
app.command("holdfast.edges.cli.transfer:import_entries", name="import")
app.command("holdfast.edges.cli.observe:stats", name="stats")
app.command("holdfast.edges.cli.observe:ping", name="ping")
app.command("holdfast.edges.cli.observe:top", name="top")
app.command("holdfast.edges.cli.bench:bench", name="bench")
app.command("holdfast.edges.cli.doctor:doctor", name="doctor")
app.command("holdfast.edges.cli.rescue:rescue", name="rescue")
app.command("holdfast.edges.cli.completion:completion", name="completion")
app.command("holdfast.edges.cli.completion:install", name="--install-completion")

app.command(ttl := App(name="ttl", help="Read, set and remove deadlines."))
ttl.command("holdfast.edges.cli.reading:get_ttl", name="get")
ttl.command("holdfast.edges.cli.ttl:set_ttl", name="set")
ttl.command("holdfast.edges.cli.ttl:remove_ttl", name="remove")

app.command(table := App(name="table", help="Tables of items, and the indexes on them."))
table.command("holdfast.edges.cli.table:create", name="create")
table.command("holdfast.edges.cli.table:drop", name="drop")
table.command("holdfast.edges.cli.table:list_tables", name="list")
table.command("holdfast.edges.cli.table:describe", name="describe")
table.command("holdfast.edges.cli.table:sweep", name="sweep")
table.command("holdfast.edges.cli.items:put", name="put")
table.command("holdfast.edges.cli.items:get", name="get")
table.command("holdfast.edges.cli.items:update", name="update")
table.command("holdfast.edges.cli.items:delete", name="delete")
table.command("holdfast.edges.cli.item_pages:query", name="query")
table.command("holdfast.edges.cli.item_pages:scan", name="scan")
table.command("holdfast.edges.cli.item_pages:changes", name="changes")

table.command(index := App(name="index", help="Indexes on a table."))
index.command("holdfast.edges.cli.table:create_index", name="create")
index.command("holdfast.edges.cli.table:drop_index", name="drop")
index.command("holdfast.edges.cli.table:check_index", name="check")
index.command("holdfast.edges.cli.item_pages:query_index", name="query")

table.command(item_ttl := App(name="ttl", help="Read, set and remove the deadlines of items."))
item_ttl.command("holdfast.edges.cli.items:get_ttl", name="get")
item_ttl.command("holdfast.edges.cli.items:set_ttl", name="set")
item_ttl.command("holdfast.edges.cli.items:remove_ttl", name="remove")

app.command(trash := App(name="trash", help="Look through what was removed and can be restored."))
trash.command("holdfast.edges.cli.trash:list_trash", name="list")

app.command(deadletter := App(name="deadletter", help="Writes that were given up: look, do again, drop."))
deadletter.command("holdfast.edges.cli.deadletter:list_letters", name="list")
deadletter.command("holdfast.edges.cli.deadletter:show", name="show")
deadletter.command("holdfast.edges.cli.deadletter:retry", name="retry")
deadletter.command("holdfast.edges.cli.deadletter:drop", name="drop")

app.command(migrate := App(name="migrate", help="Move a store between revisions of its schema."))
migrate.command("holdfast.edges.cli.migrate:up", name="up")
migrate.command("holdfast.edges.cli.migrate:down", name="down")
migrate.command("holdfast.edges.cli.migrate:current", name="current")
migrate.command("holdfast.edges.cli.migrate:check", name="check")
migrate.command("holdfast.edges.cli.clock:reset_clock", name="--reset-clock")

app.command(namespace := App(name="namespace", help="Namespaces, and what is asked of each."))
namespace.command("holdfast.edges.cli.namespace:list_namespaces", name="list")
namespace.command("holdfast.edges.cli.namespace:show", name="show")
namespace.command("holdfast.edges.cli.namespace:set_policy", name="set")
namespace.command("holdfast.edges.cli.namespace:recount", name="recount")

app.command(audit := App(name="audit", help="Who changed what, and whether the record of it is whole."))
audit.command("holdfast.edges.cli.audit:log", name="log")
audit.command("holdfast.edges.cli.audit:verify", name="verify")
audit.command("holdfast.edges.cli.audit:anchor", name="anchor")
audit.command("holdfast.edges.cli.audit:export", name="export")
audit.command("holdfast.edges.cli.audit:rotate", name="rotate")

app.command(config := App(name="config", help="The settings of holdfast up."))
config.command("holdfast.edges.cli.config_init:init", name="init")

app.command(nats := App(name="nats", help="Set up a NATS server for Holdfast."))
nats.command("holdfast.edges.cli.nats:config", name="config")


def obey(arguments: Sequence[str]) -> int:
    """Run a command.

    Raises:
        MissingField: A word is missing.
        ValidationError: The words are not understood.
    """
    try:
        _prepare_list(arguments)
        code: Any = app(
            arguments,
            print_error=False,
            exit_on_error=False,
            result_action="return_int_as_exit_code_else_zero",
        )
    except CycloptsError as error:
        raise _usage(error) from None
    return int(code)


def _prepare_list(arguments: Sequence[str]) -> None:
    """Import the commands whose list is going to be shown, since what they do is said in their own files."""
    _, path, _ = app.parse_commands([word for word in arguments if word not in app.help_flags])
    if path[-1].default_command is None:
        path[-1].resolved_commands()


def _usage(error: CycloptsError) -> HoldfastError:
    """A command line that is not understood, as an error of ours."""
    kind = MissingField if isinstance(error, MissingArgumentError) else ValidationError
    field = error.argument.name.lstrip("-") if error.argument is not None else None
    asked = " ".join(("holdfast", *(error.command_chain or ())))
    return kind(f"{error} See {asked} --help.", field=field)
