"""`holdfast namespace`, `stats`, `ping`, `top`, `slowlog`, `token` and `deadletter`: commands for operators.

The secret of a token is printed once, on stdout alone, and kept nowhere. A dead letter is removed only when
its request succeeded, or by `deadletter drop`. Among several letters, one that fails does not stop the
others; the first failure determines the exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast import rules
from holdfast.edges.calls import require_verbs
from holdfast.edges.cli.options import (
    UNNAMED,
    Long,
    MaybeSeconds,
    Viewer,
    Whole,
    Why,
    WriteOptions,
    Yes,
    destroys,
    number,
    require_yes,
    seconds,
)
from holdfast.edges.cli.output import document, line, on_terminal, refusal, rows, say, shown_key, shown_time
from holdfast.edges.cli.schema import service_beside
from holdfast.edges.cli.target import HERE, STORE, Place, Target, through
from holdfast.operators.letters import Letters
from holdfast.operators.tokens import Token
from holdfast.registry import is_service
from holdfast.wire.replies import default_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

Number = Annotated[int | None, Parameter(converter=number)]

FIELDS: Final = holdfast.Policy.__struct_fields__


async def list_namespaces(*, target: Place = STORE) -> None:
    """Print for each namespace: live keys, bytes, last version and time of the last change."""
    async with target.look() as store:
        namespaces = await store.namespaces()
    if target.json:
        document({"namespaces": namespaces})
    else:
        rows(
            ("namespace", "keys", "bytes", "version", "changed"),
            (
                (one.namespace, one.keys, one.bytes, one.version, shown_time(one.changed_at))
                for one in namespaces
            ),
        )


async def show_namespace(namespace: str | None = None, /, *, target: Target = HERE) -> None:
    """Print what a namespace holds and its policy, one field per line; `-` for fields that are not set.

    Parameters
    ----------
    namespace
        Its full name, such as table/trivia, instead of --plugin, or --tenant and --project.
    """
    async with target.look() as store:
        name = target.namespace(store, namespace)
        stats, policy = await store.stats(name), await store.policy(name)
        defaults = default_fields(await store.defaults(name))
    fields = msgspec.structs.asdict(policy)
    if target.json:
        document({**msgspec.structs.asdict(stats), "policy": fields, "defaults": defaults})
        return
    held = {"namespace": stats.namespace, "keys": stats.keys, "bytes": stats.bytes, "version": stats.version}
    held["kept_bytes"] = stats.kept_bytes
    # The policy has fields `trash` and `audit`, too.
    held |= {f"{part}_bytes": kept for part, kept in msgspec.structs.asdict(stats.parts).items()}
    asked = {
        name: f"{defaults[name]} (default)" if value is None and defaults.get(name) else value
        for name, value in fields.items()
    }
    rows(("field", "value"), ((name, _shown(value)) for name, value in (held | asked).items()))


async def recount(namespace: str | None = None, /, *, target: Target = HERE) -> None:
    """Recount what a namespace keeps and correct its counters, after rows were changed with SQL.

    Writes to the namespace wait until it is done.

    Parameters
    ----------
    namespace
        Its full name, such as table/trivia, instead of --plugin, or --tenant and --project.
    """
    async with target.open() as store:
        name = target.namespace(store, namespace)
        corrected = await store.recount(name)
    if target.json:
        document({"namespace": name, "corrected": corrected})
    else:
        message = f"{corrected} counters were wrong and are mended" if corrected else "all counters are right"
        say(f"{name}: {message}")


@destroys
async def set_policy(
    namespace: str | None = None,
    /,
    *,
    quota_keys: Number = None,
    quota_bytes: Number = None,
    max_value_bytes: Number = None,
    rate_limit: Number = None,
    ttl_default: MaybeSeconds = None,
    ttl_min: MaybeSeconds = None,
    ttl_max: MaybeSeconds = None,
    ttl_required: Annotated[bool | None, Parameter(negative="--no-ttl-required")] = None,
    trash: Annotated[bool | None, Parameter(negative="--no-trash")] = None,
    trash_retention: MaybeSeconds = None,
    journal_retention: MaybeSeconds = None,
    audit: Annotated[bool | None, Parameter(negative="--no-audit")] = None,
    audit_retention: MaybeSeconds = None,
    reveal: Literal["open", "audited", "never"] | None = None,
    clear: tuple[str, ...] = (),
    yes: Yes = False,
    target: Target = HERE,
    origin: WriteOptions = UNNAMED,
) -> None:
    """Change the policy of a namespace. Fields that are not named stay as they are.

    A shorter --audit-retention removes existing records, so it asks first if the audit has any.

    Parameters
    ----------
    namespace
        Its full name, such as table/trivia, instead of --plugin, or --tenant and --project.
    quota_keys
        Largest number of keys.
    quota_bytes
        Largest number of bytes that the namespace may keep, not counting the audit.
    max_value_bytes
        Largest size of a value as compact JSON: 65536, the default, to 524288 bytes.
    rate_limit
        Requests per second that each serving process accepts.
    ttl_default
        TTL of entries that are written without one: seconds, or 30s, 1h, 2d, as for all times below.
    ttl_min
        Shortest TTL that is accepted.
    ttl_max
        Longest TTL that is accepted.
    ttl_required
        Require every entry to have a TTL.
    trash
        Keep deleted and expired entries in the trash, to be restored.
    trash_retention
        For how long.
    journal_retention
        How long changes stay in the journal.
    audit
        Record changes in the audit.
    audit_retention
        How long audit records are kept; for ever if not given.
    reveal
        How the console shows values to people: without a reason, with one that the audit records, or never.
    clear
        Unset one of these fields; may be given several times.
    """
    given = locals()
    asked = {name: given[name] for name in FIELDS if given[name] is not None}
    cleared = {_field(name) for name in clear}
    if not asked and not cleared:
        raise holdfast.MissingField("name a field to set or to clear", field="clear")
    if both := cleared & asked.keys():
        raise holdfast.ValidationError(f"{min(both)} is both set and cleared", field="clear")
    if audit_retention is not None and not yes:
        await _ask_to_prune(namespace, audit_retention, target)
    async with target.open() as store:
        name = target.namespace(store, namespace)
        before = msgspec.structs.asdict(await store.policy(name))
        policy = await store.set_policy(name, before | dict.fromkeys(cleared) | asked, **origin.fields)
    fields = msgspec.structs.asdict(policy)
    if target.json:
        document({"namespace": name, "policy": fields})
    else:
        say(f"{name}: {_told(fields)}")


async def _ask_to_prune(namespace: str | None, seconds: int, target: Target) -> None:
    """Ask before a shorter retention removes records of the audit. No store is open meanwhile."""
    async with target.look() as store:
        name = target.namespace(store, namespace)
        kept, parts = (await store.policy(name)).audit_retention, (await store.stats(name)).parts
    if parts.audit and (kept is None or seconds < kept):
        require_yes(f"audit records of {name} older than {seconds} seconds are removed", yes=False)


def _field(name: str) -> str:
    field = name.replace("-", "_")
    if field not in FIELDS:
        known = ", ".join(one.replace("_", "-") for one in FIELDS)
        raise holdfast.ValidationError(
            f"a policy has no field {name!r}; its fields are {known}", field="clear"
        )
    return field


def _told(fields: dict[str, Any]) -> str:
    """Return a policy in one line: the fields that are set."""
    return ", ".join(f"{name} {_shown(value)}" for name, value in fields.items() if value is not None) or (
        "nothing is asked of it"
    )


def _shown(value: Any) -> str | int | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if value is None or isinstance(value, int) else str(value)


_PARTS: Final = holdfast.Parts.__struct_fields__
_STATS: Final = ("namespace", "keys", "bytes", "kept", *_PARTS, "version", "changed")
_TOP_COLUMNS: Final = ("namespace", "keys", "bytes", "changes/s")


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a namespace at a moment, and its rate of change before that."""

    namespace: str
    keys: int
    bytes: int
    changes_per_second: float


async def stats(*, target: Target = HERE) -> None:
    """Print what each namespace holds, or one: live keys, their bytes, and all bytes that it keeps, by kind.

    A quota counts what is kept, without the audit. The last version and the time of the last change follow.
    """
    async with target.look() as store:
        if target.named:
            namespaces = [await store.stats(target.keys(store).namespace)]
        else:
            namespaces = await store.namespaces()
    if target.json:
        document(namespaces[0] if target.named else {"namespaces": namespaces})
    else:
        rows(_STATS, map(_stats_cells, namespaces))


def _stats_cells(one: holdfast.Stats) -> tuple[str | int, ...]:
    held = one.namespace, one.keys, one.bytes, one.kept_bytes
    return (*held, *msgspec.structs.astuple(one.parts), one.version, shown_time(one.changed_at))


async def ping(*, count: Annotated[int, Parameter(converter=number)] = 1, target: Place = STORE) -> None:
    """Ask whether a write would be accepted now, and print how long the answer took.

    Parameters
    ----------
    count
        Number of requests to send.
    """
    if type(count) is not int or count < 1:
        raise holdfast.ValidationError("count must be a whole number from 1", field="count")
    times: list[float] = []
    async with target.open(creates=False) as store:
        while len(times) < count:
            begun = time.perf_counter()
            await store.ready()
            times.append(round((time.perf_counter() - begun) * 1000, 3))
            if not target.json:
                line(f"ready in {times[-1]:.3f} ms")
    if target.json:
        document({"count": len(times), "times_ms": times})


async def top(
    *,
    interval: Annotated[float, Parameter(converter=seconds)] = 2,
    once: bool = False,
    target: Place = STORE,
) -> None:
    """Show the namespaces that change fastest, with their keys and bytes, until Ctrl-C.

    Parameters
    ----------
    interval
        Seconds between two updates; 2 if not given.
    once
        Print one table after one interval, for scripts.
    """
    if not 0 < interval <= 3600:
        raise holdfast.ValidationError(
            "interval must be more than 0 and at most 3600 seconds", field="interval"
        )
    async with target.look() as store:
        with _display(target, once=once) as show:
            before = await store.namespaces()
            while True:
                begun = time.monotonic()
                await asyncio.sleep(interval)
                now = await store.namespaces()
                show(samples(before, now, time.monotonic() - begun))
                before = now
                if once:
                    return


def samples(before: Sequence[holdfast.Stats], now: Sequence[holdfast.Stats], passed: float) -> list[Sample]:
    """Return the current samples, by rate of change and then by number of keys, highest first."""
    known = {one.namespace: one.version for one in before}
    samples = [
        Sample(
            namespace=one.namespace,
            keys=one.keys,
            bytes=one.bytes,
            changes_per_second=round((one.version - known.get(one.namespace, 0)) / passed, 1),
        )
        for one in now
    ]
    return sorted(samples, key=lambda one: (-one.changes_per_second, -one.keys, one.namespace))


@contextlib.contextmanager
def _display(target: Place, *, once: bool) -> Iterator[Callable[[list[Sample]], None]]:
    """Yield a function that shows samples: as a live table on a terminal, else as lines with an empty one
    between."""
    if target.json:
        yield lambda samples: document({"namespaces": samples})
    elif once:
        yield lambda samples: rows(_TOP_COLUMNS, map(_sample_cells, samples))
    elif not on_terminal():
        yield lambda samples: rows(_TOP_COLUMNS, [*map(_sample_cells, samples), ()])
    else:
        # late: it takes 30 ms, and only a terminal needs it
        from rich.live import Live

        # late: it takes 30 ms, and only a terminal needs it
        from holdfast.edges.cli.output import table

        with Live(auto_refresh=False, screen=True) as live:
            yield lambda samples: live.update(
                table(_TOP_COLUMNS, map(_sample_cells, samples), width=live.console.width), refresh=True
            )


def _sample_cells(sample: Sample) -> tuple[str, int, int, float]:
    return sample.namespace, sample.keys, sample.bytes, sample.changes_per_second


_SLOW: Final = ("time", "ms", "plugin", "verb", "key")
_MORE: Final = ("error", "request id", "number")
_USUAL: Final = 20
"""Default number of requests to print."""


async def slowlog(
    *,
    limit: Annotated[int | None, Parameter(converter=number)] = None,
    slowest: bool = False,
    long: Annotated[bool, Long] = False,
    instance: str | None = None,
    target: Target = HERE,
) -> None:
    """Print the slow requests of a running service, newest first, without values.

    What counts as slow is said by the settings slow_ms and slow_list_ms of the service, and how many it keeps
    by slow_log_size. With --plugin, or --tenant and --project, only theirs are printed.

    Parameters
    ----------
    limit
        At most so many, 1 to 10000; 20 if not given.
    slowest
        Print the slowest of all that are kept, the slowest first.
    long
        Print the error code, the request id and the number of each too.
    instance
        The instance of the service that is meant, if there are several; the JSON names the one that answered.
    """
    most = _USUAL if limit is None else rules.limit(limit)
    async with _service(target) as store:
        requests, page = await _gathered(
            store, most, slowest=slowest, instance=instance, owner=_owner(target)
        )
    if target.json:
        document({"requests": requests, "slow": page.slow, "instance": page.instance})
        return
    rows((*_SLOW, *_MORE) if long else _SLOW, (_slow_cells(one, long=long) for one in requests))
    if not requests:
        say(f"the slow log is empty; slow requests since the service started: {page.slow}")


@asynccontextmanager
async def _service(target: Target) -> AsyncIterator[holdfast.Store]:
    """Open the named service, or the service that has the named file open."""
    address = target.address
    if is_service(address):
        async with target.opened() as store:
            yield store
        return
    served = service_beside(address)
    if served is None:
        raise holdfast.Unsupported(
            "only a running service has a slow log, and none that runs here serves this store: start one "
            "with holdfast up, or name one with --url nats://HOST:4222"
        )
    async with through(served, address) as store:
        yield store


async def _gathered(
    store: holdfast.Store, most: int, *, slowest: bool, instance: str | None, owner: str | None
) -> tuple[list[holdfast.SlowRequest], holdfast.SlowPage]:
    """Return the requests to print, and the last page that was read for them."""
    found: list[holdfast.SlowRequest] = []
    before: int | None = None
    while True:
        page = await store.slowlog(before=before, limit=rules.MAX_LIMIT, instance=instance)
        found += [one for one in page.requests if owner in (None, one.plugin)]
        before, instance = page.next, page.instance
        if before is None or (not slowest and len(found) >= most):
            break
    if slowest:
        found.sort(key=lambda one: one.milliseconds, reverse=True)
    return found[:most], page


def _owner(target: Target) -> str | None:
    """Return the owner whose requests to show. Only the command line sets it, not a variable."""
    if not target.named:
        return None
    plugin, tenant, project = target.chosen
    return plugin or f"{tenant}/{project}"


def _slow_cells(one: holdfast.SlowRequest, *, long: bool) -> tuple[Any, ...]:
    cells = (shown_time(one.at), one.milliseconds, one.plugin, one.verb, shown_key(one.key) or None)
    return (*cells, one.error_code, one.request_id, one.number) if long else cells


_TOKENS: Final = ("id", "for", "verbs", "made", "expires")


async def create_token(
    *,
    verbs: str | None = None,
    expires: MaybeSeconds = None,
    operator: bool = False,
    target: Target = HERE,
) -> None:
    """Make a token for a plugin, a tenant's project, or operators, and print it. It is shown only now.

    Parameters
    ----------
    verbs
        The only verbs that it allows, with commas between them, such as get,list,watch; all if not given.
    expires
        Expire the token after this long: seconds, or 30s, 12h, 30d. If not given, it does not expire.
    operator
        Make it a token for operators, who may do everything, instead of one for a plugin or project.
    """
    named = None if verbs is None else [verb.strip() for verb in verbs.split(",")]
    if named is not None:
        require_verbs(named)
    plugin, tenant, project = (None, None, None) if operator else target.chosen
    if not (operator or plugin or (tenant and project)):
        raise holdfast.MissingField(
            "whom is the token for? Give --plugin NAME, --tenant and --project, or --operator", field="plugin"
        )
    async with target.open() as store:
        made = await store.tokens().create(
            plugin=plugin, tenant=tenant, project=project, operator=operator, verbs=named, ttl=expires
        )
    if target.json:
        document(made)
        return
    line(made.token)
    say(f"{_about(made.about)}; this is the only time that it is shown")


async def list_tokens(*, place: Place = STORE) -> None:
    """List the tokens that are valid, without their secrets."""
    async with place.look() as store:
        tokens = await store.tokens().list()
    if place.json:
        for token in tokens:
            document(token)
        return
    rows(_TOKENS, map(_token_cells, tokens))
    if not tokens:
        say("there are no tokens")


@destroys
async def revoke_tokens(
    *ids: Annotated[str, Parameter(help="The token's id.")], yes: Yes = False, place: Place = STORE
) -> None:
    """Revoke tokens by their ids. Every instance of a service refuses them within a second.

    A token that does not exist is no error.
    """
    if not ids:
        raise holdfast.MissingField(
            "which tokens? Give their ids, as holdfast token list shows them", field="id"
        )
    require_yes(f"callers with the tokens {', '.join(ids)} are let in no longer", yes=yes)
    async with place.open() as store:
        for name in ids:
            revoked = await store.tokens().revoke(name)
            if place.json:
                document({"id": name, "revoked": revoked})
            else:
                line(f"{name} {'revoked' if revoked else 'not there'}")


def _about(token: Token) -> str:
    until = "does not expire" if token.expires_at is None else f"expires {shown_time(token.expires_at)}"
    return f"token {token.id} is for {token.owner}, allows {_verbs(token)} and {until}"


def _token_cells(token: Token) -> tuple[str | None, ...]:
    until = None if token.expires_at is None else shown_time(token.expires_at)
    return (token.id, token.owner, _verbs(token), shown_time(token.created_at), until)


def _verbs(token: Token) -> str:
    return "all verbs" if token.verbs is None else ",".join(token.verbs)


LetterNumber = Annotated[int, Parameter(converter=number, help="The letter's number.")]
_LETTERS = ("number", "time", "verb", "key", "error", "attempts", "writer", "request")


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
                rows(_LETTERS, map(_letter_cells, page.letters))
            if not everything:
                break
    if page.next is not None and not target.json:
        say(f"there are more letters: --all lists them, --after {page.next} goes on")


async def show_letter(
    letter: LetterNumber,
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


async def retry_letters(
    *letters: LetterNumber,
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
async def drop_letters(*letters: LetterNumber, yes: Yes = False, target: Target = HERE) -> None:
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


def _letter_cells(letter: holdfast.Letter) -> tuple[Any, ...]:
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
