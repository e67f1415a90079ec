"""Subjects: who speaks, in which dialect, and what is asked.

Law: identity comes from the subject. Only the payload dialect, which is for trusted callers, names it in the
payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import rules
from holdfast.errors import InvalidSubject
from holdfast.wire.dialects import ADMIN, PAYLOAD, PLUGIN, SEMANTIC, Dialect

if TYPE_CHECKING:
    from collections.abc import Mapping

QUEUE: Final = "holdfast"
"""The queue group in which the instances of a service share the work."""
SERVICE_INBOX: Final = "_INBOX.HOLDFAST"
OPERATOR: Final = "OPERATOR"
"""What the operators' identity is called; no plugin can have that name."""

PLUGIN_SUBJECTS: Final = "kv.*.>"
PAYLOAD_SUBJECTS: Final = "kv.*"
SEMANTIC_SUBJECTS: Final = "semantic.*.*.>"
ADMIN_SUBJECTS: Final = "admin.*"


class Route(msgspec.Struct, frozen=True, gc=False):
    """Where a message leads. `owner` is what the identity is called: a plugin, or `tenant/project`."""

    dialect: Dialect
    verb: str
    namespace: str
    owner: str
    root: str | None = None


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
        case ["kv", plugin, verb, *more]:
            return Route(PLUGIN, ".".join([verb, *more]), f"kv/{rules.plugin_name(plugin)}", plugin)
        case ["kv", verb]:
            return Route(PAYLOAD, verb, "", "")
        case ["semantic", tenant, project, verb]:
            rules.tenant_part(tenant, field="tenant")
            rules.tenant_part(project, field="project")
            namespace = f"semantic/{tenant}/{project}"
            verb = "set" if verb == "put" else verb
            return Route(SEMANTIC, verb, namespace, f"{tenant}/{project}", rules.semantic_root(namespace))
        case ["admin", verb]:
            return Route(ADMIN, verb, "", OPERATOR)
        case _:
            raise InvalidSubject("the subject has no known shape")


def dialect_of(subject: str, prefix: str) -> Dialect:
    """The dialect of the refusal of a subject that has no route."""
    return SEMANTIC if subject.startswith(f"{prefix}.semantic.") else PLUGIN


def identified(found: Route, fields: Mapping[str, Any]) -> Route:
    """The route of a message in the payload dialect, with the plugin that its payload names."""
    plugin = rules.plugin_name(fields.get("plugin_name"))
    return Route(found.dialect, found.verb, f"kv/{plugin}", plugin)


def event_pattern(prefix: str, namespace: str) -> str:
    """Where all changes of a namespace are told."""
    return f"{prefix}.event.{namespace.replace('/', '.')}.*"


def event_subject(prefix: str, namespace: str, op: str) -> str:
    """Where a change of a namespace is told."""
    return f"{prefix}.event.{namespace.replace('/', '.')}.{op}"
