"""`holdfast nats config`: a NATS server that isolates its users' data.

The command writes a folder with a configuration, which `holdfast.edges.nats.server_config` makes, and a file
of credentials for each user. Rotating credentials changes those of the named users and not a byte of anything
else, even if the configuration was edited by hand.
"""

from __future__ import annotations

import re
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import Final, NamedTuple
from urllib.parse import urlencode

from holdfast import private
from holdfast.edges.cli.options import Whole
from holdfast.edges.cli.output import document, file_trouble, say, whole_file
from holdfast.edges.nats.server import DEFAULT_PORT
from holdfast.edges.nats.server_config import (
    CONNECTIONS,
    LISTEN,
    PREFIXES,
    SERVICE,
    Credentials,
    Kind,
    Mode,
    Permissions,
    Tls,
    credentials_of,
    new_credentials,
    tokens,
)
from holdfast.errors import ValidationError
from holdfast.wire.subjects import ONLY, OPERATOR

RELOAD: Final = "nats-server --signal reload"
_LISTEN: Final = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""The addresses of all interfaces, each with the one at which this machine reaches itself."""
_STARTED: Final = ("127.0.0.1", "localhost")
"""The hosts on which `holdfast up` starts a NATS server itself."""
_PORT: Final = str(DEFAULT_PORT)
_HERE: Final = ("127.0.0.1", "[::1]", "localhost")


def config(
    *,
    plugin: tuple[str, ...] = (),
    tenant: tuple[str, ...] = (),
    mode: Mode = "accounts",
    credentials: Kind = "nkeys",
    trusted: tuple[str, ...] = (),
    own_connection: tuple[str, ...] = (),
    prefix: tuple[str, ...] = PREFIXES,
    connections: Whole = CONNECTIONS,
    listen: str = LISTEN,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    tls_ca: Path | None = None,
    tls_verify: bool = False,
    tls_first: bool = False,
    rotate: tuple[str, ...] = (),
    out: Path | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Print the configuration of a nats-server that keeps plugins and tenants apart.

    The secrets of nkeys go to stderr. With --out everything goes into files that only their owner can read:
    the configuration, and one file of credentials for each user. Existing credentials are kept, so adding a
    plugin does not disturb the others. With --rotate, only the credentials of the users that it names are
    renewed, and nothing else in the folder changes.

    Parameters
    ----------
    plugin
        A plugin; may be given several times. With a colon it is a user who may use only the verbs after it:
        trivia:read for every verb that writes nothing, audit:get,list for these two.
    tenant
        A tenant's project, as tenant/project, with or without verbs; may be given several times.
    mode
        An account for each of them, or one account with permissions for each user.
    credentials
        What users log in with.
    trusted
        A plugin that may name any other in the payload; may be given several times.
    own_connection
        A plugin that the service serves over a connection of its own; may be given several times. The
        setting of that name must match.
    prefix
        Prefix of the service's subjects; may be given several times. Events use the first.
    connections
        Connections that each user may have at a time; 16 if not given. In the mode permissions the server
        can't count them by user, and limits all of them together.
    listen
        Where the server listens; 127.0.0.1:4222 if not given.
    tls_cert
        A file with the server's certificate. Connections are then encrypted.
    tls_key
        A file with the key of that certificate.
    tls_ca
        A file with the certificate of the authority that signed it, for clients to trust.
    tls_verify
        Let in only clients that show a certificate of that authority, besides their credentials.
    tls_first
        Begin every connection with the TLS handshake. Clients must be configured for it.
    rotate
        A plugin, a tenant's project or one of their users whose credentials to renew; may be given
        several times. Needs --out, and nothing else.
    out
        The folder to write to.
    force
        Replace the configuration that is there.
    json
        Print a document that lists the written files, or without --out the configuration and the secrets.
    """
    if rotate:
        if out is None or any((plugin, tenant, trusted, own_connection, tls_cert, tls_key, tls_ca, force)):
            raise ValidationError(
                "--rotate only renews the credentials in the folder that --out names: "
                "give it with --out, and with no other option except --json",
                field="rotate",
            )
        _rotate(out, rotate, as_json=json)
        return
    permissions = Permissions(
        plugin,
        tenant,
        prefixes=prefix,
        mode=mode,
        trusted=trusted,
        own_connection=own_connection,
        connections=connections,
        listen=_address_to_listen_at(listen),
        tls=_tls(tls_cert, tls_key, tls_ca, verify=tls_verify, first=tls_first),
    )
    if out is None:
        _print(permissions, credentials, as_json=json)
    else:
        _write(permissions, credentials, out, force=force, as_json=json)


def _print(permissions: Permissions, kind: Kind, *, as_json: bool) -> None:
    made = {user: new_credentials(user, kind) for user in permissions.users}
    text = permissions.configuration(made)
    if as_json:
        users = [{"user": user, "secret": login.secret, "inbox": login.inbox} for user, login in made.items()]
        document({"configuration": text, "users": users})
        return
    print(text, end="", flush=True)
    if kind == "nkeys":
        say("the seeds are shown only now; each is for its user alone")
        for user, login in made.items():
            print(f"{user}\t{login.secret}", file=sys.stderr)
    say(f"next: save this as {NAME}, or run the command again with --out to have it written")


def _write(permissions: Permissions, kind: Kind, out: Path, *, force: bool, as_json: bool) -> None:
    path = out / NAME
    if path.exists() and not force:
        raise ValidationError(f"{path} already exists; --force replaces it", field="out")
    files = {user: out / file_of(user, kind) for user in permissions.users}
    known = {user: _stored(user, kind, file) or new_credentials(user, kind) for user, file in files.items()}
    for user, file in files.items():
        if not file.exists():
            _save(file, f"{known[user].secret}\n")
    _save(path, permissions.configuration(known))
    if as_json:
        users = [
            {
                "user": user,
                "file": str(files[user]),
                "inbox": login.inbox,
                "url": _address(login, files[user], permissions),
            }
            for user, login in known.items()
        ]
        document({"configuration": str(path), "mode": permissions.mode, "users": users})
        return
    say(f"wrote {path} and {len(files)} files of credentials next to it")
    for line in _next_steps(permissions, known, files, path):
        say(line)


def _rotate(out: Path, names: tuple[str, ...], *, as_json: bool) -> None:
    renewed = _rotate_credentials(out, names)
    if as_json:
        users = [{"user": one.user, "file": str(one.file)} for one in renewed]
        document({"configuration": str(out / NAME), "rotated": users, "reload": RELOAD})
        return
    for one in renewed:
        say(f"renewed the credentials of {one.user} in {one.file}")
    say(f"next: {RELOAD}, or send SIGHUP to the nats-server that runs with {out / NAME}")
    say("until then it lets in the old credentials; then it ends the connections that use them")


def _next_steps(
    permissions: Permissions, known: Mapping[str, Credentials], files: Mapping[str, Path], path: Path
) -> Iterator[str]:
    """Yield the next commands: for the service, and for one of the users."""
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
    for name, value in _trust(permissions.tls).items():
        login += f" --nats-{name.replace('_', '-')}" + ("" if value == "true" else f" {quote(value)}")
    host, _, port = permissions.listen.rpartition(":")
    if host in _STARTED:
        server = f"--nats-config {quote(str(path))}" + (f" --nats-port {port}" if port != _PORT else "")
        yield f"next: {' '.join(settings)} holdfast up {server} {login}"
    else:
        yield f"next: nats-server --config {quote(str(path))}"
        yield f"then: {' '.join(settings)} holdfast up --nats {_server(permissions, near=True)} {login}"
    user = permissions.named[0]
    yield f"{user} then opens {_address(known[user], files[user], permissions)}"
    if permissions.tls is None and host not in _HERE:
        yield "other machines can connect, and nothing is encrypted: give --tls-cert and --tls-key as well"


def _address(credentials: Credentials, file: Path, permissions: Permissions) -> str:
    """Return the URL with which a user opens the store."""
    options = {"inbox": credentials.inbox}
    if permissions.prefixes[0] != PREFIXES[0]:
        options["prefix"] = permissions.prefixes[0]
    options |= _trust(permissions.tls)
    server = _server(permissions)
    if credentials.public is not None:
        return f"{server}?{urlencode({'nkey': str(file), **options}, safe='/')}"
    scheme, _, place = server.partition("://")
    return f"{scheme}://{credentials.entry()['user']}:PASSWORD@{place}?{urlencode(options, safe='/')}"


def _server(permissions: Permissions, *, near: bool = False) -> str:
    """Return the URL of the NATS server; HOST if only the reader knows it. `near` is a client beside it."""
    host, _, port = permissions.listen.rpartition(":")
    plain = permissions.tls is None  # with TLS the certificate has to hold the name
    names = _ANYWHERE if near and plain else dict.fromkeys(_ANYWHERE, "HOST")
    return f"{'nats' if plain else 'tls'}://{names.get(host, host)}:{port}"


def _trust(tls: Tls | None) -> dict[str, str]:
    """Return the URL options for TLS; users fill in their own certificates."""
    if tls is None:
        return {}
    own = {"tls_cert": "CERT", "tls_key": "KEY"} if tls.verify else {}
    first = {"tls_first": "true"} if tls.first else {}
    return ({} if tls.ca is None else {"tls_ca": tls.ca}) | own | first


def _tls(cert: Path | None, key: Path | None, ca: Path | None, *, verify: bool, first: bool) -> Tls | None:
    """Return the server's TLS settings. They are checked now, because the server would only fail at its
    start."""
    if cert is None and key is None:
        if ca or verify or first:
            raise ValidationError("TLS needs the server's certificate: give --tls-cert", field="tls_cert")
        return None
    if cert is None or key is None:
        raise ValidationError("--tls-cert and --tls-key go together", field="tls_key" if cert else "tls_cert")
    if verify and ca is None:
        raise ValidationError(
            "--tls-verify needs --tls-ca, which names the certificates to trust", field="tls_ca"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password="")
    except (OSError, ValueError):
        raise ValidationError(
            f"{cert} and {key} can't be read as a certificate and its key, without a passphrase",
            field="tls_cert",
        ) from None
    if ca is not None:
        try:
            context.load_verify_locations(ca)
        except OSError:
            raise ValidationError(f"{ca} can't be read as certificates", field="tls_ca") from None
    whole = [None if one is None else str(one.absolute()) for one in (cert, key, ca)]
    return Tls(cert=whole[0] or "", key=whole[1] or "", ca=whole[2], verify=verify, first=first)


def _address_to_listen_at(text: str) -> str:
    address = _LISTEN.fullmatch(text)
    if address is None or not 1 <= int(address[2]) <= 65_535:
        raise ValidationError(f"listen must be host:port, not {text!r}", field="listen")
    return text


NAME: Final = "nats-server.conf"
_ENDINGS: Final[dict[Kind, str]] = {"nkeys": "nk", "passwords": "password"}
_NAMES: Final = {"service": SERVICE, "operator": OPERATOR}


class CredentialsFile(NamedTuple):
    """Credentials in a file."""

    user: str
    kind: Kind
    file: Path

    @property
    def names(self) -> set[str]:
        """The names of which each renews them: that of the user, and that of its plugin or project."""
        return {self.user, self.user.partition(":")[0]}

    @property
    def next(self) -> Path:
        """The file of new credentials until the configuration contains them."""
        return self.file.with_name(f"{self.file.name}.next")

    def in_force(self, text: str) -> Credentials | None:
        """Return those that a configuration contains, after an interruption the new ones; None if neither."""
        stored = (_stored(self.user, self.kind, file) for file in (self.file, self.next))
        return next((one for one in stored if one is not None and text.count(_mark(one)) == 1), None)


def file_of(user: str, kind: Kind) -> Path:
    """Return the path of a user's credentials. Every user has a separate file, whatever its name."""
    for name, known in _NAMES.items():
        if user == known:
            return Path(f"{name}.{_ENDINGS[kind]}")
    owner, _, _ = user.partition(":")
    name = owner + tokens(user).removeprefix(tokens(owner))
    return Path("tenants" if "/" in user else "plugins", f"{name}.{_ENDINGS[kind]}")


def _stored(user: str, kind: Kind, file: Path) -> Credentials | None:
    """Return the credentials in an existing file, if any.

    Raises:
        ValidationError: The file cannot be read, or holds something else.
    """
    try:
        return credentials_of(user, file.read_text(encoding="ascii").strip(), kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise file_trouble(error, file, field="out") from error
    except (UnicodeDecodeError, ValidationError):
        raise ValidationError(f"{file} does not hold the credentials of {user}", field="out") from None


def _save(path: Path, text: str) -> None:
    """Write a file, and its folder if there is none."""
    try:
        private.make_folder(path.parent)
    except OSError as error:
        raise file_trouble(error, path, field="out") from error
    with whole_file(path) as file:
        file.write(text.encode())


def _rotate_credentials(folder: Path, names: Sequence[str]) -> list[CredentialsFile]:
    """Rotate the credentials of users, and of all users of the named plugins and projects.

    The new secrets are on disk before the configuration contains them, and replace the old files afterwards.
    After an interruption, the next rotation continues from the secrets that the configuration contains.

    Raises:
        ValidationError: A user is unknown, a file cannot be used, or the configuration does not contain the
            credentials to rotate. Nothing is changed then.
    """
    text = _configuration(folder / NAME)
    renewed: list[tuple[CredentialsFile, Credentials]] = []
    for one, current in _chosen(folder, names, text):
        fresh = new_credentials(one.user, one.kind)
        text = text.replace(_mark(current), _mark(fresh))
        renewed.append((one, fresh))
    for one, fresh in renewed:
        _save(one.next, f"{fresh.secret}\n")
    _save(folder / NAME, text)
    for one, _ in renewed:
        try:
            one.next.replace(one.file)
        except OSError as error:
            raise file_trouble(error, one.file, field="out") from error
    return [one for one, _ in renewed]


def _configuration(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        raise ValidationError(
            f"{path} does not exist: --out must name the folder with the credentials to renew", field="out"
        ) from None
    except UnicodeDecodeError:
        raise ValidationError(f"{path} is not the configuration of a nats-server", field="out") from None
    except OSError as error:
        raise file_trouble(error, path, field="out") from error


def _chosen(folder: Path, names: Sequence[str], text: str) -> list[tuple[CredentialsFile, Credentials]]:
    """Return the files of credentials to rotate, each with those in it that the configuration contains."""
    stored = sorted(_found(folder))
    known = sorted({name for one in stored for name in one.names})
    for name in names:
        if name not in known:
            raise ValidationError(_unknown(name, known, folder), field="rotate")
    chosen = [one for one in stored if not one.names.isdisjoint(names)]
    used = [(one, current) for one in chosen if (current := one.in_force(text)) is not None]
    for one in chosen:
        if one.user not in {other.user for other, _ in used}:
            raise ValidationError(
                f"{folder / NAME} does not have the credentials in {one.file}: make the configuration again "
                "with --force, or restore the file that belongs to it",
                field="rotate",
            )
    return used


def _unknown(name: str, known: list[str], folder: Path) -> str:
    nearest = get_close_matches(name, known, n=1)
    advice = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(known) or 'none'}"
    return f"there are no credentials of {name!r} in {folder}; {advice}"


def _found(folder: Path) -> Iterator[CredentialsFile]:
    """Yield all credentials in a folder."""
    for kind, ending in _ENDINGS.items():
        for place in ("*", "plugins/*", "tenants/*/*"):
            for file in sorted(folder.glob(f"{place}.{ending}")):
                name = str(file.relative_to(folder)).removesuffix(f".{ending}")
                owner, only, verbs = name.partition(f".{ONLY}.")
                user = owner + (f":{verbs.replace('-', ',')}" if only else "")
                user = _NAMES.get(user) or user.removeprefix("plugins/").removeprefix("tenants/")
                yield CredentialsFile(user, kind, file)


def _mark(credentials: Credentials) -> str:
    """Return the unique text for these credentials in the configuration."""
    return f'"{credentials.public or credentials.secret}"'
