"""The suite that certifies an engine: every rule of keys, recipes, tables and blobs, as users see it.

A test here holds on every engine and names the rule it protects. It sees what a caller sees, moves time by
the clock it is given, and skips nothing. Where an engine declares fewer capabilities, the test asserts the
reduced behaviour.
"""

from holdfast.testing.conformance.audit import AuditRules, RevealRules
from holdfast.testing.conformance.batches import (
    BatchRules,
    DeadlineRules,
    FenceRules,
    OnceRules,
    RequestRules,
)
from holdfast.testing.conformance.blobs import BlobEntryRules
from holdfast.testing.conformance.costs import CostRules
from holdfast.testing.conformance.expiry import ExpiryRules
from holdfast.testing.conformance.fixtures import Fixtures, MakeStore, Opened, Reopen
from holdfast.testing.conformance.journal import JournalRules, MirrorRules, WatchRules
from holdfast.testing.conformance.keys import CounterRules, KeyRules, VersionRules
from holdfast.testing.conformance.letters import LetterRules
from holdfast.testing.conformance.listing import ListingRules, ManyKeysRules
from holdfast.testing.conformance.logs import LogRules
from holdfast.testing.conformance.policies import PolicyRules, UpkeepRules
from holdfast.testing.conformance.recipes import LockRules, RecipeRules
from holdfast.testing.conformance.table_queries import TableIndexRules, TableQueryRules, TableTtlRules
from holdfast.testing.conformance.tables import TableItemRules, TableRules
from holdfast.testing.conformance.trash import TrashRules
from holdfast.testing.conformance.values import EnvelopeRules, SemanticsRules, ValueRules

__all__ = ["Conformance", "Fixtures", "MakeStore", "Opened", "Reopen"]


class Conformance(
    ValueRules,
    KeyRules,
    EnvelopeRules,
    VersionRules,
    CounterRules,
    ExpiryRules,
    ListingRules,
    JournalRules,
    WatchRules,
    MirrorRules,
    BatchRules,
    ManyKeysRules,
    LogRules,
    RequestRules,
    OnceRules,
    DeadlineRules,
    TrashRules,
    FenceRules,
    SemanticsRules,
    RevealRules,
    UpkeepRules,
    PolicyRules,
    AuditRules,
    LockRules,
    RecipeRules,
    LetterRules,
    TableRules,
    TableItemRules,
    TableQueryRules,
    TableIndexRules,
    TableTtlRules,
    BlobEntryRules,
    CostRules,
):
    """All rules of keys, tables and blobs. Subclass it, set `scheme`, and supply the fixture `make_store`.

    `make_store` returns an asynchronous function that takes a clock and opens a store on the storage of the
    current test: empty at first, the same each time it is called. The store must have `reap=False`.
    """
