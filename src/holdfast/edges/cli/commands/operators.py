"""`holdfast namespace`, `stats`, `ping`, `top`, `slowlog`, `token` and `deadletter`: commands for operators.

The secret of a token is printed once, on stdout alone, and kept nowhere. A dead letter is removed only when
its request succeeded, or by `deadletter drop`. Among several letters, one that fails does not stop the
others; the first failure determines the exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, Literal

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast import rules, seams
from holdfast.edges.cli.options import (
    UNNAMED,
    FullName,
    Long,
    MaybeSeconds,
    MaybeWhole,
    Viewer,
    Whole,
    Why,
    WriteOptions,
    Yes,
    destroys,
    number,
    require_from_one,
    require_yes,
    seconds,
)
from holdfast.edges.cli.output import (
    answer,
    document,
    field_rows,
    line,
    on_terminal,
    records,
    refusal,
    report,
    rows,
    say,
    shown_key,
    shown_time,
    table,
)
from holdfast.edges.cli.schema import service_beside
from holdfast.edges.cli.target import HERE, STORE, WRITER, Place, Target
from holdfast.operators.letters import Letters
from holdfast.operators.tokens import Token
from holdfast.registry import is_service
from holdfast.wire.replies import default_fields

FIELDS: Final = holdfast.Policy.__struct_fields__
_NAMESPACES: Final = "namespace keys bytes version changed=changed_at"


async def list_namespaces(*, target: Place = STORE) -> None:
    """Print for each namespace: live keys, bytes, last version and time of the last change."""
    async with target.look() as store:
        namespaces = await store.namespaces()
    if target.json:
        document({"namespaces": namespaces})
    else:
        records(_NAMESPACES, namespaces)


async def show_namespace(namespace: FullName = None, /, *, target: Target = HERE) -> None:
    """Print what a namespace holds and its policy, one field per line; `-` for fields that are not set."""
    async with target.look() as store:
        name = target.namespace(store, namespace)
        stats, policy = await store.stats(name), msgspec.structs.asdict(await store.policy(name))
        defaults = default_fields(await store.defaults(name))
    if target.json:
        document({**msgspec.structs.asdict(stats), "policy": policy, "defaults": defaults})
        return
    held = {name: getattr(stats, name) for name in ("namespace", "keys", "bytes", "version", "kept_bytes")}
    # The policy has fields `trash` and `audit`, too.
    held |= {f"{part}_bytes": kept for part, kept in msgspec.structs.asdict(stats.parts).items()}
    unset = {name for name, value in policy.items() if value is None}
    limits = {name: f"{limit} (default)" for name, limit in defaults.items() if limit and name in unset}
    field_rows(held | policy | limits, heading="value")


async def recount(namespace: FullName = None, /, *, target: Target = HERE) -> None:
    """Recount what a namespace keeps and correct its counters, after rows were changed with SQL.

    Writes to the namespace wait until it is done.
    """
    async with target.open() as store:
        name = target.namespace(store, namespace)
        corrected = await store.recount(name)
    message = f"{corrected} counters have been corrected" if corrected else "all counters are correct"
    report(target.json, {"namespace": name, "corrected": corrected}, f"{name}: {message}")


@destroys
async def set_policy(
    namespace: FullName = None,
    /,
    *,
    quota_keys: MaybeWhole = None,
    quota_bytes: MaybeWhole = None,
    max_value_bytes: MaybeWhole = None,
    rate_limit: MaybeWhole = None,
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
        How long the trash keeps them.
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
    arguments = locals()
    changes = {name: arguments[name] for name in FIELDS if arguments[name] is not None}
    cleared = {_field(name) for name in clear}
    if not changes and not cleared:
        raise holdfast.MissingField("name a field to set or to clear", field="clear")
    if both := cleared & changes.keys():
        raise holdfast.ValidationError(f"{min(both)} is both set and cleared", field="clear")
    if audit_retention is not None and not yes:
        await _ask_to_prune(namespace, audit_retention, target)
    async with target.open() as store:
        name = target.namespace(store, namespace)
        before = msgspec.structs.asdict(await store.policy(name))
        policy = await store.set_policy(name, before | dict.fromkeys(cleared) | changes, **origin.fields)
    set_now = {field: value for field, value in msgspec.structs.asdict(policy).items() if value is not None}
    message = ", ".join(f"{field} {_word(value)}" for field, value in set_now.items())
    report(target.json, {"namespace": name, "policy": policy}, f"{name}: {message or 'no policy is set'}")


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
        known = ", ".join(FIELDS).replace("_", "-")
        raise holdfast.ValidationError(
            f"a policy has no field {name!r}; its fields are {known}", field="clear"
        )
    return field


def _word(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


_PARTS: Final = holdfast.Parts.__struct_fields__
_STATS: Final = ("namespace", "keys", "bytes", "kept", *_PARTS, "version", "changed")
_TOP: Final = ("namespace", "keys", "bytes", "changes/s")


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


def _stats_cells(one: holdfast.Stats) -> tuple[Any, ...]:
    held = one.namespace, one.keys, one.bytes, one.kept_bytes
    return (*held, *msgspec.structs.astuple(one.parts), one.version, one.changed_at)


async def ping(*, count: Whole = 1, target: Place = STORE) -> None:
    """Ask whether a write would be accepted now, and print how long the answer took.

    Parameters
    ----------
    count
        Number of requests to send.
    """
    require_from_one(count, "count")
    times: list[float] = []
    async with target.open(creates=False) as store:
        while len(times) < count:
            begun = seams.monotonic()
            await store.ready()
            times.append(round((seams.monotonic() - begun) * 1000, 3))
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
                begun = seams.monotonic()
                await asyncio.sleep(interval)
                now = await store.namespaces()
                show(samples(before, now, seams.monotonic() - begun))
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
    elif once or not on_terminal():
        yield lambda samples: rows(_TOP, [*map(msgspec.structs.astuple, samples), *([] if once else [()])])
    else:
        # late: it takes 30 ms, and only a terminal needs it
        from rich.live import Live

        with Live(auto_refresh=False, screen=True) as live:
            yield lambda samples: live.update(
                table(_TOP, map(msgspec.structs.astuple, samples), width=live.console.width), refresh=True
            )


_SLOW: Final = "time=at ms=milliseconds plugin verb key"
_USUAL: Final = 20
"""Default number of requests to print."""


async def slowlog(
    *,
    limit: MaybeWhole = None,
    slowest: bool = False,
    long: Annotated[bool, Long] = False,
    instance: str | None = None,
    target: Target = HERE,
) -> None:
    """Print the slow requests of a running service, newest first, without values.

    The settings slow_ms and slow_list_ms of the service say what counts as slow, and slow_log_size how many
    requests it keeps. With --plugin, or --tenant and --project, only theirs are printed.

    Parameters
    ----------
    limit
        Print at most this many, 1 to 10000; 20 if not given.
    slowest
        Print the slowest of all that are kept, the slowest first.
    long
        Print the error code, the request id, the trace id and the number of each too.
    instance
        Ask this instance of the service, if there are several; the JSON names the one that answered.
    """
    most = _USUAL if limit is None else rules.limit(limit)
    async with _service(target) as store:
        requests, page = await _gathered(
            store, most, slowest=slowest, instance=instance, owner=_owner(target)
        )
    if target.json:
        document({"requests": requests, "slow": page.slow, "instance": page.instance})
        return
    records(f"{_SLOW} error=error_code request=request_id trace=trace_id number" if long else _SLOW, requests)
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
    try:
        async with holdfast.open(served, writer=WRITER) as store:
            yield store
    except (holdfast.PermissionDenied, holdfast.Unavailable) as error:
        raise type(error)(
            f"{error.message}. {address} is served at {served}: name that with --url, and with what lets you "
            f"in, as in --url '{served}{'&' if '?' in served else '?'}creds=FILE'",
            field=error.field,
        ) from None


async def _gathered(
    store: holdfast.Store, most: int, *, slowest: bool, instance: str | None, owner: str | None
) -> tuple[list[holdfast.SlowRequest], holdfast.SlowPage]:
    """Return the requests to print, and the last page that was read for them."""
    requests: list[holdfast.SlowRequest] = []
    before: int | None = None
    while True:
        page = await store.slowlog(before=before, limit=rules.MAX_LIMIT, instance=instance)
        requests += [one for one in page.requests if owner in (None, one.plugin)]
        before, instance = page.next, page.instance
        if before is None or (not slowest and len(requests) >= most):
            break
    if slowest:
        requests.sort(key=lambda one: one.milliseconds, reverse=True)
    return requests[:most], page


def _owner(target: Target) -> str | None:
    """Return the owner whose requests to show. Only the command line sets it, not a variable."""
    if not target.named:
        return None
    plugin, tenant, project = target.chosen
    return plugin or f"{tenant}/{project}"


_TOKENS: Final = ("id", "for", "verbs", "made", "expires", "used", "name")


async def tokens_create(
    *,
    verbs: str | None = None,
    expires: MaybeSeconds = None,
    operator: bool = False,
    name: str | None = None,
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
    name
        What to call it, so that you know it in a list.
    """
    named = None if verbs is None else [verb.strip() for verb in verbs.split(",")]
    if named is not None:
        # late: it takes 90 ms, and other commands do without
        from holdfast.edges.calls import require_verbs

        require_verbs(named)
    plugin, tenant, project = (None, None, None) if operator else target.chosen
    if not (operator or plugin or (tenant and project)):
        raise holdfast.MissingField(
            "who is the token for? Give --plugin NAME, --tenant and --project, or --operator", field="plugin"
        )
    async with target.open() as store:
        made = await store.tokens().create(
            plugin=plugin,
            tenant=tenant,
            project=project,
            operator=operator,
            verbs=named,
            ttl=expires,
            name=name,
        )
    if target.json:
        document(made)
        return
    line(made.token)
    say(f"{_about(made.about)}; this is the only time that it is shown")


async def tokens_list(*, place: Place = STORE) -> None:
    """List the tokens that are valid, without their secrets, and when each was last used over HTTP."""
    async with place.look() as store:
        tokens = await store.tokens().list()
    if place.json:
        for token in tokens:
            document(token)
        return
    rows(
        _TOKENS,
        (
            (one.id, one.owner, _verbs(one), one.created_at, one.expires_at, one.used_at, one.name)
            for one in tokens
        ),
    )
    if not tokens:
        say("there are no tokens")


@destroys
async def tokens_revoke(
    *ids: Annotated[str, Parameter(help="The token's id.")], yes: Yes = False, place: Place = STORE
) -> None:
    """Revoke tokens by their ids. Every instance of a service refuses them within a second.

    A token that does not exist is no error.
    """
    if not ids:
        raise holdfast.MissingField(
            "which tokens? Give their ids, as holdfast token list shows them", field="id"
        )
    require_yes(f"callers with the tokens {', '.join(ids)} will be refused", yes=yes)
    async with place.open() as store:
        for name in ids:
            revoked = await store.tokens().revoke(name)
            done = "revoked" if revoked else "not there"
            answer(place.json, {"id": name, "revoked": revoked}, f"{name} {done}")


def _about(token: Token) -> str:
    until = "does not expire" if token.expires_at is None else f"expires {shown_time(token.expires_at)}"
    return f"token {token.id} is for {token.owner}, allows {_verbs(token)} and {until}"


def _verbs(token: Token) -> str:
    return "all verbs" if token.verbs is None else ",".join(token.verbs)


LetterNumber = Annotated[int, Parameter(converter=number, help="The letter's number.")]
_LETTERS: Final = "number time=at verb key error=error_code attempts writer request=request_id"


async def letters_list(
    *,
    after: Whole = 0,
    limit: MaybeWhole = None,
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
    following: int | None = after
    async with target.look() as store:
        letters = _letters(store, target)
        while following is not None:
            page = await letters.list(after=following, limit=limit, masked=True)
            following = page.next
            if target.json:
                for letter in page.letters:
                    document(letter)
            else:
                records(_LETTERS, page.letters)
            if not everything:
                break
    if following is not None and not target.json:
        say(f"there are more letters: --all lists them, --after {following} continues")


async def letters_show(
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
    async with target.look() if why is None else target.open() as store:
        box = _letters(store, target)
        seen = box.get(letter, masked=True) if why is None else box.reveal(letter, why, writer=writer)
        read = await seen
    if read is None:
        raise holdfast.KeyNotFound(f"there is no dead letter {letter}", field="number")
    if target.json:
        document(read)
        return
    fields = {"key": shown_key(read.key), "request": msgspec.json.encode(read.request).decode()}
    field_rows(msgspec.structs.asdict(read) | fields)


async def letters_retry(
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
        numbers = [number async for number in _numbers(box)] if everything else list(letters)
        for one in numbers:
            try:
                reply = await box.retry(one)
            except holdfast.HoldfastError as error:
                failed = failed or error
                content = {"number": one, "done": False, "error": refusal(error)}
                answer(target.json, content, f"{one} {error.code}")
            else:
                answer(target.json, {"number": one, "done": True, "reply": reply}, f"{one} done")
    if failed is not None:
        raise failed


@destroys
async def letters_drop(*letters: LetterNumber, yes: Yes = False, target: Target = HERE) -> None:
    """Delete dead letters permanently. A letter that does not exist is no error."""
    if not letters:
        raise holdfast.MissingField("which letters? Give their numbers", field="letters")
    require_yes(f"dead letters {', '.join(map(str, letters))} are removed for good", yes=yes)
    async with target.open() as store:
        box = _letters(store, target)
        for one in letters:
            dropped = await box.drop(one)
            done = "dropped" if dropped else "not there"
            answer(target.json, {"number": one, "dropped": dropped}, f"{one} {done}")


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
