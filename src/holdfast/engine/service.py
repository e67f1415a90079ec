"""The abilities of an engine whose other side is a service.

These methods pass a whole call on, because the service answers it better than its rows would: with its
keys, its clock and its filters. An engine has all of them or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.audit.results import AuditPage
    from holdfast.commands import Command
    from holdfast.engine.queries import Filter, Scan, Selected
    from holdfast.model import Letter, LetterPage, Page, Rescued, SlowPage, TrashPage
    from holdfast.origin import Origin


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """A page of keys to remove: those with a prefix, after a cursor. `dry_run` only lists them."""

    namespace: str
    prefix: str
    limit: int
    cursor: str | None
    dry_run: bool


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query of an audit: records after number `after` that match all the other fields.

    With `reverse` the newest come first, and `after` excludes records from that number on; 0 excludes none.
    """

    after: int = 0
    reverse: bool = False
    limit: int
    prefix: str = ""
    writer: str | None = None
    op: str | None = None
    purpose: str | None = None
    request_id: str | None = None
    since: int | None = None
    until: int | None = None


class AuditPart(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying a part of an audit: the last valid record, and what is wrong after it.

    `floor` is the number of the newest record that was pruned. `complete` means that nothing is left to
    verify.
    """

    number: int
    signature: str
    floor: int
    complete: bool
    broken_at: int | None = None
    reason: str | None = None


@runtime_checkable
class ServiceEngine(Protocol):
    """What an engine implements beside `Engine` if its other side is a service.

    Verbs of operators are refused by a service that does not permit them to its caller.
    """

    async def select(self, query: Scan, wanted: Filter | None) -> Selected:
        """Return the entries of a page that pass a filter, or all of them without one."""
        ...

    async def delete_prefix(self, asked: Removal, origin: Origin, now: Callable[[], int]) -> Page:
        """Remove a page of keys."""
        ...

    async def table(self, command: Command, now: Callable[[], int]) -> Any:
        """Return the result of a command on tables."""
        ...

    async def trash(self, query: Scan) -> TrashPage:
        """Return the entries in a range of the trash, with their values if the query asks for them."""
        ...

    async def slowlog(self, *, before: int | None, limit: int, instance: str | None) -> SlowPage:
        """Return a page of them, the newest first: before a number, and of one instance if given."""
        ...

    async def letters(self, namespace: str, *, after: int, limit: int) -> LetterPage:
        """Return the dead letters of a namespace after a number."""
        ...

    async def reveal_letter(
        self, namespace: str, number: int, *, why: str | None, writer: str | None
    ) -> Letter | None:
        """Return a dead letter to a person, who says why."""
        ...

    async def retry_letter(self, namespace: str, number: int) -> dict[str, Any]:
        """Execute the request of a dead letter and drop it. Returns the fields of the reply."""
        ...

    async def drop_letter(self, namespace: str, number: int) -> bool:
        """Remove a dead letter. Returns whether it was there."""
        ...

    async def rescue(self, path: str) -> Rescued:
        """Have the service copy its store into a new file of its own machine; see `LocalFile.rescue`."""
        ...

    async def require_able(self, place: str) -> None:
        """Raise `Unsupported` if the service lacks what it takes to open the store at another place."""
        ...

    async def audit_log(self, namespace: str, query: AuditQuery) -> AuditPage:
        """Return records of an audit."""
        ...

    async def audits(self) -> list[str]:
        """Return the namespaces that have an audit or should have one, by name."""
        ...

    async def audit_verify(self, namespace: str, *, after: int, anchor: str) -> AuditPart:
        """Verify one part of the audit, starting after the record whose signature is `anchor`."""
        ...

    async def create_token(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Make a token. Returns the token and what it allows."""
        ...

    async def tokens(self) -> list[dict[str, Any]]:
        """Return the tokens that are valid."""
        ...

    async def revoke_token(self, name: str) -> bool:
        """Revoke a token by its id. Returns whether it was there."""
        ...

    async def sweep(self) -> int:
        """Remove expired entries. Returns the number removed."""
        ...

    async def upkeep(self) -> None:
        """Drop everything that is past its retention."""
        ...

    async def recount(self, namespace: str) -> int:
        """Recount the contents of a namespace. Returns the number of wrong counters."""
        ...


def service_of(engine: object) -> ServiceEngine | None:
    """Return an engine as one whose other side is a service; None if it keeps its rows itself."""
    return engine if isinstance(engine, ServiceEngine) else None
