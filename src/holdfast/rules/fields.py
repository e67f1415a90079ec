"""The fields of a call: numbers, times, identities, semantics and policies.

Law: as in `holdfast.rules`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.clock import milliseconds, moment
from holdfast.errors import ValidationError
from holdfast.model import KEEP, Policy, Semantics
from holdfast.origin import Fence
from holdfast.rules.limits import (
    DEFAULT_LIMIT,
    MAX_BATCH,
    MAX_HINT_CHARACTERS,
    MAX_HINTS,
    MAX_IDENTITY_CHARACTERS,
    MAX_LIMIT,
    MAX_LOADED_VERSION,
    MAX_NESTING,
    MAX_RAISED_VALUE_BYTES,
    MAX_REASON_CHARACTERS,
    MAX_SPEC_REF_CHARACTERS,
    MAX_TTL,
    MAX_VALUE_BYTES,
    MAX_VERSION,
)
from holdfast.rules.names import legal_text
from holdfast.rules.values import require_json
from holdfast.rules.words import shown

LEAST_OF_A_REASON: Final = 3
"""Number of letters and digits that the reason for looking at a value has at least."""
_PURPOSE: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SWITCHES: Final = frozenset({"ttl_required", "trash", "audit"})
_REVEALS: Final = ("open", "audited", "never")
_QUOTAS: Final = frozenset({"quota_keys", "quota_bytes"})
_SEMANTICS_FIELDS: Final = frozenset(Semantics.__struct_fields__)


def ttl(seconds: object, *, field: str = "ttl") -> int | None:
    """Return a TTL in whole seconds; None means no expiry."""
    return None if seconds is None else required_ttl(seconds, field=field)


def required_ttl(seconds: object, *, field: str = "ttl") -> int:
    """Return a TTL where one is required."""
    if type(seconds) is not int or not 1 <= seconds <= MAX_TTL:
        raise ValidationError(
            f"{field} must be a whole number of seconds from 1 to {MAX_TTL}, not {shown(seconds)}",
            field=field,
        )
    return seconds


def one_ttl(ttl_given: object, seconds: object, keep: object) -> object:
    """Return the TTL of a call, which may be given as `ttl`, as `ttl_seconds` or, if it stays, as `keep_ttl`.

    What is given as `ttl` is not checked yet.
    """
    if seconds is not None:
        seconds = required_ttl(seconds, field="ttl_seconds")
        if ttl_given is not None and ttl(ttl_given) != seconds:
            raise ValidationError("ttl and ttl_seconds differ", field="ttl")
    given = seconds if ttl_given is None else ttl_given
    if keep is not None and not isinstance(keep, bool):
        raise ValidationError("keep_ttl must be true or false", field="keep_ttl")
    if not keep:
        return given
    if given is not None and given is not KEEP:
        raise ValidationError("keep_ttl and a ttl exclude each other", field="ttl")
    return KEEP


def timeout(seconds: object) -> float:
    """Return the seconds for which a call may wait for its turn; fractions are allowed."""
    if type(seconds) not in (int, float) or not 0 < seconds <= MAX_TTL:  # type: ignore[operator]
        raise ValidationError(
            f"timeout must be a number of seconds above 0 and at most {MAX_TTL}, not {shown(seconds)}",
            field="timeout",
        )
    return seconds  # type: ignore[return-value]


def limit(number: object) -> int:
    """Return the maximum number of results."""
    if number is None:
        return DEFAULT_LIMIT
    if type(number) is not int or not 1 <= number <= MAX_LIMIT:
        raise ValidationError(
            f"limit must be a whole number from 1 to {MAX_LIMIT}, not {shown(number)}", field="limit"
        )
    return number


def version(number: object, *, field: str = "expected_version") -> int:
    """Return a version given by a caller; 0 means that nothing exists."""
    if type(number) is not int or not 0 <= number <= MAX_VERSION:
        raise ValidationError(f"{field} must be a whole number from 0, not {shown(number)}", field=field)
    return number


def loaded_version(number: object) -> int:
    """Return the version of an entry from another store. It leaves room for the versions of later writes."""
    if type(number) is not int or not 0 <= number <= MAX_LOADED_VERSION:
        raise ValidationError(
            f"version must be a whole number from 0 to {MAX_LOADED_VERSION}, not {shown(number)}",
            field="version",
        )
    return number


def positive(number: object, *, field: str, most: int = MAX_VERSION) -> int:
    """Return a whole number from 1, such as that of a dead letter."""
    if type(number) is not int or not 1 <= number <= most:
        raise ValidationError(
            f"{field} must be a whole number from 1 to {most}, not {shown(number)}", field=field
        )
    return number


def reason(text: object) -> str:
    """Return the message of an error that a caller reports."""
    return legal_text(text, field="message", most=MAX_REASON_CHARACTERS)


def anchor(text: object) -> str:
    """Return the signature of the record after which an audit is verified."""
    return legal_text(text, field="anchor", most=MAX_IDENTITY_CHARACTERS)


def boolean(given: object, *, field: str) -> bool:
    """Return a switch, which is on or off and nothing else."""
    if not isinstance(given, bool):
        raise ValidationError(f"{field} must be true or false, not {shown(given)}", field=field)
    return given


def increment(by: object) -> int | float:
    """Return the number to add to another."""
    if type(by) is not int and type(by) is not float:
        raise ValidationError(f"by must be a number, not {shown(by)}", field="by")
    require_json(by, MAX_NESTING, field="by")
    return by


def identity(text: object, *, field: str) -> str:
    """Return the name of a writer or the id of a request."""
    checked = legal_text(text, field=field, most=MAX_IDENTITY_CHARACTERS)
    if not checked or _CONTROL.search(checked):
        raise ValidationError(
            f"{field} must be 1 to {MAX_IDENTITY_CHARACTERS} characters without control characters",
            field=field,
        )
    return checked


def spec_ref(text: object) -> str | None:
    """Return a reference to the governing document."""
    return None if text is None else legal_text(text, field="spec_ref", most=MAX_SPEC_REF_CHARACTERS)


def why(text: object) -> str | None:
    """Return the reason for which a person looks at a value."""
    return None if text is None else legal_text(text, field="why", most=MAX_SPEC_REF_CHARACTERS)


def require_reason(why: str) -> None:
    """Check that the reason for which a person looks at a value says something.

    Raises:
        ValidationError: It has fewer than three letters or digits, or they are all the same.
    """
    said = [one for one in why if one.isalnum()]
    if len(said) < LEAST_OF_A_REASON or len(set(said)) == 1:
        raise ValidationError(
            f"why must say something: at least {LEAST_OF_A_REASON} letters or digits that are not all the "
            "same, such as OPS-12 or the complaint of a player",
            field="why",
        )


def fence(given: object) -> Fence | None:
    """Return the lock and token that a write relies on."""
    if given is None or isinstance(given, Fence):
        return given
    if not isinstance(given, dict) or set(given) != {"lock", "token"}:
        raise ValidationError("fence must have the fields lock and token", field="fence")
    return Fence(
        lock=lock_name(given["lock"], field="fence.lock"), token=version(given["token"], field="fence.token")
    )


def lock_name(text: object, *, field: str) -> str:
    """Return the name of a lock."""
    return identity(text, field=field)


def semantics(given: object) -> Semantics | None:
    """Return the purpose and audience of an entry; None if nothing is given."""
    if given is None:
        return None
    if isinstance(given, Semantics):
        given = msgspec.structs.asdict(given)
    if not isinstance(given, dict):
        raise ValidationError("semantics must be an object", field="semantics")
    fields = {name: value for name, value in given.items() if name in _SEMANTICS_FIELDS and value is not None}
    if "purpose" in fields:
        purpose(fields["purpose"], field="semantics.purpose")
    if "producer" in fields:
        identity(fields["producer"], field="semantics.producer")
    if "ttl_seconds" in fields:
        required_ttl(fields["ttl_seconds"], field="semantics.ttl_seconds")
    if "consumer_hints" in fields:
        fields["consumer_hints"] = _hints(fields["consumer_hints"])
    checked = Semantics(**fields)
    return None if checked == Semantics() else checked


def purpose(text: object, *, field: str) -> str:
    """Return the purpose of an entry."""
    if not isinstance(text, str) or not _PURPOSE.fullmatch(text):
        raise ValidationError(
            f"{field} {shown(text)} must be 1 to 32 of the characters a-z, 0-9 and _, "
            "beginning with a letter",
            field=field,
        )
    return text


def time(given: object, *, field: str) -> int:
    """Return a point in time as it is stored, from a datetime or ISO 8601 text. Without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(given) if isinstance(given, str) else given
        if isinstance(found, datetime):
            at = milliseconds(found)
            moment(at)  # the zone may move it out of the range of years
            return at
    except (ValueError, OverflowError):
        pass
    raise ValidationError(
        f"{field} must be a time such as 2031-05-01T12:30:00Z, not {shown(given)}", field=field
    )


def policy(given: Policy | dict[str, Any]) -> Policy:
    """Return the policy that an operator sets for a namespace."""
    fields = msgspec.structs.asdict(given) if isinstance(given, Policy) else given
    for name, asked in fields.items():
        if name not in Policy.__struct_fields__:
            spelled = ascii(str(name)[:40])[1:-1]  # it is sent back to the caller, who may have sent anything
            raise ValidationError(f"a policy has no field {shown(name)}", field=f"policy.{spelled}")
        if asked is not None:
            _policy_field(name, asked)
    checked = Policy(**fields)
    _policy_lifetimes(checked)
    return checked


def _policy_field(name: str, asked: object) -> None:
    if name in _SWITCHES:
        if type(asked) is not bool:
            raise ValidationError(f"{name} must be true or false, not {shown(asked)}", field=name)
    elif name == "reveal":
        if asked not in _REVEALS:
            raise ValidationError(f"{name} must be open, audited or never, not {shown(asked)}", field=name)
    elif name in _QUOTAS:
        if type(asked) is not int or not 0 <= asked <= MAX_VERSION:
            raise ValidationError(f"{name} must be a whole number from 0, not {shown(asked)}", field=name)
    elif name == "max_value_bytes":
        if type(asked) is not int or not MAX_VALUE_BYTES <= asked <= MAX_RAISED_VALUE_BYTES:
            raise ValidationError(
                f"{name} must be a whole number from {MAX_VALUE_BYTES} to {MAX_RAISED_VALUE_BYTES}, "
                f"not {shown(asked)}",
                field=name,
            )
    elif type(asked) is not int or not 1 <= asked <= MAX_TTL:
        raise ValidationError(
            f"{name} must be a whole number from 1 to {MAX_TTL}, not {shown(asked)}", field=name
        )


def _policy_lifetimes(asked: Policy) -> None:
    """Refuse TTL bounds that no entry could meet."""
    bounds = [bound for bound in (asked.ttl_min, asked.ttl_default, asked.ttl_max) if bound is not None]
    if bounds != sorted(bounds):
        raise ValidationError(
            "ttl_default must be at least ttl_min and at most ttl_max, and ttl_min at most ttl_max",
            field="ttl_default" if asked.ttl_default is not None else "ttl_min",
        )


def _hints(given: object) -> tuple[str, ...]:
    field = "semantics.consumer_hints"
    if not isinstance(given, (list, tuple)) or len(given) > MAX_HINTS:
        raise ValidationError(f"{field} must be a list of at most {MAX_HINTS} texts", field=field)
    return tuple(legal_text(hint, field=field, most=MAX_HINT_CHARACTERS) for hint in given)


def several(given: object, *, field: str) -> Sequence[Any]:
    """Return the members of a list, whose number is limited."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence):
        raise ValidationError(f"{field} must be a list", field=field)
    if len(given) > MAX_BATCH:
        raise ValidationError(
            f"{field} has {len(given)} members; at most {MAX_BATCH} are allowed", field=field
        )
    return given


def as_object(given: object, *, field: str) -> Mapping[str, Any]:
    """Return a member that must be an object."""
    if type(given) is not dict and not isinstance(given, Mapping):
        raise ValidationError(f"each of {field} must be an object", field=field)
    return given
