"""Outages: one alert for each that goes on for five minutes, whoever notices it, and word of its end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from holdfast.clock import ManualClock
from holdfast.errors import Busy, Escalated, OutcomeUnknown, Unavailable, VersionConflict
from holdfast.handles.recipes.retry import Retry
from holdfast.pipeline.outage import Alert, Outage
from holdfast.store import Store
from tests.unit.recipes.faults import Faulty

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def clock() -> ManualClock:
    """The time."""
    return ManualClock()


@pytest.fixture
def alerts() -> list[Alert]:
    """What there were alerts for."""
    return []


@pytest.fixture
def outage(clock: ManualClock, alerts: list[Alert]) -> Outage:
    """Nothing is wrong yet."""
    outage = Outage(clock.now)
    outage.alerted = alerts.append
    return outage


def levels(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """What was logged of outages."""
    return [
        (record.levelno, record.getMessage()) for record in caplog.records if record.name == "holdfast.outage"
    ]


def test_one_alert_for_one_outage(
    outage: Outage, clock: ManualClock, alerts: list[Alert], caplog: pytest.LogCaptureFixture
) -> None:
    """After 300 s and not before there is one alert, at CRITICAL; none follows until the storage was back."""
    caplog.set_level(logging.INFO)
    for _ in range(30):
        outage.failed("it is away")
        clock.advance(10)
    assert (outage.alerts, alerts, outage.seconds) == (0, [], 300)
    for _ in range(30):
        outage.failed("it is away")
        clock.advance(10)
    assert outage.alerts == 1
    assert [(alert.seconds, alert.message) for alert in alerts] == [(300, "it is away")]
    assert outage.seconds == 600
    outage.worked()
    assert outage.seconds == 0
    assert levels(caplog) == [
        (logging.CRITICAL, "the storage has been unavailable for 300 s: it is away"),
        (logging.WARNING, "the storage is available again after 600 s"),
    ]
    for _ in range(31):
        outage.failed("again")
        clock.advance(10)
    assert (outage.alerts, len(alerts)) == (2, 2)


def test_a_short_outage_is_no_alarm(
    outage: Outage, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What is back before the time is over is mentioned at INFO, and the time begins anew afterwards."""
    caplog.set_level(logging.INFO)
    for _ in range(2):
        for _ in range(29):
            outage.failed("it is away")
            clock.advance(10)
        outage.worked()
    assert outage.alerts == 0
    assert levels(caplog) == [(logging.INFO, "the storage is available again after 290 s")] * 2


def test_failures_far_apart_are_no_outage(outage: Outage, clock: ManualClock) -> None:
    """Two failures far apart are not one long outage, because nobody called in between."""
    outage.failed("it is away")
    clock.advance(60)
    assert outage.seconds == 60
    clock.advance(0.001)
    assert outage.seconds == 0
    clock.advance(10_000)
    outage.failed("it is away again")
    assert (outage.alerts, outage.seconds) == (0, 0)


def test_outage_counts_only_unavailability_and_lost_answers(outage: Outage, clock: ManualClock) -> None:
    """Only an unavailable storage and lost answers count; a refusal neither begins nor ends an outage."""
    for nothing in (Busy("later"), VersionConflict("lost")):
        outage.heard(nothing)
        clock.advance(1)
        assert outage.seconds == 0
    for error in (Unavailable("away"), OutcomeUnknown("lost")):
        outage.heard(error)
        clock.advance(1)
        outage.heard(VersionConflict("lost"))
        assert outage.seconds == 1
        outage.heard(object())
        assert outage.seconds == 0


@pytest.fixture
async def store(engine: Faulty, clock: ManualClock) -> AsyncIterator[Store]:
    """A store that nobody looks after."""
    async with Store(engine, clock=clock, reap=False) as store:
        yield store


@pytest.fixture
def engine() -> Faulty:
    """Storage that fails when it is told to."""
    return Faulty()


async def test_embedded_store_logs_the_outage(
    store: Store, engine: Faulty, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that goes on writing has the alert in its log, and word of the end with the first success."""

    async def sleep(seconds: float) -> None:
        clock.advance(seconds + 5)

    retry = Retry(store.kv("jobs"), sleep=sleep, random=lambda: 0.0)
    engine.always = "away"
    while store.outage.seconds < 400:
        with pytest.raises(Escalated):
            await retry.set("k", 1)
    engine.always = ""
    await retry.set("k", 1)
    assert [level for level, _ in levels(caplog)] == [logging.CRITICAL, logging.WARNING]
    assert (store.outage.alerts, store.outage.seconds) == (1, 0)
