"""The options that commands share: which store, which namespace, and how to answer.

Law: a shared option is declared here once, together with the variable that stands in for it. Which engine is
behind a URL is not known here, and neither is the library that reads command lines: `plain` does without it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import holdfast
from holdfast import private, rules
from holdfast.registry import engine_for

if TYPE_CHECKING:
    from holdfast.keyring import Keyring

WRITER: Final = "cli"
"""Who writes when a command does not say."""
VARIABLE: Final = "variable"
"""Under this a field's metadata has the environment variable that stands in for the option."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A store, and how a command about it answers."""

    url: str | None = field(default=None, metadata={VARIABLE: "HOLDFAST_URL"})
    """A path or a URL; the user's own store if not given."""

    json: bool = False
    """Answer with JSON, on one line each where there are several answers; an error is JSON too."""

    @property
    def address(self) -> str:
        """The URL, or that of the user's own store."""
        if self.url:
            return self.url
        from holdfast.edges.config import read_config

        return read_config(db=None, log_level=None).db

    def open(self, *, reap: bool = False, signs: bool = True) -> holdfast.Store:
        """The store, to be entered; it removes what has expired only for a command that waits for changes.

        A command that only reads signs nothing, and need not read the configuration for what signs.
        """
        if not self.json:
            logging.basicConfig(level=logging.ERROR, format="holdfast: %(message)s")
        address = self.address
        if not self.url and "://" not in address:
            private.make_folder(Path(address).parent)
        engine = engine_for(address, self.keys_at_hand() if signs else None)
        return holdfast.Store(engine, writer=WRITER, reap=reap)

    def keys_at_hand(self) -> Keyring | None:
        """What signs the audit of a store that is opened here; a service has its own."""
        from holdfast.edges.config import keys_of, read_config

        if self.address.startswith(("nats://", "tls://")):
            return None
        return keys_of(read_config(db=self.address, log_level=None))


@dataclass(frozen=True, kw_only=True)
class Target(Place):
    """A namespace of a store."""

    plugin: str | None = field(default=None, metadata={VARIABLE: "HOLDFAST_PLUGIN"})
    """The plugin whose keys are meant."""

    tenant: str | None = None
    """Instead of a plugin: the tenant whose keys are meant."""

    project: str | None = None
    """The tenant's project."""

    @property
    def named(self) -> bool:
        """Whether a namespace was named at all."""
        return bool(self.plugin or self.tenant or self.project)

    def namespace(self, store: holdfast.Store, full_name: str | None) -> str:
        """The namespace's full name, which an operator may also have given as it is."""
        return self.keys(store).namespace if full_name is None else rules.namespace(full_name)

    def keys(self, store: holdfast.Store) -> holdfast.KV:
        """The handle on the namespace."""
        if self.tenant and self.project:
            return store.semantic(self.tenant, self.project)
        if self.tenant or self.project:
            missing = "project" if self.tenant else "tenant"
            raise holdfast.MissingField("--tenant and --project belong together", field=missing)
        if not self.plugin:
            raise holdfast.MissingField(
                "whose keys? Give --plugin NAME (or set HOLDFAST_PLUGIN), or --tenant and --project",
                field="plugin",
            )
        return store.kv(self.plugin)


HERE: Final = Target()
STORE: Final = Place()
