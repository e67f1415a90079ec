"""The limits of the HTTP door that operators set.

Law: each has a setting of the same meaning and the same default, which a test compares. Limits that only
guard the process against itself stay with what they bound.
"""

from __future__ import annotations

import msgspec


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on what clients send, how long they may take, and how many there are.

    Args:
        body_bytes: Maximum size of a request's body.
        head_bytes: Maximum size of the first line and the headers of a request.
        connections: Maximum number of connections. A process that may open few files has fewer and leaves
            most to the store.
        watches: Maximum number of watches of all callers. One plugin or project has at most a quarter.
        request_seconds: Seconds that a client may take to send the head of a request, the first or the next.
        idle_seconds: Seconds after a response during which a client may begin its next request.
        answer_seconds: Seconds that a request may take from its head until its response has been sent.
    """

    body_bytes: int = 1_048_576
    head_bytes: int = 32_768
    connections: int = 1_024
    watches: int = 256
    request_seconds: float = 5.0
    idle_seconds: float = 60.0
    answer_seconds: float = 30.0

    @property
    def watches_of_one(self) -> int:
        """Maximum number of watches of one plugin or project."""
        return max(1, self.watches // 4)
