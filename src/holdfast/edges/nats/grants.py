"""The users of a plugin or of a tenant's project, and the verbs that each may use.

    trivia              every verb
    trivia:read         every verb that writes nothing
    audit:get,list      these verbs alone
    acme/web:read,set   the same for a tenant's project

Law: the catalogue says which verbs exist and which of them write; this module does not repeat that list. It
turns names into users. `server_config.Permissions` decides which subjects they may publish to.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast import rules
from holdfast.edges.calls import FAMILIES, reading
from holdfast.errors import ValidationError
from holdfast.families import OF_PLUGINS, SEMANTIC
from holdfast.wire.subjects import ONLY

if TYPE_CHECKING:
    from collections.abc import Iterable

READ: Final = "read"
"""The word that stands for all verbs that write nothing."""
EVENTS: Final = "changes"
"""The verb whose users may also receive the events of its family, which carry the same information."""

PLUGIN_FAMILIES: Final = OF_PLUGINS
TENANT_FAMILIES: Final = (SEMANTIC,)

_READY: Final = "ready"
"""The verb granted to every user. It reveals nothing about data."""
_LONGEST: Final = 100
"""Maximum length of the part after the colon, which becomes part of a file name."""

READING: Final[dict[str, frozenset[str]]] = {
    family: reading(family) for family in (*PLUGIN_FAMILIES, *TENANT_FAMILIES)
}
"""The verbs of each family that write nothing."""
VERBS: Final[dict[str, frozenset[str]]] = {
    "kv": frozenset(FAMILIES["kv"]),
    "table": frozenset(FAMILIES["table"]),
    "blob": frozenset(FAMILIES["blob"]),
    SEMANTIC: frozenset(FAMILIES[SEMANTIC]) | {"put"},
}
"""Every verb of each family, as named in subjects."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user that logs in to the NATS server.

    Args:
        name: The owner's name; for a restricted user also a colon and the permitted verbs.
        owner: The plugin, or the tenant's project.
        families: The families of subjects that the owner has.
        verbs: The verbs that the user may use; None for all.
    """

    name: str
    owner: str
    families: tuple[str, ...]
    verbs: frozenset[str] | None = None

    def verbs_of(self, family: str) -> list[str]:
        """Return the verbs of a family that this user may use, as named in subjects."""
        if self.verbs is None:
            return sorted(VERBS[family])
        return sorted(VERBS[family] & self.verbs)

    @property
    def told(self) -> list[str]:
        """The families whose events this user may receive."""
        return [family for family in self.families if EVENTS in self.verbs_of(family)]


def plugin_user(text: str) -> User:
    """Parse `plugin` or `plugin:verbs` into a user.

    Raises:
        InvalidPluginName: The plugin's name breaks its rule.
        ValidationError: A verb is unknown, or none follows the colon.
    """
    owner, colon, verbs = text.partition(":")
    rules.plugin_name(owner)
    return _user(owner, verbs if colon else None, PLUGIN_FAMILIES, field="plugin")


def tenant_user(text: str) -> User:
    """Parse `tenant/project` or `tenant/project:verbs` into a user.

    Raises:
        ValidationError: A name breaks its rule, a verb is unknown, or none follows the colon.
    """
    owner, colon, verbs = text.partition(":")
    tenant, _, project = owner.partition("/")
    rules.tenant_part(tenant, field="tenant")
    rules.tenant_part(project, field="project")
    return _user(owner, verbs if colon else None, TENANT_FAMILIES, field="tenant")


def tokens(user: str) -> str:
    """Return a user's name as tokens, for use in subjects, URLs and file names.

    Plugins have one token or three, projects two or four, so every user's tokens are unique.
    """
    owner, colon, verbs = user.partition(":")
    name = owner.replace("/", ".")
    return f"{name}.{ONLY}.{verbs.replace(',', '-')}" if colon else name


def owners(users: Iterable[User]) -> tuple[str, ...]:
    """Return the owners of these users, each once."""
    return tuple(dict.fromkeys(user.owner for user in users))


def _user(owner: str, given: str | None, families: tuple[str, ...], *, field: str) -> User:
    if given is None:
        return User(name=owner, owner=owner, families=families)
    asked = {_SPELLINGS.get(word, word) if SEMANTIC in families else word for word in given.split(",")}
    reading = frozenset().union(*(READING[family] for family in families))
    known = frozenset().union(*(VERBS[family] for family in families))
    for word in sorted(asked - known - {READ}):
        raise ValidationError(_unknown(word, owner, known), field=field)
    named = sorted(asked - (reading if READ in asked else {READ}) - {READ})
    verbs = frozenset(named) | {_READY} | (reading if READ in asked else frozenset())
    text = ",".join([READ, *named] if READ in asked else named)
    if len(text) > _LONGEST:
        raise ValidationError(
            f"the list of verbs of {owner!r} is longer than {_LONGEST} characters: "
            f"name {READ!r} instead of the verbs that read, or split the list between two users",
            field=field,
        )
    also = {spelling for spelling, verb in _SPELLINGS.items() if verb in verbs and SEMANTIC in families}
    return User(name=f"{owner}:{text}", owner=owner, families=families, verbs=verbs | also)


_SPELLINGS: Final = {"put": "set"}
"""Alternative names of verbs for tenants' projects."""


def _unknown(word: str, owner: str, known: frozenset[str]) -> str:
    if not word:
        return f"name the verbs of {owner!r} after the colon, as in {owner}:{READ} or {owner}:get,list"
    nearest = get_close_matches(word, [READ, *sorted(known)], n=1, cutoff=0.5)
    if nearest:
        return f"{word!r} is not a verb that {owner!r} can be given; did you mean {nearest[0]!r}?"
    return (
        f"{word!r} is not a verb that {owner!r} can be given; known are {', '.join([READ, *sorted(known)])}"
    )
