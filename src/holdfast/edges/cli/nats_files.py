"""The folder that `holdfast nats config` writes: a configuration, and one file of credentials for each user.

Law: every file is written whole or not at all, for its owner's eyes only. Renewing credentials changes those
of the users that were named and not a byte of anything else, also where the configuration was edited by hand.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast import private
from holdfast.edges.cli.output import file_trouble
from holdfast.edges.nats.grants import tokens
from holdfast.edges.nats.server_config import SERVICE, Credentials, Kind, credentials_of, new_credentials
from holdfast.errors import ValidationError
from holdfast.wire.subjects import ONLY, OPERATOR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME: Final = "nats-server.conf"
_ENDINGS: Final[dict[Kind, str]] = {"nkeys": "nk", "passwords": "password"}
_NEXT: Final = ".next"
"""What the name of a file ends in that holds new credentials until the configuration knows them."""
_NAMES: Final = {"service": SERVICE, "operator": OPERATOR}


class Kept(NamedTuple):
    """Credentials in a file."""

    user: str
    kind: Kind
    file: Path


def file_of(user: str, kind: Kind) -> Path:
    """Where credentials are kept: no two users share a file, whatever they are called."""
    for name, known in _NAMES.items():
        if user == known:
            return Path(f"{name}.{_ENDINGS[kind]}")
    owner, _, _ = user.partition(":")
    name = owner + tokens(user).removeprefix(tokens(owner))
    return Path("tenants" if "/" in user else "plugins", f"{name}.{_ENDINGS[kind]}")


def kept(user: str, kind: Kind, file: Path) -> Credentials | None:
    """The credentials in a file from an earlier time.

    Raises:
        ValidationError: The file can't be read, or holds something else.
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
    """Write a file whole or not at all, for its owner's eyes only."""
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


def rotate(folder: Path, names: Sequence[str]) -> list[Kept]:
    """Renew the credentials of users, and of all users of the plugins and projects that are named.

    The new secrets are on disk before the configuration knows them, and take their places afterwards: if this
    is interrupted, the next time goes on from what the configuration knows.

    Raises:
        ValidationError: A user is not known, a file can't be used, or the configuration does not know the
            credentials that are to be renewed. Nothing is changed then.
    """
    text = _configuration(folder / NAME)
    renewed: list[tuple[Kept, Credentials]] = []
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
            f"{path} is not there: --out names the folder whose credentials are renewed", field="out"
        ) from None
    except UnicodeDecodeError:
        raise ValidationError(f"{path} is not the configuration of a nats-server", field="out") from None
    except OSError as error:
        raise file_trouble(error, path, field="out") from error


def _chosen(folder: Path, names: Sequence[str], text: str) -> list[Kept]:
    """The credentials to renew, of which the configuration knows each."""
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
                f"{folder / NAME} does not know the credentials in {one.file}: make the configuration anew "
                "with --force, or put back the file that belongs to it",
                field="rotate",
            )
    return used


def _unknown(name: str, known: list[str], folder: Path) -> str:
    nearest = get_close_matches(name, known, n=1)
    advice = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(known) or 'none'}"
    return f"there are no credentials of {name!r} in {folder}; {advice}"


def _found(folder: Path) -> Iterator[Kept]:
    """All credentials in a folder."""
    for kind, ending in _ENDINGS.items():
        for place in ("*", "plugins/*", "tenants/*/*"):
            for file in sorted(folder.glob(f"{place}.{ending}")):
                name = str(file.relative_to(folder)).removesuffix(f".{ending}")
                owner, only, verbs = name.partition(f".{ONLY}.")
                user = owner + (f":{verbs.replace('-', ',')}" if only else "")
                user = _NAMES.get(user) or user.removeprefix("plugins/").removeprefix("tenants/")
                yield Kept(user, kind, file)


def _is_used(one: Kept, text: str) -> bool:
    return any(text.count(_mark(shown)) == 1 for shown in _candidates(one))


def _in_force(one: Kept, text: str) -> Credentials:
    """The credentials that the configuration knows; after an interrupted renewal those that were new."""
    return next(shown for shown in _candidates(one) if text.count(_mark(shown)) == 1)


def _candidates(one: Kept) -> Iterator[Credentials]:
    for file in (one.file, _next(one.file)):
        found = kept(one.user, one.kind, file)
        if found is not None:
            yield found


def _mark(credentials: Credentials) -> str:
    """What stands in the configuration for these credentials and for no others."""
    return f'"{credentials.public or credentials.secret}"'


def _next(file: Path) -> Path:
    return file.with_name(file.name + _NEXT)
