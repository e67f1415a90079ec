"""`holdfast namespace`: the namespaces and their policies."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.confirmation import Yes, destroys, require_yes
from holdfast.edges.cli.options import UNNAMED, MaybeSeconds, WriteOptions, number
from holdfast.edges.cli.output import document, rows, say, shown_time
from holdfast.edges.cli.target import HERE, STORE, Place, Target
from holdfast.wire.replies import default_fields

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


async def show(namespace: str | None = None, /, *, target: Target = HERE) -> None:
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
