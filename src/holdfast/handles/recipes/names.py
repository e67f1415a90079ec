"""The keys of recipes' entries, and identifiers derived from names.

Every key of a recipe is made here. Apart from its length, a name is valid in one family exactly when it is
valid in the other, so that code can move between them. A derived identifier is the same text for the same
input, on every machine and in every version.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final

from holdfast import rules
from holdfast.errors import ValidationError, VersionConflict
from holdfast.handles.kv import KV

WAITING: Final = "waiting"
"""The component below a lock's key that holds the entries of its waiters."""
TICKET_DIGITS: Final = 16
FLAG: Final = "flag"
CASED: Final = "flag.cased"
_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*")
_CASED: Final = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_SPELLED: Final = re.compile(r"[A-Z_]")
_CAPITAL: Final = re.compile(r"_([a-z_])")
_PLACE: Final = re.compile(rf"/{WAITING}/[0-9a-f]{{{TICKET_DIGITS}}}")


_DIGEST_BYTES: Final = 16
_HASHED: Final = "hashed"
"""The kind of the entries that record which identifier a digest stands for."""


def entry_key(kv: KV, kind: str, name: object, *, below: int = 0) -> str:
    """Return the full key of a recipe's entry, `<kind>/<name>`.

    Args:
        kv: The namespace's handle.
        kind: The kind of entry, such as `lock`.
        name: One or more components of a-z, 0-9, `.`, `_` and `-` with `/` between them.
        below: Number of characters to reserve for keys below this one.

    Raises:
        ValidationError: The name breaks that rule, or the full key would be longer than 128 characters.
    """
    if not isinstance(name, str):
        raise ValidationError(f"the name of a {kind} must be text, not {rules.kind_of(name)}", field="name")
    root = rules.semantic_root(kv.namespace) or ""
    room = rules.MAX_SEMANTIC_KEY_CHARACTERS - len(root) - len(kind) - 1 - below
    if len(name) > room:
        raise ValidationError(
            f"the name of a {kind} has {len(name)} characters; at most {room} are allowed here", field="name"
        )
    try:
        return rules.semantic_key(f"{kind}/{name}", root)
    except ValidationError:
        raise ValidationError(
            f"the name of a {kind} must be components of a-z, 0-9, '.', '_' and '-', each beginning with a "
            f"letter or digit, with '/' between them, not {name!a}",
            field="name",
        ) from None


def flag_key(kv: KV, name: object) -> str:
    """Return the full key of a flag. Its name may also have capitals, and components that begin with a mark.

    No key of the semantic family has those, so they are spelled out below `flag.cased/`: an `x` before each
    component, `_` before a letter that stands for its capital, and `__` for `_`. No two names share a key.

    Raises:
        ValidationError: The name breaks this rule, or the full key would be longer than 128 characters.
    """
    if not isinstance(name, str) or _PLAIN.fullmatch(name):
        return entry_key(kv, FLAG, name)
    if not _CASED.fullmatch(name):
        raise ValidationError(
            "the name of a flag must be components of letters, digits, '.', '_' and '-', with '/' between "
            f"them, not {name!a}",
            field="name",
        )
    capitals = _SPELLED.sub(lambda match: f"_{match[0].lower()}", name)
    spelled = "/".join(f"x{part}" for part in capitals.split("/"))
    root = rules.semantic_root(kv.namespace) or ""
    room = rules.MAX_SEMANTIC_KEY_CHARACTERS - len(root) - len(CASED) - 1
    if len(spelled) > room:
        raise ValidationError(
            f"the name of a flag has {len(spelled)} characters once its capitals are spelled out; at most "
            f"{room} are allowed here",
            field="name",
        )
    return f"{root}{CASED}/{spelled}"


def flag_name(kv: KV, key: str) -> str | None:
    """Return the name of the flag with a full key, or None if it is no flag's."""
    kind, _, name = key.removeprefix(rules.semantic_root(kv.namespace) or "").partition("/")
    if kind == CASED:
        cased = _CAPITAL.sub(lambda match: match[1].upper(), name)
        name = "/".join(part.removeprefix("x") for part in cased.split("/"))
    try:
        return name if flag_key(kv, name) == key else None
    except ValidationError:
        return None


def lock_key(kv: KV, name: object) -> str:
    """Return the key of a lock's entry. Names may not contain `waiting`, which leads to its waiters."""
    key = entry_key(kv, "lock", name, below=len(f"/{WAITING}/") + TICKET_DIGITS)
    if WAITING in str(name).split("/"):
        raise ValidationError(f"the name of a lock must not have the component {WAITING!r}", field="name")
    return key


def waits(key: str) -> bool:
    """Return True if a key belongs to a waiter of a lock."""
    return _PLACE.fullmatch(key, max(0, len(key) - TICKET_DIGITS - len(WAITING) - 2)) is not None


def request_id(workflow_id: str, timestamp: datetime | int) -> str:
    """Make a request id for one attempt of a workflow: the same each time that this attempt is repeated.

    Args:
        workflow_id: Name of the workflow. One that is too long for a request id, or that holds control
            characters, is replaced by its digest.
        timestamp: When the attempt began: a time (a naive one is UTC) or a whole number.

    Returns:
        A request id.

    Raises:
        ValidationError: An argument has another type, or the workflow's id is empty.

    Example:
        `await kv.set("invoice", 7, request_id=holdfast.request_id("invoice-7", 1_700_000_000))`
    """
    begun, digest = _begun(timestamp), _digest(workflow_id, field="workflow_id")
    try:
        return rules.identity(f"{begun} {workflow_id}", field="request_id")
    except ValidationError:
        return f"{begun} #{digest}"


async def hashed_key(kv: KV, prefix: str, identifier: str) -> str:
    """See `KV.hashed_key`."""
    digest = _digest(identifier, field="identifier")
    key = kv.verbs.key(f"{prefix}{digest}")
    mapping = {"identifier": identifier}
    known = await kv.get(f"{_HASHED}/{digest}")
    if known is None:
        try:
            known = await kv.set(
                f"{_HASHED}/{digest}", mapping, expected_version=0, semantics={"purpose": "config"}
            )
        except VersionConflict as conflict:
            known = conflict.current
    if known is None or known.value != mapping:
        raise VersionConflict(f"the digest {digest} already stands for another identifier", current=known)
    return key


async def original_of(kv: KV, key: str) -> str | None:
    """See `KV.original_of`."""
    digest = kv.verbs.key(key)[-2 * _DIGEST_BYTES :]
    try:
        entry = await kv.get(f"{_HASHED}/{digest}")
    except ValidationError:
        return None
    match None if entry is None else entry.value:
        case {"identifier": str(identifier)}:
            return identifier
        case _:
            return None


def _begun(timestamp: object) -> str:
    if isinstance(timestamp, datetime):
        moment = timestamp.replace(tzinfo=timestamp.tzinfo or UTC).astimezone(UTC)
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if type(timestamp) is int and abs(timestamp) <= rules.MAX_VERSION:
        return str(timestamp)
    raise ValidationError("timestamp must be a time or a whole number", field="timestamp")


def _digest(text: object, *, field: str) -> str:
    if not isinstance(text, str) or not text:
        raise ValidationError(f"{field} must be text, and not empty", field=field)
    try:
        return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    except UnicodeEncodeError:
        raise ValidationError(
            f"{field} holds a lone surrogate, which is not valid UTF-8", field=field
        ) from None
