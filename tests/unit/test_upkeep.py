"""Upkeep as a pure decision: it looks at each row again and takes nobody's word for it."""

from __future__ import annotations

import pytest

from holdfast.audit.chain import AUDIT
from holdfast.audit.keyring import Keyring
from holdfast.commands import Removed
from holdfast.decide import Loaded, decide
from holdfast.rows import KV, REQUEST, TRASH, Address, FirstAndLast, Namespace, Overdue, Row, Run
from holdfast.upkeep_commands import Expire, ExpireRun, PruneAudit, Trim
from holdfast.verbs.caller import id_maker
from tests.verbs import Verbs

NAMESPACE = "kv/p"
NOW = 1_000
NO_AUDIT: dict[tuple[str, str], FirstAndLast | None] = {(NAMESPACE, AUDIT): None}
RUN = ExpireRun(namespace=NAMESPACE, limit=3)


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


def test_a_run_gives_versions_and_uncounts() -> None:
    """Entries that expire together get the next versions, and the counters lose what they held."""
    outcome = decide(_with_run(), [RUN], NOW)
    assert outcome.results == [Removed(3)]
    assert outcome.runs == [Run(namespace=NAMESPACE, first=10, count=3, at=NOW, until=900)]
    [namespace] = outcome.namespaces
    assert (namespace.revision, namespace.keys, namespace.bytes, namespace.changed_at) == (12, 2, 60, NOW)
    assert (outcome.rows, outcome.journal) == ({}, [])


def test_a_run_is_noticed_no_earlier_than_the_last_change() -> None:
    """The time of a run is at least that of the namespace's last change, as it is for any command."""
    [run] = decide(_with_run(changed_at=NOW + 50), [RUN], NOW).runs
    assert run.at == NOW + 50


@pytest.mark.parametrize("policy", ['{"audit":true}', '{"trash":true}'])
def test_audited_or_trashed_entries_expire_one_by_one(policy: str) -> None:
    """Entries that the audit or the trash needs are not removed in a run: each one is looked at."""
    outcome = decide(_with_run(policy=policy), [RUN], NOW, Keyring([b"a secret of upkeep"]))
    assert outcome.results == [Removed(0)]
    assert outcome.empty


def test_entries_are_counted_for_one_run_alone() -> None:
    """What was summed up is true until something changes: a second run waits for another look."""
    assert decide(_with_run(), [RUN, RUN], NOW).results == [Removed(3), Removed(0)]
    verbs = Verbs(NAMESPACE, writer="w", new_id=id_maker(), now=lambda: 0)
    outcome = decide(_with_run(), [verbs.set("k", 1), RUN], NOW)
    assert (outcome.results[1], outcome.runs) == (Removed(0), [])


def test_a_run_in_mixed_company_is_a_defect() -> None:
    """A command after a run could be about an entry that the run has removed, so such a group is refused."""
    verbs = Verbs(NAMESPACE, writer="w", new_id=id_maker(), now=lambda: 0)
    with pytest.raises(RuntimeError, match="shares a group"):
        decide(_with_run(), [RUN, verbs.set("k", 1)], NOW)


def test_the_audit_is_pruned_from_its_beginning_and_by_its_policy_alone() -> None:
    """No caller of upkeep can drop records that are too young, not the oldest, not there, or to be kept."""
    keys = Keyring([b"a secret of upkeep"])
    verbs = Verbs(NAMESPACE, writer="w", new_id=id_maker(), now=lambda: 0)
    for policy, later, first, upto, removed in (
        ({"audit": True, "audit_retention": 10}, 9_999, 1, 2, 0),
        ({"audit": True, "audit_retention": 10}, 10_000, 2, 2, 0),
        ({"audit": True, "audit_retention": 10}, 10_000, 1, 9, 0),
        ({"audit": True}, 10_000, 1, 2, 0),
        ({"audit": True, "audit_retention": 10}, 10_000, 1, 2, 2),
    ):
        made = decide(Loaded({}, {}, ends=NO_AUDIT), [verbs.set_policy(policy), verbs.set("k", 1)], NOW, keys)
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


def _with_run(*, policy: str | None = None, changed_at: int = 0) -> Loaded:
    """Five entries, of which three may go in a run."""
    namespace = Namespace(
        name=NAMESPACE, revision=9, keys=5, bytes=100, policy=policy, changed_at=changed_at, created_at=1
    )
    runs = {NAMESPACE: Overdue(count=3, bytes=40, until=900)}
    return Loaded(namespaces={NAMESPACE: namespace}, rows={}, runs=runs)
