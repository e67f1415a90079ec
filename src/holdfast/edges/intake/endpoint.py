"""The counters of one way in.

Law: plain counts. Over NATS they are shown as the services framework wants them.
"""

from __future__ import annotations

import msgspec


class Endpoint(msgspec.Struct, kw_only=True):
    """The counters of one subject that the service answers."""

    name: str
    subject: str
    queue_group: str
    num_requests: int = 0
    num_errors: int = 0
    last_error: str = ""
    processing_time: int = 0
    average_processing_time: int = 0

    def count(self, seconds: float, error: str | None) -> None:
        """Count a request."""
        self.num_requests += 1
        self.processing_time += int(seconds * 1e9)
        if error is not None:
            self.num_errors += 1
            self.last_error = error
