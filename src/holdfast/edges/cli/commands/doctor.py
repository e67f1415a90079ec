"""`holdfast doctor`: checks of the machine and the store, each a line with advice.

A check changes nothing and raises nothing: its result is a finding. A store that opening would create or
migrate is not opened, and of a cluster the doctor does not become a node, since that would write a replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import re
import shutil
import sqlite3
import ssl
import stat
import statistics
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from holdfast import masking, private, seams
from holdfast.audit.keyring import FileKeyring, Keyring, parse_keys
from holdfast.clock import ManualClock, SystemClock
from holdfast.edges.cli.output import ERROR, OK, coloured, document
from holdfast.edges.cli.schema import BASE, Schema, schema_of
from holdfast.edges.cli.target import STORE, WRITER, Place
from holdfast.edges.screen import harmless
from holdfast.edges.settings.read import open_mode, read_config, shown
from holdfast.edges.settings.table import Config
from holdfast.engine import DurableStorage, Engine, SharedStorage
from holdfast.engines.cluster.address import ClusterAddress, cluster_address
from holdfast.engines.cluster.operators import ClusterOperator, ClusterStatus
from holdfast.engines.cluster.servers import RISK, require_sync
from holdfast.engines.sql.adopting import TABLE
from holdfast.engines.sql.layout import SCHEMA_REVISION
from holdfast.engines.sql.migrate import Need, needed
from holdfast.engines.sqlite.files import beside
from holdfast.engines.sqlite.setup import OLDEST_SQLITE
from holdfast.errors import DatabaseError, HoldfastError, PermissionDenied, Unsupported
from holdfast.extras import DISTRIBUTION
from holdfast.moves.transfers import place_in
from holdfast.operators.inspection import Inspection
from holdfast.pipeline.audits import key_in_force
from holdfast.pipeline.caller import Service
from holdfast.registry import backend_for
from holdfast.store import Store

LITTLE_ROOM: Final = 1024**3
NO_ROOM: Final = 64 * 1024**2
"""Numbers of free bytes below which to warn, and to fail."""
SLOW_SYNC: Final = 0.020
"""Seconds from which a sync is slow. Each group of writes waits for one."""
SYNCS: Final = 15
OFFSET: Final = 1000
"""Milliseconds from which two clocks that should agree do not."""
AHEAD: Final = 2000
"""Milliseconds from which a store's time counts as ahead of its clock."""
LONG_LOG: Final = 1_000_000
"""Number of messages from which the log of a cluster without a snapshot is long."""
PATIENCE: Final = 3.0
"""Seconds to wait for a NATS server to greet."""
SUFFIXES: Final = ("", "-wal", "-shm", ".lock", ".turn", ".upkeep", ".ballast", ".audit-key")
"""The suffixes of a store's files."""

_ORDER: Final = ("fail", "warn", "ok")
_COLOURS: Final = {"fail": "red", "warn": "yellow", "ok": "green"}
_BUS: Final = ("nats://", "tls://")
_TLS_FIRST: Final = "tls_first=true"
"""The option of a URL for a server that begins with TLS."""
_NAME: Final = re.compile(r"[\w.-]+")
_LEAST: Final = re.compile(r">=([\d.]+)")
_REPAIR: Final = "restore a backup; holdfast export saves what can still be read"
_ISOLATE: Final = "where you do not trust all of them, run holdfast nats config and serve with what it writes"

Level = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a check, and advice if it is not ok."""

    check: str
    level: Level
    message: str
    advice: str | None = None


async def doctor(*, nats: str | None = None, deep: bool = False, target: Place = STORE) -> int:
    """Check this machine and the store: each check is a line that begins with fail, warn or ok.

    What is wrong comes first, with what to do about it. The exit code is 1 if one has failed. Nothing is
    created or migrated.

    Parameters
    ----------
    nats
        The NATS servers of which one should answer; those of the settings if not given.
    deep
        Also read all that is stored: every page of the database, every value, the counters of every namespace
        and every audit. That takes as long as reading everything does.
    """
    config = read_config(nats=nats)
    keys, key_finding = _key_at_hand(target)
    findings = [check_libraries(), *await _of_address(target.address, config, keys, deep=deep)]
    if config.no_nats:
        findings.append(Finding("nats", "ok", "holdfast up serves HTTP alone: no_nats is set"))
    findings += filter(None, (key_finding, await _access(target.address, config)))
    findings.sort(key=lambda finding: _ORDER.index(finding.level))
    if target.json:
        document({"checks": findings})
    else:
        for finding in findings:
            level = coloured(f"{finding.level:<4}", _COLOURS[finding.level], sys.stdout)
            advice = f" ({finding.advice})" if finding.advice else ""
            text = harmless(f"{finding.check:<9}  {finding.message}{advice}", lines=True)
            print(f"{level}  {text}")
    return ERROR if any(finding.level == "fail" for finding in findings) else OK


async def _of_address(url: str, config: Config, keys: Keyring | None, *, deep: bool) -> list[Finding]:
    """Check the folder of a store, the store, and the NATS servers that lead to it."""
    schema, findings = _schema(url), []
    if schema is not None and schema.file is not None:
        file = beside(schema.file.absolute(), "")
        folder = next(parent for parent in file.parents if parent.is_dir())
        findings += [check_disk(folder), check_sync(folder)]
        if schema.file.exists():
            findings.append(_files(schema.file))
    if url.startswith("cluster://"):
        return findings + await _cluster(url)
    findings += await _of_store(url, schema, keys, deep=deep)
    if address := config.nats or (url if url.startswith(_BUS) else None):
        findings.append(await check_nats(address, tls_first=config.nats_tls_first))
    return findings


# The machine: libraries, disk and files.


def check_libraries() -> Finding:
    """Check that SQLite and every library that is needed are there and new enough."""
    versions = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    troubles: list[str] = []
    advice = f"run pip install --upgrade {DISTRIBUTION}"
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE[:2]))
        troubles.append(f"sqlite {sqlite3.sqlite_version} is older than {oldest}")
        advice = f"use a Python with SQLite {oldest} or newer"
    for requirement in requires(DISTRIBUTION) or ():
        name = _first(_NAME, requirement)
        if name == DISTRIBUTION:  # an extra that contains another
            continue
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            if "extra ==" not in requirement:
                troubles.append(f"{name} is missing")
            continue
        least = _first(_LEAST, requirement)
        if _numbers(versions[name]) < _numbers(least):
            troubles.append(f"{name} {versions[name]} is older than {least}")
    if troubles:
        return Finding("libraries", "fail", ", ".join(troubles), advice)
    return Finding("libraries", "ok", ", ".join(" ".join(library) for library in versions.items()))


def _first(pattern: re.Pattern[str], text: str) -> str:
    """Return the first match of a pattern; an empty string if there is none."""
    match = pattern.search(text)
    return match[match.lastindex or 0] if match else ""


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)[:3]))


def check_disk(folder: Path) -> Finding:
    """Check the free space for the data."""
    free = shutil.disk_usage(folder).free
    message = f"{free / 1024**3:.1f} GiB free in {folder}"
    if free < LITTLE_ROOM:
        level: Level = "fail" if free < NO_ROOM else "warn"
        return Finding("disk", level, message, "free some space or move the store")
    return Finding("disk", "ok", message)


def check_sync(folder: Path) -> Finding:
    """Measure the cost of syncing a write to disk, which callers wait for."""
    try:
        times = _syncs(folder)
    except OSError as error:
        message = f"{folder} can't be written to: {error.strerror}"
        return Finding("fsync", "fail", message, "look at its permissions")
    median, worst = statistics.median(times), max(times)
    message = f"{median * 1000:.2f} ms median, {worst * 1000:.2f} ms at worst"
    if median > SLOW_SYNC:
        return Finding("fsync", "warn", message, "writes will be slow here: use a faster disk")
    return Finding("fsync", "ok", message)


def _syncs(folder: Path) -> list[float]:
    times = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".holdfast-doctor-") as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            begun = seams.monotonic()
            os.fsync(file.fileno())
            times.append(seams.monotonic() - begun)
    return times


def _files(store: Path) -> Finding:
    """Check that only the owner can access the folder and the files of a store. None of them is opened."""
    owner = os.geteuid() or store.stat().st_uid  # root checks the stores of other users
    store = beside(store.absolute(), "")
    troubles = [
        trouble
        for path in (store.parent, *(beside(store, suffix) for suffix in SUFFIXES))
        for trouble in _exposed(path, owner)
    ]
    if not troubles:
        return Finding("files", "ok", "only their owner can read or write them")
    advice = "chmod 700 the folder and chmod 600 the files, and give them to the user who runs the store"
    return Finding("files", "warn", "; ".join(troubles), advice)


def _exposed(path: Path, owner: int) -> Iterator[str]:
    try:
        status = path.stat()
    except OSError:  # some files exist only at times
        return
    if status.st_mode & private.OTHERS:
        yield f"other users can get at {path} (mode {stat.S_IMODE(status.st_mode):04o})"
    if status.st_uid not in (owner, 0):
        yield f"{path} belongs to the user with number {status.st_uid}, not to {owner}"


# The key of the audit, and who may call a service.


def _key_at_hand(target: Place) -> tuple[Keyring | None, Finding | None]:
    """Return the keyring that signs the audit, and a finding about its file."""
    try:
        keys = target.keys_at_hand()
    except HoldfastError as error:
        return None, Finding("key", "fail", error.message, "correct the setting audit_key or audit_key_file")
    return keys, _key_file(target.address, keys)


def _key_file(url: str, configured: Keyring | None) -> Finding | None:
    """Check that the audit's key can be read, and only by its owner; None if it is not in a file."""
    try:
        backend = backend_for(url, configured)
    except HoldfastError as error:
        return Finding("key", "fail", error.message, "correct the setting url")
    keys = None if isinstance(backend, Service) else backend.keys
    if not isinstance(keys, FileKeyring):
        return None
    path = keys.path
    if keys.makes and not path.exists():
        return Finding("key", "ok", f"there is no audit key at {path} yet")
    try:
        parse_keys(path.read_text(encoding="utf-8"), field="audit_key_file")
    except HoldfastError as error:
        return _unusable_key(path, error.message)
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or "it can't be read") if isinstance(error, OSError) else "it is no text"
        return _unusable_key(path, reason.lower())
    if path.stat().st_mode & private.OTHERS:
        message = f"other users of this machine can get at the audit key {path}, and could forge records"
        return Finding("key", "warn", message, "chmod 600 it, and run holdfast audit rotate")
    return Finding("key", "ok", f"only its owner can read {path}")


def _unusable_key(path: Path, reason: str) -> Finding:
    message = f"the audit key {path} can't be used, so audited writes are refused: {reason}"
    return Finding("key", "fail", message, "restore the file, or give its user access")


async def _access(url: str, config: Config) -> Finding | None:
    """Check who may call the service at a URL, or for a store of this machine one with these settings."""
    if url.startswith(_BUS):
        return await _access_to(url)
    if url.startswith(("http://", "https://")):
        return None
    exposed = open_mode(config)
    if exposed is None:
        return Finding("access", "ok", f"the NATS server isolates callers by {config.reply_mode}")
    return Finding("access", "warn", f"holdfast up runs in open mode: {exposed}", _ISOLATE)


async def _access_to(url: str) -> Finding | None:
    """Check whether the NATS server of a running service asks for credentials; None if it does not say."""
    info = await _greeting(url.partition(",")[0], tls_first=_TLS_FIRST in url)
    if not info:
        return None
    if info.get("auth_required"):
        return Finding("access", "ok", "the NATS server asks for credentials")
    message = (
        "the NATS server lets in callers without credentials: each of them can read, write and administer "
        "all data, and take requests meant for the service"
    )
    return Finding("access", "warn", message, _ISOLATE)


async def check_nats(url: str, *, tls_first: bool = False) -> Finding:
    """Check that a NATS server answers at one of the addresses."""
    tls_first = tls_first or _TLS_FIRST in url
    for address in url.split(","):
        place = address.strip() if "://" in address else f"nats://{address.strip()}"
        if await _greeting(place, tls_first=tls_first) is not None:
            return Finding("nats", "ok", f"a server answers at {masking.hosts(address)}")
    advice = "start one, or name another with --nats"
    return Finding("nats", "fail", f"no server answers at {masking.hosts(url)}", advice)


async def _greeting(address: str, *, tls_first: bool) -> dict[str, Any] | None:
    """Return the greeting of the NATS server at an address; None if there is no server.

    A server that begins with TLS and wants a certificate does not greet. The greeting is then empty.
    """
    secure = _trusting_context() if tls_first else None
    try:
        place = urlsplit(address)
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(place.hostname, place.port or 4222, ssl=secure)
            try:
                kind, _, text = (await reader.readline()).partition(b" ")
                if kind == b"INFO":
                    return msgspec.json.decode(text, type=dict[str, Any])
                return {} if tls_first and not kind else None
            except ssl.SSLError:
                return {}
            finally:
                writer.transport.abort()  # a polite end of TLS would wait for the server
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, ValueError, msgspec.DecodeError):
        return None


def _trusting_context() -> ssl.SSLContext:
    """Return a context that trusts every server: nothing is sent over it, and only a greeting is read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


# The store.


async def _of_store(url: str, schema: Schema | None, keys: Keyring | None, *, deep: bool) -> list[Finding]:
    """Check the schema's revision, and then the store itself if opening it changes nothing."""
    findings: list[Finding] = []
    try:
        if schema is not None:
            findings.append(await _of_schema(schema, required=deep))
            if findings[0].level != "ok":
                return findings
        backend = backend_for(url, keys)
        clock = SystemClock()
        # With a clock that stands still the store remembers no time, so the check changes nothing.
        async with Store(backend, clock=ManualClock(clock.now()), writer=WRITER, reap=False) as store:
            findings.append(await _opens(url, store))
            if isinstance(backend, Service):
                if (time := backend.time()) is not None:
                    findings.append(check_offset(time - clock.now()))
            else:
                theirs = await backend.clock(clock.ticks) if isinstance(backend, SharedStorage) else None
                if theirs is not None:
                    findings.append(check_offset(theirs.time - clock.at(theirs.ticks)))
                reference = clock.now() if theirs is None else theirs.time
                whose = "the wall clock" if theirs is None else "the database's clock"
                remembered = await backend.remembered() if isinstance(backend, DurableStorage) else 0
                findings.append(_ahead(remembered - reference, whose))
            findings.append(await _writable(store))
            findings.append(await _signable(store))
            if deep:
                findings += await check_contents(store)
            elif not isinstance(backend, Service):
                findings.append(await _suspected_audits(store))
    except HoldfastError as error:
        message = f"{shown(url)}: {error.message}"
        findings.append(Finding("store", "fail", message, "see the errors' reference"))
    except (TypeError, ValueError):  # a corrupt page holds unexpected values
        message = f"{shown(url)}: it holds what can't be read"
        findings.append(Finding("store", "fail", message, "restore a backup"))
    return findings


def _schema(url: str) -> Schema | None:
    try:
        return schema_of(url)
    except Unsupported:
        return None


async def _of_schema(schema: Schema, *, required: bool) -> Finding:
    """Check the schema of a store, which must be there if its contents are to be looked at."""
    process = schema.left_by()
    if process is not None:
        message = f"{schema.file} is gone, and {process} still has it open"
        advice = "run holdfast rescue NEW_PATH with --url of that service before it ends"
        return Finding("schema", "fail", message, advice)
    foreign = await schema.foreign()
    if foreign is not None:
        message = (
            f"there is no store yet, but a table {TABLE} with {foreign.rows} rows that another program made"
        )
        advice = "run holdfast adopt --dry-run to see what it would take over, then holdfast adopt"
        return Finding("schema", "fail", message, advice)
    revision = await schema.revision()
    match needed(None if revision == BASE else revision):
        case Need.CREATE if required:
            return Finding("schema", "fail", "there is no store, so nothing was checked", "look at --url")
        case Need.CREATE:
            return Finding("schema", "warn", "there is no store yet", "the first write creates it")
        case Need.MIGRATE:
            message = f"revision {revision} is older than {SCHEMA_REVISION}"
            return Finding("schema", "warn", message, "make a backup, then run holdfast migrate up")
        case _:
            return Finding("schema", "ok", f"revision {revision}")


async def _opens(url: str, store: Store) -> Finding:
    """Check that the store opens. A plugin with its own login may not list namespaces."""
    try:
        contents = f"namespaces: {len(await store.namespaces())}"
    except PermissionDenied:
        await store.ready()
        contents = "this user may use its own namespace, and only an operator may list them"
    return Finding("store", "ok", f"{shown(url)} opens; {contents}")


def check_offset(milliseconds: float) -> Finding:
    """Check that the storage's clock and this machine's agree."""
    message = f"the storage's clock is ahead by {milliseconds:.0f} ms"
    if abs(milliseconds) > OFFSET:
        return Finding("offset", "warn", message, "check the time service of both machines")
    return Finding("offset", "ok", message)


def _ahead(milliseconds: float, whose: str) -> Finding:
    """Check whether the store's time is ahead of its clock, because a clock was ahead or is behind."""
    if milliseconds <= AHEAD:
        return Finding("time", "ok", f"the store's time is not ahead of {whose}")
    message = (
        f"the store's time is {timedelta(seconds=milliseconds // 1000)} ahead of {whose}: an earlier process "
        "answered with it, and time does not go back"
    )
    advice = "to go back all the same, stop every process and run holdfast migrate --reset-clock"
    return Finding("time", "warn", message, f"a ttl lasts as long as it says; {advice}")


async def _writable(store: Store) -> Finding:
    try:
        await store.ready()
    except DatabaseError as error:
        return Finding("writing", "fail", error.message, "reading works, and holdfast rescue saves the data")
    except HoldfastError as error:
        place = place_in(error.message)
        if place is not None:
            message = f"this store has moved to {place}, and shows what it held before"
            return Finding("writing", "warn", message, f"use {place}: with --url, and as db in the settings")
        return Finding("writing", "warn", error.message, "reading works")
    return Finding("writing", "ok", "a write would be accepted")


async def _signable(store: Store) -> Finding:
    """Check that the key that last signed the store is available."""
    if isinstance(store.caller, Service):
        return Finding("signing", "ok", "the service has the key of the audit")
    trouble = await store.key_trouble()
    if trouble is not None:
        message = f"audited writes are refused: {trouble.message}"
        return Finding("signing", "fail", message, "see the how-to of the audit if the key is lost")
    name = await key_in_force(store.caller.require_engine(), store.now)
    if name is None:
        return Finding("signing", "ok", "nothing was signed yet: the first audited write makes a key")
    return Finding("signing", "ok", f"the key in force, {name}, is available")


async def _suspected_audits(store: Store) -> Finding:
    """Check the audits superficially; reading all records would take too long."""
    suspected = await store.suspected_audits()
    if not suspected:
        return Finding("audit", "ok", f"nothing wrong at first sight; audits: {len(await store.audits())}")
    message = "; ".join(f"{name}: {reason}" if name else reason for name, reason in suspected.items())
    return Finding("audit", "fail", message, "the database was changed with SQL: run holdfast audit verify")


# What is stored (`--deep`): every page, every value, every counter and every audit.


async def check_contents(store: Store) -> list[Finding]:
    """Check the stored data. A check that can't be made from here is reported as such."""
    findings = await _pages(store)
    try:
        names = [stats.namespace for stats in await store.namespaces()]
    except Exception as error:
        message = f"the namespaces can't be read: {_reason(error)}"
        return [*findings, Finding("values", "fail", message, _REPAIR)]
    if not isinstance(store.caller, Service):
        findings += await _values(store.caller.require_engine(), names)
    return findings + await _audits(store)


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, HoldfastError) else "a row is not what it should be"


async def _pages(store: Store) -> list[Finding]:
    try:
        checkup = await store.examine()
    except HoldfastError as error:
        return [Finding("pages", "fail", error.message, _REPAIR)]
    if checkup is None:
        advice = "run holdfast doctor --deep where the storage is, with --url as the service has it"
        return [Finding("pages", "warn", "pages, values and counters can't be checked from here", advice)]
    if not checkup.troubles:
        return [Finding("pages", "ok", f"nothing is wrong; checked: {checkup.checked}")]
    return [Finding("pages", "fail", trouble, _REPAIR) for trouble in checkup.troubles]


async def _values(engine: Engine, names: list[str]) -> list[Finding]:
    """Check that values can be read and counters are correct, namespace by namespace."""
    inspection, rows, uncounted = Inspection(engine), 0, 0
    failures: list[Finding] = []
    miscounted = "entries are missing, or were changed with SQL: compare with a backup"
    for name in names:
        try:
            inspected = await inspection.namespace(name)
        except Exception as error:  # a corrupt page may hold anything, such as a number for a key
            message = f"{name} can't be read whole: {_reason(error)}"
            failures.append(Finding("values", "fail", message, _REPAIR))
            continue
        rows += inspected.rows
        uncounted += not inspected.counted
        failures += [Finding("values", "fail", f"{name}: {one}", _REPAIR) for one in inspected.unreadable]
        failures += [
            Finding("counters", "fail", f"{name}: {one}", miscounted) for one in inspected.miscounted
        ]
    readable = Finding("values", "ok", f"all can be read; rows: {rows}, namespaces: {len(names)}")
    counted = Finding("counters", "ok", "keys and bytes of every namespace are as its row says")
    if uncounted:
        message = f"written to all the time, and so not counted: {uncounted} of {len(names)} namespaces"
        counted = Finding("counters", "warn", message, "check again when there is less to do")
    if failures:
        return [*failures, counted] if uncounted else failures
    return [readable, counted]


async def _audits(store: Store) -> list[Finding]:
    try:
        names = await store.audits()  # includes namespaces whose rows were deleted
    except Exception as error:
        return [Finding("audit", "fail", f"the audits can't be found: {_reason(error)}", _REPAIR)]
    audited, failures = 0, []
    for name in names:
        try:
            verdict = await store.audit(name).verify()
        except Exception as error:
            message = f"{name} can't be read whole: {_reason(error)}"
            failures.append(Finding("audit", "fail", message, _REPAIR))
            continue
        audited += verdict.head != "0:"
        if not verdict.whole:
            failures.append(
                Finding("audit", "fail", f"{name}: {verdict.reason}", "see holdfast audit verify")
            )
    whole = f"every record is there and unchanged; audited namespaces: {audited}"
    return failures or [Finding("audit", "ok", whole)]


# A cluster.


async def _cluster(url: str) -> list[Finding]:
    """Check a cluster as a whole: its servers, log, nodes, clocks and snapshots."""
    try:
        address = cluster_address(url)
    except HoldfastError as error:
        return [Finding("cluster", "fail", error.message, "see the reference of URLs")]
    findings = [await _sync_of_servers(address)]
    try:
        async with ClusterOperator(address) as operator:
            status = await operator.status()
    except HoldfastError as error:
        return [*findings, Finding("cluster", "fail", error.message, "see the how-to of clusters")]
    findings += [
        Finding("cluster", "fail", trouble, "holdfast cluster status shows more")
        for trouble in status.troubles
    ]
    return [*findings, _log(status), _snapshots(status)]


async def _sync_of_servers(address: ClusterAddress) -> Finding:
    try:
        await require_sync(address)
    except HoldfastError as error:
        return Finding("sync", "fail", error.message, "see the how-to of clusters")
    if address.allow_lazy_sync:
        message = f"the URL accepts servers that do not wait for the disk: {RISK}"
        return Finding("sync", "warn", message, "set sync_interval: always, and take allow_lazy_sync out")
    return Finding("sync", "ok", "the servers wait for the disk, and are new enough")


def _log(status: ClusterStatus) -> Finding:
    log = status.log
    message = f"nodes: {len(status.nodes)}, shards: {log.shards}, messages in the log: {log.messages}"
    if len(log.followers) < 2:
        message += "; one server alone keeps it"
        return Finding("log", "warn", message, "three survive the loss of one")
    return Finding("log", "ok", f"{message}; kept by {len(log.followers) + 1} servers")


def _snapshots(status: ClusterStatus) -> Finding:
    if not status.snapshots:
        level: Level = "warn" if status.log.messages > LONG_LOG else "ok"
        return Finding("snapshot", level, "there is no snapshot", "holdfast cluster snapshot makes one")
    newest = max(note.made_at for note in status.snapshots)
    age = timedelta(seconds=max(0, round(seams.wall() - newest / 1000)))
    return Finding("snapshot", "ok", f"the newest is {age} old")
