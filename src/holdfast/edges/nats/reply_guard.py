"""The check of reply subjects, which the NATS server does not do itself.

Law: a reply goes only to a subject on which its caller could have listened. Otherwise a caller could make the
service publish its answer to another plugin's subject, as if that plugin had asked.
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
"""Number of inbox names whose check is cached."""
_RESERVED: Final = (f"{SERVICE_INBOX}.", f"_INBOX.{OPERATOR}.")
"""Inboxes that belong to no plugin, trusted or not."""


def reply_guard(mode: str, prefixes: Sequence[str]) -> Callable[[str, str], bool]:
    """Return a check of whether a reply subject belongs to an owner.

    The owner is a plugin or `tenant/project`; it is empty if unknown.

    Args:
        mode: `accounts`: the server has replaced the caller's reply subject with its own; `permissions`: the
            reply must go to the owner's inbox; `open`: anywhere except our own subjects and the system's.
        prefixes: Prefixes of our own subjects.
    """
    if mode == "accounts":
        mapped = re.compile(rf"_R_\.{_TOKENS}")
        return lambda reply, owner: mapped.fullmatch(reply) is not None
    if mode == "permissions":
        inbox = re.compile(_TOKENS)
        return lambda reply, owner: _in_inbox(reply, _inbox_of(owner), inbox)
    return _anywhere_else(prefixes)


def _anywhere_else(prefixes: Sequence[str]) -> Callable[[str, str], bool]:
    """Return a check that accepts any valid subject that is neither ours nor the system's.

    A caller's replies share one inbox, so the check of the inbox's name is cached.
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
    """Return the prefix of an owner's inbox.

    Trusted callers name a plugin in the payload and have inboxes of their own: any inbox but ours is allowed.
    """
    return f"_INBOX.{owner.replace('/', '.')}." if owner else "_INBOX."


def _in_inbox(reply: str, inbox: str, rest: re.Pattern[str]) -> bool:
    if inbox == "_INBOX." and reply.startswith(_RESERVED):
        return False
    return reply.startswith(inbox) and rest.fullmatch(reply[len(inbox) :]) is not None
