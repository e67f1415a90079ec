"""`holdfast deadletter`: show, retry or drop requests that were given up.

A letter is removed only when its request succeeded, or by the command `drop`. Among several letters, one that
fails does not stop the others; the first failure determines the exit code.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.commands.reveal import Viewer, Why
from holdfast.edges.cli.confirmation import Yes, destroys, require_yes
from holdfast.edges.cli.options import Whole, number
from holdfast.edges.cli.output import document, line, refusal, rows, say, shown_key, shown_time
from holdfast.edges.cli.target import HERE, Target
from holdfast.operators.letters import Letters

Number = Annotated[int, Parameter(converter=number, help="The letter's number.")]
_COLUMNS = ("number", "time", "verb", "key", "error", "attempts", "writer", "request")


async def list_letters(
    *,
    after: Whole = 0,
    limit: Annotated[int | None, Parameter(converter=number)] = None,
    everything: Annotated[bool, Parameter(name="--all")] = False,
    target: Target = HERE,
) -> None:
    """List the dead letters of a namespace, the oldest first. With --json a line has all but the values.

    Parameters
    ----------
    after
        Only letters with a greater number.
    limit
        Return at most this many, 1 to 10000; 1000 if not given. With --all, the size of a page.
    everything
        All letters, page by page.
    """
    page = holdfast.LetterPage(letters=[], next=after)
    async with target.look() as store:
        letters = _letters(store, target)
        while page.next is not None:
            page = await letters.list(after=page.next, limit=limit, masked=True)
            if target.json:
                for letter in page.letters:
                    document(letter)
            else:
                rows(_COLUMNS, map(_cells, page.letters))
            if not everything:
                break
    if page.next is not None and not target.json:
        say(f"there are more letters: --all lists them, --after {page.next} goes on")


async def show(
    letter: Number,
    /,
    *,
    why: Why = None,
    writer: Viewer = None,
    target: Target = HERE,
) -> None:
    """Print a dead letter: the request, and why it failed.

    Values are masked unless the policy `reveal` of the namespace is open. With --why they are shown, and an
    audit records who looked and why; the policy may refuse.
    """
    if why is None:
        async with target.look() as store:
            found = await _letters(store, target).get(letter, masked=True)
    else:
        async with target.open() as store:
            found = await _letters(store, target).reveal(letter, why, writer=writer)
    if found is None:
        raise holdfast.KeyNotFound(f"there is no dead letter {letter}", field="number")
    if target.json:
        document(found)
        return
    fields = msgspec.structs.asdict(found) | {
        "at": shown_time(found.at),
        "key": shown_key(found.key),
        "request": msgspec.json.encode(found.request).decode(),
    }
    rows(("field", "content"), [(name, str(content)) for name, content in fields.items()])


async def retry(
    *letters: Number,
    everything: Annotated[bool, Parameter(name="--all")] = False,
    target: Target = HERE,
) -> None:
    """Retry dead letters, each under its own request id, and delete those that succeed.

    Parameters
    ----------
    everything
        All letters of the namespace, the oldest first.
    """
    if everything is bool(letters):
        raise holdfast.MissingField("which letters? Give their numbers, or --all", field="letters")
    failed: holdfast.HoldfastError | None = None
    async with target.open() as store:
        box = _letters(store, target)
        numbers = [found async for found in _numbers(box)] if everything else list(letters)
        for one in numbers:
            try:
                reply = await box.retry(one)
            except holdfast.HoldfastError as error:
                failed = failed or error
                _print_failure(one, error, target)
            else:
                _print_done(one, reply, target)
    if failed is not None:
        raise failed


@destroys
async def drop(*letters: Number, yes: Yes = False, target: Target = HERE) -> None:
    """Delete dead letters permanently. A letter that does not exist is no error."""
    if not letters:
        raise holdfast.MissingField("which letters? Give their numbers", field="letters")
    require_yes(f"dead letters {', '.join(map(str, letters))} are removed for good", yes=yes)
    async with target.open() as store:
        box = _letters(store, target)
        for one in letters:
            dropped = await box.drop(one)
            if target.json:
                document({"number": one, "dropped": dropped})
            else:
                line(f"{one} {'dropped' if dropped else 'not there'}")


def _letters(store: holdfast.Store, target: Target) -> Letters:
    return store.letters(target.keys(store).namespace)


async def _numbers(box: Letters) -> AsyncIterator[int]:
    """Yield the numbers of all current letters."""
    after: int | None = 0
    while after is not None:
        page = await box.list(after=after)
        for letter in page.letters:
            yield letter.number
        after = page.next


def _print_done(one: int, reply: dict[str, Any], target: Target) -> None:
    if target.json:
        document({"number": one, "done": True, "reply": reply})
    else:
        line(f"{one} done")


def _print_failure(one: int, error: holdfast.HoldfastError, target: Target) -> None:
    if target.json:
        document({"number": one, "done": False, "error": refusal(error)})
    else:
        line(f"{one} {error.code}")


def _cells(letter: holdfast.Letter) -> tuple[Any, ...]:
    return (
        letter.number,
        shown_time(letter.at),
        letter.verb,
        shown_key(letter.key),
        letter.error_code,
        letter.attempts,
        letter.writer,
        letter.request_id,
    )
