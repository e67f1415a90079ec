"""Names and keys: plugins, tenants, namespaces, and the keys in them.

Law: as in `holdfast.rules`.
"""

from __future__ import annotations

import re
from typing import Final

from holdfast import families
from holdfast.errors import InvalidPluginName, ValidationError
from holdfast.rules.limits import MAX_KEY_CHARACTERS, MAX_SEMANTIC_KEY_CHARACTERS
from holdfast.rules.words import shown

_PLUGIN: Final = re.compile(r"[a-z0-9_-]{1,100}")
_TENANT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_COMPONENT: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")


def plugin_name(name: object) -> str:
    """Return the name of a plugin."""
    if not isinstance(name, str) or not _PLUGIN.fullmatch(name):
        raise InvalidPluginName(
            f"Plugin name {shown(name)} must be 1 to 100 of the characters a-z, 0-9, _ and -",
            field="plugin_name",
        )
    return name


def tenant_part(name: object, *, field: str) -> str:
    """Return the name of a tenant or a project."""
    if not isinstance(name, str) or not _TENANT.fullmatch(name):
        raise ValidationError(
            f"{field} {shown(name)} must be 1 to 63 of the characters a-z, 0-9, _ and -, "
            "beginning with a letter or digit",
            field=field,
        )
    return name


def namespace(name: object) -> str:
    """Return the full name of a namespace, as operators write it."""
    match name.split("/") if isinstance(name, str) else ():
        case [families.PLAIN | families.TABLES | families.BLOBS as family, plugin]:
            return f"{family}/{plugin_name(plugin)}"
        case [families.SEMANTIC, tenant, project]:
            tenant_part(tenant, field="tenant")
            return families.semantic(tenant, tenant_part(project, field="project"))
        case _:
            raise ValidationError(
                f"namespace {shown(name)} must be kv/<plugin>, table/<plugin>, blob/<plugin> "
                "or semantic/<tenant>/<project>",
                field="namespace",
            )


def semantic_root(namespace: str) -> str | None:
    """Return the prefix of full keys in a namespace; None outside the semantic family."""
    match namespace.split("/"):
        case [families.SEMANTIC, tenant, project]:
            return f"tenant/{tenant}/project/{project}/"
        case _:
            return None


def key(text: object) -> str:
    """Return a key: text of 1 to 255 characters without U+0000."""
    if type(text) is str and 0 < len(text) <= MAX_KEY_CHARACTERS and text.isascii() and "\x00" not in text:
        return text  # the common case
    if text == "":
        raise ValidationError("key must not be empty", field="key")
    return legal_text(text, field="key", most=MAX_KEY_CHARACTERS)


def prefix(text: object) -> str:
    """Return a prefix of keys; the empty one matches all."""
    return legal_text(text, field="prefix", most=MAX_KEY_CHARACTERS)


def semantic_key(text: object, root: str) -> str:
    """Return a key of a tenant's project in full. `root` is `tenant/<t>/project/<p>/`."""
    full = _under(legal_text(text, field="key", most=MAX_SEMANTIC_KEY_CHARACTERS), root, field="key")
    for number, component in enumerate(full.removeprefix(root).split("/"), start=1):
        if not _COMPONENT.fullmatch(component):
            raise ValidationError(
                f"key component {number} after {root!r} is {shown(component)}: components begin with "
                "a letter or digit and hold only a-z, 0-9, '.', '_' and '-'",
                field="key",
            )
    if len(full) > MAX_SEMANTIC_KEY_CHARACTERS:
        raise ValidationError(
            f"key has {len(full)} characters in full; at most {MAX_SEMANTIC_KEY_CHARACTERS} are allowed",
            field="key",
        )
    return full


def semantic_prefix(text: object, root: str) -> str:
    """Return a prefix of keys of a tenant's project in full."""
    given = prefix(text)
    return (
        root
        if root.startswith(given) and given.startswith("tenant/")
        else _under(given, root, field="prefix")
    )


def _under(text: str, root: str, *, field: str) -> str:
    if not text.startswith("tenant/"):
        return root + text
    if not text.startswith(root):
        raise ValidationError(f"{field} does not belong here: full keys begin with {root!r}", field=field)
    return text


def legal_text(text: object, *, field: str, most: int) -> str:
    """Return text that every engine can store."""
    if not isinstance(text, str):
        raise ValidationError(f"{field} must be text, not {shown(text)}", field=field)
    if len(text) > most:
        raise ValidationError(f"{field} has {len(text)} characters; at most {most} are allowed", field=field)
    if "\x00" in text:
        raise ValidationError(f"{field} must not contain U+0000", field=field)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValidationError(f"{field} holds a lone surrogate, which is not valid UTF-8", field=field)
    return text
