"""Rules and dashboard: they speak of what the service shows, and alerts fire when they must and not else."""

from __future__ import annotations

import asyncio
import re
import runpy
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.edges.http.app import Health, application
from holdfast.edges.http.server import http_server
from holdfast.engine import ClusterFigures
from holdfast.letter_commands import Escalate
from holdfast.operators.store_stats import StoreStats
from holdfast.origin import Origin
from tests.edges.measuring import Measured, measured
from tests.edges.running import PATIENCE, ask, get
from tests.ops.files import (
    ROOT,
    RULE_TESTS,
    RULES,
    alerts,
    dashboard,
    filled_in,
    promtool,
    rule_tests,
    targets,
)
from tests.ops.promql import Expression
from tests.ops.scrape import Scrape
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer

SMALL = Scrape(
    'm_total{plugin="a",outcome="ok"} 1\nh_bucket{le="5.0"} 1\nh_bucket{le="+Inf"} 1\nh_count 1\nh_sum 1\n'
)


async def busy(at: Measured) -> str:
    """The scrape of a service in which a bit of everything has happened and is going on."""
    client, store = at.client, at.store
    await store.set_policy("kv/trivia", {"quota_keys": 100, "quota_bytes": 100_000})
    await ask(client, "db.kv.trivia.set", key="k", value=1, ttl=5, semantics={"purpose": "cache"})
    await ask(client, "db.kv.trivia.set", key="k", value=1, expected_version=99)
    await ask(client, "db.kv.trivia.get", key="k")
    await ask(client, "db.semantic.acme.web.put", key="flag", value=True)
    await ask(client, "db.admin.namespaces")
    at.clock.advance(6)
    await store.sweep()
    letter = Escalate(
        namespace="kv/trivia",
        origin=Origin(writer="w", request_id="r"),
        request="r",
        key="k",
        letter="{}",
        code="BUSY",
        attempts=5,
    )
    await store.pipeline.call(letter)
    lock, other = store.kv("trivia").lock("l"), store.kv("trivia").lock("l")
    assert await lock.acquire(timeout=0)
    waiter = asyncio.create_task(other.acquire(timeout=PATIENCE))
    text = ""
    port = free_port()
    async with http_server(application(Health(store), at.metrics), host="127.0.0.1", port=port):
        async with asyncio.timeout(PATIENCE):
            while 'state="waiting"' not in text:
                _, text = await get(port, "/metrics")
    await lock.release()
    assert await waiter
    await other.release()
    return text


async def test_every_expression_is_about_something_that_is_there(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each metric, label and value that a rule or a panel names is in a scrape of a running service."""
    figures = ClusterFigures(nodes=3, skew=0.1, behind={0: 1}, leads={0: True}, stopped={0: False})
    monkeypatch.setattr(StoreStats, "cluster", lambda survey: figures)
    async with measured(nats_server, tmp_path, slow=0.0) as at:
        scrape = Scrape(await busy(at))
    faults = [fault for alert in alerts() for fault in scrape.faults(alert.expression)]
    for title, expression in targets():
        faults += [f"{title}: {fault}" for fault in scrape.faults(filled_in(expression))]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", filled_in(variable["definition"]))
            assert found is not None
            assert found[2] in scrape.labels(found[1])
    assert faults == []


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("rate(n_total[5m])", "no metric n_total"),
        ('m_total{verb="get"}', "no label verb"),
        ('m_total{outcome="okay"}', "never has outcome=okay"),
        ('m_total{outcome!="okay"}', "never has outcome=okay"),
        ('m_total{outcome=~"ok|no"}', "never has outcome=no"),
        ("sum by (verb) (m_total)", "no label verb"),
        ("sum by (plugin) (m_total / h_count)", "no label plugin"),
        ("h_count - ignoring (lee) h_bucket", "no label lee"),
        ("h_count and on (le) h_bucket", "no label le"),
        ("sum(m_total", "was expected"),
        ("sum(m_total))", "was not expected"),
        ("rated(m_total[5m])", "was not expected"),
        ("rate(m_total[5])", "a duration"),
        ("m_total{plugin=a}", "is no matcher"),
        ("m_total > $limit", "not understood"),
    ],
)
def test_expressions_with_unknown_names_are_reported(expression: str, fault: str) -> None:
    """An expression that can't be read, or names what there is not, is told with what is wrong."""
    [found] = SMALL.faults(expression)
    assert fault in found


@pytest.mark.parametrize(
    "expression",
    [
        'sum by (job, plugin) (rate(m_total{outcome="ok"}[5m])) / on (plugin) m_total > 0.1',
        'increase(h_count[5m]) - ignoring (le) increase(h_bucket{le="5.0"}[5m]) >= 1',
        'm_total{plugin=~"$plugin",instance=~"$instance"} offset 10m < 1e9',
        'up{job="holdfast"} == 0',
    ],
)
def test_an_expression_with_known_names_passes(expression: str) -> None:
    """An expression that names only what there is has no fault."""
    assert SMALL.faults(expression) == []
    assert Expression(expression).selectors


def test_every_alert_is_tested_both_ways_and_explained() -> None:
    """Each alert has a test where it fires and one where it does not, and the page tells what to do."""
    names = [alert.name for alert in alerts()]
    assert len(names) == len(set(names))
    assert rule_tests() == {(name, fires) for name in names for fires in (True, False)}
    page = (ROOT / "docs/howto/monitor.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(Holdfast\w+)` \|", page, re.MULTILINE) == names


def test_summaries_name_labels_that_the_alert_has() -> None:
    """A summary speaks of labels that are left of the series when the alert fires."""
    for alert in alerts():
        kept = re.match(r"(?:sum|max|min) by \(([^)]*)\)", alert.expression)
        labels = set(kept[1].split(", ")) if kept else {"instance", "job", "queue"}
        assert set(re.findall(r"\$labels\.(\w+)", alert.summary)) <= labels, alert.name


def test_the_dashboard_is_the_one_that_its_panels_make() -> None:
    """The file is what the tool writes: nobody edited it by hand."""
    made: dict[str, Any] = runpy.run_path(str(ROOT / "tools/dashboard.py"))
    assert made["DASHBOARD"].read_text(encoding="utf-8") == made["text"]()


def test_panels_do_not_overlap() -> None:
    """Every panel has a number and a place of its own, a title, a sentence, and lines with names."""
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        grid = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"]
            assert all(target["legendFormat"] for target in panel["targets"])
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_promtool_agrees(tmp_path: Path) -> None:
    """Prometheus' own tool takes the rules and every expression of the dashboard, and their tests pass."""
    tool = promtool()
    if tool is None:
        pytest.skip("promtool is not on this machine: ./dev promtool fetches it where there is apt-get")
    lines = ["groups:", "  - name: dashboard", "    rules:"]
    for number, (_, expression) in enumerate(targets()):
        quoted = filled_in(expression).replace("'", "''")
        lines += [f"      - record: panel:{number}", f"        expr: '{quoted}'"]
    drawn = tmp_path / "dashboard.yml"
    drawn.write_text("\n".join(lines) + "\n")
    for arguments in (["check", "rules", str(RULES), str(drawn)], ["test", "rules", str(RULE_TESTS)]):
        done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
