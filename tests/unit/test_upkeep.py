"""Upkeep as a pure decision: it looks at each row again and takes nobody's word for it."""

from __future__ import annotations

from holdfast.commands import Expire, PruneAudit, Removed, Trim
from holdfast.decide import Loaded, decide
from holdfast.keyring import Keyring
from holdfast.rows import KV, REQUEST, TRASH, Address, Namespace, Row
from holdfast.verbs import Verbs, id_maker

NAMESPACE = "kv/p"
NOW = 1_000


def test_expiring_what_is_not_due_does_nothing() -> None:
    """A row that is gone, that lives for ever, or whose deadline is still to come is left alone."""
    rows = {
        Address(NAMESPACE, KV, "for ever"): _row(expires_at=None),
        Address(NAMESPACE, KV, "later"): _row(expires_at=NOW + 1),
        Address(NAMESPACE, TRASH, b"later"): _row(expires_at=NOW + 1),
    }
    loaded = Loaded(namespaces={NAMESPACE: Namespace(name=NAMESPACE, revision=9, keys=2)}, rows=rows)
    commands = [
        Expire(namespace=NAMESPACE, space=KV, keys=("gone", "for ever", "later")),
        Expire(namespace=NAMESPACE, space=TRASH, keys=(b"later",)),
    ]
    outcome = decide(loaded, commands, NOW)
    assert outcome.results == [Removed(0), Removed(0)]
    assert outcome.empty


def test_requests_beyond_the_number_that_is_kept_go_early() -> None:
    """`before` lets remembered requests go before their deadline, and the counter follows."""
    addresses = [Address(NAMESPACE, REQUEST, name) for name in (b"old", b"new")]
    rows = {addresses[0]: _row(expires_at=NOW + 5), addresses[1]: _row(expires_at=NOW + 9)}
    loaded = Loaded(namespaces={NAMESPACE: Namespace(name=NAMESPACE, requests=2)}, rows=rows)
    command = Expire(namespace=NAMESPACE, space=REQUEST, keys=(b"old", b"new"), before=NOW + 5)
    outcome = decide(loaded, [command], NOW)
    assert outcome.results == [Removed(1)]
    assert outcome.rows == {addresses[0]: None}
    assert outcome.namespaces[0].requests == 1


def test_before_does_not_let_entries_go_early() -> None:
    """No caller of upkeep can make an entry expire before its deadline."""
    address = Address(NAMESPACE, KV, "k")
    loaded = Loaded(
        namespaces={NAMESPACE: Namespace(name=NAMESPACE, keys=1)}, rows={address: _row(expires_at=NOW + 1)}
    )
    command = Expire(namespace=NAMESPACE, space=KV, keys=("k",), before=NOW + 10)
    assert decide(loaded, [command], NOW).results == [Removed(0)]


def test_the_audit_is_pruned_from_its_beginning_and_by_its_policy_alone() -> None:
    """No caller of upkeep can drop records that are too young, not the oldest, not there, or to be kept."""
    keys = Keyring([b"a secret of upkeep"])
    verbs = Verbs(NAMESPACE, writer="w", new_id=id_maker())
    for policy, later, first, upto, removed in (
        ({"audit": True, "audit_retention": 10}, 9_999, 1, 2, 0),
        ({"audit": True, "audit_retention": 10}, 10_000, 2, 2, 0),
        ({"audit": True, "audit_retention": 10}, 10_000, 1, 9, 0),
        ({"audit": True}, 10_000, 1, 2, 0),
        ({"audit": True, "audit_retention": 10}, 10_000, 1, 2, 2),
    ):
        made = decide(Loaded({}, {}), [verbs.set_policy(policy), verbs.set("k", 1)], NOW, keys)
        rows = {address: row for address, row in made.rows.items() if row is not None}
        found = Loaded({space.name: space for space in made.namespaces}, rows)
        command = PruneAudit(namespace=NAMESPACE, first=first, upto=upto)
        assert decide(found, [command], NOW + later, keys).results == [Removed(removed)]


def test_the_journal_is_never_trimmed_past_its_head_nor_twice() -> None:
    """Trimming stops at the last version, and what was dropped stays dropped."""
    loaded = Loaded(namespaces={NAMESPACE: Namespace(name=NAMESPACE, revision=7, journal_floor=3)}, rows={})
    trims = [Trim(namespace=NAMESPACE, upto=upto) for upto in (2, 5, 5, 99)]
    outcome = decide(loaded, trims, NOW)
    assert outcome.results == [Removed(0), Removed(2), Removed(0), Removed(2)]
    assert outcome.trims == {NAMESPACE: 7}
    assert outcome.namespaces[0].journal_floor == 7


def _row(*, expires_at: int | None) -> Row:
    return Row(value="1", size=1, version=1, created_at=0, updated_at=0, expires_at=expires_at)
