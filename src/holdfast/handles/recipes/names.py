"""Where recipes keep their entries: the name that a caller gives, as a legal key.

Law: every key of a recipe is made here. A name is legal in one family exactly when it is in the other, apart
from its length, so that code can move between them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from holdfast import rules
from holdfast.errors import ValidationError

if TYPE_CHECKING:
    from holdfast.handles.keys import Keys

WAITING: Final = "waiting"
"""The part of a key below a lock's own where those who wait for it stand."""
TICKET_DIGITS: Final = 16
_PLACE: Final = re.compile(rf"/{WAITING}/[0-9a-f]{{{TICKET_DIGITS}}}")


def entry_key(kv: Keys, kind: str, name: object, *, below: int = 0) -> str:
    """The key of a recipe's entry, `<kind>/<name>`, in full.

    Args:
        kv: The namespace's handle.
        kind: What the entry is, such as `lock`.
        name: One or more components of a-z, 0-9, `.`, `_` and `-` with `/` between them.
        below: How many characters must be left for keys below this one.

    Raises:
        ValidationError: The name breaks that rule, or the key would be longer than 128 characters in full.
    """
    if not isinstance(name, str):
        raise ValidationError(f"the name of a {kind} must be text, not {rules.kind_of(name)}", field="name")
    root = rules.semantic_root(kv.namespace) or ""
    room = rules.MAX_SEMANTIC_KEY_CHARACTERS - len(root) - len(kind) - 1 - below
    if len(name) > room:
        raise ValidationError(
            f"the name of a {kind} has {len(name)} characters; at most {room} are allowed here", field="name"
        )
    try:
        return rules.semantic_key(f"{kind}/{name}", root)
    except ValidationError:
        raise ValidationError(
            f"the name of a {kind} must be components of a-z, 0-9, '.', '_' and '-', each beginning with a "
            f"letter or digit, with '/' between them, not {name!a}",
            field="name",
        ) from None


def lock_key(kv: Keys, name: object) -> str:
    """The key of a lock's entry. Those who wait for it stand below it, so no lock may have such a name."""
    key = entry_key(kv, "lock", name, below=len(f"/{WAITING}/") + TICKET_DIGITS)
    if WAITING in str(name).split("/"):
        raise ValidationError(f"the name of a lock must not have the component {WAITING!r}", field="name")
    return key


def waits(key: str) -> bool:
    """Whether a key is that of somebody who waits for a lock."""
    return _PLACE.fullmatch(key, max(0, len(key) - TICKET_DIGITS - len(WAITING) - 2)) is not None
