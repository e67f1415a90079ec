"""The pure heart: what a group of commands does to the rows that it finds.

    needs(commands)                      → the rows and namespaces that must be loaded
    further(commands, wanted, loaded)    → what must be loaded besides, as policies and tables say
    decide(loaded, commands, now, keys)  → the rows, records and results that follow

Law: no I/O, no clock, no randomness, no logging; the answer depends on the arguments alone, which are left as
they were, so that an engine may call it again. All meaning of the verbs is here, and an engine has none. A
new verb is a function in a table of this package. What decides is imported with the first group: a process
that only reads does without it.
"""

from typing import TYPE_CHECKING, Any

from holdfast.decide.draft import Loaded, Needs, Outcome

if TYPE_CHECKING:
    from holdfast.decide.decision import Decision, decide, further, needs

__all__ = ["Decision", "Loaded", "Needs", "Outcome", "decide", "further", "needs"]

_ON_DEMAND = ("Decision", "decide", "further", "needs")


def __getattr__(name: str) -> Any:
    """A name that is imported on demand, with the others: nobody asks twice."""
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'holdfast.decide' has no attribute {name!r}")
    from holdfast.decide import decision

    globals().update({known: getattr(decision, known) for known in _ON_DEMAND})
    return globals()[name]
