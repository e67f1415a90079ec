"""The checks of `holdfast doctor` for access by others: to files, to the audit's key and over NATS.

Law: files are checked by path and never opened, except for the key, which is not locked. The contents of a
store are not checked here.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from holdfast import private
from holdfast.audit.keyring import FileKeyring, parse_keys
from holdfast.edges.cli.checks import TLS_FIRST, Finding, greeting
from holdfast.edges.settings.read import open_mode
from holdfast.errors import HoldfastError
from holdfast.registry import engine_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.audit.keyring import Keyring
    from holdfast.edges.settings.table import Config

SUFFIXES: Final = ("", "-wal", "-shm", ".lock", ".ballast", ".audit-key")
"""The suffixes of a store's files."""
_ADVICE: Final = "where you do not trust all of them, run holdfast nats config and serve with what it writes"


def files(store: Path) -> Finding:
    """Check that only the owner can access the folder and the files of a store."""
    owner = os.geteuid() or store.stat().st_uid  # root checks the stores of other users
    troubles = [
        trouble
        for path in (store.absolute().parent, *(store.with_name(store.name + suffix) for suffix in SUFFIXES))
        for trouble in _exposed(path, owner)
    ]
    if not troubles:
        return Finding("files", "ok", "only their owner can read or write them")
    advice = "chmod 700 the folder and chmod 600 the files, and give them to the user who runs the store"
    return Finding("files", "warn", "; ".join(troubles), advice)


def unusable_setting(error: HoldfastError) -> Finding:
    """Report that the settings name no usable key."""
    return Finding("key", "fail", error.message, "mend the setting audit_key or audit_key_file")


def audit_key(url: str, given: Keyring | None) -> Finding | None:
    """Check that the audit's key can be read, and only by its owner; None if it is not in a file."""
    try:
        keys = engine_for(url, given).keys
    except HoldfastError as error:
        return Finding("key", "fail", error.message, "mend the setting url")
    if not isinstance(keys, FileKeyring):
        return None
    path = keys.path
    if keys.makes and not path.exists():
        return Finding("key", "ok", f"there is no audit key at {path} yet")
    try:
        parse_keys(path.read_text(encoding="utf-8"), field="audit_key_file")
    except HoldfastError as error:
        return _unusable(path, error.message)
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or "it can't be read") if isinstance(error, OSError) else "it is no text"
        return _unusable(path, reason.lower())
    if path.stat().st_mode & private.OTHERS:
        told = f"other users of this machine can get at the audit key {path}, and could forge records"
        return Finding("key", "warn", told, "chmod 600 it, and run holdfast audit rotate")
    return Finding("key", "ok", f"only its owner can read {path}")


def access(config: Config) -> Finding:
    """Check whether a service with these settings can distinguish its callers."""
    exposed = open_mode(config)
    if exposed is None:
        return Finding("access", "ok", f"the NATS server keeps callers apart, by {config.reply_mode}")
    return Finding("access", "warn", f"holdfast up runs in open mode: {exposed}", _ADVICE)


async def access_to(url: str) -> Finding | None:
    """Check whether the NATS server of a running service asks for credentials; None if it does not say."""
    told = await greeting(url.partition(",")[0], tls_first=TLS_FIRST in url)
    if not told:
        return None
    if told.get("auth_required"):
        return Finding("access", "ok", "the NATS server asks for credentials")
    message = (
        "the NATS server lets in callers without credentials: each of them can read, write and administer "
        "all data, and take requests meant for the service"
    )
    return Finding("access", "warn", message, _ADVICE)


def _unusable(path: Path, reason: str) -> Finding:
    told = f"the audit key {path} can't be used, so audited writes are refused: {reason}"
    return Finding("key", "fail", told, "restore the file, or give its user access")


def _exposed(path: Path, owner: int) -> Iterator[str]:
    try:
        found = path.stat()
    except OSError:  # some files exist only at times
        return
    if found.st_mode & private.OTHERS:
        yield f"other users can get at {path} (mode {stat.S_IMODE(found.st_mode):04o})"
    if found.st_uid not in (owner, 0):
        yield f"{path} belongs to the user with number {found.st_uid}, not to {owner}"
