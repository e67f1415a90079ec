"""The reference page of errors, from their classes, their advice and the tables of the edges."""

from __future__ import annotations

import inspect
from textwrap import dedent, fill
from typing import TYPE_CHECKING, Final

from holdfast.advice import ADVICE
from holdfast.edges.cli.output import EXIT_CODES
from holdfast.errors import (
    ConditionFailed,
    Defect,
    HoldfastError,
    OutcomeUnknown,
    QuotaExceeded,
    Refused,
    Transient,
    VersionConflict,
    error_classes,
)
from holdfast.wire.errors import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDTH: Final = 118
_GROUPS: Final = (Refused, VersionConflict, Transient, OutcomeUnknown, Defect)
_CARRIED: Final[dict[type[HoldfastError], str]] = {
    VersionConflict: "see [what a conflict carries](#what-a-conflict-carries)",
    ConditionFailed: "as [a conflict](#what-a-conflict-carries) does, with items in place of entries",
    QuotaExceeded: "by how many bytes the namespace would be past its quota, or 0; in Python alone",
    Transient: "the seconds to wait, or `None` if that is not known",
}
"""The meaning of the fields of a class other than `field`, which `ADVICE` describes for each code."""

_INTRODUCTION: Final = """\
# Errors

Every error is a subclass of `holdfast.HoldfastError`. It has a `code` that does not change, a `message` for
people, a `field` if one input was at fault (else `None`), and `retryable`.

`retryable` means: nothing was written, and the same call may succeed later. An error that is raised never
means that a part of the call was written.

This page is made from the code. What you see and what to do about it is sorted by symptom in
[Troubleshooting](../howto/troubleshooting.md).

## All codes

The number is the one in the header `Nats-Service-Error-Code` of [a reply over NATS](nats.md#errors), where
the code itself is in `Holdfast-Error-Code`. The exit code is that of [the command line](cli.md#exit-codes).
"""

_CONFLICTS: Final = """\
## What a conflict carries

`holdfast.VersionConflict` has these fields, and so has the reply over NATS:

- `current`: the entry that is there, or `None`. For a batch it is that of the first failed check.
- `item`: in place of `current`, the item of a table that is there. Over NATS it is called `current`, too.
- `conflicts`: of a batch, every failed check as a `holdfast.Conflict` with `key`, `expected_version` and
  `current`. Values are shown up to 512 KB together. A conflict past that has an entry whose `value` is
  `msgspec.UNSET`, with its key and version; over NATS the field `value` is missing.
- `reason`: `request_id_reused` if a request id was used before with other content, else `None`.

`holdfast.ConditionFailed` has `current`, an item, and `conflicts`, where a `holdfast.ItemConflict` names the
`position` of the part that failed.

```python
import holdfast

async with holdfast.open("memory://") as store:
    kv = store.kv("doors")
    await kv.set("front", "open", writer="ada")
    try:
        await kv.set("front", "closed", expected_version=0)
    except holdfast.HoldfastError as error:
        print(error.code, error.retryable, error.message)
        print(error.current.value, error.current.last_writer)
```

```text
VERSION_CONFLICT False key 'front' is at version 1, but no entry was expected
open ada
```

## What a lost lock raises

`holdfast.LockLost` is a `Fenced` with the same code: a [lock](recipes.md#lock) raises it out of its block
when it was lost while it was held. What the block wrote before stays written.

## What an escalation carries

`holdfast.Escalated` is raised by [`kv.retry`](../howto/retry-safely.md#escalation) when it gives up. It is
in none of the groups and has no code of its own: `code` and `field` are those of `error`, the last one that
the write met. `attempts` is how often it was tried, and `letter` the number of its dead letter, or `None` if
it could not be kept.

## Errors that are returned

`get_many`, `set_many` and `delete_many` return the error of a single member in its place instead of raising
it. What concerns the whole call is raised, and so is a misspelt name in a member, such as `ttl_second`: it is
an error in the program, not in its data.
"""


def reference() -> str:
    """Return the page."""
    kinds = {kind.code: kind for kind in error_classes()}
    ordered = [kinds[code] for code in ADVICE]
    lines = [_INTRODUCTION, *_table(ordered), "", *_groups(ordered), "", "## One by one", ""]
    for kind in ordered:
        lines += _section(kind)
    return "\n".join([*lines, _CONFLICTS])


def _table(kinds: list[type[HoldfastError]]) -> Iterator[str]:
    yield from ("| code | class | retryable | number | exit code |", "|---|---|---|---|---|")
    for kind in kinds:
        code = kind.code
        link = f"[`{code}`](#{code.lower()})"
        yield f"| {link} | `{kind.__name__}` | {_yes(kind)} | {NUMBERS[code]} | {EXIT_CODES[code]} |"


def _groups(kinds: list[type[HoldfastError]]) -> Iterator[str]:
    yield from (
        "## Groups",
        "",
        "Catch a group where the single error does not matter. Those that are not in `holdfast` itself are",
        "in `holdfast.errors`.",
        "",
        "| class | holds | in short |",
        "|---|---|---|",
    )
    for group in _GROUPS:
        members = [kind.__name__ for kind in kinds if issubclass(kind, group) and kind is not group]
        held = ", ".join(f"`{name}`" for name in members) or "itself"
        module = "holdfast" if group in kinds else "holdfast.errors"
        yield f"| `{module}.{group.__name__}` | {held} | {_summary(group)} |"


def _section(kind: type[HoldfastError]) -> Iterator[str]:
    advice = ADVICE[kind.code]
    yield from (f"### `{kind.code}`", "", _identity(kind), "")
    yield from (_paragraph(f"- **When:** {advice.when}"), _paragraph(f"- **What to do:** {advice.do}"))
    if advice.field:
        yield _paragraph(f"- **`field`:** {advice.field}.")
    for base, meaning in _CARRIED.items():
        if issubclass(kind, base):
            names = ", ".join(f"`{name}`" for name in fields_of(kind))
            yield _paragraph(f"- **{names}:** {meaning}.")
    yield ""


def fields_of(kind: type[HoldfastError]) -> list[str]:
    """Return the names of an error's attributes, except its message and its `field`."""
    known = {**inspect.signature(kind.__init__).parameters, **inspect.get_annotations(kind)}
    return [name for name in known if name not in ("self", "message", "field")]


def _identity(kind: type[HoldfastError]) -> str:
    code, again = kind.code, "retryable" if kind.retryable else "not retryable"
    return f"`holdfast.{kind.__name__}`, number {NUMBERS[code]}, exit code {EXIT_CODES[code]}, {again}."


def _summary(kind: type[HoldfastError]) -> str:
    """Return the first line of a class's docstring."""
    return dedent(kind.__doc__ or "").strip().splitlines()[0]


def _yes(kind: type[HoldfastError]) -> str:
    return "yes" if kind.retryable else "no"


def _paragraph(text: str) -> str:
    return fill(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
