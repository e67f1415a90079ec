"""Every command by its name, registered with the library that parses the command line.

A command is registered here and imported when it runs, so that every command starts quickly. Errors of the
library become errors of ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, CycloptsError, Group, MissingArgumentError, UnknownCommandError

import holdfast
from holdfast.declare import DECLARED, Declaration
from holdfast.edges.cli.commands.get import get, get_ttl
from holdfast.edges.cli.fast_parser import leading
from holdfast.edges.cli.options import EVERY, Long
from holdfast.errors import HoldfastError, MissingField, ValidationError

if TYPE_CHECKING:
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


def _of(path: str, words: str) -> dict[str, str]:
    """Return commands by name, with aliases after a slash, and their functions. `path` is how these begin."""
    commands = {}
    for word in words.split():
        names, _, function = word.partition("=")
        commands[names] = path + (function or names.partition("/")[0])
    return commands


_COMMANDS: Final[dict[Group, dict[str, Any]]] = {
    START: {
        **_of("", "up=up:up mcp=mcp:mcp"),
        "config": ("The settings of holdfast up.", _of("up:config_", "init show")),
        "nats": ("Set up a NATS server for Holdfast.", _of("nats:", "config")),
    },
    KEYS: {
        "get": "get:get",
        **_of("keys:", "reveal set/put=set_value delete/rm edit batch"),
        **_of("listing:", "list/ls=list_keys tree"),
        "ttl": ("Print, set or remove the time an entry has left to live.", _of("get:", "get=get_ttl")),
    },
    CHANGES: {
        **_of("", "watch=listing:watch history=listing:history restore=keys:restore"),
        "trash": ("List removed entries that can be restored.", _of("listing:", "list/ls=list_trash")),
    },
    RECIPES: {
        "lock": ("Run a program while holding a lock.", _of("recipes:lock_", "run show")),
        "flag": ("Feature flags.", _of("recipes:flag_", "get list/ls set use clear")),
        "checkpoint": ("Saved progress of a job.", _of("recipes:checkpoint_", "get set")),
        "counter": ("Shared counters.", _of("recipes:counter_", "get add")),
    },
    TABLES: {"table": "table:app"},
    BLOBS: {
        "blob": (
            "Store and fetch bytes of any size.",
            _of("blob:", "put get reveal head list/ls=list_blobs delete"),
        ),
    },
    OPERATE: {
        "doctor": "doctor:doctor",
        **_of("operators:", "stats ping top slowlog"),
        "namespace": (
            "Namespaces and their policies.",
            _of("operators:", "list/ls=list_namespaces show=show_namespace set=set_policy recount"),
        ),
        "deadletter": (
            "Inspect, retry or drop failed writes.",
            _of("operators:letters_", "list/ls show retry drop"),
        ),
        "token": ("Tokens for callers over HTTP.", _of("operators:tokens_", "create list/ls revoke")),
        "audit": (
            "Read and verify the record of who changed what.",
            _of("audit:", "log verify anchor rotate"),
        ),
        "cluster": (
            "The nodes, log and snapshots of a cluster.",
            _of("cluster:", "status verify snapshot grow add remove"),
        ),
    },
    MOVE: {
        "adopt": "migrate:adopt",
        **_of("stores:", "backup copy diff rescue"),
        **_of("transfer:", "export=export_entries import=import_entries"),
        "migrate": (
            "Upgrade or downgrade the schema of a store.",
            _of("migrate:", "up down current check --reset-clock=reset_clock"),
        ),
    },
    OWN: {
        "shell": "shell:shell",
        **_of("commands:", "help=show_help commands completion --install-completion=install"),
        "context": ("Short names for stores.", _of("context:", "add use list/ls=list_contexts remove/rm")),
    },
}
"""Every command that is written by hand, or a group of them with its help, in the order that help shows.

The group `table` is made in its own module, because only that knows the verbs on tables."""


def _register(parent: App, commands: dict[str, Any], **shown: Any) -> None:
    for number, (names, command) in enumerate(commands.items()):
        name, *alias = names.split("/")
        order = shown | {"sort_key": number} if shown else {}
        if isinstance(command, str):
            more = {"alias": alias} if alias else {}
            parent.command(f"holdfast.edges.cli.commands.{command}", name=name, **more, **order)
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
    """Register the commands of verbs on one key or one log that no command above performs."""
    several = [
        name
        for name, declared in DECLARED.items()
        if {"key", "name"}.isdisjoint(declared.kind.__struct_fields__)
    ]
    register_verbs(app, DECLARED, holdfast.KV, "holdfast.edges.cli.verbs", without=several, group=KEYS)


def register_verbs(
    parent: App,
    verbs: Mapping[str, Declaration],
    handle: type,
    module: str,
    *,
    nouns: Collection[str] = (),
    without: Collection[str] = (),
    **shown: Any,
) -> None:
    """Give `parent` a command for every verb that a handle has and no command of it performs yet.

    `set_ttl` becomes `ttl set` where there is a group `ttl`.

    Args:
        parent: The command line or a group of it.
        verbs: The declarations of the verbs, by name.
        handle: The class whose methods they are.
        module: The module of which the parser gets a command, by the name of its verb.
        nouns: Last words of verbs that the command line leaves out, as `item` of `put_item`.
        without: Verbs that have no command of their own.
        **shown: How help shows the commands.
    """
    for verb, declaration in verbs.items():
        if verb in without or declaration.several or not hasattr(handle, verb):
            continue
        action, _, noun = verb.rpartition("_")
        grouped = bool(action) and noun in parent
        name = (action if grouped or noun in nouns else verb).replace("_", "-")
        group = parent[noun] if grouped else parent
        if name not in group:
            more = {"alias": ["ls"]} if name == "list" else {}
            group.command(f"{module}:{verb}", name=name, **more, **({} if grouped else shown))


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
