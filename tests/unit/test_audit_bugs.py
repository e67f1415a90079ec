"""That the rules of the audit would see a mistake: bugs planted in it, each of which they must find.

The rules are those that certify an engine, run as they are; none of them knows what is planted.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import holdfast
from holdfast.audit.chain import AUDIT, AuditRecord, hash_with, sealed
from holdfast.clock import ManualClock
from holdfast.decide import audit, entries, keys, upkeep
from holdfast.decide import decision as heart
from holdfast.decide.draft import Draft
from holdfast.testing.conformance import Opened
from holdfast.testing.conformance.audit import AuditRules

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.clock import Clock

    Plant = Callable[[pytest.MonkeyPatch], None]

RULES = [name for name in vars(AuditRules) if name.startswith("test")]


async def drive(url: str) -> None:
    """Every rule of the audit, each on an empty store, until one is broken."""
    for name in RULES:
        clock = ManualClock()
        opened = Opened(lambda clock: _opened(url, clock), clock, await _opened(url, clock))
        ground: dict[str, Any] = {
            "store": opened.store,
            "clock": clock,
            "kv": opened.store.kv("trivia"),
            "reopen": opened.again,
        }
        rule = getattr(AuditRules(), name)
        try:
            await rule(**{wanted: ground[wanted] for wanted in inspect.signature(rule).parameters})
        finally:
            await opened.store.aclose()


async def _opened(url: str, clock: Clock) -> holdfast.Store:
    store = holdfast.open(url, clock=clock, reap=False)
    await store.start()
    return store


def expiry_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """Every change leaves a record, also that which nobody asked for."""

    def wrong(draft: Draft, record: Any, *rows: Any, **more: Any) -> None:
        if record.op != "expired":
            audit.audit(draft, record, *rows, **more)

    patch.setattr(entries, "audit", wrong)


def a_refusal_leaves_its_record(patch: pytest.MonkeyPatch) -> None:
    """A record exists only if the change does."""
    original = Draft._take_back

    def wrong(draft: Draft, length: int) -> None:
        kept = {address: row for address, row in draft._rows.items() if address.space == AUDIT}
        original(draft, length)
        draft._rows.update(kept)

    patch.setattr(Draft, "_take_back", wrong)


def what_was_is_taken_for_what_is(patch: pytest.MonkeyPatch) -> None:
    """The hashes are those of the value before and after, in this order."""
    original = audit.add_record

    def wrong(draft: Draft, record: Any, before: Any, after: Any, **more: Any) -> None:
        original(draft, record, after, before, **more)

    patch.setattr(audit, "add_record", wrong)


def _changed(signed: Any, **fields: Any) -> Any:
    """A record that says something else; a head as it is."""
    return msgspec.structs.replace(signed, **fields) if isinstance(signed, AuditRecord) else signed


def records_do_not_hang_together(patch: pytest.MonkeyPatch) -> None:
    """Each record carries the signature of the one before it."""

    def wrong(namespace: str, secret: bytes, signed: Any) -> Any:
        return sealed(namespace, secret, _changed(signed, previous=""))

    patch.setattr(audit, "sealed", wrong)


def one_chain_for_all(patch: pytest.MonkeyPatch) -> None:
    """Records are signed for their namespace."""

    def wrong(namespace: str, secret: bytes, signed: Any) -> Any:
        return sealed("semantic/acme/web" if isinstance(signed, AuditRecord) else namespace, secret, signed)

    patch.setattr(audit, "sealed", wrong)


def switching_off_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """Whoever switches the audit off is its last record."""
    patch.setattr(upkeep, "add_record", audit.audit)


def the_old_value_is_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    """A set that looks at nothing tells what was there before, where a policy wants that."""

    def wrong(*_: Any) -> None:
        """Ask for nothing."""

    patch.setattr(heart, "need_audit_by_policy", wrong)


def every_value_has_one_hash(patch: pytest.MonkeyPatch) -> None:
    """Different values have different hashes."""
    patch.setattr(audit, "hash_with", lambda secret, value: hash_with(secret, "null"))


def the_writer_of_an_import_is_believed(patch: pytest.MonkeyPatch) -> None:
    """Who loads entries is named, not who their envelopes say."""

    def wrong(*given: Any, **more: Any) -> None:
        entries.record(*given, **more | {"by": None})

    patch.setattr(keys, "record", wrong)


def pruning_forgets_the_anchor(patch: pytest.MonkeyPatch) -> None:
    """What is left hangs on the last record that was pruned."""

    def wrong(draft: Draft, head: Any) -> None:
        audit.put_head(draft, msgspec.structs.replace(head, anchor=""))

    patch.setattr(upkeep, "put_head", wrong)


MEMORY = (
    expiry_is_not_recorded,
    a_refusal_leaves_its_record,
    what_was_is_taken_for_what_is,
    records_do_not_hang_together,
    one_chain_for_all,
    switching_off_is_not_recorded,
    every_value_has_one_hash,
    the_writer_of_an_import_is_believed,
    pruning_forgets_the_anchor,
)
SQLITE = (the_old_value_is_not_looked_up,)
"""What shows only where an engine leaves out what it is not asked for."""


@pytest.mark.parametrize("url", ["memory://", "sqlite://"])
async def test_all_rules_hold_without_a_planted_bug(url: str) -> None:
    """Without a planted bug every rule holds."""
    assert RULES
    await drive(url)


@pytest.mark.parametrize(
    ("url", "bug"),
    [("memory://", bug) for bug in MEMORY] + [("sqlite://", bug) for bug in SQLITE],
    ids=lambda given: given if isinstance(given, str) else str(given.__name__),
)
async def test_each_planted_bug_breaks_a_rule(url: str, bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mistake breaks a rule."""
    bug(monkeypatch)
    with pytest.raises((AssertionError, holdfast.InternalError)):
        await drive(url)
