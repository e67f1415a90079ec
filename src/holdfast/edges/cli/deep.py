"""The checks of `holdfast doctor --deep`: every page, every value, every counter and every audit.

Law: nothing is changed, and a check that cannot be made from here is reported as not made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.edges.cli.checks import Finding
from holdfast.errors import HoldfastError
from holdfast.operators.inspection import Inspection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.engine import Checkup, Engine
    from holdfast.operators.inspection import Inspected
    from holdfast.store import Store

MEND: Final = "restore a backup; holdfast export saves what can still be read"


async def deep(store: Store, engine: Engine) -> AsyncIterator[Finding]:
    """Yield every finding about the stored data."""
    async for finding in _pages(store):
        yield finding
    try:
        names = [stats.namespace for stats in await store.namespaces()]
    except Exception as error:
        yield Finding("values", "fail", f"the namespaces can't be read: {_reason(error)}", MEND)
        return
    if store.capabilities.batching:
        async for finding in _contents(engine, names):
            yield finding
    async for finding in _audits(store):
        yield finding


async def _pages(store: Store) -> AsyncIterator[Finding]:
    try:
        found = await store.examine()
    except HoldfastError as error:
        yield Finding("pages", "fail", error.message, MEND)
        return
    if found is None:
        yield Finding(
            "pages",
            "warn",
            "pages, values and counters can't be checked from here",
            "run holdfast doctor --deep where the storage is, with --url as the service has it",
        )
        return
    for trouble in found.troubles:
        yield Finding("pages", "fail", trouble, MEND)
    if not found.troubles:
        yield Finding("pages", "ok", _checked(found))


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, HoldfastError) else "a row is not what it should be"


def _checked(found: Checkup) -> str:
    return f"nothing is wrong; checked: {found.checked}"


async def _contents(engine: Engine, names: list[str]) -> AsyncIterator[Finding]:
    """Check that values can be read and counters are correct, namespace by namespace."""
    inspection, rows, moving, sound = Inspection(engine), 0, 0, True
    for name in names:
        try:
            found = await inspection.namespace(name)
        except Exception as error:  # a corrupt page may hold anything, such as a number for a key
            sound = False
            yield Finding("values", "fail", f"{name} can't be read whole: {_reason(error)}", MEND)
            continue
        rows += found.rows
        moving += not found.counted
        for finding in _of_namespace(name, found):
            sound = False
            yield finding
    if sound:
        yield Finding("values", "ok", f"all can be read; rows: {rows}, namespaces: {len(names)}")
    if moving:
        yield Finding(
            "counters",
            "warn",
            f"written to all the time, and so not counted: {moving} of {len(names)} namespaces",
            "check again when there is less to do",
        )
    elif sound:
        yield Finding("counters", "ok", "keys and bytes of every namespace are as its row says")


def _of_namespace(name: str, found: Inspected) -> list[Finding]:
    unreadable = [Finding("values", "fail", f"{name}: {trouble}", MEND) for trouble in found.unreadable]
    advice = "entries are missing, or were changed with SQL: compare with a backup"
    return unreadable + [
        Finding("counters", "fail", f"{name}: {trouble}", advice) for trouble in found.miscounted
    ]


async def _audits(store: Store) -> AsyncIterator[Finding]:
    try:
        names = await store.audits()  # includes namespaces whose rows were deleted
    except Exception as error:
        yield Finding("audit", "fail", f"the audits can't be found: {_reason(error)}", MEND)
        return
    audits, sound = 0, True
    for name in names:
        try:
            verdict = await store.audit(name).verify()
        except Exception as error:
            sound = False
            yield Finding("audit", "fail", f"{name} can't be read whole: {_reason(error)}", MEND)
            continue
        audits += verdict.head != "0:"
        if not verdict.whole:
            sound = False
            yield Finding("audit", "fail", f"{name}: {verdict.reason}", "see holdfast audit verify")
    if sound:
        yield Finding("audit", "ok", f"every record is there and unchanged; audited namespaces: {audits}")
