"""The semantics, as pure functions: what a group of commands does to the rows that it finds.

    needs(commands)                      → the rows and namespaces that must be loaded
    further(commands, wanted, loaded)    → what else must be loaded, as policies and tables require
    decide(loaded, commands, now, keys)  → the resulting rows, records and results

No I/O, no clock, no randomness, no logging. The answer depends on the arguments alone and leaves them
unchanged, so that an engine may call it again. All semantics of the verbs are here, and none in an engine. A
new verb is a function in a table of this package. The deciding modules are imported on first use: a process
that only reads, such as `holdfast get`, starts without them and saves 12 ms of some 140 ms of CPU time.
"""

from typing import TYPE_CHECKING

from holdfast.decide.draft import Loaded, Needs, Outcome, looked_for
from holdfast.late import on_demand

if TYPE_CHECKING:
    from holdfast.decide.decision import Decision, decide, further, needs

__all__ = ["Decision", "Loaded", "Needs", "Outcome", "decide", "further", "load", "looked_for", "needs"]

__getattr__ = on_demand(
    __name__, dict.fromkeys(("Decision", "decide", "further", "needs"), "holdfast.decide.decision")
)


def load() -> None:
    """Import the deciding modules now, so that the first group need not wait for that."""
    __getattr__("Decision")
