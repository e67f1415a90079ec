"""Where a command comes from: its writer, its request, and the lock that it relies on."""

from __future__ import annotations

from typing import Any

import msgspec


class Fence(msgspec.Struct, frozen=True, gc=False):
    """A condition of a write: `token` must be the newest token of the lock."""

    lock: str
    token: int


class Origin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The caller of a command, with its request id and spec_ref.

    `repeatable` means that the caller chose the request id, so the reply is remembered. `deadline` is a time
    of the store in milliseconds, after which the command must not take effect. `principal` is the
    authenticated caller; if unset, the program that has opened the store. A retry may carry others of both.
    """

    writer: str
    request_id: str
    repeatable: bool = False
    spec_ref: str | None = None
    fence: Fence | None = None
    deadline: int | msgspec.UnsetType = msgspec.UNSET
    principal: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def asked(self) -> Origin:
        """This origin without deadline and principal, for a command's parts and for remembered requests."""
        if self.deadline is msgspec.UNSET and self.principal is msgspec.UNSET:
            return self
        return msgspec.structs.replace(self, deadline=msgspec.UNSET, principal=msgspec.UNSET)


def origin_fields(origin: Origin) -> dict[str, Any]:
    """Convert the origin to fields, as far as the caller has set it. The service knows the rest."""
    fields: dict[str, Any] = {}
    if origin.repeatable:
        fields["request_id"] = origin.request_id
    if origin.writer:
        fields["last_writer"] = origin.writer
    if origin.spec_ref is not None:
        fields["spec_ref"] = origin.spec_ref
    if origin.fence is not None:
        fields["fence"] = {"lock": origin.fence.lock, "token": origin.fence.token}
    return fields
