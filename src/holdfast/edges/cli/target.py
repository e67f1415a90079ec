"""The store and the namespace of a command, and contexts, which are short names for stores.

A shared option is declared here once, with its short form and its environment variable. The command line
takes precedence over every variable. The file of contexts is read only when a command names a context or no
store; only its owner can read it, because a URL may contain a password. This module knows neither the engine
behind a URL nor the library that parses command lines, which `fast_parser` does without.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

import holdfast
from holdfast import families, private, rules
from holdfast.audit.keyring import Keyring
from holdfast.edges.cli.output import file_trouble, whole_file
from holdfast.edges.cli.schema import onlooker, require_store, schema_of
from holdfast.engine import Engine
from holdfast.errors import Unsupported, ValidationError
from holdfast.pipeline.caller import Service
from holdfast.registry import backend_for, is_service

WRITER: Final = "cli"
"""The default writer."""
LOCAL: Final = "local"
"""The mode of a principal whom this machine's operating system knows."""
SHORT: Final = "short"
"""The key in a field's metadata for the short form of the option."""


class Chosen(NamedTuple):
    """The chosen namespace: a plugin's, or that of a tenant's project."""

    plugin: str | None = None
    tenant: str | None = None
    project: str | None = None


@dataclass(frozen=True, kw_only=True)
class Place:
    """A store, and the form of a command's output."""

    url: str | None = None
    """A path or a URL. If not given: $HOLDFAST_URL, then the default context, then the store or the service
    of the settings, which $NATS_URL may name, then the user's own store."""

    context: str | None = field(default=None, metadata={SHORT: "-c"})
    """A store by the name that `holdfast context add` gave it. If not given: $HOLDFAST_CONTEXT, then the one
    that `holdfast context use` chose."""

    json: bool = field(default=False, metadata={SHORT: "-j"})
    """Print JSON, one line per answer. Errors are JSON too."""

    @property
    def address(self) -> str:
        """The URL of the store, from the option, a variable, a context or the settings."""
        if self.url is not None:
            return self.url
        if self.context is not None:
            return context_of(self.context).url
        url, context = variable("HOLDFAST_URL"), _context_in_force()
        if url is not None or context is None:
            return url or self._configured()
        return context_of(context).url

    @property
    def _named(self) -> bool:
        """True if the store was named and is not just the user's own."""
        named = (self.url, self.context, variable("HOLDFAST_URL"), _context_in_force())
        return any(one is not None for one in named)

    def _default_names(self) -> Chosen:
        """Return the namespace from variables or a context. An explicit context takes precedence."""
        if self.context is not None and any(of := _namespace_of(self.context)):
            return of
        names = Chosen(*map(variable, ("HOLDFAST_PLUGIN", "HOLDFAST_TENANT", "HOLDFAST_PROJECT")))
        context = _context_in_force() if self.url is None else variable("HOLDFAST_CONTEXT")
        if any(names) or context is None or self.context is not None:
            return names
        return _namespace_of(context)

    def _configured(self) -> str:
        # late: it takes 8 ms, and scripts name their store
        from holdfast.edges.settings.addresses import store_address

        return store_address()

    @asynccontextmanager
    async def open(self, *, creates: bool = True) -> AsyncIterator[holdfast.Store]:
        """Open the store for writing.

        Args:
            creates: Whether to create a missing store; otherwise that is an error.
        """
        if _keepers and _keepers[-1].keeps(self):
            yield await _keepers[-1].to_write(self, creates=creates)
            return
        async with self.open_alone(creates=creates) as store:
            yield store

    @asynccontextmanager
    async def open_alone(self, *, creates: bool = True) -> AsyncIterator[holdfast.Store]:
        """Open the store for writing, ignoring any store that a prompt keeps open."""
        if not creates:
            await require_store(self.address)
        async with self.opened() as store:
            yield store

    @asynccontextmanager
    async def look(self, *, keys: bool = False, required: bool = False) -> AsyncIterator[holdfast.Store]:
        """Open the store for reading. Nothing is created, not even a file; a missing store appears empty.

        Args:
            keys: Whether the audit's signing keys are needed.
            required: Whether a missing store is an error.
        """
        if required:
            await require_store(self.address)
        if _keepers and _keepers[-1].keeps(self):
            kept = await _keepers[-1].to_look(self, keys=keys)
            if kept is not None:
                yield kept
                return
        async with self.look_alone(keys=keys) as store:
            yield store

    @asynccontextmanager
    async def look_alone(self, *, keys: bool = False) -> AsyncIterator[holdfast.Store]:
        """Open the store for reading, ignoring any store that a prompt keeps open."""
        self._log_errors()
        backend = await onlooker(self.address, self.keys_at_hand() if keys else None, named=self._named)
        async with self._store(backend) as store:
            yield store

    def opened(self) -> holdfast.Store:
        """Return the store, not yet entered. It does not remove expired entries."""
        self._log_errors()
        address = self.address
        if not self._named and "://" not in address:
            private.make_folder(Path(address).parent)
        return self._store(backend_for(address, self.keys_at_hand()))

    def _store(self, backend: Engine | Service) -> holdfast.Store:
        """Return the store of a backend. If no service knows its callers, the audit names the local user."""
        principal = None if is_service(self.address) else local_user()
        return holdfast.Store(backend, writer=WRITER, principal=principal, reap=False)

    def _log_errors(self) -> None:
        if not self.json:
            logging.basicConfig(level=logging.ERROR, format="holdfast: %(message)s")

    def keys_at_hand(self) -> Keyring | None:
        """Return the keyring that signs the audit of a store opened here; None for a service."""
        # late: it takes 8 ms, and reading needs no keys
        from holdfast.edges.settings.read import keys_of, read_config

        if is_service(self.address):
            return None
        return keys_of(read_config(db=self.address, log_level=None))


class KeptStore:
    """Keeps the store of an address open between commands.

    It is opened as the first command needs it: for reading until a command writes, and for writing from then
    on. Until a store exists, each command checks for it again.

    Args:
        address: The store.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._open = AsyncExitStack()
        self._store: holdfast.Store | None = None
        self._writes = False

    def keeps(self, place: Place) -> bool:
        """Return whether this keeps the store of a place."""
        return place.address == self._address

    async def to_write(self, place: Place, *, creates: bool) -> holdfast.Store:
        """Return the store for writing."""
        if self._store is None or not self._writes:
            await self.release()
            self._store = await self._open.enter_async_context(place.open_alone(creates=creates))
            self._writes = True
        return self._store

    async def to_look(self, place: Place, *, keys: bool) -> holdfast.Store | None:
        """Return the store for reading; None if the command must open it itself."""
        if keys and not self._writes:
            return None
        if self._store is None:
            if is_service(self._address) or self._address.startswith("memory://"):
                return await self.to_write(place, creates=True)
            if not await self._is_there():
                return None
            self._store = await self._open.enter_async_context(place.look_alone())
        return self._store

    async def release(self) -> None:
        """Close the store if it is open; the next command opens it again."""
        self._store, self._writes = None, False
        await self._open.aclose()

    async def _is_there(self) -> bool:
        try:
            return await schema_of(self._address).holds_store()
        except Unsupported:
            return True


_keepers: Final[list[KeptStore]] = []
"""The prompt that commands come from, if any."""


@contextmanager
def kept_by(keeper: KeptStore) -> Iterator[None]:
    """Make commands use a store that stays open."""
    _keepers.append(keeper)
    try:
        yield
    finally:
        _keepers.remove(keeper)


@dataclass(frozen=True, kw_only=True)
class Target(Place):
    """A namespace of a store."""

    plugin: str | None = field(default=None, metadata={SHORT: "-p"})
    """The plugin whose keys to use. If not given: $HOLDFAST_PLUGIN."""

    tenant: str | None = None
    """The tenant whose keys to use, instead of a plugin. If not given: $HOLDFAST_TENANT."""

    project: str | None = None
    """The tenant's project. If not given: $HOLDFAST_PROJECT."""

    @property
    def named(self) -> bool:
        """True if the command line names a namespace.

        A variable does not narrow a command that covers a whole store by default.
        """
        return (self.plugin, self.tenant, self.project) != (None, None, None)

    @property
    def chosen(self) -> Chosen:
        """The chosen namespace, as far as it was given anywhere."""
        if self.plugin is not None:
            return Chosen(plugin=self.plugin)
        names = self._default_names()
        if self.named:
            return Chosen(
                tenant=names.tenant if self.tenant is None else self.tenant,
                project=names.project if self.project is None else self.project,
            )
        if names.plugin and (names.tenant or names.project):
            raise holdfast.ValidationError(
                "HOLDFAST_PLUGIN names one namespace, and HOLDFAST_TENANT or HOLDFAST_PROJECT another: unset "
                "one of them, or give --plugin, or --tenant and --project",
                field="plugin",
            )
        return names

    def namespace(self, store: holdfast.Store, full_name: str | None) -> str:
        """Return the full name of the namespace, which an operator may also give directly."""
        return self.keys(store).namespace if full_name is None else rules.namespace(full_name)

    def keys(self, store: holdfast.Store) -> holdfast.KV:
        """Return the handle on the namespace."""
        names = self._names()
        return store.kv(*names) if len(names) == 1 else store.semantic(*names)

    @property
    def full_name(self) -> str:
        """The full name of the namespace."""
        names = self._names()
        return families.plain(*names) if len(names) == 1 else families.semantic(*names)

    @property
    def owner(self) -> str:
        """The plugin or the tenant's project, as a question to a person names it."""
        names = self._names()
        return f"{'plugin' if len(names) == 1 else 'project'} {'/'.join(names)}"

    def _names(self) -> tuple[str] | tuple[str, str]:
        """Return the plugin, or the tenant and the project."""
        plugin, tenant, project = self.chosen
        if tenant and project:
            return tenant, project
        if tenant or project:
            missing = "project" if tenant else "tenant"
            raise holdfast.MissingField("--tenant and --project belong together", field=missing)
        if not plugin:
            raise holdfast.MissingField(
                "whose keys? Give --plugin NAME (or set HOLDFAST_PLUGIN), or --tenant and --project",
                field="plugin",
            )
        return (plugin,)


def local_user() -> str:
    """Return the principal of a person at this machine: the name of the user that this process runs as."""
    # late: only a command that writes needs it
    import pwd

    user = os.geteuid()
    try:
        return f"{LOCAL}:{pwd.getpwuid(user).pw_name}"
    except KeyError:  # a container may run as a user without a name
        return f"{LOCAL}:{user}"


def _context_in_force() -> str | None:
    """Return the context of the environment, or else the default one unless the environment names a store."""
    return variable("HOLDFAST_CONTEXT") or (default_context() if variable("HOLDFAST_URL") is None else None)


def _namespace_of(name: str) -> Chosen:
    context = context_of(name)
    return Chosen(context.plugin, context.tenant, context.project)


def variable(name: str) -> str | None:
    """Return the value of a variable; None if it is empty or not set."""
    return os.environ.get(name) or None


HERE: Final = Target()
STORE: Final = Place()


_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A store and its default namespace."""

    url: str
    plugin: str | None = None
    tenant: str | None = None
    project: str | None = None
    default: bool = False
    """Whether commands use it that name no store. At most one context is the default."""


def default_context() -> str | None:
    """Return the name of the default context, if there is one."""
    return next((name for name, context in read_contexts().items() if context.default), None)


def context_of(name: str) -> Context:
    """Return the context with this name.

    Raises:
        ValidationError: There is none of that name.
    """
    known = read_contexts()
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        raise ValidationError(
            f"there is no context {name!a}; the contexts are: {names}. Add one with holdfast context add",
            field="context",
        )
    return known[name]


def contexts_path() -> Path:
    """Return the path of the file: `$XDG_CONFIG_HOME/holdfast/contexts.json`, following the XDG rules."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".config"
    return base / "holdfast" / "contexts.json"


def read_contexts() -> dict[str, Context]:
    """Return all contexts by name.

    Raises:
        ValidationError: The file cannot be read.
    """
    path = contexts_path()
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Context])
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise file_trouble(error, path, field="context") from None
    except msgspec.MsgspecError as error:
        raise ValidationError(f"{path} is not a file of contexts: {error}", field="context") from None


def write_contexts(contexts: dict[str, Context]) -> None:
    """Replace the file atomically, so that no reader ever sees a part of it."""
    path = contexts_path()
    try:
        private.make_folder(path.parent)
    except OSError as error:
        raise file_trouble(error, path, field="context") from None
    with whole_file(path, field="context") as file:
        file.write(msgspec.json.format(msgspec.json.encode(contexts), indent=2) + b"\n")


def require_name(name: str) -> str:
    """Return the name if it is valid for a context."""
    if not _NAME.fullmatch(name):
        raise ValidationError(
            "the name of a context must be 1 to 63 of the characters a-z, 0-9, ., _ and -", field="name"
        )
    return name
