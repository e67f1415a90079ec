"""How checkpoints become bytes and come back: as LangGraph does it, but without running what the bytes name.

Law: stored bytes name classes, and whoever may write to the namespace chooses the bytes. So every class that
they name is checked before any object is made, and bytes that name one that is not allowed are refused. What
could not be read again is refused when it is written.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ValidationError
from holdfast.extras import imported

with imported("langgraph", "holdfast.integrations.langgraph"):
    import ormsgpack
    from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
    from langgraph.checkpoint.serde.jsonplus import (
        EXT_CONSTRUCTOR_KW_ARGS,
        EXT_CONSTRUCTOR_POS_ARGS,
        EXT_CONSTRUCTOR_SINGLE_ARG,
        EXT_DELTA_SNAPSHOT,
        EXT_METHOD_SINGLE_ARG,
        EXT_NUMPY_ARRAY,
        EXT_PYDANTIC_V1,
        EXT_PYDANTIC_V2,
        JsonPlusSerializer,
    )

if TYPE_CHECKING:
    from collections.abc import Iterable

_OF_A_CLASS: Final = {
    EXT_CONSTRUCTOR_SINGLE_ARG,
    EXT_CONSTRUCTOR_POS_ARGS,
    EXT_CONSTRUCTOR_KW_ARGS,
    EXT_PYDANTIC_V1,
    EXT_PYDANTIC_V2,
}
_OF_NO_CLASS: Final = {EXT_NUMPY_ARRAY, EXT_DELTA_SNAPSHOT}
_PLAIN: Final = {"null", "bytes", "bytearray"}
_STORED: Final = "The stored checkpoint is refused"


class CheckpointSerializer(JsonPlusSerializer):
    """LangGraph's serializer, for the types that LangGraph calls safe and for those that you name.

    The safe ones are numbers, texts, bytes, times and collections, the messages and documents of LangChain,
    and LangGraph's own types. A state that holds objects of other classes is refused when it is stored.
    Stored bytes that name other classes, or that are a pickle, are refused when they are read, and nothing in
    them is run.

    Args:
        types: Classes of yours that a state may hold: dataclasses, pydantic models, enums, named tuples.
            Their constructors run with what is stored, so name only those that may get any arguments.

    Example:
        `HoldfastSaver(store, serde=CheckpointSerializer([Order, Customer]))`
    """

    def __init__(self, types: Iterable[type] = ()) -> None:
        super().__init__(allowed_msgpack_modules=list(types))

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the form of an object and its bytes.

        Raises:
            ValidationError: It holds an object of a class that could not be read again.
        """
        form, data = super().dumps_typed(obj)
        if form == "msgpack":
            self._check(data, "This state can't be stored")
        return form, data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the object of a form and its bytes.

        Raises:
            ValidationError: The bytes name a class that is not allowed, or are not what the form says.
        """
        form, stored = data
        if form == "json":
            return _parsed(stored)
        if form == "msgpack":
            self._check(stored, _STORED)
        elif form not in _PLAIN:
            raise _refusal(
                f"{_STORED}: it has the form {form!r}, and CheckpointSerializer reads msgpack alone. If"
                " another serializer has written it, pass that one to HoldfastSaver as serde"
            )
        return super().loads_typed(data)

    def _check(self, data: bytes, refusal: str) -> None:
        """Look at every class that some bytes name, without making an object of it."""
        refused: list[str] = []

        def look(code: int, inner: bytes) -> None:
            # What a hook raises does not leave the decoder, so refusals are collected.
            named = ormsgpack.unpackb(inner, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
            if code in _OF_NO_CLASS:
                return
            if not isinstance(named, list) or len(named) not in (3, 4):
                refused.append("it has an extension of an unknown form")
            elif code == EXT_METHOD_SINGLE_ARG:
                if (method := _texts(named[0], named[1], named[-1])) not in SAFE_MSGPACK_METHODS:
                    refused.append(f"it calls {'.'.join(method)}, which can't be allowed")
            elif code not in _OF_A_CLASS:
                refused.append(f"it has an extension of the unknown kind {code}")
            elif (path := _texts(*named[:2])) not in SAFE_MSGPACK_TYPES | (self._named or set()):
                refused.append(
                    f"it holds a {'.'.join(path)}. If that is a class of yours, import it and pass"
                    f" serde=CheckpointSerializer([{path[-1]}]) to HoldfastSaver"
                )

        try:
            ormsgpack.unpackb(data, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
        except ValueError as error:
            refused.append(f"it is no msgpack that LangGraph writes ({error})")
        if refused:
            raise _refusal(f"{refusal}: {refused[0]}")

    @property
    def _named(self) -> set[tuple[str, ...]] | None:
        """The classes that the program has named, and those that LangGraph has found in its graph."""
        named = self._allowed_msgpack_modules
        return None if named is True else named


def _texts(*parts: Any) -> tuple[str, ...]:
    return tuple(one if isinstance(one, str) else repr(one)[:100] for one in parts)


def _parsed(stored: bytes) -> Any:
    """Return what JSON holds. Versions of LangGraph before 3 wrote states as JSON that names constructors."""

    def look(value: dict[str, Any]) -> dict[str, Any]:
        if "lc" in value and "type" in value:
            named = value.get("id")
            path = ".".join(map(str, named)) if isinstance(named, list) else "nothing"
            raise _refusal(
                f"{_STORED}: it is JSON that names the constructor {path[:200]}. If an old version of"
                " LangGraph has written it, pass its serializer to HoldfastSaver:"
                " serde=JsonPlusSerializer(allowed_json_modules=[…])"
            )
        return value

    try:
        return json.loads(stored, object_hook=look)
    except (ValueError, RecursionError) as error:
        raise _refusal(f"{_STORED}: it is no JSON that can be read ({error})") from None


def _refusal(message: str) -> ValidationError:
    return ValidationError(message, field="value")
