"""The contract between a store and its storage. Read this to write a new engine.

An engine keeps four kinds of things: rows by address (`holdfast.rows`), one row per namespace, the journal
(records by namespace and version) and an epoch, which identifies this life of the storage. It does not
interpret them. A change goes through `transact`, which every engine implements in the same steps:

    wanted  = needs(commands)                     what to load
    loaded  = <one transaction begins: load>      lock the namespaces first, then load; in that order
    more    = further(commands, wanted, loaded)   what else to load, as a policy or a table requires
    outcome = decide(loaded, commands, now(), keys, defaults)   pure; the keys sign the audit
    <while outcome.unfinished: load what it wants, decide again>
    <save outcome; commit>                        all of it or nothing, durable before the return

Entries often expire in large numbers, and most leave nothing but a record. So `wanted.runs` may ask for the
totals of the due entries of a namespace (`holdfast.rows.Overdue`). `outcome.runs` then says that these
entries are removed and which versions their records get (`holdfast.rows.Run`), without a row or a record for
each. An engine may leave out these totals: its entries then expire one by one. It must sum up what the
journal holds up to a version (`wanted.trims`) and what a namespace keeps (`wanted.counts`), because quotas
depend on these sums. `holdfast.decide.weights` defines what each thing counts for.

`decide` can't write the first record of an audit, or one whose head was tampered with, before it knows which
records exist. `outcome.wants` then names the space. The engine saves nothing, puts its `ends_of` into
`loaded.ends` in the same transaction, and decides again. `outcome.looks` names rows to load in the same way,
because only deciding showed that they matter. The engine notes these rows, and those that `further` asks for,
in `loaded.looked`, whether they exist or not.

Guarantees:

- Groups that touch the same namespace take effect one after the other, across all processes.
- A failure before the commit raises a `Transient` error or `DatabaseError`, and nothing is kept. A failure
  during the commit whose outcome the engine can't know raises `OutcomeUnknown`.
- Keys are ordered by their UTF-8 bytes. Text is compared as it is: no case folding, no normalisation.
- A row whose `expires_at` is not later than `now` is invisible to `read`, `scan` and `totals`.
- Nothing is committed after `outcome.deadline`. The engine checks the time again once it holds every lock it
  had to wait for, as late before the commit as it can. If the deadline has passed, it rolls back and decides
  again. That refuses the commands whose callers have given up and executes the others.
- An engine that copies what it loads respects `loadable`: beyond it, it raises `TooExpensive` before it has
  loaded everything. It may yield to others whenever `Decision.take` returns before the last command.
- Cancelling a caller never stops a commit half way.
- An operation that an engine can't perform raises `Unsupported`. It never does something weaker instead.

This folder holds the protocols and the plain data that passes through them. Import their names from here.
`holdfast.testing` certifies an implementation.
"""

from holdfast.engine.contract import (
    LATER,
    Capabilities,
    Engine,
    Later,
    loadable,
    no_hint,
)
from holdfast.engine.optional import (
    CannotShareTransaction,
    ClusterFigures,
    DurableStorage,
    LineKeeper,
    LocalFile,
    SharedStorage,
    Sharer,
    does_upkeep,
)
from holdfast.engine.queries import (
    Due,
    Filter,
    JournalPage,
    JournalQuery,
    Scan,
    Scanned,
    Selected,
    Swept,
    Totals,
    ends_of,
    fitting,
    row_size,
    successor,
)
from holdfast.engine.raw import Checkup, Movable

__all__ = [
    "LATER",
    "CannotShareTransaction",
    "Capabilities",
    "Checkup",
    "ClusterFigures",
    "Due",
    "DurableStorage",
    "Engine",
    "Filter",
    "JournalPage",
    "JournalQuery",
    "Later",
    "LineKeeper",
    "LocalFile",
    "Movable",
    "Scan",
    "Scanned",
    "Selected",
    "SharedStorage",
    "Sharer",
    "Swept",
    "Totals",
    "does_upkeep",
    "ends_of",
    "fitting",
    "loadable",
    "no_hint",
    "row_size",
    "successor",
]
