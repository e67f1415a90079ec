"""`holdfast nats config`: a NATS server on which nobody reaches another's data.

Law: what the configuration says is settled by `holdfast.edges.nats.permissions`. Here it is printed, or
written into files that nobody else can read; nothing that is there is replaced without a word.
"""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from holdfast import private
from holdfast.edges.cli.output import file_trouble, say
from holdfast.edges.nats.permissions import (
    PREFIXES,
    SERVICE,
    Credentials,
    Kind,
    Mode,
    Permissions,
    credentials_of,
    new_credentials,
)
from holdfast.errors import ValidationError
from holdfast.wire.subjects import OPERATOR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAME: Final = "nats-server.conf"
_ENDINGS: Final[dict[Kind, str]] = {"nkeys": "nk", "passwords": "password"}


def config(
    *,
    plugin: tuple[str, ...] = (),
    tenant: tuple[str, ...] = (),
    mode: Mode = "accounts",
    credentials: Kind = "nkeys",
    trusted: tuple[str, ...] = (),
    own_connection: tuple[str, ...] = (),
    prefix: tuple[str, ...] = PREFIXES,
    out: Path | None = None,
    force: bool = False,
) -> None:
    """Print the configuration of a nats-server that keeps plugins and tenants apart.

    The secrets of nkeys go to stderr. With --out everything goes into files that only their owner can read:
    the configuration, and one file of credentials for each user. Credentials that are there already are used
    again, so that a plugin can be added without troubling the others; delete a file to have it made anew.

    Parameters
    ----------
    plugin
        A plugin; may be given several times.
    tenant
        A tenant's project, as tenant/project; may be given several times.
    mode
        An account for each of them, or one account with permissions for each user.
    credentials
        What users log in with.
    trusted
        A plugin that may name any other in the payload; may be given several times.
    own_connection
        A plugin that the service hears over a connection of its own; may be given several times. The setting
        of that name must say the same.
    prefix
        What the service's subjects begin with; may be given several times. Events have the first.
    out
        The folder to write to.
    force
        Replace the configuration that is there.
    """
    permissions = Permissions(
        plugin, tenant, prefixes=prefix, mode=mode, trusted=trusted, own_connection=own_connection
    )
    if out is None:
        _print(permissions, credentials)
    else:
        _write(permissions, credentials, out, force=force)


def _print(permissions: Permissions, kind: Kind) -> None:
    made = {user: new_credentials(user, kind) for user in permissions.users}
    print(permissions.configuration(made), end="", flush=True)
    if kind == "nkeys":
        say("the seeds are shown only now; each is for its user alone")
        for user, shown in made.items():
            print(f"{user}\t{shown.secret}", file=sys.stderr)
    say(f"next: save this as {NAME}, or run the command again with --out to have it written")


def _write(permissions: Permissions, kind: Kind, out: Path, *, force: bool) -> None:
    path = out / NAME
    if path.exists() and not force:
        raise ValidationError(f"{path} is there already; --force replaces it", field="out")
    files = {user: out / _file_of(user, kind) for user in permissions.users}
    known = {user: _kept(user, kind, file) or new_credentials(user, kind) for user, file in files.items()}
    for user, file in files.items():
        if not file.exists():
            _save(file, f"{known[user].secret}\n")
    _save(path, permissions.configuration(known))
    say(f"wrote {path} and {len(files)} files of credentials beside it")
    for line in _next_steps(permissions, known, files, path):
        say(line)


def _file_of(user: str, kind: Kind) -> Path:
    """Where credentials are kept: no two users share a file, whatever they are called."""
    ending = _ENDINGS[kind]
    if user in (SERVICE, OPERATOR):
        return Path(f"{'service' if user == SERVICE else 'operator'}.{ending}")
    return Path("tenants" if "/" in user else "plugins", f"{user}.{ending}")


def _kept(user: str, kind: Kind, file: Path) -> Credentials | None:
    """The credentials in a file from an earlier time."""
    try:
        return credentials_of(user, file.read_text(encoding="ascii").strip(), kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise file_trouble(error, file, field="out") from error
    except (UnicodeDecodeError, ValidationError):
        raise ValidationError(f"{file} does not hold the credentials of {user}", field="out") from None


def _save(path: Path, text: str) -> None:
    """Write a file whole or not at all, for its owner's eyes only."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        private.make_folder(path.parent)
        unfinished.unlink(missing_ok=True)
        with open(private.create(unfinished), "w", encoding="ascii") as file:
            file.write(text)
        unfinished.replace(path)
    except OSError as error:
        raise file_trouble(error, path, field="out") from error


def _next_steps(
    permissions: Permissions, known: Mapping[str, Credentials], files: Mapping[str, Path], path: Path
) -> Iterator[str]:
    """What to type now: the service, and how one of the users finds it."""
    settings = [f"HOLDFAST_REPLY_MODE={permissions.mode}"]
    if permissions.prefixes != PREFIXES:
        settings.append(f"HOLDFAST_SUBJECT_PREFIXES={','.join(permissions.prefixes)}")
    if permissions.own_connection:
        settings.append(f"HOLDFAST_OWN_CONNECTION={','.join(permissions.own_connection)}")
    service = known[SERVICE]
    if service.public is None:
        settings.append(f'HOLDFAST_NATS_PASSWORD="$(cat {quote(str(files[SERVICE]))})"')
        login = f"--nats-user {service.entry()['user']}"
    else:
        login = f"--nats-nkey {quote(str(files[SERVICE]))}"
    yield f"next: {' '.join(settings)} holdfast up --nats-config {quote(str(path))} {login}"
    user = (*permissions.plugins, *permissions.tenants)[0]
    yield f"{user} then opens {_address(known[user], files[user], permissions)}"


def _address(credentials: Credentials, file: Path, permissions: Permissions) -> str:
    """The URL with which a user's store is opened."""
    options = {"inbox": credentials.inbox}
    if permissions.prefixes[0] != PREFIXES[0]:
        options["prefix"] = permissions.prefixes[0]
    if credentials.public is not None:
        return f"nats://127.0.0.1:4222?{urlencode({'nkey': str(file), **options}, safe='/')}"
    return f"nats://{credentials.entry()['user']}:PASSWORD@127.0.0.1:4222?{urlencode(options)}"
