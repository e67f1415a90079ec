"""A subject of the workload: something that clients do, what they saw, and the rules that it must keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from holdfast import Store
    from holdfast.handles.kv import KV
    from tests.simulation.workload import Workload
    from tests.simulation.world import Machine

TIMEOUT = 2.0
"""The seconds after which a client of a sole service gives up; others wait for twice as long."""


class Finding(NamedTuple):
    """Something that must not happen.

    Attributes:
        kind: The promise that was broken. Shrinking keeps to one kind.
        text: What was seen.
        about: The keys, versions and request ids that matter, for the page that shows it.
        at: The virtual second in which it was seen; None for the last turn of the run.
    """

    kind: str
    text: str
    about: tuple[str, ...] = ()
    at: float | None = None


class Lane(NamedTuple):
    """A sequence of calls of one client, with random numbers of its own."""

    store: Store
    client: int
    machine: Machine
    name: str
    number: int
    """Which of the lanes of its client that are about the same subject it is."""
    chance: Random

    @property
    def life(self) -> int:
        """The life of the client's process."""
        return self.machine.life


class Subject:
    """A subject. Its record survives the clients, whose processes may die in the middle of a call.

    Attributes:
        lanes: How many lanes of each client are about it.
        share: How often all lanes together act, for each operation that a run is to have.
        keys: The namespaces of keys that it uses. Their journals, lists and counters must agree at the end.
        reads_along: Whether its lanes read while another client alone may write. Those of others wait.
        expires: Whether it has entries with deadlines, so that journal and list may differ for a moment.
        only_alone: Whether its rules hold only where one service serves all clients.
        only_embedded: Whether it needs a client that has opened a file itself.
        calls: The calls that were made.
    """

    lanes = 1
    share = 0.0
    keys: tuple[str, ...] = ()
    reads_along = False
    expires = False
    only_alone = False
    only_embedded = False

    def __init__(self, run: Workload) -> None:
        self.run = run
        self.calls = 0
        self.seen: list[Any] = []
        """What clients saw: part of the hash of a run."""

    async def act(self, lane: Lane) -> None:
        """Do something once."""
        raise NotImplementedError

    def died(self, client: str) -> None:
        """The process of a client has died."""

    async def last_look(self, store: Store) -> None:
        """Read what the rules need, once no fault is left."""

    def findings(self) -> Iterator[Finding]:
        """What breaks a rule."""
        return iter(())

    def wrong(self, kind: str, text: str, *about: str) -> None:
        """Take note of something that must not happen, and end the run."""
        self.run.faults.append(Finding(kind, text, about))


def keys_of(store: Store, namespace: str) -> KV:
    """The handle on the keys of a namespace."""
    family, _, name = namespace.partition("/")
    return store.kv(name) if family == "kv" else store.semantic(*name.split("/"))
