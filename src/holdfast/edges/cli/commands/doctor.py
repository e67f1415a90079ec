"""`holdfast doctor`: checks of the machine and the store, each a line with advice.

Law: nothing is changed. A store that opening would create or migrate is not opened.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from holdfast.clock import ManualClock, SystemClock
from holdfast.edges.cli import checks, cluster_checks, exposure
from holdfast.edges.cli.checks import Finding
from holdfast.edges.cli.deep import deep as looked_into
from holdfast.edges.cli.exit_codes import ERROR, OK
from holdfast.edges.cli.output import coloured, document
from holdfast.edges.cli.schema import BASE, Schema, schema_of
from holdfast.edges.cli.target import STORE, WRITER, Place
from holdfast.edges.screen import harmless
from holdfast.edges.settings.read import read_config, shown
from holdfast.engine import service_of
from holdfast.engines.sql.adopting import TABLE
from holdfast.engines.sql.layout import SCHEMA_REVISION
from holdfast.engines.sql.migrate import Need, needed
from holdfast.errors import DatabaseError, HoldfastError, PermissionDenied, Unsupported
from holdfast.moves.transfers import place_in
from holdfast.pipeline.audit_key import key_in_force
from holdfast.registry import engine_for
from holdfast.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.audit.keyring import Keyring
    from holdfast.edges.settings.table import Config
    from holdfast.engine import Engine

_ORDER: Final = ("fail", "warn", "ok")
_BUS: Final = ("nats://", "tls://")
_COLOURS: Final = {"fail": "red", "warn": "yellow", "ok": "green"}
OFFSET: Final = 1000
"""Milliseconds from which two clocks that should agree do not."""
AHEAD: Final = 2000
"""Milliseconds from which a store's time counts as ahead of its clock."""


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
    keys, key = _key(target)
    findings = [
        finding
        async for finding in _findings(
            target.address, config.nats, keys, deep=deep, tls_first=config.nats_tls_first
        )
    ]
    findings += [one for one in (key, await _access(target.address, config)) if one is not None]
    findings.sort(key=lambda finding: _ORDER.index(finding.level))
    if target.json:
        document({"checks": findings})
    else:
        for finding in findings:
            level = coloured(f"{finding.level:<4}", _COLOURS[finding.level], sys.stdout)
            print(f"{level}  {harmless(_line(finding), lines=True)}")
    return ERROR if any(finding.level == "fail" for finding in findings) else OK


def _key(target: Place) -> tuple[Keyring | None, Finding | None]:
    """Return the keyring that signs the audit, and a finding about its file."""
    try:
        keys = target.keys_at_hand()
    except HoldfastError as error:
        return None, exposure.unusable_setting(error)
    return keys, exposure.audit_key(target.address, keys)


async def _access(url: str, config: Config) -> Finding | None:
    """Check who may call the service at a URL, or for a store of this machine one with these settings."""
    if url.startswith(_BUS):
        return await exposure.access_to(url)
    return None if url.startswith(("http://", "https://")) else exposure.access(config)


async def _findings(
    url: str, nats: str | None, keys: Keyring | None, *, deep: bool, tls_first: bool
) -> AsyncIterator[Finding]:
    yield checks.python()
    yield checks.libraries()
    yield checks.sqlite()
    yield await checks.clock()
    schema = _schema(url)
    if schema is not None and schema.file is not None:
        folder = next(parent for parent in schema.file.absolute().parents if parent.is_dir())
        yield checks.disk(folder)
        yield checks.sync(folder)
        if schema.file.exists():
            yield exposure.files(schema.file)
    if url.startswith(cluster_checks.SCHEME):
        for finding in await cluster_checks.cluster(url):
            yield finding
        return
    async for finding in _of_store(url, schema, keys, deep=deep):
        yield finding
    address = nats or (url if url.startswith(_BUS) else None)
    if address:
        yield await checks.nats(address, tls_first=tls_first)


async def _of_store(
    url: str, schema: Schema | None, keys: Keyring | None, *, deep: bool
) -> AsyncIterator[Finding]:
    """Check the schema's revision, and then the store itself if opening it changes nothing."""
    try:
        if schema is not None:
            finding = (
                _gone(schema) or await _foreign(schema) or _revision(await schema.revision(), required=deep)
            )
            yield finding
            if finding.level != "ok":
                return
        engine = engine_for(url, keys)
        clock = SystemClock()
        # With a clock that stands still the store remembers no time, so the check changes nothing.
        async with Store(engine, clock=ManualClock(clock.now()), writer=WRITER, reap=False) as store:
            yield await _opens(url, store)
            theirs = await engine.clock(clock.ticks)
            if theirs is not None:
                yield offset(theirs.time - clock.at(theirs.ticks))
            if not store.capabilities.owns_clock:
                reference = clock.now() if theirs is None else theirs.time
                whose = "the wall clock" if theirs is None else "the database's clock"
                yield ahead(await engine.remembered() - reference, whose)
            yield await _writable(store)
            yield await _signable(engine, store)
            if not deep and service_of(engine) is None:
                yield await _audits(engine, store)
            if deep:
                async for finding in looked_into(store, engine):
                    yield finding
    except HoldfastError as error:
        yield Finding("store", "fail", f"{shown(url)}: {error.message}", "see the errors' reference")
    except (TypeError, ValueError):  # a corrupt page holds unexpected values
        yield Finding("store", "fail", f"{shown(url)}: it holds what can't be read", "restore a backup")


async def _opens(url: str, store: Store) -> Finding:
    """Check that the store opens. A plugin with its own login may not list namespaces."""
    try:
        seen = f"namespaces: {len(await store.namespaces())}"
    except PermissionDenied:
        await store.ready()
        seen = "this user may use its own namespace, and only an operator may list them"
    return Finding("store", "ok", f"{shown(url)} opens; {seen}")


def _schema(url: str) -> Schema | None:
    try:
        return schema_of(url)
    except Unsupported:
        return None


def _gone(schema: Schema) -> Finding | None:
    """Report a file that was removed while a process has it open."""
    process = schema.left_by()
    if process is None:
        return None
    return Finding(
        "schema",
        "fail",
        f"{schema.file} is gone, and {process} still has it open",
        "run holdfast rescue NEW_PATH with --url of that service before it ends",
    )


async def _foreign(schema: Schema) -> Finding | None:
    """Report a table of another program in the place of the store's."""
    found = await schema.foreign()
    if found is None:
        return None
    return Finding(
        "schema",
        "fail",
        f"there is no store yet, but a table {TABLE} with {found.rows} rows that another program made",
        "see what can be brought with holdfast adopt --dry-run, then run holdfast adopt",
    )


def _revision(found: str, *, required: bool) -> Finding:
    """Check the schema of a store, which must be there if its contents are to be looked at."""
    match needed(None if found == BASE else found):
        case Need.CREATE if required:
            return Finding("schema", "fail", "there is no store, so nothing was checked", "look at --url")
        case Need.CREATE:
            return Finding("schema", "warn", "there is no store yet", "the first write creates it")
        case Need.MIGRATE:
            return Finding(
                "schema",
                "warn",
                f"revision {found} is older than {SCHEMA_REVISION}",
                "make a backup, then run holdfast migrate up",
            )
        case _:
            return Finding("schema", "ok", f"revision {found}")


async def _writable(store: Store) -> Finding:
    try:
        await store.ready()
    except DatabaseError as error:
        return Finding("writing", "fail", error.message, "reading works, and holdfast rescue saves the data")
    except HoldfastError as error:
        place = place_in(error.message)
        if place is not None:
            return Finding(
                "writing",
                "warn",
                f"this store has moved to {place}, and shows what it held before",
                f"use {place}: with --url, and as db in the settings",
            )
        return Finding("writing", "warn", error.message, "reading works; write through that process")
    return Finding("writing", "ok", "a write would be accepted")


async def _signable(engine: Engine, store: Store) -> Finding:
    """Check that the key that last signed the store is available."""
    if service_of(engine) is not None:
        return Finding("signing", "ok", "the service has the key of the audit")
    trouble = await store.key_trouble()
    if trouble is not None:
        told = f"audited writes are refused: {trouble.message}"
        return Finding("signing", "fail", told, "see the how-to of the audit if the key is lost")
    name = await key_in_force(engine, store.now)
    if name is None:
        return Finding("signing", "ok", "nothing was signed yet: the first audited write makes a key")
    return Finding("signing", "ok", f"the key in force, {name}, is at hand")


async def _audits(engine: Engine, store: Store) -> Finding:
    """Check the audits superficially; reading all records would take too long."""
    found = await store.suspected_audits()
    if not found:
        return Finding("audit", "ok", f"nothing wrong at first sight; audits: {len(await store.audits())}")
    told = "; ".join(f"{name}: {reason}" if name else reason for name, reason in found.items())
    return Finding("audit", "fail", told, "the database was changed with SQL: run holdfast audit verify")


def offset(milliseconds: float) -> Finding:
    """Check that the storage's clock and this machine's agree."""
    message = f"the storage's clock is ahead by {milliseconds:.0f} ms"
    if abs(milliseconds) > OFFSET:
        return Finding("offset", "warn", message, "look after the time service of both machines")
    return Finding("offset", "ok", message)


def ahead(milliseconds: float, whose: str) -> Finding:
    """Check whether the store's time is ahead of its clock, because a clock was once ahead."""
    if milliseconds <= AHEAD:
        return Finding("time", "ok", f"the store's time is not ahead of {whose}")
    return Finding(
        "time",
        "warn",
        f"the store's time is {timedelta(seconds=milliseconds // 1000)} ahead of {whose}: an earlier process "
        "answered with it, and time does not go back",
        "a ttl lasts as long as it says; to go back all the same, stop every process and run "
        "holdfast migrate --reset-clock",
    )


def _line(finding: Finding) -> str:
    advice = f" ({finding.advice})" if finding.advice else ""
    return f"{finding.check:<9}  {finding.message}{advice}"
