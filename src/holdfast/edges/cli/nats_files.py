"""The folder that `holdfast nats config` writes: a configuration, and one file of credentials for each user.

Law: every file is written as a whole or not at all, and only its owner can read it. Rotating credentials
changes those of the named users and not a byte of anything else, even if the configuration was edited by
hand.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast import private
from holdfast.edges.cli.output import file_trouble
from holdfast.edges.nats.credentials import Credentials, Kind, credentials_of, new_credentials
from holdfast.edges.nats.grants import tokens
from holdfast.edges.nats.server_config import SERVICE
from holdfast.errors import ValidationError
from holdfast.wire.subjects import ONLY, OPERATOR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME: Final = "nats-server.conf"
_ENDINGS: Final[dict[Kind, str]] = {"nkeys": "nk", "passwords": "password"}
_NEXT: Final = ".next"
"""The suffix of a file with new credentials until the configuration contains them."""
_NAMES: Final = {"service": SERVICE, "operator": OPERATOR}


class CredentialsFile(NamedTuple):
    """Credentials in a file."""

    user: str
    kind: Kind
    file: Path


def file_of(user: str, kind: Kind) -> Path:
    """Return the path of a user's credentials. Every user has a separate file, whatever its name."""
    for name, known in _NAMES.items():
        if user == known:
            return Path(f"{name}.{_ENDINGS[kind]}")
    owner, _, _ = user.partition(":")
    name = owner + tokens(user).removeprefix(tokens(owner))
    return Path("tenants" if "/" in user else "plugins", f"{name}.{_ENDINGS[kind]}")


def kept(user: str, kind: Kind, file: Path) -> Credentials | None:
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


def save(path: Path, text: str) -> None:
    """Write a file as a whole or not at all, readable only for its owner."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        private.make_folder(path.parent)
        unfinished.unlink(missing_ok=True)
        with open(private.create(unfinished), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise file_trouble(error, path, field="out") from error


def rotate(folder: Path, names: Sequence[str]) -> list[CredentialsFile]:
    """Rotate the credentials of users, and of all users of the named plugins and projects.

    The new secrets are on disk before the configuration contains them, and replace the old files afterwards.
    After an interruption, the next rotation continues from the secrets that the configuration contains.

    Raises:
        ValidationError: A user is unknown, a file cannot be used, or the configuration does not contain the
            credentials to rotate. Nothing is changed then.
    """
    text = _configuration(folder / NAME)
    renewed: list[tuple[CredentialsFile, Credentials]] = []
    for one in _chosen(folder, names, text):
        fresh = new_credentials(one.user, one.kind)
        text = text.replace(_mark(_in_force(one, text)), _mark(fresh))
        renewed.append((one, fresh))
    for one, fresh in renewed:
        save(_next(one.file), f"{fresh.secret}\n")
    save(folder / NAME, text)
    for one, _ in renewed:
        try:
            _next(one.file).replace(one.file)
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


def _chosen(folder: Path, names: Sequence[str], text: str) -> list[CredentialsFile]:
    """Return the credentials to rotate, each of which the configuration contains."""
    found = sorted(_found(folder))
    users = sorted({one.user for one in found})
    known = {*users, *(user.partition(":")[0] for user in users)}
    for name in names:
        if name not in known:
            raise ValidationError(_unknown(name, sorted(known), folder), field="rotate")
    wanted = [one for one in found if not {one.user, one.user.partition(":")[0]}.isdisjoint(names)]
    used = [one for one in wanted if _is_used(one, text)]
    for one in wanted:
        if one.user not in {other.user for other in used}:
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


def _is_used(one: CredentialsFile, text: str) -> bool:
    return any(text.count(_mark(shown)) == 1 for shown in _candidates(one))


def _in_force(one: CredentialsFile, text: str) -> Credentials:
    """Return the credentials that the configuration contains; after an interrupted rotation the new ones."""
    return next(shown for shown in _candidates(one) if text.count(_mark(shown)) == 1)


def _candidates(one: CredentialsFile) -> Iterator[Credentials]:
    for file in (one.file, _next(one.file)):
        found = kept(one.user, one.kind, file)
        if found is not None:
            yield found


def _mark(credentials: Credentials) -> str:
    """Return the unique text for these credentials in the configuration."""
    return f'"{credentials.public or credentials.secret}"'


def _next(file: Path) -> Path:
    return file.with_name(file.name + _NEXT)
