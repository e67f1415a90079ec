"""The loop that cleans up: when it runs, what it logs, and that nothing but its end stops it.

The loop's pauses are replaced, so that no test waits for one; only what runs it as a task lets it sleep.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TypeAlias

import pytest

from holdfast.compat import rosey
from holdfast.compat.rosey import BotDatabase, DatabaseService
from tests.compat.conftest import add, row

NOWHERE = "nats://127.0.0.1:1"
End: TypeAlias = Callable[[DatabaseService, list[int | Exception]], None]


def record_pauses(monkeypatch: pytest.MonkeyPatch, service: DatabaseService, rounds: int) -> list[float]:
    """Let the loop end after so many rounds, without waiting; the pauses that it would have made."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        service._shutdown = len(pauses) > rounds

    monkeypatch.setattr(rosey, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    return pauses


async def test_each_round_pauses_for_the_interval_and_cleans_up(
    db: BotDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop waits for the interval, removes what has expired, and begins again."""
    await add(db, [row(f"key{number}", expires_at=datetime.now(UTC) - timedelta(1)) for number in range(3)])
    service = DatabaseService(db, NOWHERE, cleanup_interval_seconds=7)
    pauses = record_pauses(monkeypatch, service, 2)
    await service._kv_cleanup_loop()
    monkeypatch.undo()
    assert pauses == [7, 7, 7]
    assert await db.kv_cleanup_expired() == 0


class TestRounds:
    """What does not depend on the database, which is never opened."""

    @pytest.fixture
    def cleaned(self, monkeypatch: pytest.MonkeyPatch) -> End:
        """Has the rounds of a loop end as listed."""

        def end(service: DatabaseService, results: list[int | Exception]) -> None:
            rounds = iter(results)

            async def clean_up() -> int:
                result = next(rounds)
                if isinstance(result, Exception):
                    raise result
                return result

            monkeypatch.setattr(service.db, "kv_cleanup_expired", clean_up)

        return end

    @pytest.mark.parametrize(("interval", "after_error"), [(300, 60), (60, 60), (5, 5)])
    async def test_an_error_is_logged_and_the_loop_goes_on(
        self,
        cleaned: End,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        interval: float,
        after_error: float,
    ) -> None:
        """After an error, logged with its traceback, the pause is the interval but at most a minute."""
        service = DatabaseService(BotDatabase("sqlite://"), NOWHERE, cleanup_interval_seconds=interval)
        cleaned(service, [RuntimeError("the disk is on fire"), 2, 0])
        pauses = record_pauses(monkeypatch, service, 3)
        with caplog.at_level(logging.DEBUG, logger="holdfast.compat"):
            await service._kv_cleanup_loop()
        monkeypatch.undo()
        assert pauses == [interval, after_error, interval, interval]
        started, *rounds, stopped = caplog.records
        assert (started.levelname, f"every {interval} s" in started.getMessage()) == ("INFO", True)
        assert (stopped.levelname, "stopped" in stopped.getMessage()) == ("INFO", True)
        assert [record.levelname for record in rounds] == ["ERROR", "INFO", "DEBUG"]
        assert "the disk is on fire" in rounds[0].getMessage()
        assert rounds[0].exc_info is not None
        assert "removed 2 expired keys" in rounds[1].getMessage()

    async def test_a_slow_round_is_a_warning(
        self,
        cleaned: End,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Cleaning up that takes longer than a second is told as a warning, whatever it removed."""
        service = DatabaseService(BotDatabase("sqlite://"), NOWHERE)
        cleaned(service, [0])
        record_pauses(monkeypatch, service, 1)
        moments = iter([10.0, 11.5])
        monkeypatch.setattr(rosey, "seams", SimpleNamespace(monotonic=lambda: next(moments)))
        with caplog.at_level(logging.DEBUG, logger="holdfast.compat"):
            await service._kv_cleanup_loop()
        [_, record, _] = caplog.records
        assert (record.levelname, "1500 ms" in record.getMessage()) == ("WARNING", True)

    async def test_the_method_is_looked_up_each_round(self) -> None:
        """A method that is put in place of the database's is called from then on, in a running task too."""
        db = BotDatabase("sqlite://")
        service = DatabaseService(db, NOWHERE, cleanup_interval_seconds=0)
        called: list[str] = []
        enough = asyncio.Event()

        def instead(name: str) -> None:
            async def clean_up() -> int:
                called.append(name)
                if len(called) == 1:
                    instead("second")
                    raise RuntimeError("a passing fault")
                enough.set()
                return 0

            db.kv_cleanup_expired = clean_up  # type: ignore[method-assign]

        instead("first")
        service._cleanup_task = asyncio.create_task(service._kv_cleanup_loop())
        async with asyncio.timeout(60):
            await enough.wait()
        assert not service._cleanup_task.done()
        await service.stop()
        assert called[:2] == ["first", "second"]
        assert service._cleanup_task is None
