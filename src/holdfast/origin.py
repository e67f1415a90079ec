"""Where a command comes from: its writer, its request, and the lock that it relies on."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.tracing import Trace


class Fence(msgspec.Struct, frozen=True, gc=False):
    """A condition of a write: `token` must be the newest token of the lock.

    A `live` one also requires that the lock is still held. It is True or unset, so that requests remembered
    before it existed keep their content.
    """

    lock: str
    token: int
    live: bool | msgspec.UnsetType = msgspec.UNSET


class Origin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The caller of a command, with its request id and spec_ref.

    `repeatable` means that the caller chose the request id, so the reply is remembered. `once` means that
    the id names an intention: it is True or unset, and whoever comes again with the id gets the first reply,
    whatever else the command says. `deadline` is a time
    of the store in milliseconds, after which the command must not take effect. `principal` is the
    authenticated caller; if unset, the program that has opened the store. `trace` is the trace that the call
    belongs to. A retry may carry others of these three.
    """

    writer: str
    request_id: str
    repeatable: bool = False
    spec_ref: str | None = None
    fence: Fence | None = None
    deadline: int | msgspec.UnsetType = msgspec.UNSET
    principal: str | msgspec.UnsetType = msgspec.UNSET
    once: bool | msgspec.UnsetType = msgspec.UNSET
    trace: Trace | msgspec.UnsetType = msgspec.UNSET

    @property
    def asked(self) -> Origin:
        """This origin for a command's parts and for remembered requests: what a retry may change is unset."""
        unset = msgspec.UNSET
        if self.deadline is unset and self.principal is unset and self.trace is unset:
            return self
        return msgspec.structs.replace(self, deadline=unset, principal=unset, trace=unset)


def origin_fields(origin: Origin) -> dict[str, Any]:
    """Convert the origin to fields, as far as the caller has set it. The service knows the rest."""
    fields: dict[str, Any] = {}
    if origin.repeatable:
        fields["once" if origin.once is True else "request_id"] = origin.request_id
    if origin.writer:
        fields["last_writer"] = origin.writer
    if origin.spec_ref is not None:
        fields["spec_ref"] = origin.spec_ref
    if origin.fence is not None:
        fields["fence"] = msgspec.to_builtins(origin.fence)
    return fields
