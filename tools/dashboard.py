"""Writes ops/grafana/holdfast.json, the dashboard for Grafana, from the list of its panels.

Its law: what a panel shows is said here and nowhere else; the file is never edited by hand. It needs nothing
but the standard library. `./dev pages` writes it.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

DASHBOARD = Path(__file__).resolve().parent.parent / "ops" / "grafana" / "holdfast.json"
COLUMNS, WIDTH, HEIGHT = 3, 8, 8

ALL = 'instance=~"$instance"'
PLUGIN = f'{ALL},plugin=~"$plugin"'


class Panel(NamedTuple):
    """A graph: its title, the unit of its axis, a sentence about it, and its lines by their legends."""

    title: str
    unit: str
    about: str
    lines: dict[str, str]


def rate(name: str, labels: str) -> str:
    """How much a counter grows in a second."""
    return f"rate(${{prefix}}_{name}{{{labels}}}[$__rate_interval])"


def quantile(share: float, name: str, labels: str, by: str = "") -> str:
    """A quantile of a histogram."""
    return f"histogram_quantile({share}, sum by (le{by}) ({rate(f'{name}_bucket', labels)}))"


def gauge(name: str, labels: str) -> str:
    """What a gauge shows."""
    return f"${{prefix}}_{name}{{{labels}}}"


CONFLICTS = 'outcome="conflict"'
ROWS: dict[str, list[Panel]] = {
    "Requests": [
        Panel("Requests", "reqps", "Answered, with success or an error.",
              {"{{verb}}": f"sum by (verb) ({rate('requests_total', PLUGIN)})"}),
        Panel("Requests by plugin", "reqps", "The ten that ask most.",
              {"{{plugin}}": f"topk(10, sum by (plugin) ({rate('requests_total', PLUGIN)}))"}),
        Panel("Errors by code", "reqps", "Requests that were refused.",
              {"{{error_code}}": f"sum by (error_code) ({rate('kv_errors_total', PLUGIN)})"}),
        Panel("Latency of all requests", "s", "From receipt to reply, the wait for a turn included.",
              {f"{share:g}": quantile(share, "request_duration_seconds", ALL)
               for share in (0.5, 0.95, 0.99)}),
        Panel("Latency by verb, 99 %", "s", "The slowest of a hundred.",
              {"{{verb}}": quantile(0.99, "request_duration_seconds", ALL, ", verb")}),
        Panel("Latency of get and set by plugin, 99 %", "s", "The slowest of a hundred.",
              {f"{verb} {{{{plugin}}}}": quantile(0.99, f"kv_{verb}_duration_seconds", PLUGIN, ", plugin")
               for verb in ("get", "set")}),
        Panel("Queue depth", "short", "What waits: requests for their turn, commands for their commit.",
              {"{{queue}}": f"sum by (queue) ({gauge('queue_depth', ALL)})",
               "under way": f"sum({gauge('requests_under_way', ALL)})"}),
        Panel("Slow operations", "ops", "Those that took as long as the setting allows or longer.",
              {"{{verb}}": f"sum by (verb) ({rate('slow_total', PLUGIN)})"}),
        Panel("Dropped messages", "ops", "Left unexecuted or unsent.",
              {"{{reason}}": f"sum by (reason) ({rate('dropped_total', ALL)})"}),
    ],
    "Writes": [
        Panel("Writes by outcome", "wps", "What became of what was handed to the storage.",
              {"{{outcome}}": f"sum by (outcome) ({rate('writes_total', PLUGIN)})"}),
        Panel("Writes by purpose", "wps", "Those that succeeded.",
              {"{{purpose}}": f"""sum by (purpose) ({rate('writes_total', f'{PLUGIN},outcome="ok"')})"""}),
        Panel("Conflict rate", "percentunit", "The share of writes that lose a race.",
              {"{{plugin}}": f"sum by (plugin) ({rate('writes_total', f'{PLUGIN},{CONFLICTS}')})"
                             f" / sum by (plugin) ({rate('writes_total', PLUGIN)})"}),
        Panel("Refused with a conflict", "reqps", "Requests that were answered VERSION_CONFLICT.",
              {"{{plugin}}": f"sum by (plugin) ({rate('conflicts_total', PLUGIN)})"}),
        Panel("Batch size", "short", "How many commands share a commit.",
              {f"{share:g}": quantile(share, "batch_size", ALL) for share in (0.5, 0.95)}),
        Panel("Locks", "short", "Held now, and waited for.",
              {"{{state}} {{plugin}}": f"max by (state, plugin) ({gauge('locks', PLUGIN)})"}),
    ],
    "Expiry": [
        Panel("Expirations by purpose", "ops", "Entries that were noticed to have expired.",
              {"{{purpose}}": f"sum by (purpose) ({rate('expirations_total', PLUGIN)})"}),
        Panel("Reaper lag", "s", "How late the last expiries were noticed, and the oldest still there.",
              {"noticed {{instance}}": gauge("reaper_lag_seconds", ALL),
               "oldest {{instance}}": gauge("oldest_expired_seconds", ALL)}),
        Panel("Cleanup duration", "s", "What a look for expired entries takes.",
              {f"{share:g}": quantile(share, "kv_cleanup_duration_seconds", ALL) for share in (0.5, 0.99)}),
        Panel("Cleanup", "ops", "Entries that it removes, and how often it fails.",
              {"removed": f"sum({rate('kv_cleanup_deleted_total', ALL)})",
               "failed": f"sum({rate('kv_cleanup_failures_total', ALL)})"}),
    ],
    "Storage": [
        Panel("Keys by plugin", "short", "Live keys.",
              {"{{plugin}}": f"max by (plugin) ({gauge('kv_keys', PLUGIN)})"}),
        Panel("Bytes by plugin", "bytes", "Of live keys and their values.",
              {"{{plugin}}": f"max by (plugin) ({gauge('kv_storage_bytes', PLUGIN)})"}),
        Panel("Use of quotas", "percentunit", "The share of each quota that is used.",
              {"{{plugin}} {{quota}}": f"max by (plugin, quota) ({gauge('quota_ratio', PLUGIN)})"}),
        Panel("Dead letters", "short", "Requests that were given up and kept.",
              {"{{plugin}}": f"max by (plugin) ({gauge('dead_letters', PLUGIN)})"}),
        Panel("Audit records", "short", "Those that are kept.",
              {"{{plugin}}": f"max by (plugin) ({gauge('audit_records', PLUGIN)})"}),
        Panel("Audit records made", "ops", "How fast the audit grows.",
              {"{{plugin}}": f"max by (plugin) (deriv({gauge('audit_head', PLUGIN)}[10m]))"}),
        Panel("Age of the newest audit record", "s", "How long nothing was changed in what is audited.",
              {"{{plugin}}": f"min by (plugin) ({gauge('audit_head_age_seconds', PLUGIN)})"}),
    ],
    "Service": [
        Panel("Outage of the storage", "s", "For how long it has taken no writes.",
              {"{{instance}}": gauge("storage_unavailable_seconds", ALL)}),
        Panel("Storage and NATS", "short", "1 if the storage answers; connections to NATS that are there.",
              {"storage {{instance}}": gauge("store_up", ALL),
               "NATS {{instance}}": gauge("nats_connected", ALL)}),
        Panel("Events and reconnects", "ops", "Changes published, and connections that came back.",
              {"events": f"sum({rate('events_published_total', ALL)})",
               "reconnects": f"sum({rate('nats_reconnects_total', ALL)})",
               "operators: {{verb}}": f"sum by (verb) ({rate('admin_total', ALL)})"}),
        Panel("Memory", "bytes", "Of the process.",
              {"{{instance}}": "process_resident_memory_bytes"
                               f' and on (instance, job) {gauge("store_up", ALL)}'}),
    ],
}  # fmt: skip


def variable(name: str, label: str, **more: Any) -> dict[str, Any]:
    """Something that whoever looks can choose."""
    return {"name": name, "label": label, "hide": 0, "skipUrlSync": False, **more}


def choice(name: str, label: str, metric: str) -> dict[str, Any]:
    """A choice of some of the values of a label, or all."""
    query = f"label_values(${{prefix}}_{metric}, {name})"
    return variable(
        name,
        label,
        type="query",
        datasource={"type": "prometheus", "uid": "${datasource}"},
        definition=query,
        query={"query": query, "refId": "A"},
        refresh=2,
        sort=1,
        multi=True,
        includeAll=True,
        allValue=".*",
        current={"text": ["All"], "value": ["$__all"]},
    )


def drawn(panel: Panel, number: int, *, x: int, y: int) -> dict[str, Any]:
    """A panel as Grafana has it."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": source,
        "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": source, "expr": expr, "legendFormat": legend}
            for place, (legend, expr) in enumerate(panel.lines.items())
        ],
    }


def panels() -> list[dict[str, Any]]:
    """All panels, each row below its heading."""
    placed: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        grid = {"x": 0, "y": y, "w": COLUMNS * WIDTH, "h": 1}
        heading = {"id": len(placed) + 1, "type": "row", "title": title, "gridPos": grid}
        placed.append({**heading, "collapsed": False, "panels": []})
        y += 1
        for place, panel in enumerate(row):
            at = y + place // COLUMNS * HEIGHT
            placed.append(drawn(panel, len(placed) + 1, x=place % COLUMNS * WIDTH, y=at))
        y += -(-len(row) // COLUMNS) * HEIGHT
    return placed


def dashboard() -> dict[str, Any]:
    """The whole dashboard."""
    return {
        "uid": "holdfast",
        "title": "Holdfast",
        "tags": ["holdfast"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                variable("datasource", "Data source", type="datasource", query="prometheus", refresh=1),
                variable(
                    "prefix",
                    "Prefix",
                    type="textbox",
                    query="holdfast",
                    current={"text": "holdfast", "value": "holdfast"},
                ),
                choice("instance", "Instance", "store_up"),
                choice("plugin", "Plugin", "requests_total"),
            ]
        },
        "annotations": {"list": []},
        "panels": panels(),
    }


def text() -> str:
    """The file's text."""
    return json.dumps(dashboard(), indent=2) + "\n"
