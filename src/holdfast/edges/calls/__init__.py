"""The catalogue of verbs: what every door answers.

Law: nothing here knows a transport. A door adds transport, identity and spelling, and nothing else. A new
verb is declared in the module of its family.
"""

from __future__ import annotations

from typing import Final

from holdfast.edges.calls import keys, operators, tables
from holdfast.edges.calls.catalogue import Verb

__all__ = ["FAMILIES", "Verb", "reading"]

FAMILIES: Final[dict[str, dict[str, Verb]]] = {
    "kv": keys.VERBS,
    "semantic": keys.VERBS,
    "payload": keys.VERBS,
    "table": tables.VERBS,
    "admin": operators.VERBS,
}
"""The verbs of each family of subjects."""


def reading(family: str) -> frozenset[str]:
    """Return the names of a family's verbs that write nothing."""
    return frozenset(name for name, verb in FAMILIES[family].items() if not verb.writes)
