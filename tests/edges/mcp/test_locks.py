"""Locks that agents take by tools: one holder at a time, and none that has lost it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.edges.mcp.callers import StoreCaller
from tests.edges.mcp.agents import REVISIONS, agent

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.store import Store


@pytest.mark.parametrize("mode", REVISIONS)
async def test_a_lock_has_one_holder(store: Store, mode: str) -> None:
    """While one agent holds a lock another is told who holds it and until when, and gets it after release."""
    async with agent(store, name="one", mode=mode) as one, agent(store, name="two", mode=mode) as two:
        held = await one.call("lock_acquire", name="import", ttl=30)
        other = await two.call("lock_acquire", name="import")
        assert (held["acquired"], other["acquired"]) == (True, False)
        assert (other["holder"], other["expires_at"]) == ("one", held["expires_at"])
        assert str(held["token"]) in held["next"]
        assert (await one.call("lock_release", name="import", token=held["token"]))["released"]
        assert not (await one.call("lock_release", name="import", token=held["token"]))["released"]
        taken = await two.call("lock_acquire", name="import")
        assert taken["token"] > held["token"]


async def test_a_lost_lock_is_fenced(store: Store, clock: ManualClock) -> None:
    """An agent that slept past its lease can't renew, release or write once another has taken the lock."""
    async with agent(store) as slept, agent(store, name="two") as two:
        old = await slept.call("lock_acquire", name="import", ttl=30)
        clock.advance(30)
        new = await two.call("lock_acquire", name="import", ttl=30)
        assert new["acquired"]
        renewed = await slept.call("lock_renew", name="import", token=old["token"])
        assert (renewed["renewed"], "Stop" in renewed["next"]) == (False, True)
        assert not (await slept.call("lock_release", name="import", token=old["token"]))["released"]
        fence = {"lock": "import", "token": old["token"]}
        late = await slept.call("put", key="total", value=1, fence=fence)
        assert (late["success"], late["error_code"]) == (False, "FENCED")
        assert not (await two.call("get", key="total"))["exists"]
        assert (await two.call("lock_renew", name="import", token=new["token"]))["renewed"]


async def test_an_expired_lock_is_not_renewed(store: Store, clock: ManualClock) -> None:
    """A lease that is over is over, also if no other agent has taken the lock; renewing in time keeps it."""
    async with agent(store) as one:
        held = await one.call("lock_acquire", name="import", ttl=30)
        clock.advance(29)
        kept = await one.call("lock_renew", name="import", token=held["token"], ttl=30)
        assert kept["expires_at"] > held["expires_at"]
        clock.advance(30)
        assert not (await one.call("lock_renew", name="import", token=held["token"]))["renewed"]


async def test_a_lease_that_ends_while_it_is_renewed_is_over(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal for a fraction of a second reads the lock first; the lease may end meanwhile."""
    async with agent(store) as one:
        held = await one.call("lock_acquire", name="import", ttl=30)
        call = StoreCaller.call

        async def slowly(caller: StoreCaller, verb: str, fields: dict[str, Any]) -> dict[str, Any]:
            reply = await call(caller, verb, fields)
            clock.advance(30 if verb == "get" else 0)
            return reply

        monkeypatch.setattr(StoreCaller, "call", slowly)
        assert not (await one.call("lock_renew", name="import", token=held["token"], ttl=0.5))["renewed"]


async def test_an_acquire_may_be_repeated(store: Store, clock: ManualClock) -> None:
    """Repeated with its request id, an acquire whose answer was lost gets the same token, while it lasts."""
    async with agent(store) as one:
        first = await one.call("lock_acquire", name="import", request_id="r1", ttl=30)
        again = await one.call("lock_acquire", name="import", request_id="r1", ttl=30)
        assert (again["acquired"], again["token"]) == (True, first["token"])
        clock.advance(30)
        over = await one.call("lock_acquire", name="import", request_id="r1", ttl=30)
        assert (over["acquired"], "new request_id" in over["next"]) == (False, True)


async def test_agents_and_programs_exclude_each_other(store: Store) -> None:
    """A program's lock keeps an agent out and an agent's lock keeps a program out, under the same name."""
    kv = store.kv("trivia")
    async with agent(store) as one:
        lock = kv.lock("import", owner="worker")
        assert await lock.acquire(timeout=0)
        told = await one.call("lock_acquire", name="import")
        assert (told["acquired"], told["holder"]) == (False, "worker")
        await lock.release()
        held = await one.call("lock_acquire", name="import")
        assert not await lock.acquire(timeout=0)
        await one.call("lock_release", name="import", token=held["token"])
        assert await lock.acquire(timeout=0)
        await lock.release()


async def test_a_waiting_program_comes_first(store: Store) -> None:
    """An agent does not overtake a program that waits for the lock in its queue."""
    kv = store.kv("trivia")
    await kv.set("lock/import/waiting/0000000000000001", {}, ttl=30)
    async with agent(store) as one:
        told = await one.call("lock_acquire", name="import")
        assert (told["acquired"], told["waiting"]) == (False, True)


async def test_a_lock_of_a_wrong_name_or_token_is_refused(store: Store) -> None:
    """Names and tokens are judged by the rules of locks."""
    async with agent(store) as one:
        assert (await one.refused("lock_acquire", name="A b"))["field"] == "name"
        assert (await one.refused("lock_acquire", name="a", ttl=0))["field"] == "ttl"
        assert (await one.refused("lock_renew", name="a", token="x"))["error_code"] == "VALIDATION_ERROR"
        assert (await one.refused("lock_renew", name="a"))["error_code"] == "MISSING_FIELD"
        assert not (await one.call("lock_renew", name="a", token=1))["renewed"]


async def test_a_lock_for_a_fraction_of_a_second(store: Store, clock: ManualClock) -> None:
    """A lease may be a fraction of a second, and is renewed for as long; none is shorter than a tenth."""
    async with agent(store, name="one") as one, agent(store, name="two") as two:
        held = await one.call("lock_acquire", name="import", ttl=0.5)
        clock.advance(0.4)
        kept = await one.call("lock_renew", name="import", token=held["token"], ttl=0.5)
        assert (kept["renewed"], kept["expires_at"] > held["expires_at"]) == (True, True)
        clock.advance(0.4)
        assert (await two.call("lock_acquire", name="import"))["holder"] == "one"
        clock.advance(0.2)
        assert not (await one.call("lock_renew", name="import", token=held["token"], ttl=0.5))["renewed"]
        assert (await two.call("lock_acquire", name="import", ttl=0.1))["acquired"]
        assert not (await one.call("lock_renew", name="import", token=held["token"], ttl=0.5))["renewed"]
        assert (await one.result("lock_acquire", name="other", ttl=0.05)).is_error
