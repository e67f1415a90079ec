"""The reference page of errors, from their classes, the tables of the edges, and advice for each code.

The advice is Markdown; its links are relative to `docs/reference`.
"""

from __future__ import annotations

import inspect
from textwrap import dedent, fill
from typing import TYPE_CHECKING, Final

import msgspec

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


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The texts for one code. `field` says what `error.field` names; it is empty if that is never set."""

    when: str
    do: str
    field: str = ""


ADVICE: Final[dict[str, Advice]] = {
    "INVALID_JSON": Advice(
        when="The payload of a request over NATS is not JSON. The message names the line and the column at "
        "which it stops being JSON.",
        do="Correct the payload. A JSON encoder never produces this; text that was put together by hand "
        "does.",
    ),
    "MISSING_FIELD": Advice(
        when="A request lacks a field that its verb requires, an item lacks one of its key attributes, or a "
        "command on the command line lacks an argument.",
        do="Add the field.",
        field="the field that is missing",
    ),
    "INVALID_SUBJECT": Advice(
        when="A request over NATS was sent to a subject that no verb listens at: the verb is misspelled, a "
        "token is missing or superfluous, or this service does not take requests of that kind.",
        do="Compare the subject with [the subjects of the service](nats.md#subjects).",
    ),
    "INVALID_PLUGIN_NAME": Advice(
        when="The name of a plugin, in `store.kv(name)`, in a subject or in the field `plugin_name`, breaks "
        "[its rule](rules.md).",
        do="Choose a name that the rule allows: lower case letters, digits, hyphens and underscores.",
        field="`plugin_name`",
    ),
    "VALIDATION_ERROR": Advice(
        when="A field, a setting or an argument breaks [its rule](rules.md), or `incr` met a value that is "
        "not a number.",
        do="Correct what `field` names. The message says what would have been right.",
        field="the field, setting or argument that is wrong",
    ),
    "VALUE_TOO_LARGE": Advice(
        when="A value, an item, a batch, a request or a reply is larger than [its limit](rules.md). The "
        "limit of a single value is 64 KB.",
        do="Store less under one key, split the value over several keys, or ask for fewer keys at a time. "
        "Keep large files elsewhere and store where they are.",
        field="the field that is too large, if it is a single one",
    ),
    "KEY_NOT_FOUND": Advice(
        when="A verb that changes an entry did not find it: `set_ttl` or `remove_ttl` of a key that is gone, "
        "`restore` of one that is not in the trash, a dead letter that was dropped. On the command line "
        "also `get` of a key that is not there; in Python and over NATS a `get` answers with its "
        "absence instead.",
        do="Create the key, or accept that it is gone. It may have expired.",
        field="`key`, or what else was looked for",
    ),
    "CONDITION_FAILED": Advice(
        when="An item does not meet the condition of a write, or a part of a transaction did not find what "
        "it expects.",
        do="Look at `current`, or at `conflicts` after a transaction, and decide again.",
        field="`condition`",
    ),
    "FENCED": Advice(
        when="A write names the fence of a [lock](recipes.md#lock), and a newer holder has taken that lock "
        "since, or it was never taken.",
        do="Stop: you no longer hold the lock, and another holder is at work. Take the lock again before "
        "you write.",
        field="`fence`",
    ),
    "TABLE_NOT_FOUND": Advice(
        when="There is no [table](tables.md) of that name in the namespace.",
        do="Create the table, or correct its name.",
        field="`table`",
    ),
    "TABLE_EXISTS": Advice(
        when="`create_table` met a table of the same name.",
        do="Use the table that is there, or choose another name.",
        field="`table`",
    ),
    "ITEM_NOT_FOUND": Advice(
        when="`set_ttl` or `remove_ttl` of an item that is gone. On the command line also reading one.",
        do="Put the item, or accept that it is gone. It may have expired.",
        field="`partition_key`",
    ),
    "INDEX_NOT_FOUND": Advice(
        when="A query names an index that the table does not have.",
        do="Create the index, or correct its name.",
        field="`index`",
    ),
    "TTL_NOT_CONFIGURED": Advice(
        when="A verb about deadlines was called on a table that has no `ttl_attribute`.",
        do="Create the table with a `ttl_attribute`.",
        field="`table`",
    ),
    "QUOTA_EXCEEDED": Advice(
        when="The write would take the namespace past the quota of its [policy](policies.md), or past the "
        "default quota of the service. The message says what takes up most of the room.",
        do="Make room as the message says, or raise the quota. Deleting is always possible.",
    ),
    "PERMISSION_DENIED": Advice(
        when="The NATS server does not admit this user, or does not let it send to this subject or listen "
        "for its replies.",
        do="Check that the credentials are those of this plugin and that the plugin is granted what it "
        "asks for; [Keep plugins apart](../howto/isolate-plugins.md) shows both. Repeating the call "
        "does not help.",
    ),
    "UNSUPPORTED": Advice(
        when="This installation, engine or server can't do what was asked: a package of an extra is missing, "
        "SQLite or a server is too old, a newer Holdfast has written the store, or the key of the audit "
        "is not at hand.",
        do="Do what the message says; it names the package, the version or the key.",
        field="`view`, where the table does not keep such images of its items",
    ),
    "TOO_EXPENSIVE": Advice(
        when="The request would look at more than [one request may](rules.md#the-work-of-a-request). The "
        "message says what cost most.",
        do="Do not repeat it: it costs the same again. Ask for less at a time, or write fewer keys at a "
        "time.",
    ),
    "VERSION_CONFLICT": Advice(
        when="The entry or item is not at the version that the write expected, `restore` met a live key, or "
        "a request id was used before for another request.",
        do="Look at `current`, decide again from it, and write with its version. `kv.update` and "
        "[`kv.retry`](../howto/retry-safely.md) do so in a loop. After `request_id_reused`, make a new "
        "request id.",
    ),
    "RATE_LIMITED": Advice(
        when="The namespace is over the rate of its [policy](policies.md), the plugin is over the rate of "
        "the service, or the default rate is used up.",
        do="Wait for `retry_after` seconds, then repeat. If it keeps happening, send less or raise the rate.",
    ),
    "BUSY": Advice(
        when="Something is in use for the moment: another program holds the database or the namespace, too "
        "many requests of the plugin are waiting, a lock was not free within its timeout, or an index "
        "is still being filled.",
        do="Repeat after a pause, which grows each time.",
    ),
    "TIMEOUT": Advice(
        when="The deadline of the request, or the `timeout` of the call, passed before the write could be "
        "committed.",
        do="Repeat it, with the same request id or a new one: nothing was written. If it keeps happening, "
        "the service is overloaded or the deadline is too short.",
    ),
    "UNAVAILABLE": Advice(
        when="The storage or the service can't be reached, another process keeps the SQLite file for itself, "
        "or the store is not open.",
        do="Repeat after a pause. If it stays, do what the message says; "
        "[Troubleshooting](../howto/troubleshooting.md) lists the causes.",
    ),
    "STORAGE_FULL": Advice(
        when="The disk is full.",
        do="Make room. Reading and deleting still work.",
        field="the file that could not be written, on the command line",
    ),
    "OUTCOME_UNKNOWN": Advice(
        when="The commit was not confirmed, or no reply came in time: everything was written or nothing. "
        "Also when [the file vanished](../howto/operate-sqlite.md#when-the-file-vanishes) during the "
        "commit.",
        do="[Repeat with the same request id](../howto/retry-safely.md), which writes at most once, or "
        "read what is there now.",
    ),
    "DATABASE_ERROR": Advice(
        when="The database failed in an unforeseen way, holds a value that can't be read, or [its file has "
        "vanished](../howto/operate-sqlite.md#when-the-file-vanishes).",
        do="Do what the message says, look at the log of the process that has the store open, and run "
        "`holdfast doctor --deep`.",
        field="`key` or `number`, where one entry can't be read",
    ),
    "INTERNAL_ERROR": Advice(
        when="Holdfast itself has a defect.",
        do="Report it, with the traceback from the log.",
    ),
}
"""The advice for every code, in the order of the reference page."""


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
