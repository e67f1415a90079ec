"""Timing: who is counted, from when, and what a stall costs."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time

import pytest

from bench.machine import cpu_seconds
from bench.measure import Window, closed_loop, merged, open_loop, percentile


class FakeTimer:
    """Time that moves when somebody sleeps or is told to have taken a while."""

    def __init__(self) -> None:
        self._now = 100.0

    def now(self) -> float:
        """The time."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Let others run, and be there in time unless they took longer."""
        end = self._now + seconds
        await asyncio.sleep(0)
        self._now = max(self._now, end)

    def pass_by(self, seconds: float) -> None:
        """Move it, as something that blocks would."""
        self._now += seconds


async def test_a_stall_counts_for_all_that_it_delays() -> None:
    """At a rate, a call that blocks for a second makes all those late that were due meanwhile."""
    timer = FakeTimer()

    async def call(number: int) -> None:
        if number == 2:
            timer.pass_by(1.0)

    window = await open_loop(call, per_second=10, seconds=1.5, timer=timer)
    assert len(window.latencies) == 15
    late = [round(taken) for taken in window.latencies]
    assert late[:3] == [0, 0, 1000]
    assert late[3:13] == [900, 800, 700, 600, 500, 400, 300, 200, 100, 0]


async def test_a_rate_is_kept_whatever_becomes_of_earlier_calls() -> None:
    """Calls are sent at their rate while earlier ones wait for their answer."""
    timer, gate, begun = FakeTimer(), asyncio.Event(), []

    async def call(number: int) -> None:
        begun.append(number)
        if number == 9:
            gate.set()
        await gate.wait()

    window = await open_loop(call, per_second=100, seconds=0.1, timer=timer)
    assert begun == list(range(10))
    assert max(window.latencies) == pytest.approx(90)


async def test_a_loop_ends_when_its_condition_holds() -> None:
    """A loop beside a sweep ends with it."""
    timer, calls = FakeTimer(), []

    async def call(number: int) -> None:
        calls.append(number)

    await open_loop(call, per_second=10, until=lambda: len(calls) >= 3, timer=timer)
    assert len(calls) in (3, 4)


async def test_a_closed_loop_never_exceeds_its_concurrency() -> None:
    """In a closed loop there are never more calls under way than asked for, and as many at the most."""
    timer, under_way, most = FakeTimer(), 0, 0

    async def call(number: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await timer.sleep(0.01)
        under_way -= 1

    window = await closed_loop(call, in_flight=4, seconds=1, timer=timer)
    assert most == 4
    assert window.per_second == pytest.approx(len(window.latencies) / window.seconds)


async def test_failures_are_no_throughput() -> None:
    """A call that was refused counts as an error by its code, and neither as fast nor as done."""
    timer = FakeTimer()

    class Refusal(Exception):
        code = "BUSY"

    async def call(number: int) -> None:
        await timer.sleep(0.125)
        if number % 2:
            raise Refusal
        if number % 4 == 0:
            raise ValueError

    window = await closed_loop(call, in_flight=1, seconds=1, timer=timer)
    assert window.errors == {"BUSY": 4, "ValueError": 2}
    assert len(window.latencies) == 2
    assert window.error_rate == pytest.approx(0.75)


def test_percentiles_have_no_mercy() -> None:
    """A percentile is one of the values, the worse of two; of nothing it is infinite and misses every bar."""
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 0.5) == 51
    assert percentile(values, 0.99) == 100
    assert percentile([7.0], 0.999) == 7
    assert percentile([], 0.5) == math.inf


def test_windows_of_several_processes_are_one() -> None:
    """Requests and errors add up, over the longest of the whiles."""
    one = Window(seconds=1.0, latencies=[1.0, 2.0], errors={"BUSY": 1})
    other = Window(seconds=2.0, latencies=[3.0], errors={"BUSY": 2, "X": 1})
    both = merged([one, other])
    assert (both.seconds, both.latencies, both.errors) == (2.0, [1.0, 2.0, 3.0], {"BUSY": 3, "X": 1})
    assert both.per_second == 1.5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a CPU clock for every process")
def test_the_cpu_time_of_a_process_is_its_own_clock() -> None:
    """The bench reports the CPU time that the service used, to the microsecond."""
    before = time.process_time()
    reported = cpu_seconds(os.getpid())
    assert reported is not None
    assert before <= reported <= time.process_time()
