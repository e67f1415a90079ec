"""The caller of commands: which keys it names, where its commands come from, and how they are made."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from msgspec import UNSET

from holdfast import rules, seams
from holdfast.commands import Command
from holdfast.cursors import last_seen
from holdfast.errors import ValidationError
from holdfast.origin import Origin
from holdfast.tracing import current

C = TypeVar("C", bound="Command")


def id_maker() -> Callable[[], str]:
    """Return a source of request ids that are unique among all sources."""
    source = seams.token(6)
    numbers = itertools.count(1)
    return lambda: f"{source}-{next(numbers)}"


class NamespaceCaller:
    """One caller of one namespace: its keys and the origin of its commands.

    Args:
        namespace: The namespace of every command made.
        writer: Name of the writer if a call does not give one.
        new_id: Makes a request id for a call that has none.
        now: Returns the store's time, from which a call's timeout counts.
        root: The prefix of full keys in the semantic family; None elsewhere.
        principal: The authenticated caller, if the edge knows it; else the program that opened the store.
    """

    def __init__(
        self,
        namespace: str,
        *,
        writer: str,
        new_id: Callable[[], str],
        now: Callable[[], int],
        root: str | None = None,
        principal: str | None = None,
    ) -> None:
        self.namespace = namespace
        self._writer = writer
        self._new_id = new_id
        self._now = now
        self._root = root
        self._principal = UNSET if principal is None else principal
        self.key: Callable[[object], str] = (
            rules.key if root is None else partial(rules.semantic_key, root=root)
        )
        """Returns a legal key in full."""

    def prefix(self, text: object) -> str:
        """Return a legal prefix of keys in full."""
        return rules.prefix(text) if self._root is None else rules.semantic_prefix(text, self._root)

    def log_name(self, text: object) -> str:
        """Return the legal name of a log in full: its items' keys without their numbers."""
        if not isinstance(text, str) or not text:
            raise ValidationError(
                f"name must be text that is not empty, not {rules.shown(text)}", field="name"
            )
        try:
            return self.key(rules.item_key(text, 0)).rpartition("/")[0]
        except ValidationError as error:
            raise ValidationError(
                f"no item of this log could have a key: {error.message}", field="name"
            ) from None

    def removed_prefix(self, text: object, origin: Origin) -> str:
        """Return a legal prefix of keys to remove, which not every key may have."""
        if origin.repeatable:
            field = "once" if origin.once is True else "request_id"
            raise ValidationError(
                f"delete_prefix takes no {field}: a repeated call removes the keys that exist by then",
                field=field,
            )
        prefix = self.prefix(text)
        if prefix == self.prefix(""):
            raise ValidationError(
                "every key begins with this prefix, so all of them would be removed: "
                "list the keys and use delete_many for that",
                field="prefix",
            )
        return prefix

    def after(self, cursor: object, prefix: object) -> str | None:
        """Return the key after which a listing continues; None for its beginning."""
        if cursor is None or cursor is UNSET:
            return None
        return last_seen(cursor, self.prefix("" if prefix is None or prefix is UNSET else prefix))

    def start(self, cursor: object, prefix: object, number: object, reverse: object) -> str | None:
        """Return the key after which a listing begins or continues; None for its beginning.

        Args:
            cursor: The cursor of the page before.
            prefix: The prefix of the listing.
            number: The number of an item of the log that the prefix names.
            reverse: Whether the listing goes backwards.
        """
        if number is None or number is UNSET:
            return self.after(cursor, prefix)
        number = rules.version(number, field="after")
        if (cursor is not None and cursor is not UNSET) or reverse is True:
            raise ValidationError("after excludes cursor and reverse", field="after")
        log = self.prefix("" if prefix is None or prefix is UNSET else prefix)
        if not log.endswith("/"):
            raise ValidationError(
                "after is the number of an item, so the prefix must be the name of a log and a slash",
                field="after",
            )
        return rules.item_key(log.removesuffix("/"), min(number, rules.MAX_LOG_NUMBER))

    def origin(
        self,
        *,
        request_id: object = None,
        writer: object = None,
        spec_ref: object = None,
        fence: object = None,
        once: object = None,
        timeout: object = None,
        deadline: int | None = None,
    ) -> Origin:
        """Return the origin of a call. An edge that knows the `deadline` gives that instead of a timeout."""
        if timeout is not None:
            deadline = self.deadline(timeout)
        return self.origin_by(request_id, writer, spec_ref, fence, once, deadline)

    def origin_of(self, message: Any, deadline: int | None) -> Origin:
        """Return the origin of a message, whose deadline an edge has computed."""
        return self.origin_by(
            message.request_id, message.last_writer, message.spec_ref, message.fence, message.once, deadline
        )

    def origin_by(  # noqa: PLR0917 - generated code calls it for every write, by position
        self,
        request_id: object,
        writer: object,
        spec_ref: object,
        fence: object,
        once: object,
        deadline: int | None,
    ) -> Origin:
        """Return the origin of a call. Most calls give nothing of it."""
        if request_id is None and writer is None and spec_ref is None and fence is None and once is None:
            return Origin(
                writer=self._writer,
                request_id=self._new_id(),
                deadline=UNSET if deadline is None else deadline,
                principal=self._principal,
                trace=current(),
            )
        if once is not None and request_id is not None:
            raise ValidationError("once and request_id exclude each other", field="once")
        if once is not None:
            name = rules.identity(once, field="once")
        elif request_id is not None:
            name = rules.identity(request_id, field="request_id")
        else:
            name = self._new_id()
        return Origin(
            writer=self._writer if writer is None else rules.identity(writer, field="last_writer"),
            request_id=name,
            repeatable=request_id is not None or once is not None,
            once=UNSET if once is None else True,
            spec_ref=None if spec_ref is None else rules.spec_ref(spec_ref),
            fence=None if fence is None else rules.fence(fence),
            deadline=UNSET if deadline is None else deadline,
            principal=self._principal,
            trace=current(),
        )

    def command(self, kind: type[C], **fields: Any) -> C:
        """Make a command of the arguments of a Python call, which have the names of a message's fields.

        Raises:
            HoldfastError: One of them breaks its rule.
        """
        command: C = kind.declaration.call(self, **fields)  # type: ignore[union-attr]
        return command

    def deadline(self, timeout: object) -> int:
        """Return the store's time at which a timeout that starts now ends."""
        return self._now() + math.ceil(rules.timeout(timeout) * 1000)
