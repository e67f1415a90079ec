"""`holdfast counter`, `flag` and `checkpoint`: the recipes that programs use, by hand.

A command is one call of a recipe. Only the recipe knows which entry it keeps.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.commands.keys import print_stored
from holdfast.edges.cli.confirmation import Yes, destroys, require_yes
from holdfast.edges.cli.options import UNNAMED, Ttl, WriteOptions, number
from holdfast.edges.cli.output import document, line, rows, shown_key, value
from holdfast.edges.cli.target import HERE, Target
from holdfast.edges.cli.values import read_value

Name = Annotated[str, Parameter(help="The name that programs use for it.")]
Given = Annotated[
    str,
    Parameter(allow_leading_hyphen=True, help="JSON; - reads it from stdin, @FILE from a file."),
]
Text = Annotated[bool, Parameter(help="Take the value as a string, without JSON quotes.")]


async def counter_get(name: Name, /, *, target: Target = HERE) -> None:
    """Print the value of a counter; 0 if nothing was added yet."""
    async with target.look() as store:
        total = await target.keys(store).counter(name).value()
    document({"name": name, "value": total} if target.json else total)


async def counter_add(
    name: Name,
    by: Annotated[float, Parameter(converter=number, allow_leading_hyphen=True)] = 1,
    /,
    *,
    ttl: Ttl = None,
    origin: WriteOptions = UNNAMED,
    target: Target = HERE,
) -> None:
    """Add to a counter, and print its new value.

    Parameters
    ----------
    by
        Amount to add; 1 if not given.
    ttl
        How long after its beginning the counter begins anew: seconds, or 30s, 1h, 2d.
    """
    async with target.open() as store:
        total = await target.keys(store).counter(name, ttl=ttl).add(by, **origin.fields)
    document({"name": name, "value": total} if target.json else total)


async def flag_get(name: Name, /, *, target: Target = HERE) -> None:
    """Print the value of a flag. If it is not set, so that programs use their default, the exit code is 3."""
    async with target.look() as store:
        unset: Any = _Unset()
        state = await target.keys(store).flag(name, unset).state()
    if state.entry is None:
        raise holdfast.KeyNotFound(f"flag {name!a} is not set: programs use their default", field="name")
    if target.json:
        more = {"variant": state.variant, "variants": state.variants, "metadata": state.metadata}
        told = {field: part for field, part in more.items() if part}
        document({"name": name, "value": state.value, **told})
    else:
        value(state.value)


async def flag_list(*, target: Target = HERE) -> None:
    """Print all flags that are set, with their values."""
    async with target.look() as store:
        flags = await target.keys(store).flags().list()
    if target.json:
        document(flags)
    else:
        shown = [(shown_key(name), msgspec.json.encode(one).decode()) for name, one in sorted(flags.items())]
        rows(("name", "value"), shown)


async def flag_use(
    name: Name, variant: str, /, *, origin: WriteOptions = UNNAMED, target: Target = HERE
) -> None:
    """Switch a flag to another of its variants, and print its version.

    Parameters
    ----------
    variant
        The name of the variant.
    """
    unset: Any = _Unset()
    async with target.open() as store:
        entry = await target.keys(store).flag(name, unset).use(variant, **origin.fields)
    print_stored(entry, target)


async def flag_set(
    name: Name,
    content: Given,
    /,
    *,
    text: Text = False,
    variant: str | None = None,
    ttl: Ttl = None,
    origin: WriteOptions = UNNAMED,
    target: Target = HERE,
) -> None:
    """Set a flag, and print its version; programs that watch it follow at once.

    Parameters
    ----------
    variant
        A name for the value.
    """
    given, unset = read_value(content, text=text), _Unset()
    async with target.open() as store:
        flag: Any = target.keys(store).flag(name, unset)
        entry = await flag.set(given, variant=variant, ttl=ttl, **origin.fields)
    print_stored(entry, target)


@destroys
async def flag_clear(
    name: Name, /, *, yes: Yes = False, origin: WriteOptions = UNNAMED, target: Target = HERE
) -> None:
    """Clear a flag, so that programs use their default. A flag that is not set is no error."""
    require_yes(f"flag {name!a} of {target.owner} is cleared, and programs use their default", yes=yes)
    async with target.open() as store:
        cleared = await target.keys(store).flag(name, _Unset()).clear(**origin.fields)
    if target.json:
        document({"cleared": cleared})
    else:
        line("cleared" if cleared else "not set")


async def checkpoint_get(name: Name, /, *, target: Target = HERE) -> None:
    """Print a checkpoint. If it was never set, the exit code is 3."""
    async with target.look() as store:
        entry = await target.keys(store).checkpoint(name).load()
    if entry is None:
        raise holdfast.KeyNotFound(f"checkpoint {name!a} is not set", field="name")
    if target.json:
        document(entry)
    else:
        value(entry.value)


async def checkpoint_set(
    name: Name,
    content: Given,
    /,
    *,
    text: Text = False,
    origin: WriteOptions = UNNAMED,
    target: Target = HERE,
) -> None:
    """Move a checkpoint, and print its version. Fails if another writer has moved it since."""
    given = read_value(content, text=text)
    async with target.open() as store:
        checkpoint = target.keys(store).checkpoint(name)
        await checkpoint.load()
        entry = await checkpoint.advance(given, **origin.fields)
    print_stored(entry, target)


class _Unset:
    """The default of a flag without one here: a type of its own, so that any JSON is a valid value."""
