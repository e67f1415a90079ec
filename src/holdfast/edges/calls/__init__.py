"""The catalogue: what every door answers, verb by verb.

Law: no transport is known here. A door adds transport, identity and spelling, and nothing else. A new verb is
declared in the module of its family.
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
"""The verbs that each family of subjects has."""


def reading(family: str) -> frozenset[str]:
    """The names of the verbs of a family that write nothing."""
    return frozenset(name for name, verb in FAMILIES[family].items() if not verb.writes)
