"""Every message on the page about troubleshooting is one that Holdfast writes.

A line that is quoted as code is held against the texts of the source: its words must stand in them, and
`…` only where something is put in. Some are provoked besides, through the door where a user would meet them.
The source takes a second to read, so that the tests that need it are few.
"""

from __future__ import annotations

import asyncio
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest

import holdfast
from holdfast.audit.keyring import Keyring
from holdfast.clock import ManualClock
from holdfast.edges import cli
from holdfast.engines.memory import MemoryEngine
from holdfast.engines.sql.migrate import downgrade_sqlite
from holdfast.engines.sqlite import sharing
from holdfast.engines.sqlite.sharing import StoreLock
from holdfast.wire import payload, subjects
from tests.docs.sources import Template, templates
from tests.docs.test_reference import read

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer

PAGE: Final = "howto/troubleshooting.md"
CHECKLIST: Final = "howto/deployment-checklist.md"
ANYTHING: Final = "…"
SYMPTOMS: Final = (
    "No responders",
    "UNAVAILABLE",
    "PERMISSION_DENIED",
    "TIMEOUT and BUSY",
    "OUTCOME_UNKNOWN",
    "Conflicts that do not end",
    "Rates and quotas",
    "The database is locked by another process",
    "The file has vanished",
    "A clock jumped",
    "The disk is full",
    "The key of the audit is missing",
    "Requests are slow",
    "A ttl seems to be ignored",
    "A value is too large",
    "A migration is needed",
    "The service is not ready",
    "A package is missing",
)
"""What users look for on the page."""


def quotes() -> list[str]:
    """The messages that the page quotes."""
    return re.findall(r"^> `(.+)`$", read(PAGE), re.MULTILINE)


def sayings() -> list[str]:
    """What is quoted within sentences and tables of the pages for operators: code of three words or more."""
    text = re.sub(r"^(```.*?^```|> .*?$)", "", read(PAGE) + read(CHECKLIST), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([a-z]+(?: [\w']+){2,})`", text)


@cache
def written(text: str, least: int = 8) -> bool:
    """Whether some text of the source can come to be this one, with at least so many fixed characters.

    What is put in is nothing, anything, a number or a word, or again a text of the source.
    """
    for template in templates():
        fixed = [part for part in template if part]
        if sum(map(len, fixed)) < least or not all(part in text for part in fixed):
            continue
        found = _filled(template, text)
        if found is not None and all(_may_be_put_in(part) for part in found):
            return True
    return False


def _filled(template: Template, text: str) -> tuple[str, ...] | None:
    """What stands in the holes of a template if it comes to be a text."""
    pattern = "".join("(.*?)" if part is None else re.escape(part) for part in template)
    found = re.fullmatch(pattern, text)
    return None if found is None else found.groups()


def _may_be_put_in(part: str) -> bool:
    return part in ("", ANYTHING) or re.fullmatch(r"\w+", part) is not None or written(part, 3)


def test_every_quoted_message_is_one_that_is_written() -> None:
    """A user who searches the page for the message at hand finds it, because the code has these words."""
    said = [one for one in sayings() if not one.startswith("holdfast ")]
    assert "it is not connected" in said
    assert [quote for quote in [*quotes(), *said] if not written(quote)] == []
    assert len(quotes()) == len(re.findall(r"^>", read(PAGE), re.MULTILINE)) > 40
    # All of this would prove nothing if any words could be found in the source.
    assert not written("… is over its pace of … requests per second")
    assert not written("… is over its rate of … requests per minute")
    assert not written("the disk of … is full")
    assert not written(ANYTHING)


def test_every_symptom_has_its_section() -> None:
    """What users meet most has a heading of its own, which the page leads to."""
    page = read(PAGE)
    for symptom in SYMPTOMS:
        assert f"\n## {symptom}\n" in page
        anchor = re.sub(r"[^\w\- ]", "", symptom.lower()).replace(" ", "-")
        assert f"(#{anchor})" in page, symptom


def require_quoted(message: str) -> None:
    """Make sure that the page quotes a message that was met."""
    patterns = (".+".join(map(re.escape, quote.split(ANYTHING))) for quote in quotes())
    assert any(re.fullmatch(pattern, message) for pattern in patterns), message


async def test_messages_that_callers_meet(tmp_path: Path) -> None:
    """What a program is told is on the page: conflicts, limits, a value that is too large, a deadline."""
    clock = ManualClock()
    async with holdfast.open(tmp_path / "state.db", clock=clock, reap=False) as store:
        kv = store.kv("orders")
        await kv.set("a", 1, request_id="first")
        await store.set_policy("kv/orders", {"quota_keys": 1, "rate_limit": 10})
        for call, code in (
            (kv.set("a", 2, expected_version=7), "VERSION_CONFLICT"),
            (kv.set("a", 2, request_id="first"), "VERSION_CONFLICT"),
            (kv.set("b", 2), "QUOTA_EXCEEDED"),
        ):
            await meet(call, code)
        await meet(kv.set("a", "x" * 70_000), "VALUE_TOO_LARGE")
        await meet(asyncio.gather(*(kv.get("a") for _ in range(20))), "RATE_LIMITED")
    await meet(kv.set("a", 3), "UNAVAILABLE")


async def meet(call: Any, code: str) -> None:
    """Have a call refused with a code, and its message found on the page."""
    with pytest.raises(holdfast.HoldfastError) as refused:
        await call
    assert refused.value.code == code
    require_quoted(refused.value.message)


async def test_messages_about_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a second process, and one whose file is gone, are told is on the page."""
    path = tmp_path / "state.db"
    async with holdfast.open(path, reap=False) as first:
        await first.kv("a").set("k", 1)
        path.rename(tmp_path / "elsewhere.db")
        await meet(first.ready(), "DATABASE_ERROR")
        (tmp_path / "elsewhere.db").rename(path)
    lock = StoreLock(path.with_name("state.db.lock"))
    assert lock.acquire()
    monkeypatch.setattr(sharing, "OPENING_SECONDS", 0)
    with pytest.raises(holdfast.Unavailable) as held:
        await holdfast.open(path).start()
    lock.close()
    require_quoted(held.value.message)
    with pytest.raises(holdfast.Unavailable) as refused:
        await holdfast.open(tmp_path / "nowhere" / "state.db").start()
    require_quoted(refused.value.message)


async def test_messages_about_the_audit() -> None:
    """What is told where an audited namespace has no key is on the page."""
    async with holdfast.Store(MemoryEngine(Keyring()), reap=False) as store:
        await meet(store.semantic("acme", "web").set("k", 1), "UNSUPPORTED")


async def test_messages_about_a_service_that_is_not_there(nats_server: NatsServer) -> None:
    """What a client is told where a NATS server runs and no service does is on the page."""
    async with holdfast.open(nats_server.url) as store:
        await meet(store.kv("a").get("k"), "UNAVAILABLE")


def test_messages_about_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told where an extra is missing is on the page."""
    for name in [name for name in sys.modules if name.startswith("holdfast.engines.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(holdfast.Unsupported) as refused:
        holdfast.open("postgresql://host/db")
    require_quoted(refused.value.message)


async def test_messages_about_the_bus() -> None:
    """What is told where no NATS server is, and of a request that is not understood, is on the page."""
    with pytest.raises(holdfast.Unavailable) as refused:
        await holdfast.open("nats://127.0.0.1:1").start()
    require_quoted(refused.value.message)
    with pytest.raises(holdfast.InvalidJson) as broken:
        payload.decode(b"{")
    require_quoted(broken.value.message)
    with pytest.raises(holdfast.InvalidSubject) as lost:
        subjects.route("db.nothing", "db")
    require_quoted(lost.value.message)
    with pytest.raises(holdfast.InvalidPluginName) as named:
        holdfast.open("memory://").kv("Trivia")
    require_quoted(named.value.message)


def test_messages_about_the_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the command line says of an older store is on the page."""
    path = tmp_path / "state.db"
    assert cli.run(["set", "k", "1", "--plugin", "a", "--url", str(path)]) == 0
    downgrade_sqlite(path, "0002")
    capsys.readouterr()
    assert cli.run(["get", "k", "--plugin", "a", "--url", str(path)]) == 5
    require_quoted(capsys.readouterr().err.strip().removeprefix("holdfast: "))
