"""Metrics: every number is that of what happened, under the names that dashboards know."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import holdfast
from holdfast.edges.intake.request_log import Operation
from holdfast.edges.monitoring.metrics import VERBS, Metrics
from holdfast.engine import ClusterFigures
from holdfast.handles.recipes.retry import Retry
from holdfast.operators.store_stats import StoreStats
from holdfast.pace import IN_COMPANY
from tests.edges.measuring import measured
from tests.edges.nats.ground import until
from tests.edges.running import ask
from tests.ops.files import promtool

if TYPE_CHECKING:
    from holdfast.edges.nats.server import NatsServer

PAGE: Final = Path(__file__).resolve().parents[2] / "docs/reference/metrics.md"


async def test_operations_are_counted_by_verb_and_plugin(nats_server: NatsServer, tmp_path: Path) -> None:
    """After a few requests every counter, gauge and histogram has exactly the value that follows."""
    async with measured(nats_server, tmp_path) as at:
        client = at.client
        for number in range(3):
            await ask(client, "db.kv.trivia.set", key=f"k{number}", value="x" * 10)
        await ask(client, "db.kv.trivia.set", key="k0", value=1, expected_version=7)
        await ask(client, "db.kv.trivia.get", key="k0")
        await ask(client, "rosey.db.kv.get", plugin_name="trivia", key="none")
        await ask(client, "db.kv.quotes.delete", key="none")
        await ask(client, "db.kv.trivia.list", prefix="")
        await ask(client, "db.semantic.acme.web.put", key="flag", value=True)
        kept = {
            f'holdfast_kept_bytes{{kind="{kind}",plugin="{label}"}}': size
            for label, name in (("trivia", "kv/trivia"), ("acme/web", "semantic/acme/web"))
            for kind, size in msgspec.structs.asdict((await at.store.stats(name)).parts).items()
            if size
        }
        found = await at.values()
    durations = {name for name in found if name.endswith('_duration_seconds_sum{plugin="trivia"}')}
    assert len(durations) == 3
    assert all(0 < found[name] < 10 for name in durations)
    assert {name: value for name, value in found.items() if "_seconds_sum" not in name} == {
        'holdfast_kv_set_total{plugin="trivia"}': 4,
        'holdfast_kv_set_total{plugin="acme/web"}': 1,
        'holdfast_kv_get_total{plugin="trivia"}': 2,
        'holdfast_kv_delete_total{plugin="quotes"}': 1,
        'holdfast_kv_list_total{plugin="trivia"}': 1,
        'holdfast_requests_total{plugin="trivia",verb="set"}': 4,
        'holdfast_requests_total{plugin="acme/web",verb="set"}': 1,
        'holdfast_requests_total{plugin="trivia",verb="get"}': 2,
        'holdfast_requests_total{plugin="quotes",verb="delete"}': 1,
        'holdfast_requests_total{plugin="trivia",verb="list"}': 1,
        'holdfast_request_duration_seconds_count{verb="set"}': 5,
        'holdfast_request_duration_seconds_count{verb="get"}': 2,
        'holdfast_request_duration_seconds_count{verb="delete"}': 1,
        'holdfast_request_duration_seconds_count{verb="list"}': 1,
        'holdfast_kv_set_duration_seconds_count{plugin="trivia"}': 4,
        'holdfast_kv_set_duration_seconds_count{plugin="acme/web"}': 1,
        'holdfast_kv_get_duration_seconds_count{plugin="trivia"}': 2,
        'holdfast_kv_delete_duration_seconds_count{plugin="quotes"}': 1,
        'holdfast_kv_list_duration_seconds_count{plugin="trivia"}': 1,
        'holdfast_kv_errors_total{error_code="VERSION_CONFLICT",plugin="trivia"}': 1,
        'holdfast_conflicts_total{plugin="trivia"}': 1,
        'holdfast_writes_total{outcome="ok",plugin="trivia",purpose="none"}': 3,
        'holdfast_writes_total{outcome="ok",plugin="acme/web",purpose="none"}': 1,
        'holdfast_writes_total{outcome="ok",plugin="quotes",purpose="none"}': 1,
        'holdfast_writes_total{outcome="conflict",plugin="trivia",purpose="none"}': 1,
        'holdfast_kv_keys{plugin="trivia"}': 3,
        'holdfast_kv_keys{plugin="acme/web"}': 1,
        'holdfast_kv_keys_total{plugin="trivia"}': 3,
        'holdfast_kv_keys_total{plugin="acme/web"}': 1,
        'holdfast_kv_storage_bytes{plugin="trivia"}': 3 * (2 + 12),
        'holdfast_kv_storage_bytes{plugin="acme/web"}': len("tenant/acme/project/web/flag") + 4,
        **kept,
        "holdfast_batch_size_count": 6,
        "holdfast_batch_size_sum": 6,
        "holdfast_events_published_total": 4,
        "holdfast_store_up": 1,
        "holdfast_clock_sure": 1,
        'holdfast_audit_head{plugin="acme/web"}': 1,
        'holdfast_audit_records{plugin="acme/web"}': 1,
        "holdfast_nats_connected": 1,
    }


async def test_refusals_are_counted_by_code(nats_server: NatsServer, tmp_path: Path) -> None:
    """Whatever is refused or dropped counts, also where nobody is known to have asked."""
    async with measured(nats_server, tmp_path) as at:
        assert b'\nholdfast_dropped_total{reason="reply_subject"} 0.0\n' in await at.metrics.exposition()
        await ask(at.client, "db.kv.trivia.frobnicate")
        await ask(at.client, "db.kv.trivia.set", key="")
        await ask(at.client, "db.kv.NoPlugin.get", key="k")
        await ask(at.client, "db.kv.get", key="k")
        await ask(at.client, "db.admin.namespaces")
        await ask(at.client, "db.admin.frobnicate")
        await at.client.publish("db.kv.trivia.get", b'{"key": "k"}', reply="db.kv.quotes.set")
        await ask(at.client, "db.kv.trivia.get", key="k")
        found = await at.values()
    assert {name: value for name, value in found.items() if re.search("errors|dropped|admin", name)} == {
        'holdfast_kv_errors_total{error_code="INVALID_SUBJECT",plugin="trivia"}': 1,
        'holdfast_kv_errors_total{error_code="MISSING_FIELD",plugin="trivia"}': 1,
        'holdfast_kv_errors_total{error_code="INVALID_PLUGIN_NAME",plugin="UNKNOWN"}': 1,
        'holdfast_kv_errors_total{error_code="MISSING_FIELD",plugin="UNKNOWN"}': 1,
        'holdfast_kv_errors_total{error_code="INVALID_SUBJECT",plugin="OPERATOR"}': 1,
        'holdfast_admin_total{verb="namespaces"}': 1,
        'holdfast_admin_total{verb="UNKNOWN"}': 1,
        'holdfast_dropped_total{reason="reply_subject"}': 1,
    }
    assert found['holdfast_kv_get_total{plugin="trivia"}'] == 1
    assert {name: value for name, value in found.items() if "requests_total" in name} == {
        'holdfast_requests_total{plugin="trivia",verb="UNKNOWN"}': 1,
        'holdfast_requests_total{plugin="trivia",verb="set"}': 1,
        'holdfast_requests_total{plugin="trivia",verb="get"}': 1,
        'holdfast_requests_total{plugin="UNKNOWN",verb="UNKNOWN"}': 1,
        'holdfast_requests_total{plugin="UNKNOWN",verb="get"}': 1,
        'holdfast_requests_total{plugin="OPERATOR",verb="namespaces"}': 1,
        'holdfast_requests_total{plugin="OPERATOR",verb="UNKNOWN"}': 1,
    }


async def test_tables_are_counted_with_the_rest(nats_server: NatsServer, tmp_path: Path) -> None:
    """A request about a table counts under its verb, `stats` too, and its writes by what became of them."""
    async with measured(nats_server, tmp_path) as at:

        async def on_table(verb: str, **fields: Any) -> None:
            await ask(at.client, f"db.table.trivia.{verb}", table="t", **fields)

        await on_table("create_table", partition_key={"name": "id", "type": "string"})
        await on_table("put_item", item={"id": "a"})
        await on_table("put_item", item={"id": "a"}, expected_version=99)
        await on_table("batch_write_item", writes=[{"put": {"item": {"id": key}}} for key in "bc"])
        await on_table("stats")
        await ask(at.client, "db.kv.trivia.stats")
        found = await at.values()
    assert {name: value for name, value in found.items() if re.search("requests_total|writes", name)} == {
        'holdfast_requests_total{plugin="trivia",verb="create_table"}': 1,
        'holdfast_requests_total{plugin="trivia",verb="put_item"}': 2,
        'holdfast_requests_total{plugin="trivia",verb="batch_write_item"}': 1,
        'holdfast_requests_total{plugin="trivia",verb="stats"}': 2,
        'holdfast_writes_total{outcome="ok",plugin="trivia",purpose="none"}': 3,
        'holdfast_writes_total{outcome="conflict",plugin="trivia",purpose="none"}': 1,
    }
    assert found['holdfast_request_duration_seconds_count{verb="stats"}'] == 2
    assert found['holdfast_kv_stats_total{plugin="trivia"}'] == 1
    assert 'holdfast_kv_keys_total{plugin="trivia"}' not in found


async def test_expiry_is_measured(nats_server: NatsServer, tmp_path: Path) -> None:
    """The age of what is due shows until it is removed; then how many went, and how late that was."""
    async with measured(nats_server, tmp_path) as at:
        for key in ("a", "b"):
            await ask(at.client, "db.kv.trivia.set", key=key, value=1, ttl=10)
        at.clock.advance(12.5)
        before = await at.values()
        assert await at.store.sweep() == 2
        after = await at.values()
    assert (before["holdfast_oldest_expired_seconds"], "holdfast_reaper_lag_seconds" in before) == (
        2.5,
        False,
    )
    assert "holdfast_oldest_expired_seconds" not in after
    assert after["holdfast_reaper_lag_seconds"] == 2.5
    assert after["holdfast_kv_cleanup_deleted_total"] == 2
    assert after["holdfast_kv_cleanup_duration_seconds_count"] == 1
    assert 'holdfast_kv_keys_total{plugin="trivia"}' not in after
    assert after["holdfast_events_published_total"] == 4


async def test_groups_are_measured(nats_server: NatsServer, tmp_path: Path) -> None:
    """Commands that share a commit are one group of that size."""
    async with measured(nats_server, tmp_path) as at:
        kv = at.store.kv("trivia")
        await asyncio.gather(*(kv.set(f"k{number}", number) for number in range(20)))
        found = await at.values()
    assert (found["holdfast_batch_size_count"], found["holdfast_batch_size_sum"]) == (1, 20)


async def test_waiting_and_running_requests_are_gauges(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that the storage has not answered yet are under way, and those behind them wait."""
    async with measured(nats_server, tmp_path) as at:
        go_on = asyncio.Event()
        begun = at.store.pipeline.select

        async def hesitate(*query: Any) -> Any:
            await go_on.wait()
            return await begun(*query)

        monkeypatch.setattr(at.store.pipeline, "select", hesitate)
        inbox = at.client.new_inbox()
        replies = await at.client.subscribe(inbox)
        await ask(at.client, "db.kv.quotes.get", key="k")
        for _ in range(34):
            await at.client.publish("db.kv.trivia.list", b'{"deadline_ms": 60000}', reply=inbox)
        found: dict[str, float] = {}
        async with asyncio.timeout(60):
            while found.get('holdfast_queue_depth{queue="requests"}') != 34 - IN_COMPANY:
                found = await at.values()
        go_on.set()
        answers = [json.loads((await replies.next_msg(timeout=60)).data) for _ in range(34)]
        after = await at.values()
    assert found["holdfast_requests_under_way"] == IN_COMPANY
    assert all(answer["success"] for answer in answers)
    assert not {"holdfast_requests_under_way", 'holdfast_queue_depth{queue="requests"}'} & after.keys()


async def test_retries_are_counted(nats_server: NatsServer, tmp_path: Path) -> None:
    """Attempts, conflicts and escalations are counted by plugin and code, a client's escalations too."""

    async def sleep(seconds: float) -> None:
        pass

    async with measured(nats_server, tmp_path) as at, holdfast.open(nats_server.url) as client:
        for store in (at.store, client):
            await store.kv("trivia").set("k", "theirs")
            with pytest.raises(holdfast.Escalated):
                await Retry(store.kv("trivia"), sleep=sleep).set("k", "mine", expected_version=0)
        with pytest.raises(holdfast.ValidationError):
            await at.store.kv("trivia").retry.set("", 1)
        found = await at.values()
    retries = {name: value for name, value in found.items() if name.startswith("holdfast_retries_total")}
    assert retries == {
        'holdfast_retries_total{error_code="VERSION_CONFLICT",outcome="retried",plugin="trivia"}': 6,
        'holdfast_retries_total{error_code="VERSION_CONFLICT",outcome="escalated",plugin="trivia"}': 2,
        'holdfast_retries_total{error_code="VALIDATION_ERROR",outcome="fatal",plugin="trivia"}': 1,
    }


async def test_slow_operations_are_counted(nats_server: NatsServer, tmp_path: Path) -> None:
    """An operation that took as long as the limit counts as slow, under its verb."""
    async with measured(nats_server, tmp_path, slow=0.0) as at:
        await ask(at.client, "db.kv.trivia.get", key="k")
        found = await at.values()
    assert found['holdfast_slow_total{plugin="trivia",verb="get"}'] == 1


async def test_reconnects_are_counted(nats_server: NatsServer, tmp_path: Path) -> None:
    """A connection that came back counts, and one that is gone shows."""
    async with measured(nats_server, tmp_path) as at:
        [link] = at.metrics.links
        await nats_server.stop()
        await until(lambda: not link.client.is_connected)
        found = await at.values()
        assert "holdfast_nats_connected" not in found
        assert "holdfast_nats_reconnects_total" not in found
        await nats_server.start()
        await until(lambda: link.client.is_connected and link.reconnects > 0)
        found = await at.values()
    assert (found["holdfast_nats_reconnects_total"], found["holdfast_nats_connected"]) == (1, 1)


async def test_labels_are_bounded(tmp_path: Path) -> None:
    """However many plugins there are, no more than the bound have a label; the rest count together."""
    async with holdfast.open(tmp_path / "state.db", reap=False) as store:
        for plugin in ("c", "d"):
            await store.kv(plugin).set("k", 1)
        metrics = Metrics("m", store, most_plugins=2)
        for plugin in ("a", "b", "c", "c", "d"):
            metrics.operation(Operation("plugin", plugin, f"kv/{plugin}", "get", 0.001, True, "BUSY"))
        text = (await metrics.exposition()).decode()
    found = {family.name: family.samples for family in text_string_to_metric_families(text)}
    counted = {sample.labels["plugin"]: sample.value for sample in found["m_kv_get"]}
    assert counted == {"a": 1, "b": 1, "OTHER": 3}
    for name in ("m_kv_errors", "m_slow"):
        assert {sample.labels["plugin"] for sample in found[name]} == {"a", "b", "OTHER"}
    for name in ("m_kv_keys", "m_kv_keys_total"):
        assert [(sample.labels, sample.value) for sample in found[name]] == [({"plugin": "OTHER"}, 2)]


async def test_promtool_accepts_the_metrics(nats_server: NatsServer, tmp_path: Path) -> None:
    """Prometheus' own tool finds nothing wrong with names, types and help of what a used service shows."""
    tool = promtool()
    if tool is None:
        pytest.skip("promtool is not on this machine: ./dev promtool fetches it where there is apt-get")
    async with measured(nats_server, tmp_path) as at:
        await ask(at.client, "db.kv.trivia.set", key="k", value=1)
        await ask(at.client, "db.kv.trivia.set", key="")
        text = await at.metrics.exposition()
    command = [tool, "check", "metrics"]
    done = await asyncio.to_thread(subprocess.run, command, input=text, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr.decode()) == (0, "")


async def test_buckets_are_cumulative(tmp_path: Path) -> None:
    """A bucket holds all that took no longer than its bound, and the last holds all."""
    async with holdfast.open(tmp_path / "state.db", reap=False) as store:
        metrics = Metrics("m", store)
        for seconds in (0.001, 0.0011, 0.1, 9.0):
            metrics.operation(Operation("plugin", "p", "kv/p", "get", seconds, False, None))
        text = (await metrics.exposition()).decode()
    buckets = dict(
        re.findall(r'^m_kv_get_duration_seconds_bucket\{le="(\S+)",plugin="p"\} (\S+)$', text, re.M)
    )
    assert (buckets["0.001"], buckets["0.005"], buckets["0.1"], buckets["2.5"]) == (
        "1.0",
        "2.0",
        "3.0",
        "3.0",
    )
    assert buckets["+Inf"] == "4.0"


async def test_the_reference_lists_every_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page names every metric of ours with its type and labels' meaning, and none that is not there."""
    figures = ClusterFigures(nodes=1, skew=0.0, behind={0: 0}, leads={0: True}, stopped={0: False})
    monkeypatch.setattr(StoreStats, "cluster", lambda survey: figures)
    async with holdfast.open(tmp_path / "state.db", reap=False) as store:
        text = (await Metrics("holdfast", store).exposition()).decode()
    shown = dict(re.findall(r"^# TYPE (holdfast_\S+) (\S+)$", text, re.MULTILINE))
    page = PAGE.read_text()
    written: dict[str, str] = {}
    for name, kind in re.findall(r"^\| `(holdfast_[^`{]+)[^`]*` \| (\w+) \|", page, re.MULTILINE):
        verbs = VERBS if "<verb>" in name else ("",)
        written |= {name.replace("<verb>", verb): kind for verb in verbs}
    assert written == shown
    assert ", ".join(f"`{verb}`" for verb in VERBS) in " ".join(page.split())
