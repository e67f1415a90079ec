"""Where a reply may go: the server does not check it, so the service does.

Law: a reply goes only where its caller could have listened. Otherwise a caller could have the service publish
its answer to another plugin's subject, as if that plugin had asked.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from holdfast.wire.subjects import OPERATOR, SERVICE_INBOX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MODES: Final = ("open", "permissions", "accounts")
_TOKENS: Final = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"
KNOWN_INBOXES: Final = 4_096
"""How many inboxes are kept in mind."""
_RESERVED: Final = (f"{SERVICE_INBOX}.", f"_INBOX.{OPERATOR}.")
"""Inboxes that are no plugin's, trusted or not."""


def reply_guard(mode: str, prefixes: Sequence[str]) -> Callable[[str, str], bool]:
    """Whether a reply subject belongs to an owner (a plugin, or `tenant/project`; empty if not known).

    Args:
        mode: `accounts`: the server has put its own subject in place of the caller's; `permissions`: the
            owner's own inbox; `open`: anywhere but our own subjects and the system's.
        prefixes: Our own subjects begin with one of these.
    """
    if mode == "accounts":
        mapped = re.compile(rf"_R_\.{_TOKENS}")
        return lambda reply, owner: mapped.fullmatch(reply) is not None
    if mode == "permissions":
        inbox = re.compile(_TOKENS)
        return lambda reply, owner: _in_inbox(reply, _inbox_of(owner), inbox)
    return _anywhere_else(prefixes)


def _anywhere_else(prefixes: Sequence[str]) -> Callable[[str, str], bool]:
    """Whether a reply subject is a subject, and neither ours nor the system's.

    A caller's replies go to one inbox, whose name is looked at once for all of them.
    """
    never = ("$", *(f"{prefix}." for prefix in prefixes))
    subject = re.compile(r"[^\s.*>]+(?:\.[^\s.*>]+)*")

    @lru_cache(maxsize=KNOWN_INBOXES)
    def inbox(name: str) -> bool:
        return subject.fullmatch(name) is not None and not f"{name}.".startswith(never)

    def allowed(reply: str, owner: str) -> bool:
        name, _, last = reply.rpartition(".")
        if last.isalnum() and inbox(name):
            return reply not in prefixes
        return subject.fullmatch(reply) is not None and not reply.startswith(never) and reply not in prefixes

    return allowed


def _inbox_of(owner: str) -> str:
    """Trusted callers, who name a plugin in the payload, have inboxes of their own: any but ours will do."""
    return f"_INBOX.{owner.replace('/', '.')}." if owner else "_INBOX."


def _in_inbox(reply: str, inbox: str, rest: re.Pattern[str]) -> bool:
    if inbox == "_INBOX." and reply.startswith(_RESERVED):
        return False
    return reply.startswith(inbox) and rest.fullmatch(reply[len(inbox) :]) is not None
