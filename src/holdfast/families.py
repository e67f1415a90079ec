"""The families of namespaces: a plugin's keys, tables and blobs, and the keys of a tenant's project.

A namespace is called `kv/<plugin>`, `table/<plugin>`, `blob/<plugin>` or `semantic/<tenant>/<project>`, and
only this module makes such a name or tells from it which family it belongs to. `rules` decides which names
are legal. The engines' SQL is the exception: it has to spell the beginning of the name itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

PLAIN: Final = "kv"
TABLES: Final = "table"
BLOBS: Final = "blob"
SEMANTIC: Final = "semantic"
OF_PLUGINS: Final = (PLAIN, TABLES, BLOBS)
"""The families in which a plugin has a namespace."""

_KNOWN: Final = 4_096
"""Number of names whose family is cached: every write asks, and a cached answer needs no Python code."""


def plain(plugin: str) -> str:
    """Return the namespace of a plugin's keys."""
    return f"{PLAIN}/{plugin}"


def tables(plugin: str) -> str:
    """Return the namespace of a plugin's tables."""
    return f"{TABLES}/{plugin}"


def blobs(plugin: str) -> str:
    """Return the namespace of a plugin's blobs."""
    return f"{BLOBS}/{plugin}"


def semantic(tenant: str, project: str) -> str:
    """Return the namespace of a tenant's project."""
    return f"{SEMANTIC}/{tenant}/{project}"


@lru_cache(maxsize=_KNOWN)
def is_semantic(namespace: str) -> bool:
    """Return whether a namespace is that of a tenant's project."""
    return namespace.startswith("semantic/")


@lru_cache(maxsize=_KNOWN)
def has_tables(namespace: str) -> bool:
    """Return whether a namespace holds tables."""
    return namespace.startswith("table/")


@lru_cache(maxsize=_KNOWN)
def has_blobs(namespace: str) -> bool:
    """Return whether a namespace holds blobs."""
    return namespace.startswith("blob/")


@lru_cache(maxsize=_KNOWN)
def has_keys(namespace: str) -> bool:
    """Return whether the entries of a namespace are keys with JSON values."""
    return not namespace.startswith(("table/", "blob/"))


def locks(namespace: str) -> str:
    """Return the namespace that has the locks on which writes to a namespace may rely.

    Locks are keys, so those of a plugin are among its keys, also for its tables and blobs.
    """
    return namespace if has_keys(namespace) else plain(owner(namespace))


def owner(namespace: str) -> str:
    """Return the plugin that a namespace belongs to, or the tenant and the project."""
    return namespace.partition("/")[2]
