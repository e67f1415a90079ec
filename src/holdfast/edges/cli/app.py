"""Every command by its name, registered with the library that parses the command line.

A command is registered here and imported when it runs, so that every command starts quickly. Errors of the
library become errors of ours.
"""

from __future__ import annotations

from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, CycloptsError, Group, MissingArgumentError, UnknownCommandError

import holdfast
from holdfast.declare import DECLARED
from holdfast.edges.cli.commands.get import get, get_ttl
from holdfast.edges.cli.fast_parser import leading
from holdfast.edges.cli.options import EVERY, Long
from holdfast.errors import HoldfastError, MissingField, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cyclopts.help import DefaultFormatter, HelpPanel, PlainFormatter
    from rich.console import Console, ConsoleOptions

_WIDE = 10_000
"""Longer than any line of help, so that lines are never wrapped in output for programs."""


class Help:
    """Shows help: in boxes on a terminal, elsewhere as plain text with one line for each option."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Show one group of commands or options; a command and its aliases are on one line."""
        if panel.format == "command":
            entries = [entry.copy(positive_names=_joined(entry.positive_names)) for entry in panel.entries]
            panel = panel.copy(entries=entries)
        _style(console)(console, options, panel)

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Show the usage of the command."""
        _style(console).render_usage(console, options, usage)

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        """Show the description of the command."""
        style = _style(console)
        if console.is_terminal:
            style.render_description(console, options, description)
            return
        with console.capture() as captured:
            style.render_description(console, options, description)
        console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _joined(names: tuple[str, ...]) -> tuple[str, ...]:
    return (", ".join(names),) if names else ()


def _style(console: Console) -> DefaultFormatter | PlainFormatter:
    # late: it takes 12 ms, and only help needs it
    from cyclopts.help import DefaultFormatter, PlainFormatter

    if console.is_terminal:
        return DefaultFormatter()
    console.width = _WIDE
    return PlainFormatter()


START: Final = Group("Starting a service", sort_key=10)
KEYS: Final = Group("Keys", sort_key=20)
CHANGES: Final = Group("History and undo", sort_key=30)
RECIPES: Final = Group("Coordination", sort_key=35)
TABLES: Final = Group("Tables", sort_key=40)
BLOBS: Final = Group("Blobs", sort_key=45)
OPERATE: Final = Group("Operating a store", sort_key=50)
MOVE: Final = Group("Moving data", sort_key=60)
OWN: Final = Group("This command line", sort_key=70)
"""The groups of commands, in the order in which help shows them."""

app = App(
    name="holdfast",
    help="A key-value store with versions, expiry and watches.",
    version=holdfast.__version__,
    help_formatter=Help(),
    default_parameter=EVERY,
)
for _flag in (*app.help_flags, *app.version_flags):
    app[_flag].group = (OWN,)


def _commands(group: Group, commands: dict[str, str]) -> None:
    """Register the commands of a group with their aliases; help shows them in this order."""
    for number, (names, path) in enumerate(commands.items()):
        name, *alias = names.split()
        app.command(
            f"holdfast.edges.cli.commands.{path}", name=name, alias=alias, group=group, sort_key=number
        )


_commands(START, {"up": "up:up", "mcp": "mcp:mcp"})
_commands(
    KEYS,
    {
        "get": "get:get",
        "exists": "get:exists",
        "reveal": "reveal:reveal",
        "set put": "keys:set_value",
        "delete rm": "keys:delete",
        "list ls": "list:list_keys",
        "tree": "tree:tree",
        "edit": "edit:edit",
        "batch": "batch:batch",
    },
)
_commands(
    CHANGES,
    {
        "watch": "changes:watch",
        "history": "changes:history",
        "restore": "keys:restore",
    },
)
_commands(
    OPERATE,
    {
        "doctor": "doctor:doctor",
        "stats": "stats:stats",
        "ping": "stats:ping",
        "top": "stats:top",
        "slowlog": "slowlog:slowlog",
    },
)
_commands(
    MOVE,
    {
        "adopt": "adopt:adopt",
        "backup": "backup:backup",
        "copy": "copy:copy",
        "diff": "diff:diff",
        "export": "transfer:export_entries",
        "import": "transfer:import_entries",
        "rescue": "rescue:rescue",
    },
)
_commands(
    OWN,
    {
        "help": "commands:show_help",
        "shell": "shell:shell",
        "commands": "commands:commands",
        "completion": "completion:completion",
        "--install-completion": "completion:install",
    },
)

app.command("holdfast.edges.cli.commands.completion:complete", name="complete", show=False)
app.command(
    ttl := App(name="ttl", group=KEYS, help="Print, set or remove the time an entry has left to live.")
)
ttl.default(get_ttl)
get.__annotations__["long"] = Annotated[bool, Long]
ttl.command("holdfast.edges.cli.commands.get:get_ttl", name="get")


def add_verbs() -> None:
    """Register a command for every verb on keys that the handle has and no command above performs.

    `set_ttl` becomes `ttl set`, because there is a group `ttl`. `batch` stands for the verbs with several
    members.
    """
    for verb, declaration in DECLARED.items():
        action, _, group = verb.rpartition("_")
        parent, name = (app[group], action) if group in app and action else (app, verb.replace("_", "-"))
        if name not in parent and hasattr(holdfast.KV, verb) and not declaration.several:
            shown = KEYS if parent is app else None
            parent.command(f"holdfast.edges.cli.verbs:{verb}", name=name, group=shown)


add_verbs()
app.command(lock := App(name="lock", group=RECIPES, help="Run a program while holding a lock."))
lock.command("holdfast.edges.cli.commands.lock:run", name="run")
lock.command("holdfast.edges.cli.commands.lock:show", name="show")

app.command(flag := App(name="flag", group=RECIPES, help="Feature flags."))
flag.command("holdfast.edges.cli.commands.recipes:flag_get", name="get")
flag.command("holdfast.edges.cli.commands.recipes:flag_list", name="list", alias="ls")
flag.command("holdfast.edges.cli.commands.recipes:flag_set", name="set")
flag.command("holdfast.edges.cli.commands.recipes:flag_use", name="use")
flag.command("holdfast.edges.cli.commands.recipes:flag_clear", name="clear")

app.command(checkpoint := App(name="checkpoint", group=RECIPES, help="Saved progress of a job."))
checkpoint.command("holdfast.edges.cli.commands.recipes:checkpoint_get", name="get")
checkpoint.command("holdfast.edges.cli.commands.recipes:checkpoint_set", name="set")

app.command(counter := App(name="counter", group=RECIPES, help="Shared counters."))
counter.command("holdfast.edges.cli.commands.recipes:counter_get", name="get")
counter.command("holdfast.edges.cli.commands.recipes:counter_add", name="add")

app.command(table := App(name="table", group=TABLES, help="Tables, their items and their indexes."))
table.command("holdfast.edges.cli.commands.table:create", name="create")
table.command("holdfast.edges.cli.commands.table:drop", name="drop")
table.command("holdfast.edges.cli.commands.table:list_tables", name="list", alias="ls")
table.command("holdfast.edges.cli.commands.table:describe", name="describe")
table.command("holdfast.edges.cli.commands.table:sweep", name="sweep")
table.command("holdfast.edges.cli.commands.table:put", name="put")
table.command("holdfast.edges.cli.commands.table:get", name="get")
table.command("holdfast.edges.cli.commands.reveal:reveal_item", name="reveal")
table.command("holdfast.edges.cli.commands.table:update", name="update")
table.command("holdfast.edges.cli.commands.table:delete", name="delete")
table.command("holdfast.edges.cli.commands.table:query", name="query")
table.command("holdfast.edges.cli.commands.table:scan", name="scan")
table.command("holdfast.edges.cli.commands.table:changes", name="changes")

table.command(index := App(name="index", help="Indexes on a table."))
index.command("holdfast.edges.cli.commands.table:create_index", name="create")
index.command("holdfast.edges.cli.commands.table:drop_index", name="drop")
index.command("holdfast.edges.cli.commands.table:check_index", name="check")
index.command("holdfast.edges.cli.commands.table:query_index", name="query")

app.command(blob := App(name="blob", group=BLOBS, help="Store and fetch bytes of any size."))
blob.command("holdfast.edges.cli.commands.blob:put", name="put")
blob.command("holdfast.edges.cli.commands.blob:get", name="get")
blob.command("holdfast.edges.cli.commands.reveal:reveal_blob", name="reveal")
blob.command("holdfast.edges.cli.commands.blob:head", name="head")
blob.command("holdfast.edges.cli.commands.blob:list_blobs", name="list", alias="ls")
blob.command("holdfast.edges.cli.commands.blob:delete", name="delete")

table.command(item_ttl := App(name="ttl", help="Print, set or remove the time an item has left to live."))
item_ttl.command("holdfast.edges.cli.commands.table:get_ttl", name="get")
item_ttl.command("holdfast.edges.cli.commands.table:set_ttl", name="set")
item_ttl.command("holdfast.edges.cli.commands.table:remove_ttl", name="remove")

app.command(trash := App(name="trash", group=CHANGES, help="List removed entries that can be restored."))
trash.command("holdfast.edges.cli.commands.trash:list_trash", name="list", alias="ls")

app.command(deadletter := App(name="deadletter", group=OPERATE, help="Inspect, retry or drop failed writes."))
deadletter.command("holdfast.edges.cli.commands.deadletter:list_letters", name="list", alias="ls")
deadletter.command("holdfast.edges.cli.commands.deadletter:show", name="show")
deadletter.command("holdfast.edges.cli.commands.deadletter:retry", name="retry")
deadletter.command("holdfast.edges.cli.commands.deadletter:drop", name="drop")

app.command(migrate := App(name="migrate", group=MOVE, help="Upgrade or downgrade the schema of a store."))
migrate.command("holdfast.edges.cli.commands.migrate:up", name="up")
migrate.command("holdfast.edges.cli.commands.migrate:down", name="down")
migrate.command("holdfast.edges.cli.commands.migrate:current", name="current")
migrate.command("holdfast.edges.cli.commands.migrate:check", name="check")
migrate.command("holdfast.edges.cli.commands.migrate:reset_clock", name="--reset-clock")

app.command(namespace := App(name="namespace", group=OPERATE, help="Namespaces and their policies."))
namespace.command("holdfast.edges.cli.commands.namespace:list_namespaces", name="list", alias="ls")
namespace.command("holdfast.edges.cli.commands.namespace:show", name="show")
namespace.command("holdfast.edges.cli.commands.namespace:set_policy", name="set")
namespace.command("holdfast.edges.cli.commands.namespace:recount", name="recount")

app.command(
    audit := App(name="audit", group=OPERATE, help="Read, verify and export the record of who changed what.")
)
audit.command("holdfast.edges.cli.commands.audit:log", name="log")
audit.command("holdfast.edges.cli.commands.audit:verify", name="verify")
audit.command("holdfast.edges.cli.commands.audit:anchor", name="anchor")
audit.command("holdfast.edges.cli.commands.audit:rotate", name="rotate")

app.command(token := App(name="token", group=OPERATE, help="Tokens for callers over HTTP."))
token.command("holdfast.edges.cli.commands.token:create", name="create")
token.command("holdfast.edges.cli.commands.token:list_tokens", name="list", alias="ls")
token.command("holdfast.edges.cli.commands.token:revoke", name="revoke")

app.command(cluster := App(name="cluster", group=OPERATE, help="The nodes, log and snapshots of a cluster."))
cluster.command("holdfast.edges.cli.commands.cluster:status", name="status")
cluster.command("holdfast.edges.cli.commands.cluster:verify", name="verify")
cluster.command("holdfast.edges.cli.commands.cluster:snapshot", name="snapshot")
cluster.command("holdfast.edges.cli.commands.cluster:grow", name="grow")
cluster.command("holdfast.edges.cli.commands.cluster:add", name="add")
cluster.command("holdfast.edges.cli.commands.cluster:remove", name="remove")

app.command(config := App(name="config", group=START, help="The settings of holdfast up."))
config.command("holdfast.edges.cli.commands.config:init", name="init")
config.command("holdfast.edges.cli.commands.config:show", name="show")

app.command(nats := App(name="nats", group=START, help="Set up a NATS server for Holdfast."))
nats.command("holdfast.edges.cli.commands.nats:config", name="config")


app.command(context := App(name="context", group=OWN, help="Short names for stores."))
context.command("holdfast.edges.cli.commands.context:add", name="add")
context.command("holdfast.edges.cli.commands.context:use", name="use")
context.command("holdfast.edges.cli.commands.context:list_contexts", name="list", alias="ls")
context.command("holdfast.edges.cli.commands.context:remove", name="remove", alias="rm")


def obey(arguments: Sequence[str]) -> int:
    """Run a command.

    Raises:
        MissingField: An argument is missing.
        ValidationError: The command line is not understood.
    """
    with _understanding():
        return int(app(_prepared(arguments), result_action=_CODE, **_ERRORS))


async def obey_within(arguments: Sequence[str]) -> int:
    """Run a command as `obey` does, within a running loop."""
    with _understanding():
        return int(await app.run_async(_prepared(arguments), result_action=_CODE, **_ERRORS))


_CODE: Final = "return_int_as_exit_code_else_zero"
_ERRORS: Final[dict[str, Any]] = {"print_error": False, "exit_on_error": False}


@contextmanager
def _understanding() -> Iterator[None]:
    try:
        yield
    except CycloptsError as error:
        raise _usage(error) from None


def _prepared(arguments: Sequence[str]) -> list[str]:
    words = command_first(arguments)
    _prepare_list(words)
    return words


def command_first(arguments: Sequence[str]) -> list[str]:
    """Return the words with all shared options after the command, including those given before it."""
    before, rest = leading(arguments)
    if before and not rest:
        raise MissingField("which command? See holdfast --help", field="command")
    command, _, _ = app.parse_commands(rest)
    return [*rest[: len(command)], *before, *rest[len(command) :]]


def _prepare_list(words: Sequence[str]) -> None:
    """Import the commands whose list will be shown, because their descriptions are in their own files."""
    without_help = [word for word in words if word not in app.help_flags]
    _, path, _ = app.parse_commands(without_help)
    if path[-1].default_command is None or len(without_help) < len(words):
        path[-1].resolved_commands()


def _usage(error: CycloptsError) -> HoldfastError:
    """Convert the library's error about a command line."""
    if isinstance(error, UnknownCommandError):
        return _unknown_command(error)
    kind = MissingField if isinstance(error, MissingArgumentError) else ValidationError
    field = error.argument.name.lstrip("-") if error.argument is not None else None
    command = " ".join(("holdfast", *(error.command_chain or ())))
    return kind(f"{error} See {command} --help.", field=field)


_ELSEWHERE: Final = {
    "del": "delete",
    "dump": "export",
    "expire": "ttl set",
    "info": "stats",
    "keys": "list",
    "load": "import",
    "monitor": "watch",
    "persist": "ttl remove",
    "remove": "delete",
    "scan": "list",
    "serve": "up",
    "start": "up",
    "status": "doctor",
    "subscribe": "watch",
}
"""Commands of other stores, and the ones of ours that do the same."""


def _unknown_command(error: UnknownCommandError) -> ValidationError:
    """Say which word is no command, and which command was probably meant."""
    chain = tuple(error.command_chain or ())
    word = (error.unused_tokens or [""])[0]
    group = " ".join(("holdfast", *chain))
    _, parents, _ = app.parse_commands(chain)
    near = None if chain else _ELSEWHERE.get(word)
    if near is None:
        names = [name for name in parents[-1] if not name.startswith("-")]
        near = next(iter(get_close_matches(word, names, n=1, cutoff=0.7)), None)
    meant = f". Did you mean {group} {near}?" if near is not None else "."
    return ValidationError(
        f"{word!a} is not a command{meant} {group} --help lists the commands.", field="command"
    )
