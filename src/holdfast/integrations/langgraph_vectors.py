"""Vectors of the items in a store of LangGraph: what is embedded, how it is kept, and how alike texts are.

The vectors of an item are kept with its value, in one entry or in one blob, beside a digest of the value that
they were computed from. So they are written, replaced, moved and removed with it, and vectors of a value that
another program has changed are not looked at.
"""

from __future__ import annotations

import asyncio
import json
import math
import operator
from array import array
from base64 import b64decode, b64encode
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from holdfast import rules, seams
from holdfast.errors import ValidationError
from holdfast.extras import imported
from holdfast.integrations.overflow_values import LARGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from langgraph.store.base import IndexConfig

with imported("langgraph", "holdfast.integrations.langgraph"):
    from langgraph.store.base import ensure_embeddings, get_text_at_path

Fields: TypeAlias = Literal[False] | list[str] | None
"""The `index` of a put: the paths to embed, False for none, None for those of the store."""
_SETTINGS: Final = ("dims", "embed", "fields")
_WHOLE: Final = ["$"]
_NUMBER: Final = "f"
_NUMBER_BYTES: Final = array(_NUMBER).itemsize


class VectorIndex:
    """The `index` of a store: how many dimensions vectors have, what makes them, and of which fields.

    Args:
        config: `dims`, `embed` and `fields`, as LangGraph documents them.

    Raises:
        ValidationError: It has something else, or no dimensions.
        ValueError: It has no embedding function.
    """

    def __init__(self, config: IndexConfig) -> None:
        unknown = sorted(config.keys() - set(_SETTINGS))
        if unknown:
            raise ValidationError(
                f"index has no {unknown[0]!r} here; it has {', '.join(_SETTINGS)}, and vectors are compared"
                " by the cosine of their angle",
                field="index",
            )
        dims = config.get("dims")
        if type(dims) is not int or dims < 1:
            raise ValidationError(f"index needs dims, a whole number from 1, not {dims!r}", field="index")
        self.dims = dims
        self.embeddings = ensure_embeddings(config.get("embed"))
        self._fields = _checked(config.get("fields") or _WHOLE)

    def texts(self, value: Mapping[str, Any], fields: Fields) -> list[str]:
        """Return the texts of a value that are embedded.

        Raises:
            ValidationError: The value is no JSON object.
        """
        if fields is False:
            return []
        rules.encode_value(value, most=LARGEST)
        paths = self._fields if fields is None else _checked(fields)
        return [text for path in paths for text in get_text_at_path(dict(value), path)]

    async def documents(
        self, texts: Iterable[str], loop: asyncio.AbstractEventLoop | None
    ) -> dict[str, array[float]]:
        """Return the vectors of texts that are stored, each embedded once.

        Args:
            texts: The texts.
            loop: The loop of a caller with `await`, on which `embed` is called, since its connections belong
                to it; None for a caller without, for whom it is called in a thread.

        Raises:
            ValidationError: The embedding function has returned something else.
        """
        asked = list(dict.fromkeys(texts))
        plain, awaited = self.embeddings.embed_documents, self.embeddings.aembed_documents
        made = list(await _called(plain, awaited, asked, loop)) if asked else []
        if len(made) != len(asked):
            raise _wrong(f"{len(made)} vectors for {len(asked)} texts")
        return {text: self._unit(vector) for text, vector in zip(asked, made, strict=True)}

    async def query(self, text: str, loop: asyncio.AbstractEventLoop | None) -> array[float]:
        """Return the vector of a text that is searched for, as `documents` does."""
        plain, awaited = self.embeddings.embed_query, self.embeddings.aembed_query
        return self._unit(await _called(plain, awaited, text, loop))

    def kept(self, value: Mapping[str, Any], vectors: Sequence[array[float]]) -> dict[str, Any]:
        """Return what to keep beside a value of its vectors."""
        packed = b"".join(vector.tobytes() for vector in vectors)
        same = json.loads(rules.encode_value(value, most=LARGEST)[0])
        return {"of": _digest(same), "dims": self.dims, "rows": b64encode(packed).decode()}

    def score(self, query: array[float], value: Any, kept: Any) -> float | None:
        """Return the greatest cosine between a query and the vectors of a value, from -1 to 1.

        It is None if the value has no vectors, or those of another value, or of other dimensions.
        """
        try:
            if kept["of"] != _digest(value) or kept["dims"] != self.dims:
                return None
            numbers = array(_NUMBER)
            numbers.frombytes(b64decode(kept["rows"], validate=True))
        except (KeyError, TypeError, ValueError):
            return None  # another program has written it
        rows = (numbers[start : start + self.dims] for start in range(0, len(numbers), self.dims))
        scores = [sum(map(operator.mul, query, row)) for row in rows]
        return max((one for one in scores if math.isfinite(one)), default=None)

    def _unit(self, vector: Any) -> array[float]:
        """Return a vector of length 1, or of zeros."""
        try:
            numbers = [float(number) for number in vector]
        except (TypeError, ValueError):
            raise _wrong(f"a {type(vector).__name__} that is no vector of numbers") from None
        if len(numbers) != self.dims:
            raise _wrong(f"a vector of {len(numbers)} numbers, and dims is {self.dims}")
        if not all(map(math.isfinite, numbers)):
            raise _wrong("a vector with a number that is not finite")
        length = math.hypot(*numbers) or 1.0
        return array(_NUMBER, [number / length for number in numbers])


async def _called(
    plain: Callable[[Any], Any],
    awaited: Callable[[Any], Coroutine[Any, Any, Any]],
    asked: Any,
    loop: asyncio.AbstractEventLoop | None,
) -> Any:
    """Call an embedding function where the program has called the store."""
    if loop is None:
        return await seams.aside(plain, asked)
    if loop is asyncio.get_running_loop():
        return await awaited(asked)
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(awaited(asked), loop))


def _checked(fields: Any) -> list[str]:
    if not isinstance(fields, list | tuple) or not all(isinstance(path, str) for path in fields):
        raise ValidationError(f"fields to embed are a list of paths, not {fields!r}", field="index")
    return list(fields)


def _digest(value: Any) -> str:
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def _wrong(returned: str) -> ValidationError:
    return ValidationError(f"the embedding function has returned {returned}", field="index")
