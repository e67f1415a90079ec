"""Derived identifiers: reproducible request ids, and keys for long names.

Law: the same input always gives the same text, on every machine and in every version.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from holdfast import rules
from holdfast.errors import ValidationError, VersionConflict

if TYPE_CHECKING:
    from holdfast.handles.keys import Keys

_DIGEST_BYTES: Final = 16
_HASHED: Final = "hashed"
"""The kind of the entries that record which identifier a digest stands for."""


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


async def hashed_key(kv: Keys, prefix: str, identifier: str) -> str:
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


async def original_of(kv: Keys, key: str) -> str | None:
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
