"""The options that commands share: which store, which namespace, and how to answer.

Law: a shared option is declared here once, together with the variable that stands in for it. Which engine is
behind a URL is not known here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import ArgumentCollection, Group, Parameter, Token

import holdfast
from holdfast import rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.verbs import Provenance

WRITER: Final = "cli"
"""Who writes when a command does not say."""


def number(_: object, tokens: Sequence[Token]) -> Any:
    """A number as JSON writes it, so that `1.5` reaches the rules as it was given and is not rounded."""
    found = msgspec.json.decode(tokens[0].value)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise ValueError
    return found


def one_namespace(arguments: ArgumentCollection) -> None:
    """Refuse both ways of naming a namespace at once; a variable may be overruled."""
    given = {
        argument.name
        for argument in arguments
        if argument.tokens and all(token.source == "cli" for token in argument.tokens)
    }
    if "--plugin" in given and given & {"--tenant", "--project"}:
        raise ValueError("Give --plugin, or --tenant and --project, but not both.")


WHERE: Final = Group("Store", sort_key=10, validator=one_namespace)
WHO: Final = Group("Provenance", sort_key=5)

Whole = Annotated[int, Parameter(converter=number)]
Key = Annotated[str, Parameter(help="The key.")]
IfVersion = Annotated[
    int | None,
    Parameter(
        converter=number, help="What the entry's version must be: 0 for no entry. Else nothing is written."
    ),
]
Ttl = Annotated[int | None, Parameter(converter=number, help="Seconds until the entry is gone.")]


@Parameter(name="*", group=WHERE)
@dataclass(frozen=True, kw_only=True)
class Place:
    """A store, and how a command about it answers."""

    url: Annotated[str | None, Parameter(env_var="HOLDFAST_URL")] = None
    """A path or a URL; the user's own store if not given."""

    json: bool = False
    """Answer with JSON, on one line each where there are several answers; an error is JSON too."""

    @property
    def address(self) -> str:
        """The URL, or that of the user's own store."""
        from holdfast.edges.config import read_config

        return self.url or read_config(db=None, log_level=None).db

    def open(self, *, reap: bool = False, signs: bool = True) -> holdfast.Store:
        """The store, to be entered; it removes what has expired only for a command that waits for changes.

        A command that only reads signs nothing, and need not read the configuration for what signs.
        """
        if not self.json:
            logging.basicConfig(level=logging.ERROR, format="holdfast: %(message)s")
        if not self.url and "://" not in self.address:
            Path(self.address).parent.mkdir(parents=True, exist_ok=True)
        return holdfast.open(
            self.address, writer=WRITER, reap=reap, audit_key=self.audit_key() if signs else None
        )

    def audit_key(self) -> str | Path | None:
        """What signs the audit of a store that is opened here; a service has its own."""
        from holdfast.edges.config import audit_key_of, read_config

        if self.address.startswith(("nats://", "tls://")):
            return None
        return audit_key_of(read_config(db=self.address, log_level=None))


@Parameter(name="*", group=WHERE)
@dataclass(frozen=True, kw_only=True)
class Target(Place):
    """A namespace of a store."""

    plugin: Annotated[str | None, Parameter(env_var="HOLDFAST_PLUGIN")] = None
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


@Parameter(name="*", group=WHO)
@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a write comes from."""

    writer: str | None = None
    """Who writes, to be kept as the entry's last writer; `cli` if not given."""

    request_id: str | None = None
    """Names this write: sent again with the same content it answers as before and has no second effect."""

    spec_ref: str | None = None
    """Points at the governing document."""

    @property
    def fields(self) -> Provenance:
        """As the verbs take it."""
        return {"writer": self.writer, "request_id": self.request_id, "spec_ref": self.spec_ref}


HERE: Final = Target()
STORE: Final = Place()
UNNAMED: Final = Origin()
