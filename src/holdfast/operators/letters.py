"""Dead letters for operators: requests that were given up, to be inspected, retried or dropped.

A letter is removed only when its request has succeeded, or when an operator drops it. A service handles the
letters for its clients, because they are stored with the namespace. People see the values in a letter as they
see those of entries: masked, until they say why.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import rules
from holdfast.clock import moment
from holdfast.commands import Deleted, ReadStats, Results
from holdfast.decide.letters import letter_address
from holdfast.engine import Scan
from holdfast.errors import DatabaseError, HoldfastError, KeyNotFound
from holdfast.letter_commands import LetterContent
from holdfast.masking import MASK
from holdfast.model import Letter, LetterPage
from holdfast.pipeline.caller import Caller, Service
from holdfast.pipeline.pipeline import revealed
from holdfast.rows import LETTER, Row
from holdfast.verbs.keys import Verbs
from holdfast.wire.payload import decode
from holdfast.wire.writes import write_of

VALUES: Final = frozenset({"value", "item", "set", "add", "data"})
"""The fields of a request, and of the writes in it, that hold what would be written."""


class Letters:
    """The dead letters of one namespace. Get them from `Store.letters`."""

    def __init__(self, store: Caller, verbs: Verbs) -> None:
        self._store = store
        self._verbs = verbs

    async def list(self, *, after: int = 0, limit: int | None = None, masked: bool = False) -> LetterPage:
        """List letters in the order in which they were kept.

        A page ends at `limit` or at 512 KB. There are more as long as its `next` is not None. A service
        always masks the values in requests, unless the policy `reveal` of the namespace is `open`; `reveal`
        returns a letter whole.

        Args:
            after: Number of the letter after which to begin, such as the `next` of the page before.
            limit: Largest number of letters, from 1 to 10,000; 1,000 if not given.
            masked: Put `***` in the place of values unless the policy is `open`, as a service does.

        Returns:
            A page of letters.

        Raises:
            ValidationError: An argument breaks its rule.
        """
        after, limit = rules.version(after, field="after"), rules.limit(limit)
        namespace = self._verbs.namespace
        if isinstance(self._store, Service):
            fields = {"namespace": namespace, "after": after, "limit": limit}
            return msgspec.convert(await self._store.operator("deadletters", fields), LetterPage)
        query = Scan(
            namespace=namespace,
            space=LETTER,
            start=letter_address(namespace, min(after + 1, rules.MAX_VERSION)).key,
            limit=limit,
            max_bytes=rules.MAX_TRANSFER_BYTES,
            values=True,
        )
        scanned = await self._store.require_engine().scan(query, self._store.now())
        letters = [letter_of(row) for row in scanned.rows]
        if masked and letters:
            policy = (await self._store.call(ReadStats(namespace=namespace))).policy
            letters = letters if policy.reveal == "open" else [_masked(letter) for letter in letters]
        return LetterPage(letters=letters, next=letters[-1].number if scanned.more else None)

    async def get(self, number: int, *, masked: bool = False) -> Letter | None:
        """Get a letter by its number.

        Args:
            number: The letter's number.
            masked: Put `***` in the place of values unless the policy is `open`; see `list`.

        Returns:
            The letter, or None if there is none.

        Raises:
            ValidationError: The number is not a whole number from 1.
        """
        number = rules.positive(number, field="number")
        page = await self.list(after=number - 1, limit=1, masked=masked)
        return next((letter for letter in page.letters if letter.number == number), None)

    async def reveal(
        self, number: int, why: str | None = None, *, writer: str | None = None, deadline: int | None = None
    ) -> Letter | None:
        """Get a letter for a person; `KV.reveal` explains when they have to say why.

        Args:
            number: The letter's number.
            why: The reason, with 3 letters or digits, to 500 characters. The policy `open` needs none.
            writer: Name of the person; the store's writer if not given.
            deadline: Store's time in milliseconds after which nothing is done; None for no deadline.

        Returns:
            The letter, or None if there is none.

        Raises:
            MissingField: There is no reason, and the policy wants one.
            PermissionDenied: The policy never reveals values.
        """
        command = self._verbs.reveal_letter(number, why=why, writer=writer, deadline=deadline)
        if isinstance(self._store, Service):
            fields = self._about(command.number) | {"why": why, "last_writer": writer}
            reply = await self._store.operator("deadletter_reveal", fields, writes=True)
            return msgspec.convert(reply["letter"], Letter | None)
        row = await revealed(self._store.call, command, f"dead letter {command.number}")
        return None if row is None else letter_of(row)

    async def retry(self, number: int, *, deadline: int | None = None) -> dict[str, Any]:
        """Perform the request of a letter under its own request id, and drop the letter.

        The id makes this safe: a request that was executed after all is not executed a second time.

        Args:
            number: The letter's number.
            deadline: Store's time in milliseconds after which nothing is done; None for no deadline.

        Returns:
            The answer, with the fields of the verb's reply over NATS.

        Raises:
            KeyNotFound: There is no such letter.
            HoldfastError: The request, or one member of it, was refused. The letter stays.
        """
        number = rules.positive(number, field="number")
        if isinstance(self._store, Service):
            reply = await self._store.operator("deadletter_retry", self._about(number), writes=True)
            return dict(reply["reply"])
        letter = await self.get(number)
        if letter is None:
            raise KeyNotFound(f"there is no dead letter {number}", field="number")
        write = write_of(letter.verb, self._verbs, {**letter.request, "deadline": deadline})
        if write is None or write.command is None:
            raise DatabaseError(f"dead letter {number} can't be read", field="number")
        result = await self._store.call(write.command)
        for member in result.items if isinstance(result, Results) else ():
            if isinstance(member, HoldfastError):
                raise member
        await self.drop(number)
        answer: dict[str, Any] = decode(msgspec.json.encode(write.show(result)))
        return answer

    async def drop(self, number: int, *, deadline: int | None = None) -> bool:
        """Remove a letter for good.

        Args:
            number: The letter's number.
            deadline: Store's time in milliseconds after which nothing is done; None for no deadline.

        Returns:
            True if the letter was there.

        Raises:
            ValidationError: The number is not a whole number from 1.
        """
        number = rules.positive(number, field="number")
        if isinstance(self._store, Service):
            reply = await self._store.operator("deadletter_drop", self._about(number), writes=True)
            return bool(reply["dropped"])
        result = await self._store.call(self._verbs.drop_letter(number, deadline=deadline))
        assert isinstance(result, Deleted)
        return result.version is not None

    def _about(self, number: int) -> dict[str, Any]:
        """Return the fields with which a service is asked about a letter."""
        return {"namespace": self._verbs.namespace, "number": number}


def _masked(letter: Letter) -> Letter:
    return msgspec.structs.replace(letter, request=_without_values(letter.request))


def _without_values(part: Any) -> Any:
    """Return a request, or a part of one, with a mask in the place of each value."""
    if isinstance(part, dict):
        return {name: MASK if name in VALUES else _without_values(inner) for name, inner in part.items()}
    if isinstance(part, list):
        return [_without_values(inner) for inner in part]
    return part


def letter_of(row: Row) -> Letter:
    """Read the letter in a row.

    Raises:
        DatabaseError: The letter can't be read: a program has written it without Holdfast.
    """
    try:
        content = msgspec.convert(decode((row.value or "").encode()), LetterContent)
    except (HoldfastError, msgspec.ValidationError):
        raise DatabaseError(f"dead letter {row.version} can't be read", field="number") from None
    return Letter(
        number=row.version,
        at=moment(row.created_at),
        writer=row.last_writer,
        request_id=row.request_id or "",
        **msgspec.structs.asdict(content),
    )
