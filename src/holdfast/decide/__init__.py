"""The semantics, as pure functions: what a group of commands does to the rows that it finds.

    needs(commands)                      → the rows and namespaces that must be loaded
    further(commands, wanted, loaded)    → what else must be loaded, as policies and tables require
    decide(loaded, commands, now, keys)  → the resulting rows, records and results

Law: no I/O, no clock, no randomness, no logging. The answer depends on the arguments alone and leaves them
unchanged, so that an engine may call it again. All semantics of the verbs are here, and none in an engine. A
new verb is a function in a table of this package. The deciding modules are imported on first use: a process
that only reads, such as `holdfast get`, starts without them and saves 12 ms of some 140 ms of CPU time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.decide.draft import Loaded, Needs, Outcome

if TYPE_CHECKING:
    from holdfast.decide.decision import Decision, decide, further, needs

__all__ = ["Decision", "Loaded", "Needs", "Outcome", "decide", "further", "load", "needs"]

_ON_DEMAND = ("Decision", "decide", "further", "needs")


def load() -> None:
    """Import the deciding modules now, so that the first group need not wait for that."""
    decision = import_module("holdfast.decide.decision")
    globals().update({name: getattr(decision, name) for name in _ON_DEMAND})


def __getattr__(name: str) -> Any:
    """Return a name that is imported on demand. The first use imports all of these names."""
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'holdfast.decide' has no attribute {name!r}")
    load()
    return globals()[name]
