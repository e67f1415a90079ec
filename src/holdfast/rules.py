"""The limits and legal forms of all input.

Law: each rule of the contract about a field is here once, and every edge applies it. A function takes what a
caller gave, of any type. It returns the legal form, or raises an error with the field, the offending size or
name, and the limit. Nothing here depends on what is stored.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from math import isfinite
from typing import Any, Final

import msgspec

from holdfast.clock import milliseconds, moment
from holdfast.commands import Fence
from holdfast.errors import InvalidPluginName, ValidationError, ValueTooLarge
from holdfast.model import Policy, Semantics

MAX_KEY_CHARACTERS: Final = 255
MAX_SEMANTIC_KEY_CHARACTERS: Final = 128
MAX_VALUE_BYTES: Final = 65_536
MAX_NESTING: Final = 64
MAX_DIGITS: Final = 4_300
MAX_TTL: Final = 2_147_483_647
MAX_LIMIT: Final = 10_000
DEFAULT_LIMIT: Final = 1_000
MAX_IDENTITY_CHARACTERS: Final = 200
MAX_SPEC_REF_CHARACTERS: Final = 500
MAX_REASON_CHARACTERS: Final = 500
MAX_HINTS: Final = 16
MAX_HINT_CHARACTERS: Final = 100
MAX_BATCH: Final = 1_000
MAX_TRANSFER_BYTES: Final = 524_288
"""Maximum size of one page, one batch and one reply of get_many."""
MAX_WORK: Final = 1_000_000
MAX_WORK_PER_WRITE: Final = 1_000
"""Maximum steps of work for a request, and the additional steps for each write in it (`holdfast.work`)."""
MAX_LOADED_BYTES: Final = 8_388_608
"""Maximum bytes of stored values that a request that writes may have to read."""
MAX_LETTER_BYTES: Final = 786_432
"""Maximum size of one dead letter: a batch at its limit, with the names of its fields."""
MAX_LETTERS_BYTES: Final = 67_108_864
"""Maximum size of all dead letters of a namespace. Each counts 256 bytes plus its content."""
MAX_VERSION: Final = 2**63 - 1
MAX_LOADED_VERSION: Final = 2**62
"""The largest version that an entry from another store may bring. The namespace continues from it."""

TRASH_RETENTION: Final = 7 * 86_400
"""Seconds for which removed entries can be restored."""
REQUEST_RETENTION: Final = 86_400
MAX_REQUESTS: Final = 1_000_000
"""Seconds for which a request is remembered, and the maximum number per namespace."""
JOURNAL_RETENTION: Final = 86_400
MAX_JOURNAL: Final = 1_000_000
"""Seconds for which the journal keeps a change, and the maximum number per namespace."""

_PLUGIN: Final = re.compile(r"[a-z0-9_-]{1,100}")
_TENANT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_COMPONENT: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
_PURPOSE: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURE_BITS: Final = 14_284  # integers with no more bits have at most 4,300 digits
_PLAIN: Final = frozenset({str, bool, type(None)})
_SCALAR: Final = _PLAIN | {int, float}
_JSON: Final = _SCALAR | {list, dict}
_LONG: Final = 4_096
"""Size in bytes from which a value is checked level by level."""
_SWITCHES: Final = frozenset({"ttl_required", "trash", "audit"})
_QUOTAS: Final = frozenset({"quota_keys", "quota_bytes"})
_SEMANTICS_FIELDS: Final = frozenset(Semantics.__struct_fields__)


def plugin_name(name: object) -> str:
    """Return the name of a plugin."""
    if not isinstance(name, str) or not _PLUGIN.fullmatch(name):
        raise InvalidPluginName(
            f"Plugin name {shown(name)} must be 1 to 100 of the characters a-z, 0-9, _ and -",
            field="plugin_name",
        )
    return name


def tenant_part(name: object, *, field: str) -> str:
    """Return the name of a tenant or a project."""
    if not isinstance(name, str) or not _TENANT.fullmatch(name):
        raise ValidationError(
            f"{field} {shown(name)} must be 1 to 63 of the characters a-z, 0-9, _ and -, "
            "beginning with a letter or digit",
            field=field,
        )
    return name


def namespace(name: object) -> str:
    """Return the full name of a namespace, as operators write it."""
    match name.split("/") if isinstance(name, str) else ():
        case [("kv" | "table") as family, plugin]:
            return f"{family}/{plugin_name(plugin)}"
        case ["semantic", tenant, project]:
            tenant_part(tenant, field="tenant")
            return f"semantic/{tenant}/{tenant_part(project, field='project')}"
        case _:
            raise ValidationError(
                f"namespace {shown(name)} must be kv/<plugin>, table/<plugin> or semantic/<tenant>/<project>",
                field="namespace",
            )


def semantic_root(namespace: str) -> str | None:
    """Return the prefix of full keys in a namespace; None outside the semantic family."""
    match namespace.split("/"):
        case ["semantic", tenant, project]:
            return f"tenant/{tenant}/project/{project}/"
        case _:
            return None


def key(text: object) -> str:
    """Return a key: text of 1 to 255 characters without U+0000."""
    if type(text) is str and 0 < len(text) <= MAX_KEY_CHARACTERS and text.isascii() and "\x00" not in text:
        return text  # the common case
    if text == "":
        raise ValidationError("key must not be empty", field="key")
    return _text(text, field="key", most=MAX_KEY_CHARACTERS)


def prefix(text: object) -> str:
    """Return a prefix of keys; the empty one matches all."""
    return _text(text, field="prefix", most=MAX_KEY_CHARACTERS)


def semantic_key(text: object, root: str) -> str:
    """Return a key of a tenant's project in full. `root` is `tenant/<t>/project/<p>/`."""
    full = _under(_text(text, field="key", most=MAX_SEMANTIC_KEY_CHARACTERS), root, field="key")
    for number, component in enumerate(full.removeprefix(root).split("/"), start=1):
        if not _COMPONENT.fullmatch(component):
            raise ValidationError(
                f"key component {number} after {root!r} is {shown(component)}: components begin with "
                "a letter or digit and hold only a-z, 0-9, '.', '_' and '-'",
                field="key",
            )
    if len(full) > MAX_SEMANTIC_KEY_CHARACTERS:
        raise ValidationError(
            f"key has {len(full)} characters in full; at most {MAX_SEMANTIC_KEY_CHARACTERS} are allowed",
            field="key",
        )
    return full


def semantic_prefix(text: object, root: str) -> str:
    """Return a prefix of keys of a tenant's project in full."""
    given = prefix(text)
    return (
        root
        if root.startswith(given) and given.startswith("tenant/")
        else _under(given, root, field="prefix")
    )


def encode_value(value: Any, *, most: int = MAX_VALUE_BYTES, field: str = "value") -> tuple[str, int]:
    """Return the compact form of a JSON value and its size in bytes, which is limited."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        _walk(value, MAX_NESTING, field=field)
        raise ValidationError(f"{field} holds text with a lone surrogate", field=field) from None
    except (TypeError, ValueError, OverflowError, RecursionError):
        _walk(value, MAX_NESTING, field=field)
        raise ValidationError(f"{field} is not JSON-serializable", field=field) from None
    size = len(encoded)
    if size > most:
        raise ValueTooLarge(
            f"{field.capitalize()} size ({size} bytes) exceeds {most // 1024}KB limit ({most} bytes)",
            field=field,
        )
    if size < _LONG or not _is_plain(value):
        _walk(value, MAX_NESTING, field=field)  # only now: the value might have been far too large
    return encoded.decode(), size


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
    return _text(text, field="message", most=MAX_REASON_CHARACTERS)


def anchor(text: object) -> str:
    """Return the signature of the record after which an audit is verified."""
    return _text(text, field="anchor", most=MAX_IDENTITY_CHARACTERS)


def boolean(given: object, *, field: str) -> bool:
    """Return a switch, which is on or off and nothing else."""
    if not isinstance(given, bool):
        raise ValidationError(f"{field} must be true or false, not {shown(given)}", field=field)
    return given


def increment(by: object) -> int | float:
    """Return the number to add to another."""
    if type(by) is not int and type(by) is not float:
        raise ValidationError(f"by must be a number, not {shown(by)}", field="by")
    _walk(by, MAX_NESTING, field="by")
    return by


def identity(text: object, *, field: str) -> str:
    """Return the name of a writer or the id of a request."""
    checked = _text(text, field=field, most=MAX_IDENTITY_CHARACTERS)
    if not checked or _CONTROL.search(checked):
        raise ValidationError(
            f"{field} must be 1 to {MAX_IDENTITY_CHARACTERS} characters without control characters",
            field=field,
        )
    return checked


def spec_ref(text: object) -> str | None:
    """Return a reference to the governing document."""
    return None if text is None else _text(text, field="spec_ref", most=MAX_SPEC_REF_CHARACTERS)


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
    elif name in _QUOTAS:
        if type(asked) is not int or not 0 <= asked <= MAX_VERSION:
            raise ValidationError(f"{name} must be a whole number from 0, not {shown(asked)}", field=name)
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
    return tuple(_text(hint, field=field, most=MAX_HINT_CHARACTERS) for hint in given)


def _under(text: str, root: str, *, field: str) -> str:
    if not text.startswith("tenant/"):
        return root + text
    if not text.startswith(root):
        raise ValidationError(f"{field} does not belong here: full keys begin with {root!r}", field=field)
    return text


def _text(text: object, *, field: str, most: int) -> str:
    if not isinstance(text, str):
        raise ValidationError(f"{field} must be text, not {shown(text)}", field=field)
    if len(text) > most:
        raise ValidationError(f"{field} has {len(text)} characters; at most {most} are allowed", field=field)
    if "\x00" in text:
        raise ValidationError(f"{field} must not contain U+0000", field=field)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValidationError(f"{field} holds a lone surrogate, which is not valid UTF-8", field=field)
    return text


def _is_plain(value: Any) -> bool:
    """Return whether a large value is legal JSON, checking level by level. If not, `_walk` finds the reason.

    A walk calls a function for each list and object, which takes 10 ms for a value of 64 KB.
    """
    level, room = [value], MAX_NESTING
    while level:
        kinds = set(map(type, level))
        if not kinds <= (_JSON if room else _SCALAR) or not _are_numbers(level, kinds):
            return False
        lists = level if kinds == {list} else [member for member in level if type(member) is list]
        objects = [member for member in level if type(member) is dict] if dict in kinds else []
        if not set(map(type, chain.from_iterable(objects))) <= {str}:
            return False
        level = [*chain.from_iterable(lists), *chain.from_iterable(map(dict.values, objects))]
        room -= 1
    return True


def _are_numbers(members: list[Any], kinds: set[type]) -> bool:
    """Return whether all numbers are finite, and all integers too small to need their digits counted."""
    try:
        if int in kinds:
            array("q", members if kinds == {int} else [one for one in members if type(one) is int])
    except OverflowError:
        return False
    return float not in kinds or all(map(isfinite, [one for one in members if type(one) is float]))


def _walk(value: Any, room: int, *, field: str = "value") -> None:
    """Refuse values that JSON can't represent and that the encoder would convert to something else."""
    if isinstance(value, (dict, list, tuple)):
        if room == 0:
            raise ValidationError(f"{field} is nested deeper than {MAX_NESTING} levels", field=field)
        if isinstance(value, dict):
            for name in value:
                if not isinstance(name, str):
                    message = f"{field} is not JSON-serializable: it has a name of type {type(name).__name__}"
                    raise ValidationError(message, field=field)
            value = value.values()
        for member in value:
            kind = type(member)
            if kind not in _PLAIN and not (kind is int and member.bit_length() <= _SURE_BITS):
                _walk(member, room - 1, field=field)
    elif isinstance(value, int):
        if value.bit_length() > _SURE_BITS and abs(value) >= 10**MAX_DIGITS:
            raise ValidationError(f"{field} holds an integer of more than {MAX_DIGITS} digits", field=field)
    elif isinstance(value, float):
        if value - value != 0:
            raise ValidationError(f"{field} holds NaN or Infinity, which JSON has no form for", field=field)
    elif type(value) not in _PLAIN and not isinstance(value, str):
        raise ValidationError(
            f"{field} is not JSON-serializable: it holds a {type(value).__name__}", field=field
        )


def shown(given: object) -> str:
    """Return a short form for messages, whatever the length of the input."""
    if isinstance(given, str):
        return ascii(given[:40]) + ("..." if len(given) > 40 else "")
    if given is None or isinstance(given, bool):
        return _WORDS[given]
    if isinstance(given, float) or (isinstance(given, int) and abs(given) <= MAX_VERSION):
        return str(given)
    return kind_of(given)


def kind_of(value: object) -> str:
    """Return the kind of a value in JSON terms, for messages. The value itself may be private."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    return _KINDS.get(type(value), f"a {type(value).__name__}")


_WORDS: Final = {None: "null", True: "true", False: "false"}
_KINDS: Final[dict[type, str]] = {
    str: "text",
    int: "a number",
    float: "a number",
    bytes: "bytes",
    type(None): "null",
}
