"""A cache backend of Django.

Values, timeouts and errors are those that Django documents. Entries are not culled: what was put in is there
until its timeout, or for ever if it has none. Reading JSON makes values of the types listed here and runs
nothing that the bytes name. Reading a pickle runs whatever it names, so it happens only with `"serializer":
"pickle"`.
"""

from __future__ import annotations

import binascii
import json
import pickle
import sys
import zlib
from base64 import b64decode, b64encode
from collections import Counter, OrderedDict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from enum import Enum, EnumMeta
from fractions import Fraction
from http.cookies import CookieError, Morsel
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.utils.safestring import SafeString

from holdfast.errors import KeyNotFound, ValidationError, VersionConflict
from holdfast.integrations.django.stores import ByteValues
from holdfast.integrations.entries import whole_seconds
from holdfast.integrations.key_names import KeyNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_JSON: Final = b"json"
"""Begins JSON. No pickle begins like this."""
_COMPRESSED: Final = b"zlib"
"""Begins what is compressed."""
_COMPRESSED_FROM: Final = 4_096
_LARGEST: Final = 268_435_456
"""Bytes of a value before it is compressed."""
_BROKEN: Final = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError),
    *(CookieError, OSError),  # the latter for the name of a folder of time zones
)
"""What is raised when a value is made of bytes that no cache has stored."""
_TYPE: Final = "~"
"""The only name in an object that stands for a value of another type: `{"~": [type, content]}`."""
_ADVICE: Final = (
    'To keep objects of any class, set OPTIONS["serializer"] to "pickle": then whoever may write to the'
    " namespace of the cache can run code in this process"
)


_MOST_ALIKE: Final = 64
"""Members of a set or keys of a dictionary that may have the same hash. Each is compared with all before it,
and whoever chooses numbers chooses their hashes."""
_ROOT: Final = "cache"
_NAMES: Final = KeyNames(_ROOT, parts=1)
_COUNTED_BELOW: Final = 2**63


class CacheSerializer:
    """Turns values into bytes and bytes into values.

    Args:
        serializer: `json`, or `pickle` for objects of any class.
        protocol: The protocol of pickles.

    Raises:
        ImproperlyConfigured: There is no such serializer.
    """

    def __init__(self, serializer: str, protocol: int) -> None:
        if serializer not in ("json", "pickle"):
            raise ImproperlyConfigured(
                f'OPTIONS["serializer"] of HoldfastCache is "json" or "pickle", not {serializer!r}'
            )
        self._pickles = serializer == "pickle"
        self._protocol = protocol

    def dumped(self, value: Any) -> bytes:
        """Return a value as bytes.

        Raises:
            ValidationError: It has a part of a type that could not be read again.
        """
        data = pickle.dumps(value, self._protocol) if self._pickles else _JSON + _text(value).encode()
        if len(data) > _LARGEST:
            raise _refusal(f"a value of {len(data)} bytes is too large for a cache: at most {_LARGEST}")
        return data if len(data) < _COMPRESSED_FROM else _COMPRESSED + zlib.compress(data, 1)

    def loaded(self, data: bytes) -> Any:
        """Return the value in bytes.

        Raises:
            ValidationError: They are a pickle and this cache reads none, or they are not what a cache stores.
        """
        if data.startswith(_COMPRESSED):
            data = _decompressed(data[len(_COMPRESSED) :])
        if data.startswith(_JSON):
            return _parsed(data[len(_JSON) :])
        if not self._pickles:
            raise _refusal(
                f"the stored value is refused: it is a pickle, or nothing that a cache has stored. {_ADVICE}"
            )
        return pickle.loads(data)


def _decompressed(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        whole = stream.decompress(data, _LARGEST)
    except zlib.error as error:
        raise _refusal(f"the stored value is refused: {error}") from None
    if not stream.eof:
        raise _refusal("the stored value is refused: it is cut off, or too large when it is decompressed")
    return whole


def _text(value: Any) -> str:
    try:
        return json.dumps(_plain(value), separators=(",", ":"))
    except (RecursionError, ValueError) as error:
        raise _refusal(f"a cache can't keep this value as JSON: {error}. {_ADVICE}") from None


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text, object_hook=_rebuilt)
    except _BROKEN as error:
        raise _refusal(f"the stored value is refused: it is not what a cache stores ({error})") from None


def _plain(value: Any) -> Any:
    """Return a value made of what JSON has."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_plain(one) for one in value]
    if kind is dict and _TYPE not in value and all(type(key) is str for key in value):
        return {key: _plain(one) for key, one in value.items()}
    if (known := _KINDS.get(kind)) is not None:
        name, content, _ = known
        return {_TYPE: [name, content(value)]}
    if isinstance(value, Enum) and _is_named(value):
        return {_TYPE: ["enum", _enum_name(value)]}
    if isinstance(value, HttpResponse):
        return {_TYPE: ["response", _response_content(value)]}
    raise _refusal(f"a cache can't keep a {kind.__module__}.{kind.__qualname__} as JSON. {_ADVICE}")


def _rebuilt(members: dict[str, Any]) -> Any:
    """Return the value that an object stands for. What is inside has been rebuilt already."""
    if _TYPE not in members:
        return members
    [(name, content)] = members.values()
    if not isinstance(content, list | str):
        raise TypeError(f"a {name} is made of a list or of text")
    return _MAKERS[name](content)


def _items(content: Any) -> list[Any]:
    """Return the items of a list. A range has few bytes and may have more items than fit into memory."""
    if not isinstance(content, list):
        raise TypeError("a list is expected")
    return content


def _spread(members: Any) -> list[Any]:
    """Return what is to be a set, or the keys of a dictionary.

    Raises:
        ValueError: To make it would take too long.
    """
    listed = list(members)
    if len(listed) > _MOST_ALIKE and max(Counter(map(hash, listed)).values()) > _MOST_ALIKE:
        raise ValueError(f"more than {_MOST_ALIKE} members have the same hash")
    return listed


def _made_of_pairs(content: Any) -> dict[Any, Any]:
    pairs = [(key, value) for key, value in _items(content)]
    _spread(key for key, _ in pairs)
    return dict(pairs)


def _pairs(value: dict[Any, Any]) -> list[Any]:
    _spread(value)
    return [[_plain(key), _plain(one)] for key, one in value.items()]


def _members(value: Any) -> list[Any]:
    return _list(_spread(value))


def _list(value: Any) -> list[Any]:
    return [_plain(one) for one in value]


def _deque(content: list[Any]) -> deque[Any]:
    items, most = content
    return deque(_items(items), most)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("an object is expected")
    return value


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _time_content(value: datetime | time) -> list[Any]:
    return [value.replace(tzinfo=None).isoformat(), value.fold, _plain(value.tzinfo)]


def _datetime(content: list[Any]) -> datetime:
    text, fold, zone = content
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold)


def _time(content: list[Any]) -> time:
    text, fold, zone = content
    return time.fromisoformat(text).replace(tzinfo=zone, fold=fold)


def _fraction(text: str) -> Fraction:
    """Return a fraction from what `str` makes of one. Other forms have exponents, and take all memory."""
    above, _, below = str(text).partition("/")
    return Fraction(int(above), int(below or 1))


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(str(text))
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number") from None


def _enum_name(member: Enum) -> list[Any]:
    kind = type(member)
    return [kind.__module__, kind.__qualname__, member.name]


def _is_named(member: Enum) -> bool:
    """Return whether a member is found by its name, which several flags at once and local enums are not."""
    try:
        return _enum_member(_enum_name(member)) is member
    except _BROKEN:
        return False


def _zone_key(zone: ZoneInfo) -> str:
    if zone.key is None:
        raise ValueError("a time zone from a file has no name")
    return zone.key


def _enum_member(content: list[str]) -> Enum:
    """Return a member of an enum that this process knows. No module is imported, and no code of one runs."""
    module, path, name = content
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = None if found is None else vars(found).get(part)
    if not isinstance(found, EnumMeta):
        raise ValueError(f"{module}.{path} is not an enum of a module that is imported here")
    member: Enum = found.__members__[name]
    return member


def _require_status(status: Any, reason: Any) -> None:
    if not (isinstance(status, int) and 100 <= status <= 599):
        raise ValueError("the status of a response is a number from 100 to 599")
    if not (isinstance(reason, str) and reason.isprintable()):
        raise ValueError("the reason of a response is one line")


def _response_content(response: HttpResponse) -> list[Any]:
    _require_status(response.status_code, response.reason_phrase)
    cookies = [
        [morsel.key, morsel.value, morsel.coded_value, {name: _plain(one) for name, one in morsel.items()}]
        for morsel in response.cookies.values()
    ]
    headers = [[name, value] for name, value in response.headers.items()]
    return [response.status_code, response.reason_phrase, headers, cookies, _base64(response.content)]


def _response(content: list[Any]) -> HttpResponse:
    status, reason, headers, cookies, body = content
    _require_status(status, reason)
    made = HttpResponse(_bytes(body), status=status, reason=reason)
    del made.headers["Content-Type"]  # Django adds one, and some responses have none
    for name, value in _made_of_pairs(headers).items():
        made.headers[name] = value
    for key, value, coded, attributes in _items(cookies):
        morsel: Morsel[Any] = Morsel()
        morsel.update(_object(attributes))
        morsel.set(key, value, coded)
        dict.__setitem__(made.cookies, key, morsel)
    return made


_KINDS: Final[dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    dict: ("dict", _pairs, _made_of_pairs),
    tuple: ("tuple", _list, lambda content: tuple(_items(content))),
    set: ("set", _members, lambda content: set(_spread(_items(content)))),
    frozenset: ("frozenset", _members, lambda content: frozenset(_spread(_items(content)))),
    deque: ("deque", lambda value: [_list(value), value.maxlen], _deque),
    OrderedDict: ("OrderedDict", _pairs, lambda content: OrderedDict(_made_of_pairs(content))),
    Counter: ("Counter", _pairs, lambda content: Counter(_made_of_pairs(content))),
    range: ("range", lambda value: [value.start, value.stop, value.step], lambda content: range(*content)),
    complex: ("complex", lambda value: [value.real, value.imag], lambda content: complex(*content)),
    bytes: ("bytes", _base64, _bytes),
    bytearray: ("bytearray", _base64, lambda text: bytearray(_bytes(text))),
    datetime: ("datetime", _time_content, _datetime),
    date: ("date", date.isoformat, date.fromisoformat),
    time: ("time", _time_content, _time),
    timedelta: (
        "timedelta",
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda content: timedelta(*content),
    ),
    timezone: (
        "timezone",
        lambda value: [_plain(value.utcoffset(None)), value.tzname(None)],
        lambda content: UTC if content == [timedelta(0), "UTC"] else timezone(*content),
    ),
    ZoneInfo: ("ZoneInfo", _zone_key, ZoneInfo),
    Decimal: ("Decimal", str, _decimal),
    Fraction: ("Fraction", str, _fraction),
    UUID: ("UUID", str, UUID),
    SafeString: ("SafeString", str, SafeString),
}
_MAKERS: Final[dict[str, Callable[[Any], Any]]] = {
    **{name: make for name, _, make in _KINDS.values()},
    "enum": _enum_member,
    "response": _response,
}


def _refusal(message: str) -> ValidationError:
    return ValidationError(message, field="value")


class HoldfastCache(BaseCache):
    """A cache in a namespace of Holdfast, which all processes with the same settings share.

    Settings: `LOCATION` is the URL of the store. `OPTIONS` may have `plugin`, the namespace (`cache`), and
    `serializer`: `json`, which is the default, or `pickle`, with a `pickle_protocol`. With `pickle` a cache
    keeps objects of any class, and whoever may write to the namespace can run code in your application. The
    other settings are those of all backends.

    Args:
        location: The URL.
        params: The settings of this cache.

    Example:
        `CACHES = {"default": {"BACKEND": "holdfast.integrations.django.HoldfastCache", "LOCATION": "nats://…"}}`
    """

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        options = params.get("OPTIONS", {})
        if not location or not isinstance(location, str):
            raise ImproperlyConfigured("HoldfastCache needs the URL of a store as LOCATION")
        self._bytes = ByteValues(location, options.get("plugin", "cache"), _ROOT)
        self._serializer = CacheSerializer(
            options.get("serializer", "json"), options.get("pickle_protocol", pickle.HIGHEST_PROTOCOL)
        )

    def add(
        self, key: Any, value: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        """Store a value if there is none; of callers that race for a key, one gets True."""
        name, ttl = self._name(key, version), self._ttl(timeout)
        if ttl == 0:
            return not self._bytes.kv.exists(name)
        try:
            self._put(name, value, ttl, expected_version=0)
        except VersionConflict:
            return False
        return True

    def get(self, key: Any, default: Any | None = None, version: int | None = None) -> Any:
        """Return a value, or the default."""
        return self._value(self._bytes.data_of(self._bytes.kv.get(self._name(key, version))), default)

    def set(
        self, key: Any, value: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        """Store a value."""
        name, ttl = self._name(key, version), self._ttl(timeout)
        if ttl == 0:
            self._bytes.remove([name])
        else:
            self._put(name, value, ttl)

    def touch(self, key: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Give a key another timeout; False if there is no such key."""
        name, ttl = self._name(key, version), self._ttl(timeout)
        if ttl == 0:
            return self._bytes.remove([name]) > 0
        return self._bytes.touch(name, ttl)

    def delete(self, key: Any, version: int | None = None) -> bool:
        """Remove a key; False if there is no such key."""
        return self._bytes.remove([self._name(key, version)]) > 0

    def has_key(self, key: Any, version: int | None = None) -> bool:
        """Return whether there is such a key."""
        return self._bytes.kv.exists(self._name(key, version))

    def incr(self, key: Any, delta: float = 1, version: int | None = None) -> int:
        """Add to a number in one step. Its timeout stays as it is.

        Raises:
            ValueError: There is no such key.
        """
        name = self._name(key, version)
        number: int
        if not isinstance(delta, int):  # an entry of a cache holds no fraction as it is
            number = self._added(key, name, delta)
            return number
        try:
            number = self._bytes.kv.incr(name, delta, only_if_exists=True).value
        except KeyNotFound:
            raise ValueError(f"Key {key!r} not found") from None
        except ValidationError:
            number = self._added(key, name, delta)
        return number

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        """Return the values of those keys that are there."""
        names = {self._name(key, version): key for key in keys}
        entries = self._bytes.entries_of(list(names))
        stored = {key: self._bytes.data_of(one) for key, one in zip(names.values(), entries, strict=True)}
        return {key: self._value(data, None) for key, data in stored.items() if data is not None}

    def set_many(
        self, data: dict[Any, Any], timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        """Store values, many at a time. Return the keys that could not be stored, which are none."""
        ttl = self._ttl(timeout)
        if not ttl:  # each takes the place of what has no deadline, or removes it
            return super().set_many(data, timeout, version)
        self._bytes.put_all(
            {self._name(key, version): self._stored(value) for key, value in data.items()}, ttl
        )
        return []

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        """Remove keys."""
        self._bytes.remove([self._name(key, version) for key in keys])

    def clear(self) -> None:
        """Remove everything that caches of this namespace have stored, whatever its version and prefix."""
        self._bytes.clear()

    def _name(self, key: Any, version: int | None) -> str:
        return _NAMES.key(self.make_and_validate_key(key, version=version))

    def _ttl(self, timeout: float | None) -> int | None:
        """Return a timeout in whole seconds; 0 if it has passed already, None if there is none."""
        if timeout == DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        if timeout is None:
            return None
        return whole_seconds(timeout) if timeout > 0 else 0

    def _put(self, name: str, value: Any, ttl: int | None, *, expected_version: int | None = None) -> None:
        stored = self._stored(value)
        if isinstance(stored, int):
            self._bytes.put_number(name, stored, ttl, expected_version=expected_version)
        else:
            self._bytes.put(name, stored, ttl, expected_version=expected_version)

    def _stored(self, value: Any) -> bytes | int:
        """Return what to store: a number as it is, anything else as bytes."""
        # Only an int itself: a member of an enum would come back as a number.
        if type(value) is int and -_COUNTED_BELOW < value < _COUNTED_BELOW:
            return value
        return self._serializer.dumped(value)

    def _added(self, key: Any, name: str, delta: float) -> Any:
        """Add to a value that is no plain number, such as a Decimal, by compare and set."""
        while True:
            entry = self._bytes.kv.get(name)
            data = self._bytes.data_of(entry)
            if entry is None or data is None:
                raise ValueError(f"Key {key!r} not found")
            value = self._value(data, None) + delta
            try:
                self._bytes.swap(entry, self._serializer.dumped(value))
            except VersionConflict:
                continue
            return value

    def _value(self, data: bytes | int | None, default: Any) -> Any:
        """Return the value in what was stored."""
        if data is None:
            return default
        return data if isinstance(data, int) else self._serializer.loaded(data)
