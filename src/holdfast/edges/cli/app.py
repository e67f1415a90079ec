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


_COMMANDS: Final[dict[Group, dict[str, Any]]] = {
    START: {
        "up": "up:up",
        "mcp": "mcp:mcp",
        "config": ("The settings of holdfast up.", {"init": "up:config_init", "show": "up:config_show"}),
        "nats": ("Set up a NATS server for Holdfast.", {"config": "nats:config"}),
    },
    KEYS: {
        "get": "get:get",
        "exists": "get:exists",
        "reveal": "keys:reveal",
        "set put": "keys:set_value",
        "delete rm": "keys:delete",
        "list ls": "listing:list_keys",
        "tree": "listing:tree",
        "edit": "keys:edit",
        "batch": "keys:batch",
        "ttl": ("Print, set or remove the time an entry has left to live.", {"get": "get:get_ttl"}),
    },
    CHANGES: {
        "watch": "listing:watch",
        "history": "listing:history",
        "restore": "keys:restore",
        "trash": ("List removed entries that can be restored.", {"list ls": "listing:list_trash"}),
    },
    RECIPES: {
        "lock": (
            "Run a program while holding a lock.",
            {"run": "recipes:lock_run", "show": "recipes:lock_show"},
        ),
        "flag": (
            "Feature flags.",
            {
                "get": "recipes:flag_get",
                "list ls": "recipes:flag_list",
                "set": "recipes:flag_set",
                "use": "recipes:flag_use",
                "clear": "recipes:flag_clear",
            },
        ),
        "checkpoint": (
            "Saved progress of a job.",
            {"get": "recipes:checkpoint_get", "set": "recipes:checkpoint_set"},
        ),
        "counter": ("Shared counters.", {"get": "recipes:counter_get", "add": "recipes:counter_add"}),
    },
    TABLES: {
        "table": (
            "Tables, their items and their indexes.",
            {
                "create": "table:create",
                "drop": "table:drop",
                "list ls": "table:list_tables",
                "describe": "table:describe",
                "sweep": "table:sweep",
                "put": "table:put",
                "get": "table:get",
                "reveal": "table:reveal",
                "update": "table:update",
                "delete": "table:delete",
                "query": "table:query",
                "scan": "table:scan",
                "changes": "table:changes",
                "index": (
                    "Indexes on a table.",
                    {
                        "create": "table:create_index",
                        "drop": "table:drop_index",
                        "check": "table:check_index",
                        "query": "table:query_index",
                    },
                ),
                "ttl": (
                    "Print, set or remove the time an item has left to live.",
                    {"get": "table:get_ttl", "set": "table:set_ttl", "remove": "table:remove_ttl"},
                ),
            },
        ),
    },
    BLOBS: {
        "blob": (
            "Store and fetch bytes of any size.",
            {
                "put": "blob:put",
                "get": "blob:get",
                "reveal": "blob:reveal",
                "head": "blob:head",
                "list ls": "blob:list_blobs",
                "delete": "blob:delete",
            },
        ),
    },
    OPERATE: {
        "doctor": "doctor:doctor",
        "stats": "operators:stats",
        "ping": "operators:ping",
        "top": "operators:top",
        "slowlog": "operators:slowlog",
        "namespace": (
            "Namespaces and their policies.",
            {
                "list ls": "operators:list_namespaces",
                "show": "operators:show_namespace",
                "set": "operators:set_policy",
                "recount": "operators:recount",
            },
        ),
        "deadletter": (
            "Inspect, retry or drop failed writes.",
            {
                "list ls": "operators:list_letters",
                "show": "operators:show_letter",
                "retry": "operators:retry_letters",
                "drop": "operators:drop_letters",
            },
        ),
        "token": (
            "Tokens for callers over HTTP.",
            {
                "create": "operators:create_token",
                "list ls": "operators:list_tokens",
                "revoke": "operators:revoke_tokens",
            },
        ),
        "audit": (
            "Read, verify and export the record of who changed what.",
            {
                "log": "audit:log",
                "verify": "audit:verify",
                "anchor": "audit:anchor",
                "rotate": "audit:rotate",
            },
        ),
        "cluster": (
            "The nodes, log and snapshots of a cluster.",
            {
                "status": "cluster:status",
                "verify": "cluster:verify",
                "snapshot": "cluster:snapshot",
                "grow": "cluster:grow",
                "add": "cluster:add",
                "remove": "cluster:remove",
            },
        ),
    },
    MOVE: {
        "adopt": "migrate:adopt",
        "backup": "stores:backup",
        "copy": "stores:copy",
        "diff": "stores:diff",
        "export": "transfer:export_entries",
        "import": "transfer:import_entries",
        "rescue": "stores:rescue",
        "migrate": (
            "Upgrade or downgrade the schema of a store.",
            {
                "up": "migrate:up",
                "down": "migrate:down",
                "current": "migrate:current",
                "check": "migrate:check",
                "--reset-clock": "migrate:reset_clock",
            },
        ),
    },
    OWN: {
        "help": "commands:show_help",
        "shell": "shell:shell",
        "commands": "commands:commands",
        "completion": "commands:completion",
        "--install-completion": "commands:install",
        "context": (
            "Short names for stores.",
            {
                "add": "context:add",
                "use": "context:use",
                "list ls": "context:list_contexts",
                "remove rm": "context:remove",
            },
        ),
    },
}
"""Each command with its aliases and its function, or a group with its help, in the order that help shows."""


def _register(parent: App, commands: dict[str, Any], **shown: Any) -> None:
    for number, (names, command) in enumerate(commands.items()):
        name, *alias = names.split()
        order = shown | {"sort_key": number} if shown else {}
        if isinstance(command, str):
            parent.command(f"holdfast.edges.cli.commands.{command}", name=name, alias=alias, **order)
        else:
            described, members = command
            parent.command(group := App(name=name, help=described, **order))
            _register(group, members)


for _group, _members in _COMMANDS.items():
    _register(app, _members, group=_group)
app.command("holdfast.edges.cli.commands.commands:complete", name="complete", show=False)
app["ttl"].default(get_ttl)
get.__annotations__["long"] = Annotated[bool, Long]


def add_verbs() -> None:
    """Register a command for every verb on keys that the handle has and no command above performs.

    `set_ttl` becomes `ttl set`, because there is a group `ttl`. `batch` stands for the verbs with several
    members; `list`, `watch` and `rm` stand for those that read a page at a time.
    """
    for verb, declaration in DECLARED.items():
        action, _, group = verb.rpartition("_")
        parent, name = (app[group], action) if group in app and action else (app, verb.replace("_", "-"))
        by_hand = declaration.several or declaration.walks or not hasattr(holdfast.KV, verb)
        if name not in parent and not by_hand:
            shown = KEYS if parent is app else None
            parent.command(f"holdfast.edges.cli.verbs:{verb}", name=name, group=shown)


add_verbs()


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
