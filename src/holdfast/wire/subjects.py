"""Subjects, which name the caller, the dialect and the verb.

The subject determines the caller's identity. Only the payload dialect, which is for trusted callers,
names it in the payload.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from holdfast import families, rules
from holdfast.errors import HoldfastError, InvalidPluginName, InvalidSubject
from holdfast.verbs.fields import required
from holdfast.wire.dialects import ADMIN, PAYLOAD, PLUGIN, SEMANTIC, Dialect

KNOWN_SUBJECTS: Final = 4_096
"""The number of cached subjects."""
QUEUE: Final = "holdfast"
"""The queue group in which the instances of a service share the work."""
SERVICE_INBOX: Final = "_INBOX.HOLDFAST"
OPERATOR: Final = "OPERATOR"
"""The name of the operators' identity. No plugin can have that name."""

UNKNOWN: Final = "UNKNOWN"
"""The name of callers of the payload dialect that name no plugin. No plugin can have that name either."""
OWN: Final = "own"
"""The token after which a server maps requests for a plugin with its own connection."""
LINK: Final = "link"
"""The token after which, with a number, a server maps requests of all other users that it tells apart."""
MOST_LINKS: Final = 128
"""The maximum number of links. If there are more plugins and projects, several share a number."""
LINKS_TOLD: Final = "$SRV.LINKS.holdfast"
"""The subject that tells how many links a server uses: it maps `links_question` to this and the number."""
ONLY: Final = "only"
"""The token in an inbox between a plugin or project and the verbs that its user may use."""

FAMILIES: Final = {
    "kv": "kv.*.>",
    "table": "table.*.>",
    "blob": "blob.*.>",
    "semantic": "semantic.*.*.>",
    "payload": "kv.*",
    "admin": "admin.*",
}
"""The subjects of each family of requests, below a prefix."""
HEARD: Final = (
    *("kv.>", "table.>", "blob.>", "semantic.>", "admin.>", "ready"),
    *("event.*", "event.kv.*", "event.table.*", "event.blob.*", "event.semantic.*", "event.semantic.*.*"),
)
"""The subjects below a prefix to which a service subscribes: those of every family, and malformed ones.

All other subjects below a prefix belong to other programs. No two of these overlap, so that requests of one
connection to one family arrive over one subscription and in order. None matches an event: those of `event`
are all too short to be one. `ready` comes after the families: a service that is ready hears all of them.
"""
GRANTED: Final = ("kv.*.>", "kv.*", "table.*.>", "blob.*.>", "semantic.*.*.>", "admin.>")
"""The subjects below a prefix to which a service subscribes if the server limits users to their own subjects.

Users can send to no others, well-formed or not. To the server, permission to subscribe to `db.*` includes
`db.>`, so the service would be allowed more than it needs.
"""


class Route(msgspec.Struct, frozen=True, gc=False):
    """The route of a message. `owner` is the name of the identity: a plugin, or `tenant/project`."""

    dialect: Dialect
    verb: str
    namespace: str
    owner: str
    root: str | None = None
    family: str = "kv"


@lru_cache(maxsize=KNOWN_SUBJECTS)
def route(subject: str, prefix: str) -> Route:
    """Return the route of a subject under a prefix. The service checks whether the verb exists.

    Raises:
        InvalidSubject: The subject has no known shape.
        InvalidPluginName: The plugin's name is illegal.
        ValidationError: The tenant's or the project's name is illegal.
    """
    if not subject.startswith(f"{prefix}."):
        raise InvalidSubject("the subject does not match any known form")
    match subject[len(prefix) + 1 :].split(".", 3):
        case ["kv" | "table" | "blob" as family, plugin, verb, *more]:
            namespace = f"{family}/{rules.plugin_name(plugin)}"
            return Route(PLUGIN, ".".join([verb, *more]), namespace, plugin, family=family)
        case ["kv", verb]:
            return Route(PAYLOAD, verb, "", "", family="payload")
        case ["semantic", tenant, project, verb]:
            rules.tenant_part(tenant, field="tenant")
            rules.tenant_part(project, field="project")
            namespace = families.semantic(tenant, project)
            verb = "set" if verb == "put" else verb
            root = rules.semantic_root(namespace)
            return Route(SEMANTIC, verb, namespace, f"{tenant}/{project}", root, "semantic")
        case ["admin", verb, *more]:
            return Route(ADMIN, ".".join([verb, *more]), "", OPERATOR, family="admin")
        case ["ready"]:
            return Route(ADMIN, "ready", "", OPERATOR, family="admin")
        case _:
            raise InvalidSubject("the subject does not match any known form")


def dialect_of(subject: str, prefix: str) -> Dialect:
    """Return the dialect in which to refuse a subject that has no route."""
    return SEMANTIC if subject[len(prefix) + 1 :].partition(".")[0] == "semantic" else PLUGIN


def identified(found: Route, fields: Mapping[str, Any]) -> Route:
    """Complete the route of a message in the payload dialect with the plugin that its payload names."""
    plugin = rules.plugin_name(required(fields, "plugin_name"))
    return msgspec.structs.replace(found, namespace=f"{families.PLAIN}/{plugin}", owner=plugin)


class _Named(msgspec.Struct):
    plugin_name: str = ""


_NAMED: Final = msgspec.json.Decoder(_Named)


def presumed(found: Route, payload: bytes) -> Route:
    """Complete the route of a message in the payload dialect with its apparent plugin, before decoding it."""
    try:
        plugin = rules.plugin_name(_NAMED.decode(payload).plugin_name)
    except (InvalidPluginName, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.structs.replace(found, owner=UNKNOWN)
    return msgspec.structs.replace(found, namespace=f"{families.PLAIN}/{plugin}", owner=plugin)


def ready_subject(prefix: str, inbox: str) -> tuple[Dialect, str]:
    """Return the subject at which a client asks for readiness: its own, if its inbox names its plugin."""
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
    except HoldfastError:  # the inbox is named after something else
        return ADMIN, f"{prefix}.ready"


def own_subjects(prefixes: Iterable[str], plugin: str) -> dict[str, str]:
    """Map the subjects of a plugin with its own connection to those to which the server redirects them."""
    return {
        f"{prefix}.{family}.{plugin}.>": f"{prefix}.{OWN}.{family}.{plugin}.>"
        for prefix in prefixes
        for family in families.OF_PLUGINS
    }


def link_subjects(prefixes: Iterable[str], user: str, number: int) -> dict[str, str]:
    """Map the subjects of a plugin or a tenant's project to those to which the server redirects them."""
    project = f"semantic.{user.replace('/', '.')}"
    owned = [project] if "/" in user else [f"{family}.{user}" for family in families.OF_PLUGINS]
    return {
        f"{prefix}.{family}.>": f"{prefix}.{LINK}.{number}.{family}.>"
        for prefix in prefixes
        for family in owned
    }


def links_question(prefix: str) -> str:
    """Return the subject at which the service asks the server how many links it uses.

    The subject has no subscribers: the server maps it to `LINKS_TOLD`.
    """
    return f"{prefix}.event.links"


def asked_at(subject: str, prefix: str) -> str:
    """Return the subject that a caller used, given the one to which the server may have redirected it."""
    moved = re.compile(rf"{re.escape(prefix)}\.(?:{OWN}|{LINK}\.[0-9]+)\.", re.IGNORECASE)
    return moved.sub(f"{prefix}.", subject, count=1) if moved.match(subject) else subject


def event_pattern(prefix: str, namespace: str) -> str:
    """Return the pattern of the subjects at which the changes of a namespace are published."""
    return f"{prefix}.event.{namespace.replace('/', '.')}.*"


@lru_cache(maxsize=KNOWN_SUBJECTS)
def event_subject(prefix: str, namespace: str, op: str) -> str:
    """Return the subject at which a change of a namespace is published."""
    return f"{prefix}.event.{namespace.replace('/', '.')}.{op}"
