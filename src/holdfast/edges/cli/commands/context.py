"""`holdfast context`: short names for stores.

A stored URL works from every folder. No password or token is ever shown.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import msgspec
from cyclopts import Group, Parameter

import holdfast
from holdfast import families, masking
from holdfast.edges.cli.output import document, report, rows
from holdfast.edges.cli.target import Context, context_of, read_contexts, require_name, write_contexts
from holdfast.registry import backend_for

Json = Annotated[bool, Parameter(alias="-j", help="Print JSON.")]


@Parameter(name="*", group=Group("Logging in to NATS", sort_key=5))
@dataclass(frozen=True, kw_only=True)
class LoginFiles:
    """Files to log in with; their paths become options of the URL."""

    creds: str | None = None
    """A file with a JWT and its seed."""

    nkey: str | None = None
    """A file with an nkey's seed."""

    tls_ca: str | None = None
    """A file with the certificates to trust."""

    tls_cert: str | None = None
    """A file with this client's certificate."""

    tls_key: str | None = None
    """A file with the key of that certificate."""


NO_LOGIN: Final = LoginFiles()


def add(
    name: str,
    /,
    *,
    url: str,
    plugin: Annotated[str | None, Parameter(alias="-p")] = None,
    tenant: str | None = None,
    project: str | None = None,
    login: LoginFiles = NO_LOGIN,
    force: bool = False,
    json: Json = False,
) -> None:
    """Save a store under a short name: holdfast -c NAME list uses it.

    Parameters
    ----------
    name
        The name.
    url
        A path or a URL.
    plugin
        The plugin to use when a command names none.
    tenant
        The tenant to use, instead of a plugin.
    project
        The tenant's project.
    force
        Replace an existing context of this name.
    """
    known = read_contexts()
    if require_name(name) in known and not force:
        raise holdfast.ValidationError(f"context {name!a} already exists; --force replaces it", field="name")
    if (tenant is None) is not (project is None) or (plugin is not None and tenant is not None):
        raise holdfast.ValidationError("give --plugin, or --tenant and --project", field="plugin")
    address = _everywhere(url, login)
    backend_for(address)
    replaced = known.get(name)
    context = Context(
        url=address,
        plugin=plugin,
        tenant=tenant,
        project=project,
        default=replaced is not None and replaced.default,
    )
    write_contexts(known | {name: context})
    report(
        json,
        {"name": name, "url": _shown(address)},
        f"context {name} leads to {_shown(address)}: holdfast -c {name} list",
    )


def use(name: str | None = None, /, *, none: bool = False, json: Json = False) -> None:
    """Choose the context that commands use if they name no store.

    A store that an option or a variable names takes precedence over it.

    Parameters
    ----------
    name
        The name of a context.
    none
        Have no default context any more.
    """
    if (name is None) is not none:
        raise holdfast.ValidationError("give the name of a context, or --none", field="name")
    known = read_contexts()
    if name is not None:
        context_of(name)
    write_contexts(
        {each: msgspec.structs.replace(context, default=each == name) for each, context in known.items()}
    )
    report(
        json,
        {"default": name},
        "there is no default context" if name is None else f"commands use context {name} by default",
    )


def list_contexts(*, json: Json = False) -> None:
    """List the contexts: name, URL, namespace, and which is the default."""
    columns = ("name", "url", "namespace", "default")
    contexts = sorted(read_contexts().items())
    cells = [(name, _shown(one.url), _namespace(one), one.default) for name, one in contexts]
    if json:
        document({"contexts": [dict(zip(columns, one, strict=True)) for one in cells]})
    else:
        rows(columns, ((*named, "default" if default else None) for *named, default in cells))


def remove(name: str, /, *, json: Json = False) -> None:
    """Remove a context; the store is not touched. A context that does not exist is no error.

    Parameters
    ----------
    name
        The name.
    """
    known = read_contexts()
    removed = known.pop(name, None) is not None
    if removed:
        write_contexts(known)
    report(
        json,
        {"removed": removed},
        f"context {name} is removed" if removed else f"there is no context {name}",
    )


def _everywhere(url: str, login: LoginFiles) -> str:
    """Return the URL with absolute paths."""
    files = {name: path for name, path in asdict(login).items() if path is not None}
    options = [f"{name}={quote(str(Path(path).absolute()))}" for name, path in files.items()]
    if "://" not in url:
        url = str(Path(url).absolute())
    if not options:
        return url
    return f"{url}{'&' if '?' in url else '?'}{'&'.join(options)}"


def _shown(url: str) -> str:
    return masking.shown(url) if "://" in url else url


def _namespace(context: Context) -> str | None:
    if context.plugin is not None:
        return families.plain(context.plugin)
    if context.tenant is None or context.project is None:
        return None
    return families.semantic(context.tenant, context.project)
