"""The suite that certifies an engine: every rule of keys, recipes and tables, as users see it.

Law: a test here holds on every engine and names the rule it protects. It sees what a caller sees, moves time
by the clock it is given, and skips nothing. Where an engine declares fewer capabilities, the test asserts the
reduced behaviour.
"""

from holdfast.testing.conformance.audit import Audit
from holdfast.testing.conformance.batches import Batches
from holdfast.testing.conformance.costs import Costs
from holdfast.testing.conformance.counters import Counters
from holdfast.testing.conformance.deadlines import Deadlines
from holdfast.testing.conformance.envelope import Envelope
from holdfast.testing.conformance.expiry import Expiry
from holdfast.testing.conformance.fences import Fences
from holdfast.testing.conformance.fixtures import Fixtures, MakeStore, Opened, Reopen
from holdfast.testing.conformance.journal import Journal
from holdfast.testing.conformance.keys import Keys
from holdfast.testing.conformance.letters import Letters
from holdfast.testing.conformance.listing import Listing
from holdfast.testing.conformance.locks import Locks
from holdfast.testing.conformance.many import Many
from holdfast.testing.conformance.policies import Policies
from holdfast.testing.conformance.recipes import Recipes
from holdfast.testing.conformance.requests import Requests
from holdfast.testing.conformance.semantic import Semantic
from holdfast.testing.conformance.table_indexes import TableIndexes
from holdfast.testing.conformance.table_items import TableItems
from holdfast.testing.conformance.table_queries import TableQueries
from holdfast.testing.conformance.table_ttl import TableTtl
from holdfast.testing.conformance.tables import TablesAsWholes
from holdfast.testing.conformance.trash import Trash
from holdfast.testing.conformance.upkeep import Upkeep
from holdfast.testing.conformance.values import Values
from holdfast.testing.conformance.versions import Versions
from holdfast.testing.conformance.watching import Watching

__all__ = ["Conformance", "Fixtures", "MakeStore", "Opened", "Reopen"]


class Conformance(
    Values,
    Keys,
    Envelope,
    Versions,
    Counters,
    Expiry,
    Listing,
    Journal,
    Watching,
    Batches,
    Many,
    Requests,
    Deadlines,
    Trash,
    Fences,
    Semantic,
    Upkeep,
    Policies,
    Audit,
    Locks,
    Recipes,
    Letters,
    TablesAsWholes,
    TableItems,
    TableQueries,
    TableIndexes,
    TableTtl,
    Costs,
):
    """All rules of keys and tables. Subclass it, set `scheme`, and supply the fixture `make_store`.

    `make_store` returns an asynchronous function that takes a clock and opens a store on the storage of the
    current test: empty at first, the same each time it is called. The store must have `reap=False`.
    """
