"""The HTTP engine: a Holdfast service over HTTP, as an engine.

Law: as in `holdfast.engines.remote.engine`, which does everything but spelling where a verb is asked for.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engines.http.courier import Courier
from holdfast.engines.remote.address import RemoteAddress
from holdfast.engines.remote.engine import RemoteEngine
from holdfast.errors import Unavailable
from holdfast.wire.dialects import PLUGIN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from holdfast.engines.http.address import HttpAddress
    from holdfast.engines.remote.mailbox import Late


class HttpEngine(RemoteEngine):
    """See `holdfast.engine.Engine`.

    Args:
        address: The address of the service, and the token for it.
    """

    def __init__(self, address: HttpAddress) -> None:
        self._courier = Courier(address)
        super().__init__(RemoteAddress(servers=[address.shown], timeout=address.timeout), self._courier)

    async def ready(self) -> None:
        """See `Engine.ready`: ask the service whether it is ready."""
        late = partial(Unavailable, f"no Holdfast service answers at {self._address.shown}")
        seconds = self._address.timeout
        reply = await self._courier.exchange("GET", "/readyz", None, seconds=seconds, late=late, repeat=True)
        if reply.status != 200:
            raise Unavailable(f"the service is not ready: {_trouble(reply.body)}")

    def hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """See `SharedStorage.hint`: the service streams every change."""
        return self._courier.listen(f"{_path(namespace)}?watch", lambda piece: ring()).cancel

    def _ask(
        self,
        namespace: str,
        verb: str,
        fields: dict[str, Any],
        late: Late | None = None,
        seconds: float | None = None,
    ) -> Awaitable[Mapping[str, Any]]:
        return self._exchange(PLUGIN, f"{_path(namespace)}:{verb}", fields, late, seconds)

    def _ask_operator(
        self, verb: str, fields: dict[str, Any], late: Late | None = None, seconds: float | None = None
    ) -> Awaitable[Mapping[str, Any]]:
        return self._exchange(PLUGIN, f"/v1/admin:{verb}", fields, late, seconds)


def _path(namespace: str) -> str:
    return f"/v1/{namespace}"


def _trouble(body: bytes) -> str:
    """Return what a service says that is not ready."""
    try:
        report: dict[str, Any] = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return "it does not say why"
    parts = ("service", "store", "nats")
    return "; ".join(f"{name}: {report[name]}" for name in parts if report.get(name) not in (None, "ok"))
