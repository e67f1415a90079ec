"""Commands that wait for their group, and what each of them may change.

Law: data about one command. Which of them form a group is decided in `batcher`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.commands import KeyChange, WriteCommand, written_keys

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Sequence

    from holdfast.commands import Command


class PendingCommand(msgspec.Struct, frozen=True):
    """A pending command and the callback for its result. A barrier has no command.

    `touched` lists what the command may change. `after` holds the reads that were running when the command
    was submitted and that must not see its effect. `cost` is that of the command, summed up once.
    """

    command: Command | None
    tell: Callable[[Any], None]
    touched: Sequence[tuple[str, str | None]] = ()
    after: Collection[asyncio.Future[None]] = ()
    cost: int = 0

    @property
    def namespace(self) -> str:
        """The namespace in which this keeps its place."""
        assert self.command is not None
        return self.command.namespace

    @property
    def held(self) -> bool:
        """True while one of the reads is running that must not see the effect."""
        return not all(read.done() for read in self.after)


class Barrier(PendingCommand, frozen=True):
    """Waits for the commands of a namespace that were submitted before it."""

    of: str = ""

    @property
    def namespace(self) -> str:
        """The namespace in which this keeps its place."""
        return self.of


def touched_by(command: Command) -> Sequence[tuple[str, str | None]]:
    """Return the keys that a caller's command may change, with None for the namespace as a whole.

    Upkeep changes nothing that a reader can see, so reads do not wait for it.
    """
    namespace = command.namespace
    if isinstance(command, KeyChange):
        return (namespace, None), (namespace, command.key)
    if not isinstance(command, WriteCommand):
        return ()
    return [(namespace, None), *((namespace, key) for key in written_keys(command))]
