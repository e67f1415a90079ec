"""What clients asked for and what they were told, with times: the material that the checker judges.

A history holds only what a client saw. Times are nanoseconds of CLOCK_MONOTONIC, which all processes of
a machine share, so that the files of several clients make one history.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Verb: TypeAlias = Literal["get", "set", "incr", "delete"]
Outcome: TypeAlias = Literal["ok", "conflict", "refused", "unknown"]


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of one client.

    An outcome is one of: `ok`; `conflict`, a check on a version failed; `refused`, the answer said that
    nothing was done (TIMEOUT, BUSY, UNAVAILABLE …); `unknown`, the operation may have taken effect at any
    time after its call, or never.
    """

    client: int
    call: int
    """When the client called."""
    end: int | None
    """When the call returned; also of one that ended without saying what it did."""
    namespace: str
    key: str
    verb: Verb
    outcome: Outcome
    argument: int | None = None
    """The value of a set, or what an incr adds."""
    expected: int | None = None
    """The `expected_version` of a write."""
    beside: int = 0
    """How many other keys the same call wrote: if there are any, it is a large set_many."""
    request_id: str | None = None
    """What names a write that is sent again, as one operation, until it is answered."""
    found: int | bool | None = None
    """The value in the reply; of a conflict the current one; of a delete whether the key was there."""
    version: int | None = None
    """The version in the reply; of a conflict the current one. A delete tells none."""
    code: str | None = None
    """The error's code."""
    deadline: int | None = None
    """Until when the service was allowed to execute it."""

    @property
    def effectless(self) -> bool:
        """Whether it is certain that the operation changed and showed nothing."""
        return self.outcome == "refused" or (self.verb == "get" and self.outcome == "unknown")

    def __str__(self) -> str:
        asked = [str(part) for part in (self.argument,) if part is not None]
        asked += [] if self.expected is None else [f"expected {self.expected}"]
        told = {"ok": f"{self.found}", "conflict": f"conflict with {self.found}"}.get(
            self.outcome, f"{self.outcome} {self.code or ''}".rstrip()
        )
        told += "" if self.version is None else f"@{self.version}"
        end = "never" if self.end is None else f"{self.end / 1e6:.3f}"
        return (
            f"[{self.call / 1e6:.3f} … {end} ms] client {self.client}: "
            f"{self.verb} {self.key}({', '.join(asked)}) → {told}"
        )


def save(path: Path, operations: Iterable[Operation]) -> None:
    """Write a history, an operation a line."""
    path.write_bytes(b"".join(msgspec.json.encode(operation) + b"\n" for operation in operations))


def load(path: Path) -> list[Operation]:
    """Read a history."""
    decoder = msgspec.json.Decoder(Operation)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()]


def by_key(operations: Iterable[Operation]) -> dict[tuple[str, str], list[Operation]]:
    """The history of each key."""
    found: dict[tuple[str, str], list[Operation]] = collections.defaultdict(list)
    for operation in operations:
        found[operation.namespace, operation.key].append(operation)
    return found
