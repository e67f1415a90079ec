"""The catalogue of verbs: what every door answers.

Nothing here knows a transport. A door adds transport, identity and spelling, and nothing else. A new
verb is declared in the module of its family.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.edges.calls import blobs, keys, operators, tables
from holdfast.edges.calls.catalogue import Verb
from holdfast.errors import ValidationError
from holdfast.forms import RULES, SCHEMAS

__all__ = ["FAMILIES", "WATCH", "Verb", "reading", "require_verbs"]

FAMILIES: Final[dict[str, dict[str, Verb]]] = {
    "kv": keys.VERBS,
    "semantic": keys.VERBS,
    "payload": keys.VERBS,
    "table": tables.VERBS,
    "blob": blobs.VERBS,
    "admin": operators.VERBS,
}
"""The verbs of each family of subjects."""

ESCALATED: Final = [name for name, verb in keys.VERBS.items() if verb.in_order and name != "escalate"]
"""The verbs whose calls may be given up."""
# Schemas name verbs only from here on, where all of them are known.
_SOME: Final[dict[str, dict[str, Any]]] = {
    "set_many": {"properties": {"items": {"minItems": 1}}},
    "delete_many": {"properties": {"keys": {"minItems": 1}}},
}
"""What a call that was given up must hold beside the fields of its verb, so that it would write something."""
RULES["EscalateFields"] = {
    "allOf": [
        {
            "anyOf": [
                {
                    "properties": {
                        "verb": {"const": name},
                        "request": {"$ref": f"{SCHEMAS}{keys.VERBS[name].fields.__name__}"}
                        | _SOME.get(name, {}),
                    }
                }
                for name in ESCALATED
            ]
        }
    ]
}
keys.VERBS["escalate"].holds("request", [keys.VERBS[name] for name in ESCALATED])
RULES["TokenCreateFields"]["allOf"].append(
    {"properties": {"verbs": {"items": {"enum": sorted({"watch"}.union(*FAMILIES.values()))}}}}
)


def reading(family: str) -> frozenset[str]:
    """Return the names of a family's verbs that write nothing."""
    return frozenset(name for name, verb in FAMILIES[family].items() if not verb.writes)


WATCH: Final = "watch"
"""Another name for `changes`, where verbs are allowed: a watch reads changes."""


def require_verbs(names: Iterable[object]) -> None:
    """Check that every name is that of a verb.

    Raises:
        ValidationError: One of them is not.
    """
    known = {WATCH}.union(*FAMILIES.values())
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise ValidationError(
                f"there is no verb {str(name)[:60]!r}; known are {', '.join(sorted(known))}", field="verbs"
            )
