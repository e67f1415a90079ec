"""The limits and legal forms of all input.

Each limit and each rule of the contract about a field is here once, and every edge applies it. A function
takes what a caller gave, of any type. It returns the legal form, or raises an error with the field, the
offending size or name, and the limit. A message stays short whatever the length of the input, and has nothing
that may be private. A value that the encoder would turn into another one is refused. Nothing here depends on
what is stored.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from math import isfinite
from typing import Any, Final

import msgspec

from holdfast import families
from holdfast.clock import milliseconds
from holdfast.errors import InvalidPluginName, ValidationError, ValueTooLarge
from holdfast.model import KEEP, Policy, Semantics
from holdfast.model import NUMBER_DIGITS as _NUMBER_DIGITS
from holdfast.origin import Fence

MAX_KEY_CHARACTERS: Final = 255
MAX_SEMANTIC_KEY_CHARACTERS: Final = 128
MAX_VALUE_BYTES: Final = 65_536
MAX_RAISED_VALUE_BYTES: Final = 524_288
"""Maximum size of a value, and the most to which the policy of a namespace can raise it."""
MAX_COMPARED_VALUE_BYTES: Final = 655_360
"""Maximum size of a value that is compared with a policy. No policy allows a larger one."""
MAX_NESTING: Final = 64
MAX_DIGITS: Final = 4_300
MAX_TTL: Final = 2_147_483_647
MIN_LOCK_TTL: Final = 0.1
"""The shortest time for which a lock can be held without a renewal, in seconds."""
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
MAX_LOG_NAME_CHARACTERS: Final = MAX_KEY_CHARACTERS - _NUMBER_DIGITS - 1
MAX_LOG_NUMBER: Final = 10**_NUMBER_DIGITS - 1
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


_WORDS: Final = {None: "null", True: "true", False: "false"}
_KINDS: Final[dict[type, str]] = {
    str: "text",
    int: "a number",
    float: "a number",
    bytes: "bytes",
    type(None): "null",
}


_PLUGIN: Final = re.compile(r"[a-z0-9_-]{1,100}")
_TENANT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_COMPONENT: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
_SURE_BITS: Final = 14_284  # integers with no more bits have at most 4,300 digits
_PLAIN: Final[frozenset[type]] = frozenset({str, bool, type(None)})
_SHORT: Final[frozenset[type]] = _PLAIN | {int}
"""In a value of less than `_LONG` bytes no integer has too many digits."""
_PLAIN_NAMES: Final[frozenset[type]] = frozenset({str})
_SCALAR: Final = _SHORT | {float}
_JSON: Final = _SCALAR | {list, dict}
_LONG: Final = 4_096
"""Size in bytes from which a value is checked level by level."""
_BEYOND: Final = f"; a policy can raise it to at most {MAX_RAISED_VALUE_BYTES} bytes"
_LEAST_OF_A_REASON: Final = 3
"""Number of letters and digits that the reason for looking at a value has at least."""
_PURPOSE: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SWITCHES: Final = frozenset({"ttl_required", "trash", "audit"})
_REVEALS: Final = ("open", "audited", "never")
_QUOTAS: Final = frozenset({"quota_keys", "quota_bytes"})
_SEMANTICS_FIELDS: Final = frozenset(Semantics.__struct_fields__)


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
        case [families.PLAIN | families.TABLES | families.BLOBS as family, plugin]:
            return f"{family}/{plugin_name(plugin)}"
        case [families.SEMANTIC, tenant, project]:
            tenant_part(tenant, field="tenant")
            return families.semantic(tenant, tenant_part(project, field="project"))
        case _:
            raise ValidationError(
                f"namespace {shown(name)} must be kv/<plugin>, table/<plugin>, blob/<plugin> "
                "or semantic/<tenant>/<project>",
                field="namespace",
            )


def semantic_root(namespace: str) -> str | None:
    """Return the prefix of full keys in a namespace; None outside the semantic family."""
    match namespace.split("/"):
        case [families.SEMANTIC, tenant, project]:
            return f"tenant/{tenant}/project/{project}/"
        case _:
            return None


def key(text: object) -> str:
    """Return a key: text of 1 to 255 characters without U+0000."""
    if type(text) is str and 0 < len(text) <= MAX_KEY_CHARACTERS and text.isascii() and "\x00" not in text:
        return text  # the common case
    if text == "":
        raise ValidationError("key must not be empty", field="key")
    return legal_text(text, field="key", most=MAX_KEY_CHARACTERS)


def item_key(name: str, number: int) -> str:
    """Return the key of an item of a log."""
    return f"{name}/{number:0{_NUMBER_DIGITS}}"


def prefix(text: object) -> str:
    """Return a prefix of keys; the empty one matches all."""
    return legal_text(text, field="prefix", most=MAX_KEY_CHARACTERS)


def semantic_key(text: object, root: str) -> str:
    """Return a key of a tenant's project in full. `root` is `tenant/<t>/project/<p>/`."""
    full = _under(legal_text(text, field="key", most=MAX_SEMANTIC_KEY_CHARACTERS), root, field="key")
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
    path = prefix(text)
    return (
        root if root.startswith(path) and path.startswith("tenant/") else _under(path, root, field="prefix")
    )


def _under(text: str, root: str, *, field: str) -> str:
    if not text.startswith("tenant/"):
        return root + text
    if not text.startswith(root):
        raise ValidationError(f"{field} does not belong here: full keys begin with {root!r}", field=field)
    return text


def legal_text(text: object, *, field: str, most: int) -> str:
    """Return text that every engine can store."""
    if not isinstance(text, str):
        raise ValidationError(f"{field} must be text, not {shown(text)}", field=field)
    if len(text) > most:
        raise ValidationError(f"{field} has {len(text)} characters; at most {most} are allowed", field=field)
    if "\x00" in text:
        raise ValidationError(f"{field} must not contain U+0000", field=field)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValidationError(f"{field} holds a lone surrogate, which is not valid UTF-8", field=field)
    return text


def encode_value(value: Any, *, most: int = MAX_RAISED_VALUE_BYTES, field: str = "value") -> tuple[str, int]:
    """Return the compact form of a JSON value and its size in bytes, which is limited.

    By default that is the limit to which a policy can raise that of a namespace. A value that is a little
    larger is returned unchecked: `decide` knows the policy, and refuses the value with the limit in force.
    """
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        require_json(value, MAX_NESTING, field=field)
        raise ValidationError(f"{field} holds text with a lone surrogate", field=field) from None
    except (TypeError, ValueError, OverflowError, RecursionError):
        require_json(value, MAX_NESTING, field=field)
        raise ValidationError(f"{field} is not JSON-serializable", field=field) from None
    size = len(encoded)
    if size > most:
        if most != MAX_RAISED_VALUE_BYTES:
            raise too_large(size, most, field=field)
        if size > MAX_COMPARED_VALUE_BYTES:
            raise too_large(size, MAX_VALUE_BYTES, field=field, hint=_BEYOND)
        return encoded.decode(), size
    if size < _LONG:  # only now: the value might have been far too large
        if type(value) not in _SHORT:
            require_json(value, MAX_NESTING, _SHORT, field=field)
    elif not _is_plain(value):
        require_json(value, MAX_NESTING, field=field)
    return encoded.decode(), size


def too_large(size: int, most: int, *, field: str = "value", hint: str = "") -> ValueTooLarge:
    """Return the refusal of a value that is larger than allowed."""
    return ValueTooLarge(
        f"{field.capitalize()} size ({size} bytes) exceeds {most // 1024}KB limit ({most} bytes){hint}",
        field=field,
    )


def _is_plain(value: Any) -> bool:
    """Return whether a large value is legal JSON, checking level by level. If not, `require_json` says why.

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


def require_json(value: Any, room: int, plain: frozenset[type] = _PLAIN, *, field: str = "value") -> None:
    """Refuse values that JSON can't represent and that the encoder would convert to something else.

    Members of the `plain` types are legal whatever they hold.
    """
    if isinstance(value, (dict, list, tuple)):
        if room == 0:
            raise ValidationError(f"{field} is nested deeper than {MAX_NESTING} levels", field=field)
        if isinstance(value, dict):
            if not _PLAIN_NAMES.issuperset(map(type, value)):
                _require_names(value, field)
            value = value.values()
        if plain.issuperset(map(type, value)):
            return
        for member in value:
            if type(member) not in plain:
                require_json(member, room - 1, plain, field=field)
    elif isinstance(value, int):
        if value.bit_length() > _SURE_BITS and abs(value) >= 10**MAX_DIGITS:
            raise ValidationError(f"{field} holds an integer with more than {MAX_DIGITS} digits", field=field)
    elif isinstance(value, float):
        if value - value != 0:
            raise ValidationError(f"{field} holds NaN or Infinity, which JSON can't represent", field=field)
    elif type(value) not in _PLAIN and not isinstance(value, str):
        raise ValidationError(
            f"{field} is not JSON-serializable: it holds a value of type {type(value).__name__}", field=field
        )


def _require_names(value: dict[Any, Any], field: str) -> None:
    for name in value:
        if not isinstance(name, str):
            raise ValidationError(
                f"{field} is not JSON-serializable: it has a name of type {type(name).__name__}", field=field
            )


def ttl(seconds: object) -> int | None:
    """Return a TTL in whole seconds; None means no expiry."""
    return None if seconds is None else required_ttl(seconds)


def required_ttl(seconds: object, *, field: str = "ttl") -> int:
    """Return a TTL where one is required."""
    if type(seconds) is not int or not 1 <= seconds <= MAX_TTL:
        raise ValidationError(
            f"{field} must be a whole number of seconds from 1 to {MAX_TTL}, not {shown(seconds)}",
            field=field,
        )
    return seconds


def lock_ttl(seconds: object) -> int | float:
    """Return the TTL of a lock, which may be a fraction of a second."""
    if not (type(seconds) is int or type(seconds) is float) or not MIN_LOCK_TTL <= seconds <= MAX_TTL:
        raise ValidationError(
            f"ttl of a lock must be a number of seconds from {MIN_LOCK_TTL} to {MAX_TTL}, "
            f"not {shown(seconds)}",
            field="ttl",
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
    lifetime = seconds if ttl_given is None else ttl_given
    if keep is not None and not isinstance(keep, bool):
        raise ValidationError("keep_ttl must be true or false", field="keep_ttl")
    if not keep:
        return lifetime
    if lifetime is not None and lifetime is not KEEP:
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
    return whole(number, field=field)


def whole(number: object, *, field: str) -> int:
    """Return a whole number from 0."""
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
    if len(said) < _LEAST_OF_A_REASON or len(set(said)) == 1:
        raise ValidationError(
            f"why must say something: at least {_LEAST_OF_A_REASON} letters or digits that are not all the "
            "same, such as OPS-12 or the complaint of a player",
            field="why",
        )


def fence(given: object) -> Fence | None:
    """Return the lock and token that a write relies on."""
    if given is None or isinstance(given, Fence):
        return given
    if not isinstance(given, dict) or set(given) - {"live"} != {"lock", "token"}:
        raise ValidationError("fence must have the fields lock and token, and may have live", field="fence")
    live = boolean(given.get("live", False), field="fence.live")
    return Fence(
        lock=lock_name(given["lock"], field="fence.lock"),
        token=version(given["token"], field="fence.token"),
        live=live or msgspec.UNSET,
    )


def lock_name(text: object, *, field: str) -> str:
    """Return the name of a lock."""
    return identity(text, field=field)


def lock_key(name: str, root: str) -> str:
    """Return the full key of a lock's entry, which is there while the lock is held."""
    return f"{root}lock/{name}"


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
        parsed = datetime.fromisoformat(given) if isinstance(given, str) else given
        if isinstance(parsed, datetime):
            # The zone may move it out of the range of years.
            return milliseconds(parsed if parsed.tzinfo is None else parsed.astimezone(UTC))
    except (ValueError, OverflowError):
        pass
    raise ValidationError(
        f"{field} must be a time such as 2031-05-01T12:30:00Z, not {shown(given)}", field=field
    )


def policy(given: Policy | dict[str, Any]) -> Policy:
    """Return the policy that an operator sets for a namespace."""
    fields = msgspec.structs.asdict(given) if isinstance(given, Policy) else given
    for name, value in fields.items():
        if name not in Policy.__struct_fields__:
            spelled = ascii(str(name)[:40])[1:-1]  # it is sent back to the caller, who may have sent anything
            raise ValidationError(f"a policy has no field {shown(name)}", field=f"policy.{spelled}")
        if value is not None:
            _policy_field(name, value)
    checked = Policy(**fields)
    _policy_lifetimes(checked)
    return checked


def _policy_field(name: str, value: object) -> None:
    if name in _SWITCHES:
        if type(value) is not bool:
            raise ValidationError(f"{name} must be true or false, not {shown(value)}", field=name)
    elif name == "reveal":
        if value not in _REVEALS:
            raise ValidationError(f"{name} must be open, audited or never, not {shown(value)}", field=name)
    elif name in _QUOTAS:
        if type(value) is not int or not 0 <= value <= MAX_VERSION:
            raise ValidationError(f"{name} must be a whole number from 0, not {shown(value)}", field=name)
    elif name == "max_value_bytes":
        if type(value) is not int or not MAX_VALUE_BYTES <= value <= MAX_RAISED_VALUE_BYTES:
            raise ValidationError(
                f"{name} must be a whole number from {MAX_VALUE_BYTES} to {MAX_RAISED_VALUE_BYTES}, "
                f"not {shown(value)}",
                field=name,
            )
    elif type(value) is not int or not 1 <= value <= MAX_TTL:
        raise ValidationError(
            f"{name} must be a whole number from 1 to {MAX_TTL}, not {shown(value)}", field=name
        )


def _policy_lifetimes(fields: Policy) -> None:
    """Refuse TTL bounds that no entry could meet."""
    bounds = [bound for bound in (fields.ttl_min, fields.ttl_default, fields.ttl_max) if bound is not None]
    if bounds != sorted(bounds):
        raise ValidationError(
            "ttl_default must be at least ttl_min and at most ttl_max, and ttl_min at most ttl_max",
            field="ttl_default" if fields.ttl_default is not None else "ttl_min",
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
