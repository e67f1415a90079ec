"""How long is waited in tests: longer for a part that may never answer, shorter between two looks.

The limits that guard against a part that never answers are raised, so that a busy machine is not mistaken for
a broken one. A test of such a limit sets its own.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS: Final = 60.0
LIMITS: Final = (
    "holdfast.compat.rosey.STORE_PATIENCE",
    "holdfast.edges.cli.commands.doctor.PATIENCE",
    "holdfast.edges.cli.commands.commands.PATIENCE",
    "holdfast.edges.http.app.PATIENCE",
    "holdfast.edges.monitoring.gauges.PATIENCE",
    "holdfast.edges.monitoring.outage.PATIENCE",
    "holdfast.edges.nats.server._START_SECONDS",
    "holdfast.edges.nats.server._STOP_SECONDS",
    "holdfast.engines.postgres.connections._CONNECT_SECONDS",
)


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """Raise the limits for the length of the run, in the modules that its tests have imported."""
    with pytest.MonkeyPatch.context() as patch:
        for limit in LIMITS:
            module, _, name = limit.rpartition(".")
            if module in sys.modules:
                patch.setattr(sys.modules[module], name, SECONDS)
        if "uvicorn.server" in sys.modules:
            patch.setattr(sys.modules["uvicorn.server"], "asyncio", OftenAwake())
        yield


class OftenAwake:
    """What uvicorn has for asyncio: it looks 100 times a second whether to stop, not ten times.

    To stop a server takes it 0.2 s otherwise, all of them asleep, and a thousand tests stop one.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        """Sleep for a tenth of that."""
        await asyncio.sleep(seconds / 10)
