"""The way of requests to a service and of replies back, whatever the transport.

Law: a protocol only. `mailbox` implements it over NATS, and `holdfast.engines.http` over HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engines.remote.mailbox import Late


class Post(Protocol):
    """Carries requests to a service and replies back; see `Mailbox`."""

    told: bool

    async def open(self) -> None:
        """Connect."""
        ...

    async def ask(
        self,
        subject: str,
        payload: bytes,
        *,
        seconds: float,
        late: Late,
        repeat: bool = False,
        told: str | None = None,
    ) -> Answered:
        """Send a request and wait for the reply. `told` are the fields of a payload that is bytes."""
        ...

    def listen(self, subject: str, heard: Callable[[Any], None]) -> Subscription:
        """Subscribe to a subject."""
        ...

    def time(self) -> float:
        """Return the service's time in milliseconds."""
        ...

    def relearn_time(self) -> None:
        """Trust the time of the last reply alone."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class Answered(Protocol):
    """A reply."""

    @property
    def data(self) -> bytes:
        """The payload."""
        ...

    @property
    def head(self) -> bytes:
        """The headers."""
        ...

    def header(self, name: str) -> str | None:
        """Return a header of the reply."""
        ...


class Subscription(Protocol):
    """A subscription."""

    def cancel(self) -> None:
        """End it."""
        ...
