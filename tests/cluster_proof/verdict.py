"""The verdict on a round: all checkers over its histories, and how much there was to check.

Every violation is a text that names the checker that found it.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import msgspec

from tests.cluster_proof.appends import check_appends
from tests.cluster_proof.fences import check_fences
from tests.cluster_proof.steps import of_kind
from tests.cluster_proof.sums import check_replays, check_sums
from tests.cluster_proof.watches import Written, check_audit, check_journal, check_watches
from tests.linear.checker import judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cluster_proof.final import Look
    from tests.cluster_proof.steps import Step
    from tests.linear.history import Operation


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked, and what was found."""

    operations: int
    outcomes: dict[str, int]
    kinds: dict[str, int]
    replicas: int
    violations: list[str]

    def __str__(self) -> str:
        outcomes = ", ".join(f"{name} {count}" for name, count in self.outcomes.items())
        kinds = ", ".join(f"{name} {count}" for name, count in self.kinds.items())
        return (
            f"{outcomes}; {kinds}; {self.replicas} replicas equal; {len(self.violations)} violations"
            if not self.violations
            else f"{outcomes}; {kinds}; {len(self.violations)} violations"
        )


def judged(registers: Sequence[Operation], steps: Sequence[Step], look: Look) -> Figures:
    """Judge the histories of a round, and the last look at its store."""
    increments, audited = of_kind(steps, "incr"), of_kind(steps, "audited")
    done = [Written(one.version or 0, one.key) for one in increments if one.outcome == "ok"]
    found = {
        "linearizability": [str(one) for one in judge([*registers, *look.registers]).violations],
        "list-append": check_appends(of_kind(steps, "append"), look.lists),
        "sums": check_sums(increments, look.counters),
        "request ids": check_replays(increments),
        "fences": check_fences(steps),
        "watches": check_watches(of_kind(steps, "watch"), look.journal),
        "journal": check_journal(done, look.journal),
        "audit": check_audit(audited, look.audit, whole=look.whole),
        "replicas": look.unequal,
    }
    outcomes = collections.Counter(one.outcome for one in registers)
    outcomes.update(step.outcome for step in steps if step.kind != "watch")
    return Figures(
        operations=outcomes.total() - outcomes["refused"],
        outcomes={str(outcome): count for outcome, count in outcomes.items()},
        kinds={"register": len(registers), **collections.Counter(step.kind for step in steps)},
        replicas=len(look.replicas),
        violations=[f"{name}: {fault}" for name, faults in found.items() for fault in faults],
    )
