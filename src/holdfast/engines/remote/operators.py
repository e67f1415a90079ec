"""The verbs of operators, asked of a service.

Law: as in `engine`: this module translates. The service decides whether its caller may use these verbs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.audit.results import AuditPage
from holdfast.clock import moment
from holdfast.engine import AuditPart
from holdfast.engines.remote.exchange import Exchange
from holdfast.errors import Unavailable
from holdfast.model import Letter, LetterPage, Rescued, SlowPage, TrashPage
from holdfast.verbs.cursors import cursor_after

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.engine import AuditQuery, Scan

_SOUGHT: Final = 64
"""The number of attempts to get an answer from one particular instance of a service."""


class RemoteOperators(Exchange):
    """The part of the remote engine that is for operators. See `ServiceEngine`."""

    async def sweep(self) -> int:
        """See `ServiceEngine.sweep`: for operators."""
        removed: int = (await self._ask_operator("sweep", {}))["removed"]
        return removed

    async def upkeep(self) -> None:
        """See `ServiceEngine.upkeep`: for operators."""
        await self._ask_operator("upkeep", {})

    async def recount(self, namespace: str) -> int:
        """See `ServiceEngine.recount`: for operators."""
        late = self._unknown("recount")
        return int((await self._ask_operator("recount", {"namespace": namespace}, late))["corrected"])

    async def rescue(self, path: str) -> Rescued:
        """See `ServiceEngine.rescue`: for operators. The path is on the service's machine."""
        part = await self._ask_operator("rescue", {"path": path}, self._unknown("rescue"))
        while not part["complete"]:
            part = await self._ask_operator("rescue", {"number": part["number"]}, self._unknown("rescue"))
        return msgspec.convert(part["rescued"], Rescued)

    async def require_able(self, place: str) -> None:
        """See `ServiceEngine.require_able`: for operators."""
        await self._ask_operator("ready", {"place": place})

    async def audit_log(self, namespace: str, query: AuditQuery) -> AuditPage:
        """See `ServiceEngine.audit_log`: for operators."""
        fields = {
            "namespace": namespace,
            "after": query.after,
            "limit": query.limit,
            "reverse": query.reverse or None,
            "prefix": query.prefix,
            "last_writer": query.writer,
            "op": query.op,
            "purpose": query.purpose,
            "request_id": query.request_id,
            "since": None if query.since is None else moment(query.since),
            "until": None if query.until is None else moment(query.until),
        }
        return msgspec.convert(await self._ask_operator("audit", fields), AuditPage)

    async def audits(self) -> list[str]:
        """See `ServiceEngine.audits`: for operators."""
        found: list[str] = (await self._ask_operator("audits", {}))["namespaces"]
        return found

    async def audit_verify(self, namespace: str, *, after: int, anchor: str) -> AuditPart:
        """See `ServiceEngine.audit_verify`: for operators."""
        fields = {"namespace": namespace, "after": after, "anchor": anchor}
        return msgspec.convert(await self._ask_operator("audit_verify", fields), AuditPart)

    async def trash(self, query: Scan) -> TrashPage:
        """See `ServiceEngine.trash`: for operators."""
        assert isinstance(query.start, bytes)
        fields = {"namespace": query.namespace, "prefix": query.start.decode(), "limit": query.limit}
        if isinstance(query.after, bytes):
            fields["cursor"] = cursor_after(query.after.decode())
        reply = await self._ask_operator("trash", fields | {"values": query.values})
        return msgspec.convert(reply, TrashPage)

    async def slowlog(self, *, before: int | None, limit: int, instance: str | None) -> SlowPage:
        """See `ServiceEngine.slowlog`: for operators.

        The server chooses which instance answers, so the request is repeated until the wanted one does.
        """
        fields = {"before": before, "limit": limit, "instance": instance}
        for _ in range(_SOUGHT):
            page = msgspec.convert(await self._ask_operator("slowlog", fields), SlowPage)
            if instance in (None, page.instance):
                return page
        raise Unavailable(f"no instance {instance!r} of the service has answered: it may have ended")

    async def letters(self, namespace: str, *, after: int, limit: int) -> LetterPage:
        """See `ServiceEngine.letters`: for operators."""
        fields = {"namespace": namespace, "after": after, "limit": limit}
        return msgspec.convert(await self._ask_operator("deadletters", fields), LetterPage)

    async def reveal_letter(
        self, namespace: str, number: int, *, why: str | None, writer: str | None
    ) -> Letter | None:
        """See `ServiceEngine.reveal_letter`: for operators."""
        fields = {"namespace": namespace, "number": number, "why": why, "last_writer": writer}
        late = self._unknown("deadletter_reveal")
        found = (await self._ask_operator("deadletter_reveal", fields, late))["letter"]
        return None if found is None else msgspec.convert(found, Letter)

    async def retry_letter(self, namespace: str, number: int) -> dict[str, Any]:
        """See `ServiceEngine.retry_letter`: for operators."""
        fields = {"namespace": namespace, "number": number}
        late = self._unknown("deadletter_retry")
        reply: dict[str, Any] = (await self._ask_operator("deadletter_retry", fields, late))["reply"]
        return reply

    async def drop_letter(self, namespace: str, number: int) -> bool:
        """See `ServiceEngine.drop_letter`: for operators."""
        fields = {"namespace": namespace, "number": number}
        late = self._unknown("deadletter_drop")
        dropped: bool = (await self._ask_operator("deadletter_drop", fields, late))["dropped"]
        return dropped

    async def create_token(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """See `ServiceEngine.create_token`: for operators."""
        reply = dict(await self._ask_operator("token_create", dict(asked), self._unknown("token_create")))
        del reply["success"]
        return reply

    async def tokens(self) -> list[dict[str, Any]]:
        """See `ServiceEngine.tokens`: for operators."""
        found: list[dict[str, Any]] = (await self._ask_operator("tokens", {}))["tokens"]
        return found

    async def revoke_token(self, name: str) -> bool:
        """See `ServiceEngine.revoke_token`: for operators."""
        late = self._unknown("token_revoke")
        revoked: bool = (await self._ask_operator("token_revoke", {"id": name}, late))["revoked"]
        return revoked
