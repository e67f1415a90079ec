"""`holdfast backup` and `holdfast restore FILE`: a whole store as one file, and back.

The file gets its name only when it is complete, and only its owner can read it. A restore says what it would
overwrite, and does it only after a yes.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

import holdfast
from holdfast.audit.keyring import Keyring
from holdfast.edges.cli.confirmation import require_yes
from holdfast.edges.cli.files import counted, opened_output, progress, require_free
from holdfast.edges.cli.output import document, file_trouble, say
from holdfast.edges.cli.raw import reading, writing
from holdfast.edges.cli.schema import tell_of_move
from holdfast.edges.cli.target import STORE, Place
from holdfast.errors import Unsupported
from holdfast.moves.backup_file import MAGIC, BackupTotals, verified
from holdfast.moves.backups import back_up, held_by, restore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.engine.raw import Movable


async def backup(file: str, /, *, with_key: bool = False, force: bool = False, target: Place = STORE) -> None:
    """Write everything that a store holds into one file, as it is at one instant, while the store is in use.

    `holdfast restore FILE` loads it into a store of any engine. Everything is included: all namespaces with
    their policies, entries, tables, blobs, journals, trash, dead letters, audits, and the tokens' hashes.

    Parameters
    ----------
    file
        The file to write; it appears when it is complete, and only its owner can read it.
    with_key
        Include the audit's secrets. Without them a restored audit can be verified, and audited namespaces can
        be written to, only where the key is.
    force
        Replace the file if it exists.
    """
    require_free(file, force=force, field="file")
    async with reading(target.address) as engine:
        secrets = _secrets(engine) if with_key else None
        total = await counted(engine)
        with opened_output(file, force=force) as output, progress("backup", total) as advance:
            totals = await back_up(
                engine,
                output,  # type: ignore[arg-type]
                made_at=int(time.time() * 1000),
                software=holdfast.__version__,
                key=secrets,
                advance=advance,
            )
        async with engine.snapshot() as snapshot:
            signed = (await snapshot.facts()).audit_key
    await tell_of_move(target.address)
    _report("backed up", file, totals, target)
    if signed is not None and not secrets and not target.json:
        say(
            f"the audit of this store is signed with the key {signed.split()[-1]}, which is not in the file: "
            "without a copy of it, or --with-key, a restored audit can't be verified and audited namespaces "
            "refuse writes",
            colour="yellow",
        )


def is_file(name: str) -> bool:
    """Return whether this is the name of a file."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def is_backup(name: str) -> bool:
    """Return whether this is the name of a file that begins as a backup does."""
    try:
        with Path(name).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


async def restore_backup(name: str, *, yes: bool, target: Place) -> None:
    """Replace everything that a store holds by a backup."""
    adopted: list[bool] = []
    with _opened(name) as file:
        header, held = verified(file)
        file.seek(0)
        async with writing(target.address) as engine:
            found = await held_by(engine)
            if found:
                require_yes(loss(found), yes=yes)
            keys = engine.keys
            adopt = keys.adopt if isinstance(keys, Keyring) else lambda secrets: False
            total = held.entries + held.rows + held.parts + held.records
            with progress("restore", total) as advance:
                totals = await restore(
                    engine, file, adopt=lambda secrets: adopted.append(adopt(secrets)), advance=advance
                )
    _report("restored", name, totals, target)
    signed = header.facts.audit_key
    if signed is not None and not any(adopted) and not target.json:
        say(
            f"the audit was signed with the key {signed.split()[-1]}: put that key where this store looks "
            "for it, or the audit can't be verified and audited namespaces refuse writes",
            colour="yellow",
        )


def _secrets(engine: Movable) -> list[bytes]:
    """Return the audit's secrets.

    Raises:
        Unsupported: There is no key here.
    """
    keys = engine.keys
    secrets = keys.lines() if isinstance(keys, Keyring) else []
    if not secrets:
        raise Unsupported("--with-key needs the audit's key, and there is none here")
    return secrets


@contextlib.contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    try:
        with Path(name).open("rb") as file:
            yield file
    except OSError as error:
        raise file_trouble(error, name, field="file") from None


def loss(names: list[str]) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"everything in the {len(names)} namespaces of this store is replaced ({shown})"


def _report(done: str, file: str, totals: BackupTotals, target: Place) -> None:
    if target.json:
        document({"file": file, **msgspec.structs.asdict(totals)})
        return
    counts = ", ".join(f"{name}: {count}" for name, count in msgspec.structs.asdict(totals).items())
    say(f"{done} {file}: {counts}")
