"""Instances of a service in the overview: each shows all of them, and which of them lag."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.edges.console.instances import FORGOTTEN, MOST, SILENT, Announcement, Instances
from holdfast.edges.http.app import Health
from holdfast.edges.monitoring.metrics import Metrics
from tests.console.visiting import log_in, page
from tests.edges.http.ground import served
from tests.edges.nats.ground import until
from tests.nats import connection

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.http.ground import Served

OTHER = Announcement(id="other", host="box-2", pid=7, version="1.0.0")
BOX = "the instance on box-2 (process 7)"


class Watched:
    """The instances as one with a clock of its own knows them."""

    def __init__(self) -> None:
        self.now = 100.0
        unused = cast("Any", None)
        self.found = Instances(unused, unused, unused, prefix="db", ticks=lambda: self.now)

    def troubles(self, **said: Any) -> list[str]:
        """What is wrong with an instance that says this."""
        self.found.hear(msgspec.structs.replace(OTHER, **said))
        [one] = self.found.shown()
        return [trouble["text"] for trouble in one["troubles"]]


async def test_instances_see_each_other(here: Served, bus: str, tmp_path: Path) -> None:
    """Every instance on a NATS server is shown, and one that is stopped goes without a word of alarm."""
    async with served(tmp_path / "other.db", bus) as other:
        await until(lambda: len(here.instances.shown()) == len(other.instances.shown()) == 2)
        found = (await page(here, "/"))["instances"]
        assert sorted(one["here"] for one in found) == [False, True]
        assert all(one["troubles"] == [] for one in found)
    await until(lambda: len(here.instances.shown()) == 1)


async def test_an_instance_stops_when_it_hears_of_another(here: Served, bus: str) -> None:
    """However many turns of the loop lie between the two. Else a service would never stop."""
    async with connection(bus) as client:
        for turns in range(6):
            found = Instances(Health(here.store), Metrics("kv", here.store), lambda: None, prefix="db")
            running = asyncio.create_task(found.run(client))
            await until(lambda found=found: len(found.shown()) == 2)  # type: ignore[misc]
            found.hear(OTHER)
            for _ in range(turns):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.wait([running], timeout=5)
            assert running.cancelled(), f"after {turns} turns"


async def test_an_instance_that_lags_needs_a_person(here: Served) -> None:
    """The overview names instances that are not ready; the token of a plugin sees nothing of them."""
    here.instances.hear(msgspec.structs.replace(OTHER, trouble="store: UNAVAILABLE: no connection"))
    text = f"{BOX} is not ready: store: UNAVAILABLE: no connection"
    [matter] = (await page(here, "/"))["attention"]
    assert (matter["kind"], matter["severity"], matter["text"]) == ("instance", "critical", text)
    assert matter["actions"] == [{"label": "Show instances", "href": "/ui/cluster"}]
    made = await here.store.tokens().create(plugin="trivia")
    await log_in(here, token=made.token)
    assert "box-2" not in str(await page(here, "/"))


def test_a_late_or_stopped_instance_lags() -> None:
    """Late expiries, a replica that is far behind, and a shard that is not served are named."""
    watched = Watched()
    assert watched.troubles(lag=60.0, behind={0: 10_000}) == []
    assert watched.troubles(lag=61.0) == [f"{BOX} removes expired entries 61 s late"]
    assert watched.troubles(behind={0: 3, 1: 10_001}, stopped=[2]) == [
        f"{BOX} does not serve shard 2",
        f"{BOX} is 10001 messages behind on shard 1",
    ]


def test_a_silent_instance_is_gone_and_then_forgotten() -> None:
    """Silence is noticed after three missing announcements; one that left or is long silent is not shown."""
    watched = Watched()
    assert watched.troubles() == []
    assert [one["state"] for one in watched.found.shown()] == ["ok"]
    assert watched.troubles(lag=61.0) != []
    assert [one["state"] for one in watched.found.shown()] == ["lags"]
    watched.now += SILENT + 1
    [one] = watched.found.shown()
    text = f"{BOX} is gone: it has not been heard for 36 s"
    assert one["troubles"] == [{"text": text, "stops": True, "late": False}]
    assert one["state"] == "gone"
    watched.now += FORGOTTEN
    assert watched.found.shown() == []
    assert watched.troubles() == []
    watched.found.hear(msgspec.structs.replace(OTHER, leaving=True))
    assert watched.found.shown() == []


def test_instances_are_bounded() -> None:
    """However many tell of themselves, memory and page stay bounded."""
    watched = Watched()
    for number in range(MOST + 5):
        watched.found.hear(msgspec.structs.replace(OTHER, id=str(number)))
    assert len(watched.found.shown()) == MOST
