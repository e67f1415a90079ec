"""Dead letters for operators: what was given up, to be looked at, done again or dropped.

Law: a letter goes only when its request has been done, or when somebody says so. A service deals with the
letters for its clients, since they lie where the namespace is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import rules
from holdfast.commands import Deleted, Results
from holdfast.decide.letters import letter_address
from holdfast.engine import LetterBox, Scan
from holdfast.errors import DatabaseError, HoldfastError, KeyNotFound
from holdfast.model import Letter, LetterPage
from holdfast.rows import LETTER
from holdfast.wire.letters import letter_of
from holdfast.wire.payload import decode
from holdfast.wire.writes import write_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.commands import Command, Result
    from holdfast.engine import Engine
    from holdfast.verbs import Verbs


class Letters:
    """The dead letters of one namespace. Get them from `Store.letters`."""

    def __init__(
        self,
        engine: Engine,
        verbs: Verbs,
        *,
        now: Callable[[], int],
        execute: Callable[[Command], Awaitable[Result]],
    ) -> None:
        self._engine = engine
        self._verbs = verbs
        self._now = now
        self._execute = execute

    async def list(self, *, after: int = 0, limit: int | None = None) -> LetterPage:
        """Letters in the order in which they were kept, those after a number.

        A page ends at `limit` or at 512 KB; there are more as long as its `next` is not None.
        """
        after, limit = rules.version(after, field="after"), rules.limit(limit)
        namespace = self._verbs.namespace
        if isinstance(self._engine, LetterBox):
            return await self._engine.letters(namespace, after=after, limit=limit)
        query = Scan(
            namespace=namespace,
            space=LETTER,
            start=letter_address(namespace, min(after + 1, rules.MAX_VERSION)).key,
            limit=limit,
            max_bytes=rules.MAX_TRANSFER_BYTES,
            values=True,
        )
        found = await self._engine.scan(query, self._now())
        letters = [letter_of(row) for row in found.rows]
        return LetterPage(letters=letters, next=letters[-1].number if found.more else None)

    async def get(self, number: int) -> Letter | None:
        """A letter by its number; None if there is no such letter."""
        number = rules.positive(number, field="number")
        page = await self.list(after=number - 1, limit=1)
        return next((letter for letter in page.letters if letter.number == number), None)

    async def retry(self, number: int, *, deadline: int | None = None) -> dict[str, Any]:
        """Do what a letter asks for, under its own request id, and drop the letter; what the call answered.

        The id makes it safe: if the request had been done after all, it is not done a second time. The answer
        has the fields of its verb's reply over NATS. After `deadline`, by the store's time, nothing is done.

        Raises:
            KeyNotFound: There is no such letter.
            HoldfastError: The request was refused, or one member of it was; the letter stays.
        """
        number = rules.positive(number, field="number")
        if isinstance(self._engine, LetterBox):
            return await self._engine.retry_letter(self._verbs.namespace, number)
        letter = await self.get(number)
        if letter is None:
            raise KeyNotFound(f"there is no dead letter {number}", field="number")
        write = write_of(letter.verb, self._verbs, {**letter.request, "deadline": deadline})
        if write is None or write.command is None:
            raise DatabaseError(f"dead letter {number} can't be read", field="number")
        result = await self._execute(write.command)
        for member in result.items if isinstance(result, Results) else ():
            if isinstance(member, HoldfastError):
                raise member
        await self.drop(number)
        reply: dict[str, Any] = decode(msgspec.json.encode(write.show(result)))
        return reply

    async def drop(self, number: int, *, deadline: int | None = None) -> bool:
        """Remove a letter for good, unless `deadline` has passed; whether it was there."""
        number = rules.positive(number, field="number")
        if isinstance(self._engine, LetterBox):
            return await self._engine.drop_letter(self._verbs.namespace, number)
        result = await self._execute(self._verbs.drop_letter(number, deadline=deadline))
        assert isinstance(result, Deleted)
        return result.version is not None
