"""The suite that certifies an engine: every rule of keys, recipes, tables and blobs, as users see it.

Law: a test here holds on every engine and names the rule it protects. It sees what a caller sees, moves time
by the clock it is given, and skips nothing. Where an engine declares fewer capabilities, the test asserts the
reduced behaviour.
"""

from holdfast.testing.conformance.audit import AuditRules
from holdfast.testing.conformance.batches import BatchRules
from holdfast.testing.conformance.blob_entries import BlobEntryRules
from holdfast.testing.conformance.costs import CostRules
from holdfast.testing.conformance.counters import CounterRules
from holdfast.testing.conformance.deadlines import DeadlineRules
from holdfast.testing.conformance.envelope import EnvelopeRules
from holdfast.testing.conformance.expiry import ExpiryRules
from holdfast.testing.conformance.fences import FenceRules
from holdfast.testing.conformance.fixtures import Fixtures, MakeStore, Opened, Reopen
from holdfast.testing.conformance.journal import JournalRules
from holdfast.testing.conformance.keys import KeyRules
from holdfast.testing.conformance.letters import LetterRules
from holdfast.testing.conformance.listing import ListingRules
from holdfast.testing.conformance.locks import LockRules
from holdfast.testing.conformance.many import ManyKeysRules
from holdfast.testing.conformance.mirrors import MirrorRules
from holdfast.testing.conformance.policies import PolicyRules
from holdfast.testing.conformance.recipes import RecipeRules
from holdfast.testing.conformance.requests import RequestRules
from holdfast.testing.conformance.reveals import RevealRules
from holdfast.testing.conformance.semantic import SemanticsRules
from holdfast.testing.conformance.table_indexes import TableIndexRules
from holdfast.testing.conformance.table_items import TableItemRules
from holdfast.testing.conformance.table_queries import TableQueryRules
from holdfast.testing.conformance.table_ttl import TableTtlRules
from holdfast.testing.conformance.tables import TableRules
from holdfast.testing.conformance.trash import TrashRules
from holdfast.testing.conformance.upkeep import UpkeepRules
from holdfast.testing.conformance.values import ValueRules
from holdfast.testing.conformance.versions import VersionRules
from holdfast.testing.conformance.watching import WatchRules

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
    RequestRules,
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
