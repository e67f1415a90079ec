"""From the settings of the service to those of its parts.

Law: this module translates names and units, and knows the defaults that depend on another setting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.edges.http.limits import HttpLimits
from holdfast.edges.intake.scheduler import Limits
from holdfast.edges.nats.service import Settings
from holdfast.model import Policy

if TYPE_CHECKING:
    from holdfast.edges.settings.table import Config

QUOTA_BYTES: Final = 1_000_000_000
RATE_LIMIT: Final = 5_000
"""The default quota and rate of a namespace, where the NATS server isolates plugins."""


def settings_of(config: Config) -> Settings:
    """Return the settings of the NATS service."""
    return Settings(
        prefixes=config.subject_prefixes,
        reply_mode=config.reply_mode,
        payload_dialect=config.payload_dialect,
        request_users=config.request_users,
        events=config.events,
        deadline_ms=config.deadline_ms,
        slow_seconds=config.slow_ms / 1000,
        slow_walk_seconds=config.slow_list_ms / 1000,
        slow_kept=config.slow_log_size,
        rate=config.rate_limit,
        strict_fields=config.strict_fields,
        limits=Limits(
            waiting=config.max_waiting,
            waiting_bytes=config.max_waiting_bytes,
            all_waiting_bytes=config.max_all_waiting_bytes,
            under_way=config.max_under_way,
            all_under_way=config.max_all_under_way,
        ),
    )


def http_limits_of(config: Config) -> HttpLimits:
    """Return the limits of the HTTP door."""
    return HttpLimits(
        body_bytes=config.http_max_body_bytes,
        head_bytes=config.http_max_head_bytes,
        connections=config.http_max_connections,
        watches=config.http_max_watches,
        request_seconds=config.http_request_seconds,
        idle_seconds=config.http_idle_seconds,
        answer_seconds=config.http_answer_seconds,
    )


def defaults_of(config: Config) -> Policy | None:
    """Return the default limits for policies that set none; by default no limits in open mode."""
    apart = config.reply_mode != "open"
    quota, rate = config.default_quota_bytes, config.default_rate_limit
    if quota is None and apart:
        quota = QUOTA_BYTES
    if rate is None and apart:
        rate = RATE_LIMIT
    if not quota and not rate:
        return None
    return Policy(quota_bytes=quota or None, rate_limit=rate or None)
