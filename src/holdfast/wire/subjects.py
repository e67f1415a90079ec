"""Subjects: who speaks, in which dialect, and what is asked.

Law: identity comes from the subject. Only the payload dialect, which is for trusted callers, names it in the
payload.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import rules
from holdfast.errors import HoldfastError, InvalidPluginName, InvalidSubject
from holdfast.verbs.fields import required
from holdfast.wire.dialects import ADMIN, PAYLOAD, PLUGIN, SEMANTIC, Dialect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KNOWN_SUBJECTS: Final = 4_096
"""How many subjects are kept in mind with where they lead."""
QUEUE: Final = "holdfast"
"""The queue group in which the instances of a service share the work."""
SERVICE_INBOX: Final = "_INBOX.HOLDFAST"
OPERATOR: Final = "OPERATOR"
"""What the operators' identity is called; no plugin can have that name."""

UNKNOWN: Final = "UNKNOWN"
"""What a caller of the payload dialect is called who names no plugin; no plugin can have that name either."""
OWN: Final = "own"
"""Where a server sends what it takes for a plugin with a connection of its own: behind this word."""
LINK: Final = "link"
"""Where a server sends what it takes for all others whom it tells apart: behind this word and a number."""
MOST_LINKS: Final = 128
"""How many such numbers there are. Where there are more plugins and projects, several have the same."""
LINKS_TOLD: Final = "$SRV.LINKS.holdfast"
"""Where a server tells how many it uses: it puts this and the number in the place of `links_question`."""
ONLY: Final = "only"
"""In an inbox, between a plugin or project and the verbs that its user may use."""

FAMILIES: Final = {
    "kv": "kv.*.>",
    "table": "table.*.>",
    "semantic": "semantic.*.*.>",
    "payload": "kv.*",
    "admin": "admin.*",
}
"""The subjects of each family of requests, below a prefix."""
HEARD: Final = ("*", "*.*", "kv.*.>", "table.*.>", "semantic.*.>", "admin.*.>")
"""Where a service listens below a prefix: at the subjects of every family, and at those of the wrong shape.

No two of them overlap, so that what one connection sends to one family comes in one way and in order. None
has room for an event, and so none for an unknown family with more than one token after it.
"""
GRANTED: Final = ("kv.*.>", "kv.*", "table.*.>", "semantic.*.*.>", "admin.>")
"""Where it listens below a prefix if the server lets each user send to its own subjects only.

That is all that anybody may send to, of the right shape or not. A service that may listen at `db.*` may also
listen at `db.>`, as the server sees it, and so would be let in on more than it needs.
"""


class Route(msgspec.Struct, frozen=True, gc=False):
    """Where a message leads. `owner` is what the identity is called: a plugin, or `tenant/project`."""

    dialect: Dialect
    verb: str
    namespace: str
    owner: str
    root: str | None = None
    family: str = "kv"


@lru_cache(maxsize=KNOWN_SUBJECTS)
def route(subject: str, prefix: str) -> Route:
    """The route of a subject under a prefix. Whether there is such a verb is for the service to say.

    Raises:
        InvalidSubject: There is no such shape of subject.
        InvalidPluginName: The plugin's name breaks its rule.
        ValidationError: The tenant's or the project's name does.
    """
    if not subject.startswith(f"{prefix}."):
        raise InvalidSubject("the subject has no known shape")
    match subject[len(prefix) + 1 :].split(".", 3):
        case ["kv" | "table" as family, plugin, verb, *more]:
            namespace = f"{family}/{rules.plugin_name(plugin)}"
            return Route(PLUGIN, ".".join([verb, *more]), namespace, plugin, family=family)
        case ["kv", verb]:
            return Route(PAYLOAD, verb, "", "", family="payload")
        case ["semantic", tenant, project, verb]:
            rules.tenant_part(tenant, field="tenant")
            rules.tenant_part(project, field="project")
            namespace = f"semantic/{tenant}/{project}"
            verb = "set" if verb == "put" else verb
            root = rules.semantic_root(namespace)
            return Route(SEMANTIC, verb, namespace, f"{tenant}/{project}", root, "semantic")
        case ["admin", verb, *more]:
            return Route(ADMIN, ".".join([verb, *more]), "", OPERATOR, family="admin")
        case ["ready"]:
            return Route(ADMIN, "ready", "", OPERATOR, family="admin")
        case _:
            raise InvalidSubject("the subject has no known shape")


def dialect_of(subject: str, prefix: str) -> Dialect:
    """The dialect of the refusal of a subject that has no route."""
    return SEMANTIC if subject[len(prefix) + 1 :].partition(".")[0] == "semantic" else PLUGIN


def identified(found: Route, fields: Mapping[str, Any]) -> Route:
    """The route of a message in the payload dialect, with the plugin that its payload names."""
    plugin = rules.plugin_name(required(fields, "plugin_name"))
    return msgspec.structs.replace(found, namespace=f"kv/{plugin}", owner=plugin)


class _Named(msgspec.Struct):
    plugin_name: str = ""


_NAMED: Final = msgspec.json.Decoder(_Named)


def presumed(found: Route, payload: bytes) -> Route:
    """The route of a message in the payload dialect before it is decoded: for whoever it seems to speak."""
    try:
        plugin = rules.plugin_name(_NAMED.decode(payload).plugin_name)
    except (InvalidPluginName, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.structs.replace(found, owner=UNKNOWN)
    return msgspec.structs.replace(found, namespace=f"kv/{plugin}", owner=plugin)


def ready_subject(prefix: str, inbox: str) -> tuple[Dialect, str]:
    """Where a client asks whether the service is ready: at its own subject if its inbox tells whose."""
    match inbox.split("."):
        case ["_INBOX", name] | ["_INBOX", name, "only", _]:
            own = "admin" if name == OPERATOR else f"kv.{name}"
        case ["_INBOX", tenant, project] | ["_INBOX", tenant, project, "only", _]:
            own = f"semantic.{tenant}.{project}"
        case _:
            return ADMIN, f"{prefix}.ready"
    subject = f"{prefix}.{own}.ready"
    try:
        return route(subject, prefix).dialect, subject
    except HoldfastError:  # the inbox is called after something else
        return ADMIN, f"{prefix}.ready"


def own_subjects(prefixes: Iterable[str], plugin: str) -> dict[str, str]:
    """What is sent to a plugin with a connection of its own, and where the server is to send it instead."""
    return {
        f"{prefix}.{family}.{plugin}.>": f"{prefix}.{OWN}.{family}.{plugin}.>"
        for prefix in prefixes
        for family in ("kv", "table")
    }


def link_subjects(prefixes: Iterable[str], user: str, number: int) -> dict[str, str]:
    """What a plugin or a tenant's project sends to, and where the server is to send it instead."""
    families = [f"semantic.{user.replace('/', '.')}"] if "/" in user else [f"kv.{user}", f"table.{user}"]
    return {
        f"{prefix}.{family}.>": f"{prefix}.{LINK}.{number}.{family}.>"
        for prefix in prefixes
        for family in families
    }


def links_question(prefix: str) -> str:
    """Where the service asks the server itself how many links it uses; nobody listens there."""
    return f"{prefix}.event.links"


def asked_at(subject: str, prefix: str) -> str:
    """Where a caller asked whose request the server was to send to a subject: there, unless it was moved."""
    moved = re.compile(rf"{re.escape(prefix)}\.(?:{OWN}|{LINK}\.[0-9]+)\.", re.IGNORECASE)
    return moved.sub(f"{prefix}.", subject, count=1) if moved.match(subject) else subject


def event_pattern(prefix: str, namespace: str) -> str:
    """Where all changes of a namespace are told."""
    return f"{prefix}.event.{namespace.replace('/', '.')}.*"


@lru_cache(maxsize=KNOWN_SUBJECTS)
def event_subject(prefix: str, namespace: str, op: str) -> str:
    """Where a change of a namespace is told."""
    return f"{prefix}.event.{namespace.replace('/', '.')}.{op}"
