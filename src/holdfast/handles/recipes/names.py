"""The keys of recipes' entries, made from the names that callers give.

Law: every key of a recipe is made here. Apart from its length, a name is valid in one family exactly when it
is valid in the other, so that code can move between them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from holdfast import rules
from holdfast.errors import ValidationError

if TYPE_CHECKING:
    from holdfast.handles.keys import Keys

WAITING: Final = "waiting"
"""The component below a lock's key that holds the entries of its waiters."""
TICKET_DIGITS: Final = 16
FLAG: Final = "flag"
CASED: Final = "flag.cased"
_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*")
_CASED: Final = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_SPELLED: Final = re.compile(r"[A-Z_]")
_CAPITAL: Final = re.compile(r"_([a-z_])")
_PLACE: Final = re.compile(rf"/{WAITING}/[0-9a-f]{{{TICKET_DIGITS}}}")


def entry_key(kv: Keys, kind: str, name: object, *, below: int = 0) -> str:
    """Return the full key of a recipe's entry, `<kind>/<name>`.

    Args:
        kv: The namespace's handle.
        kind: The kind of entry, such as `lock`.
        name: One or more components of a-z, 0-9, `.`, `_` and `-` with `/` between them.
        below: Number of characters to reserve for keys below this one.

    Raises:
        ValidationError: The name breaks that rule, or the full key would be longer than 128 characters.
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


def flag_key(kv: Keys, name: object) -> str:
    """Return the full key of a flag. Its name may also have capitals, and components that begin with a mark.

    No key of the semantic family has those, so they are spelled out below `flag.cased/`: an `x` before each
    component, `_` before a letter that stands for its capital, and `__` for `_`. No two names share a key.

    Raises:
        ValidationError: The name breaks this rule, or the full key would be longer than 128 characters.
    """
    if not isinstance(name, str) or _PLAIN.fullmatch(name):
        return entry_key(kv, FLAG, name)
    if not _CASED.fullmatch(name):
        raise ValidationError(
            "the name of a flag must be components of letters, digits, '.', '_' and '-', with '/' between "
            f"them, not {name!a}",
            field="name",
        )
    capitals = _SPELLED.sub(lambda found: f"_{found[0].lower()}", name)
    spelled = "/".join(f"x{part}" for part in capitals.split("/"))
    root = rules.semantic_root(kv.namespace) or ""
    room = rules.MAX_SEMANTIC_KEY_CHARACTERS - len(root) - len(CASED) - 1
    if len(spelled) > room:
        raise ValidationError(
            f"the name of a flag has {len(spelled)} characters once its capitals are spelled out; at most "
            f"{room} are allowed here",
            field="name",
        )
    return f"{root}{CASED}/{spelled}"


def flag_name(kv: Keys, key: str) -> str | None:
    """Return the name of the flag with a full key, or None if it is no flag's."""
    kind, _, name = key.removeprefix(rules.semantic_root(kv.namespace) or "").partition("/")
    if kind == CASED:
        cased = _CAPITAL.sub(lambda found: found[1].upper(), name)
        name = "/".join(part.removeprefix("x") for part in cased.split("/"))
    try:
        return name if flag_key(kv, name) == key else None
    except ValidationError:
        return None


def lock_key(kv: Keys, name: object) -> str:
    """Return the key of a lock's entry. Names may not contain `waiting`, which leads to its waiters."""
    key = entry_key(kv, "lock", name, below=len(f"/{WAITING}/") + TICKET_DIGITS)
    if WAITING in str(name).split("/"):
        raise ValidationError(f"the name of a lock must not have the component {WAITING!r}", field="name")
    return key


def waits(key: str) -> bool:
    """Return True if a key belongs to a waiter of a lock."""
    return _PLACE.fullmatch(key, max(0, len(key) - TICKET_DIGITS - len(WAITING) - 2)) is not None
