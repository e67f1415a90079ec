"""Whether a history is linearizable: each operation took effect at one instant between its call and its end.

It knows times and the model of one key, and nothing of how Holdfast works. It searches every order that
the times allow, and drops an order only when another one leaves at least as many possibilities.

Keys are judged one by one, since a history is linearizable if and only if that of every key is. The events of
a key are walked through in time. At every moment there is a set of possibilities: a state of the key, and
which of the operations under way have not taken effect in it. When an operation ends, each possibility is
extended by all orders of operations under way after which this one has taken effect; where there is none, the
possibility is dropped. When none is left, the history is not linearizable.
"""

from __future__ import annotations

import sys
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tests.linear.history import Operation, by_key, load
from tests.linear.register import NOTHING, State, step
from tests.linear.versions import VersionFault, misused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MOST_POSSIBILITIES = 20_000
"""More than these at one moment are too many to decide; a history that needs them fails loudly."""

_CALL, _END = 0, 1

Mask: TypeAlias = int
"""A set of operations under way, a bit each."""


class Violation(NamedTuple):
    """An operation that can't have ended as it did, and what the key could have been at its end."""

    operation: Operation
    states: list[State]
    pending: list[Operation]
    history: list[Operation]

    def __str__(self) -> str:
        told = [one for one in self.history if one.end is not None and not one.effectless]
        before = [one for one in told if (one.end or 0) < self.operation.call]
        lines = [f"{self.operation.namespace}: no order of the operations explains", f"  {self.operation}"]
        lines += ["before it took effect the key could only be"]
        lines += [f"  {state}" for state in self.states[:5]]
        lines += ["and these were under way, or had ended without an answer:"] if self.pending else []
        lines += [f"  {one}" for one in self.pending[:10]]
        lines += ["the last operations that had ended before it was called, without those that were refused:"]
        lines += [f"  {one}" for one in sorted(before, key=lambda one: one.end or 0)[-5:]]
        return "\n".join(lines)


class Verdict(NamedTuple):
    """What was found in a history."""

    violations: list[Violation | VersionFault]
    late: list[Violation]
    """Of keys that are linearizable only if something was executed after its deadline."""


def judge(history: Sequence[Operation], *, slack: int | None = None) -> Verdict:
    """What is wrong with a history.

    Args:
        history: Operations of any clients on any keys, in any order.
        slack: By how many nanoseconds a deadline may be overrun before the operation counts as late; None to
            let an operation without an answer take effect at any later time without a word.
    """
    violations: list[Violation | VersionFault] = list(misused(history))
    late = []
    for operations in by_key(history).values():
        strict = None if slack is None else check_key(operations, slack=slack)
        if slack is not None and strict is None:
            continue
        if (found := check_key(operations)) is not None:
            violations.append(found)
        elif strict is not None:
            late.append(strict)
    return Verdict(violations, late)


def check_key(history: Sequence[Operation], *, slack: int | None = None) -> Violation | None:
    """The first operation on a key that no order explains; None for a linearizable history.

    With `slack`, an operation without an answer can take effect until so long after its deadline.
    """
    search = _Search(_Alike(history))
    for _, kind, operation in _events(history, slack):
        if kind == _CALL:
            search.call(operation)
        elif operation.outcome == "unknown":
            search.forget(operation)
        elif (violation := search.end(operation)) is not None:
            return violation._replace(history=list(history))
    return None


def _events(history: Iterable[Operation], slack: int | None) -> list[tuple[int, int, Operation]]:
    """Calls and ends in time. What happens at the same instant overlaps, so that calls come first."""
    events = []
    for operation in history:
        if operation.effectless:
            continue
        events.append((operation.call, _CALL, operation))
        if operation.outcome != "unknown":
            assert operation.end is not None
            events.append((operation.end, _END, operation))
        elif slack is not None and operation.deadline is not None:
            events.append((operation.deadline + slack, _END, operation))
    return sorted(events, key=itemgetter(0, 1))


class _Possibilities:
    """States with the operations that have not taken effect in them.

    An operation without an answer never has to take effect. So of two possibilities that differ only in
    these, the one in which more of them can still do so makes the other superfluous.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[State, Mask], list[Mask]] = {}
        self._count = 0

    def add(self, state: State, owed: Mask, free: Mask) -> bool:
        """Take note of a possibility; whether it adds anything."""
        known = self._found.setdefault((state, owed), [])
        if any(free | other == other for other in known):
            return False
        known[:] = [other for other in known if free | other != free]
        known.append(free)
        self._count += 1
        if self._count > MOST_POSSIBILITIES:
            raise RuntimeError(f"more than {MOST_POSSIBILITIES} possibilities: use fewer operations a key")
        return True

    def __iter__(self) -> Iterator[tuple[State, Mask, Mask]]:
        for (state, owed), masks in self._found.items():
            for free in masks:
                yield state, owed, free

    def __bool__(self) -> bool:
        return bool(self._found)


class _Alike:
    """Which operations without an answer can stand in for each other, so that trying one is enough."""

    def __init__(self, history: Sequence[Operation]) -> None:
        self._shown = {one.found for one in history if one.version is not None}
        added = [one.argument or 0 for one in history if one.verb == "incr"]
        self._most = sum(by for by in added if by > 0)
        self._least = sum(by for by in added if by < 0)

    def kind(self, operation: Operation) -> object:
        """What operations that are alike have in common."""
        if operation.verb == "set" and self._was_seen(operation.argument or 0):
            return id(operation)
        return operation.verb, operation.expected, operation.argument if operation.verb == "incr" else None

    def _was_seen(self, value: int) -> bool:
        """Whether a reply shows this value, or what increments could have made of it."""
        return any(value + self._least <= (shown or 0) <= value + self._most for shown in self._shown)


class _Search:
    """The walk through the events of one key."""

    def __init__(self, alike: _Alike) -> None:
        self._alike = alike
        self._kinds: dict[Mask, object] = {}
        self._bits: dict[int, Mask] = {}
        self._under_way: dict[Mask, Operation] = {}
        self._possible = _Possibilities()
        self._possible.add(NOTHING, 0, 0)

    def call(self, operation: Operation) -> None:
        """From here on the operation may take effect."""
        bit = self._free_bit()
        self._bits[id(operation)] = bit
        self._under_way[bit] = operation
        if operation.outcome == "unknown":
            self._kinds[bit] = self._alike.kind(operation)
            self._kinds = dict(sorted(self._kinds.items(), key=lambda item: self._patience(item[0])))
        grown = _Possibilities()
        for state, owed, free in self._possible:
            if operation.outcome == "unknown":
                grown.add(state, owed, free | bit)
            else:
                grown.add(state, self._read(state, owed | bit), free)
        self._possible = grown

    def forget(self, operation: Operation) -> None:
        """By now an operation without an answer has taken effect, or never will."""
        bit = self._bits.pop(id(operation))
        del self._kinds[bit]
        done, waiting = _Possibilities(), []
        for state, owed, free in self._possible:
            done.add(state, owed, free & ~bit)
            if free & bit:
                waiting.append((state, owed | bit, free & ~bit))
        self._extend(waiting, bit, done)
        del self._under_way[bit]
        self._possible = done

    def end(self, operation: Operation) -> Violation | None:
        """By now the operation must have taken effect."""
        bit = self._bits.pop(id(operation))
        done, waiting = _Possibilities(), []
        for state, owed, free in self._possible:
            if owed & bit:
                waiting.append((state, owed, free))
            else:
                done.add(state, owed, free)
        self._extend(waiting, bit, done)
        del self._under_way[bit]
        if not done:
            return self._violation(operation)
        self._possible = done
        return None

    def _extend(self, waiting: list[tuple[State, Mask, Mask]], bit: Mask, done: _Possibilities) -> None:
        """Try all orders of what is under way, until the operation with this bit has taken effect."""
        seen = _Possibilities()
        while waiting:
            beyond = []
            for state, owed, free in waiting:
                for which in self._worth_trying(state, owed, free):
                    after = step(state, self._under_way[which])
                    if after is None:
                        continue
                    left = self._read(after, owed & ~which)
                    if not left & bit:
                        done.add(after, left, free & ~which)
                    elif seen.add(after, left, free & ~which):
                        beyond.append((after, left, free & ~which))
            waiting = beyond

    def _worth_trying(self, state: State, owed: Mask, free: Mask) -> Iterator[Mask]:
        """What may take effect next, without what leads nowhere that the rest does not lead to.

        What was answered leaves the same state behind whatever was there before. So if all of it can take
        effect now, it is no use to have something without an answer take effect first.
        """
        stuck = False
        for which in _each(owed):
            operation = self._under_way[which]
            stuck = stuck or operation.outcome == "unknown" or step(state, operation) is None
            yield which
        tried = set()
        for which, kind in self._kinds.items() if stuck else ():
            if free & which and kind not in tried:
                tried.add(kind)
                yield which

    def _patience(self, bit: Mask) -> float:
        """Of operations that are alike, the one that has to take effect soonest comes first."""
        deadline = self._under_way[bit].deadline
        return float("inf") if deadline is None else deadline

    def _read(self, state: State, owed: Mask) -> Mask:
        """What has still to take effect when everything has that can without changing the state.

        To take such an operation at once never closes a way, since the state stays as it is.
        """
        for which in _each(owed):
            if step(state, self._under_way[which]) == state:
                owed &= ~which
        return owed

    def _free_bit(self) -> Mask:
        bit = 1
        while bit in self._under_way:
            bit <<= 1
        return bit

    def _violation(self, operation: Operation) -> Violation:
        states = sorted({state for state, _, _ in self._possible}, key=str)
        return Violation(operation, states, list(self._under_way.values()), [])


def _each(mask: Mask) -> Iterator[Mask]:
    """The bits of a mask, one by one."""
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit


def main(paths: list[str]) -> int:
    """Judge histories from files; 0 if nothing is wrong with them."""
    verdict = judge([operation for path in paths for operation in load(Path(path))])
    for violation in verdict.violations:
        print(violation)
    print(f"{len(verdict.violations)} violations")
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
