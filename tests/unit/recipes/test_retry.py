"""Retrying a write: exact schedules, one effect, and what is left when it is given up."""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.errors import (
    Busy,
    DatabaseError,
    Escalated,
    Fenced,
    HoldfastError,
    KeyNotFound,
    OutcomeUnknown,
    QuotaExceeded,
    RateLimited,
    StorageFull,
    Timeout,
    Unavailable,
    ValidationError,
    VersionConflict,
)
from holdfast.handles.recipes.retry import Retry
from tests.unit.recipes.faults import Faulty

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.clock import ManualClock
    from holdfast.commands import Command
    from holdfast.decide import Outcome
    from holdfast.handles.kv import KV
    from holdfast.store import Store

CONFLICTS = [1, 2, 4, 8, 16, 32]
HALVES = [0.25, 0.5, 1, 2]
"""The pauses after transient errors when chance always takes the half."""


class Refusing(Faulty):
    """Storage that refuses the next writes with these errors; None lets one through."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals: list[HoldfastError | None] = []

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """Refuse, or do it."""
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            self.writes += len(commands)
            raise refusal
        return await super().transact(commands, now)


@pytest.fixture
def engine() -> Refusing:
    """The storage."""
    return Refusing()


class Patient:
    """A retry on the fake clock: it notes how long it slept, and how it was told of everything unusual."""

    def __init__(self, kv: KV, clock: ManualClock) -> None:
        self._clock = clock
        self.slept: list[float] = []
        self.told: list[tuple[str, str]] = []
        self.meanwhile: Callable[[], Any] | None = None
        self.retry = Retry(
            kv,
            sleep=self._sleep,
            random=lambda: 0.5,
            count=lambda what, code: self.told.append((what, code)),
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._clock.advance(seconds)
        if self.meanwhile is not None:
            await self.meanwhile()


@pytest.fixture
def patient(kv: KV, clock: ManualClock) -> Patient:
    """Retries without waiting."""
    return Patient(kv, clock)


async def test_a_program_counts_its_retries(kv: KV, store: Store, patient: Patient) -> None:
    """`store.measure(retried=…)` reports every attempt that is repeated, and the write that is given up."""
    counted: list[tuple[str, str, str]] = []
    store.measure(retried=lambda *what: counted.append(what))
    await kv.set("k", "theirs")
    with pytest.raises(Escalated):
        await patient.retry.set("k", "mine", expected_version=0)
    assert counted == [("kv/trivia", what, "VERSION_CONFLICT") for what in ["retried"] * 6 + ["escalated"]]


async def test_a_refused_request_is_logged_without_an_id(
    patient: Patient, caplog: pytest.LogCaptureFixture
) -> None:
    """The line about a write that was never made names no request."""
    with pytest.raises(ValidationError):
        await patient.retry.set("", 1)
    [line] = [record.getMessage() for record in caplog.records if record.name == "holdfast.retry"]
    assert line == "VALIDATION_ERROR in kv/trivia: key must not be empty"


async def test_conflicts_are_repeated_six_times(kv: KV, store: Store, patient: Patient) -> None:
    """A conflict is repeated after exactly 1, 2, 4, 8, 16 and 32 s, then given up and kept whole."""
    await kv.set("k", "theirs")
    with pytest.raises(Escalated) as caught:
        await patient.retry.set("k", "mine", expected_version=0, request_id="r", spec_ref="ADR-7")
    assert patient.slept == CONFLICTS
    escalated = caught.value
    assert (escalated.code, escalated.attempts, escalated.letter) == ("VERSION_CONFLICT", 7, 2)
    assert isinstance(escalated.error, VersionConflict)
    assert escalated.__cause__ is escalated.error
    assert escalated.error.current is not None
    assert patient.told == [("retried", "VERSION_CONFLICT")] * 6 + [("escalated", "VERSION_CONFLICT")]
    [letter] = (await store.letters("kv/trivia").list()).letters
    assert (letter.number, letter.key, letter.verb, letter.attempts) == (2, "k", "set", 7)
    assert (letter.error_code, letter.message) == ("VERSION_CONFLICT", escalated.error.message)
    assert (letter.request_id, letter.writer) == ("r", "embedded")
    assert letter.request == {
        "key": "k",
        "value": "mine",
        "expected_version": 0,
        "request_id": "r",
        "last_writer": "embedded",
        "spec_ref": "ADR-7",
    }


async def test_conflict_that_passes_is_written(kv: KV, patient: Patient) -> None:
    """The key becomes free while the write waits for its third attempt: then it is written, once."""
    await kv.set("k", "theirs", ttl=3)
    entry = await patient.retry.set("k", "mine", expected_version=0)
    assert (entry.value, patient.slept) == ("mine", [1, 2])
    assert [change.op for change in await kv.history("k")] == ["set", "expired", "set"]


@pytest.mark.parametrize("kind", [RateLimited, Busy, Timeout, Unavailable, StorageFull, OutcomeUnknown])
async def test_transient_errors_are_repeated_four_times(
    kind: type[HoldfastError], kv: KV, engine: Refusing, patient: Patient
) -> None:
    """Five attempts with a random part of 0.5, 1, 2 and 4 s between them, then it is given up."""
    engine.refusals = [kind("later")] * 5
    with pytest.raises(Escalated) as caught:
        await patient.retry.incr("n")
    assert (patient.slept, engine.writes) == (HALVES, 6)
    assert (caught.value.code, caught.value.attempts, caught.value.letter) == (kind.code, 5, 1)
    assert await kv.get("n") is None
    engine.refusals = [kind("later")] * 4
    assert (await patient.retry.incr("n")).value == 1


async def test_retry_waits_at_least_retry_after(engine: Refusing, patient: Patient) -> None:
    """No attempt is made before `retry_after` has passed; a longer random pause stays."""
    engine.refusals = [
        RateLimited("later", retry_after=7.5),
        Busy("later", retry_after=0.01),
        Busy("later", retry_after=0),
    ]
    await patient.retry.set("k", 1)
    assert patient.slept == [7.5, 0.5, 1]


async def test_pauses_are_random_up_to_their_bound(kv: KV, engine: Refusing) -> None:
    """A pause lies anywhere between nothing and its bound, as chance has it."""
    slept: list[float] = []
    chances = iter([0.0, 0.999, 0.5, 0.25])

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    engine.refusals = [Unavailable("away")] * 4
    await Retry(kv, sleep=sleep, random=lambda: next(chances)).set("k", 1)
    assert slept == [0.0, 0.999, 1.0, 1.0]


async def test_both_kinds_have_a_schedule_of_their_own(kv: KV, engine: Refusing, patient: Patient) -> None:
    """An outage between two conflicts neither shortens nor restarts the pauses of either."""
    await kv.set("k", "theirs")
    conflict, away = None, Unavailable("away")
    engine.refusals = [conflict, away, conflict, away]
    with pytest.raises(Escalated) as caught:
        await patient.retry.delete("k", expected_version=9)
    assert patient.slept == [1, 0.25, 2, 0.5, 4, 8, 16, 32]
    assert caught.value.attempts == 9


async def test_a_lost_answer_has_one_effect(kv: KV, engine: Refusing, patient: Patient) -> None:
    """Every attempt has the same request id: what was done once is not done again, and answers the same."""
    engine.faults = ["lost", "lost", "away"]
    entry = await patient.retry.incr("n", 5)
    assert (entry.value, entry.version) == (5, 1)
    assert (await kv.incr("n", 0)).value == 5
    engine.faults = ["lost"]
    assert await patient.retry.delete("n") is True
    engine.faults = ["vanished", "lost"]
    assert (await patient.retry.batch(writes=[{"key": "n", "incr": 2}])).versions == [4]
    assert len(patient.slept) == 6


async def test_the_value_is_that_of_the_call(kv: KV, engine: Refusing, patient: Patient) -> None:
    """What the caller does to the value while an attempt waits changes nothing."""
    value = {"n": 1}

    async def meddle() -> None:
        value["n"] = 2

    patient.meanwhile = meddle
    engine.faults = ["lost"]
    assert (await patient.retry.set("k", value)).value == {"n": 1}


async def test_fatal_errors_fail_at_once(
    kv: KV, engine: Refusing, patient: Patient, caplog: pytest.LogCaptureFixture
) -> None:
    """What repeating does not mend is raised as it is, logged as an ERROR, counted, and kept nowhere."""
    await kv.set("k", 1, request_id="used")
    cases: list[tuple[type[HoldfastError], HoldfastError | None, dict[str, Any]]] = [
        (ValidationError, None, {"ttl": 0}),
        (Fenced, None, {"fence": {"lock": "l", "token": 1}}),
        (VersionConflict, None, {"request_id": "used"}),
        (QuotaExceeded, QuotaExceeded("full"), {}),
        (DatabaseError, DatabaseError("broken"), {}),
    ]
    for kind, refusal, more in cases:
        caplog.clear()
        patient.told.clear()
        engine.refusals = [refusal]
        with pytest.raises(kind) as caught:
            await patient.retry.set("k", 2, **more)
        assert type(caught.value) is kind
        told = [record for record in caplog.records if record.name == "holdfast.retry"]
        assert [record.levelno for record in told] == [logging.ERROR], kind
        assert kind.code in told[0].getMessage()
        assert patient.told == [("fatal", kind.code)]
        engine.refusals = []
    assert patient.slept == []
    assert (await kv.changes()).next == 1


async def test_update_recomputes_after_a_conflict(kv: KV, store: Store, patient: Patient) -> None:
    """A conflict has the entry read again and the value computed from it, under another request id."""
    await kv.set("n", 10, ttl=3_600, semantics={"purpose": "cursor", "ttl_seconds": 3_600})
    seen: list[Any] = []

    def double(entry: holdfast.Entry | None) -> int:
        seen.append(None if entry is None else entry.value)
        return 0 if entry is None else int(entry.value) * 2

    async def interfere() -> None:
        await kv.incr("n", 1)

    patient.meanwhile = interfere
    before = await kv.get_ttl("n")
    original = store.pipeline.call
    rivals = iter([True, True, False])

    async def rivalled(command: Any) -> Any:
        if type(command).__name__ == "Set" and next(rivals, False):
            await kv.incr("n", 1)
        return await original(command)

    store.pipeline.call = rivalled  # type: ignore[method-assign]
    entry = await patient.retry.update("n", double, writer="agent:double")
    assert seen == [10, 12, 14]
    assert (entry.value, entry.last_writer, patient.slept) == (28, "agent:double", [1, 2])
    assert before is not None
    assert await kv.get_ttl("n") == before - 3
    assert entry.semantics is not None
    assert entry.semantics.purpose == "cursor"
    ids = [change.request_id for change in await kv.history("n")]
    assert len(ids) == len(set(ids))


async def test_update_of_a_missing_key_gets_none(kv: KV, patient: Patient) -> None:
    """Without an entry the change is given None; what it raises comes out, and nothing is written."""
    assert (await patient.retry.update("k", lambda entry: {"first": entry is None}, ttl=60)).value == {
        "first": True
    }
    assert await kv.get_ttl("k") == 60

    def refuse(entry: holdfast.Entry | None) -> Any:
        raise LookupError("not today")

    with pytest.raises(LookupError):
        await patient.retry.update("k", refuse)
    assert (await kv.changes()).next == 1


async def test_lost_answer_does_not_recompute_an_update(kv: KV, engine: Refusing, patient: Patient) -> None:
    """An answer that is lost does not have the value computed again: the same request is repeated."""
    await kv.set("n", 1)
    engine.faults = ["lost"]
    entry = await patient.retry.update("n", lambda entry: 0 if entry is None else entry.value + 1)
    assert (entry.value, (await kv.changes()).next, patient.slept) == (2, 2, [0.25])


async def test_given_up_update_stores_its_last_value(kv: KV, store: Store, patient: Patient) -> None:
    """The letter has the last value that was computed, and the version that it was computed from."""
    await kv.set("n", 1)
    original = store.pipeline.call

    async def rivalled(command: Any) -> Any:
        if type(command).__name__ == "Set":
            await kv.incr("n")
        return await original(command)

    store.pipeline.call = rivalled  # type: ignore[method-assign]
    with pytest.raises(Escalated) as caught:
        await patient.retry.update("n", lambda entry: 0 if entry is None else -entry.value)
    assert (patient.slept, caught.value.attempts) == (CONFLICTS, 7)
    letter = await store.letters("kv/trivia").get(caught.value.letter or 0)
    assert letter is not None
    assert (letter.request["value"], letter.request["expected_version"]) == (-7, 7)


async def test_escalated_error_describes_the_dead_letter(
    kv: KV, store: Store, patient: Patient, caplog: pytest.LogCaptureFixture
) -> None:
    """Giving up is an ERROR in the log and a change with the hash of the value; neither has the value."""
    await kv.set("k", "theirs")
    with pytest.raises(Escalated):
        await patient.retry.set("k", "my secret", expected_version=7, request_id="r")
    [change] = [change for change in (await kv.changes()).changes if change.op == "escalated"]
    assert (change.key, change.version, change.request_id) == ("k", 2, "r")
    assert (change.error_code, change.attempts) == ("VERSION_CONFLICT", 7)
    assert "my secret" not in caplog.text
    [error] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "request r: given up after 7 attempts and kept as dead letter 2" in error.getMessage()


async def test_unstorable_letter_is_reported(
    kv: KV, engine: Refusing, patient: Patient, caplog: pytest.LogCaptureFixture
) -> None:
    """With the storage away the letter is tried as patiently as a write; then that it is lost is told."""
    engine.always = "away"
    with pytest.raises(Escalated) as caught:
        await patient.retry.set("k", 1)
    assert (caught.value.letter, caught.value.attempts, caught.value.code) == (None, 5, "UNAVAILABLE")
    assert patient.slept == HALVES * 2
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2
    assert "as a dead letter failed: UNAVAILABLE" in errors[0]
    assert "and not kept" in errors[1]


async def test_lost_answer_stores_one_letter(
    kv: KV, store: Store, engine: Refusing, patient: Patient
) -> None:
    """Keeping a letter is repeated under a request id too: there is one letter, and its number is known."""
    engine.faults = ["away"] * 5 + ["lost", "away"]
    with pytest.raises(Escalated) as caught:
        await patient.retry.set("k", 1)
    [letter] = (await store.letters("kv/trivia").list()).letters
    assert caught.value.letter == letter.number == 1


async def test_update_without_a_readable_entry_stores_no_letter(
    kv: KV, store: Store, patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update whose entry can't be read has nothing to keep, and says so."""

    async def away(*_: object) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(store.pipeline, "get_at", away)
    with pytest.raises(Escalated) as caught:
        await patient.retry.update("k", lambda entry: 1)
    assert (caught.value.letter, caught.value.attempts, patient.slept) == (None, 5, HALVES)


async def test_retry_is_available_on_the_handle(kv: KV) -> None:
    """`kv.retry` is at hand without setting anything up."""
    assert (await kv.retry.set("k", 1, ttl=60)).value == 1
    assert (await kv.retry.set_ttl("k", 90)).expires_at is not None
    assert (await kv.retry.touch("nothing", 90)) is None
    touched = await kv.retry.touch("k", 90)
    assert touched is not None
    assert touched.expires_at is not None
    assert (await kv.retry.remove_ttl("k")).expires_at is None
    with pytest.raises(KeyNotFound):
        await kv.retry.incr("nothing", only_if_exists=True)
    await kv.set("s", 1, semantics={"purpose": "config"})
    assert await kv.retry.delete("s") is True
    assert (await kv.retry.restore("s")).value == 1
    made = {change.request_id for change in (await kv.changes()).changes}
    assert len(made) == 7


def test_an_escalation_survives_copying() -> None:
    """It can be handed from one process to another, with all that it carries."""
    error = Escalated("given up", error=Busy("later", retry_after=1), attempts=5, letter=None)
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), copied.code, copied.message) == (Escalated, "BUSY", "given up")
    assert (copied.attempts, copied.letter, copied.error.retry_after) == (5, None, 1)


async def test_an_update_that_can_not_succeed_is_given_up(kv: KV, engine: Refusing, patient: Patient) -> None:
    """A conflict that stays the same is told at once, without pauses and without a dead letter."""
    entry = await kv.set("k", 1)
    engine.refusals = [VersionConflict("refused", current=entry)]
    with pytest.raises(VersionConflict, match="does not change between attempts"):
        await patient.retry.update("k", lambda found: 2)
    assert patient.slept == []
    assert patient.told == [("fatal", "VERSION_CONFLICT")]
