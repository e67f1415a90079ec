"""Trimming the log behind a snapshot.

The stream refuses deletions, so that nothing else can remove a message. It is trimmed by a limit of messages
per shard, which is set for a moment and then lifted.

Law: what comes after the oldest snapshot that is kept stays, and `MARGIN` messages before it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from holdfast.bus.errors import BusError
from holdfast.engines.cluster.jetstream import FOR_A_WHILE, ApiRefusal, NoMajority
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from holdfast.engines.cluster.address import ClusterAddress
    from holdfast.engines.cluster.jetstream import JetStream

MARGIN: Final = 1000
"""The number of messages that stay although they are not needed: others arrive while the limit is set."""
SECONDS: Final = 5.0
ATTEMPTS: Final = 5
LIMIT: Final = "max_msgs_per_subject"
NO_LIMIT: Final = -1

_log = logging.getLogger("holdfast.cluster")


async def trim(address: ClusterAddress, jetstream: JetStream, *, needed: int, margin: int = MARGIN) -> int:
    """Remove messages that come before a sequence. Return how many were removed.

    Raises:
        Unavailable: JetStream refuses.
    """
    told = await _info(address, jetstream)
    state = told["state"]
    keep = max(1, state["last_seq"] - needed + 1 + margin)
    if state["messages"] <= keep:
        return 0
    try:
        await _update(address, jetstream, {**told["config"], LIMIT: keep})
    finally:
        await lift(address, jetstream, told["config"])
    removed = int(state["messages"]) - int((await _info(address, jetstream))["state"]["messages"])
    _log.info("trimmed the log of %s by %d messages, up to a snapshot", address.name, removed)
    return max(0, removed)


async def lift(address: ClusterAddress, jetstream: JetStream, config: dict[str, Any]) -> None:
    """Remove the limit, which a node that died may have left behind."""
    for attempt in range(ATTEMPTS):
        try:
            await _update(address, jetstream, {**config, LIMIT: NO_LIMIT})
        except Unavailable:
            if attempt == ATTEMPTS - 1:
                raise
            await asyncio.sleep(1)
        else:
            return


async def _info(address: ClusterAddress, jetstream: JetStream) -> Any:
    return await _asked(jetstream, f"STREAM.INFO.{address.stream}", None)


async def _update(address: ClusterAddress, jetstream: JetStream, config: dict[str, Any]) -> None:
    await _asked(jetstream, f"STREAM.UPDATE.{address.stream}", config)


async def _asked(jetstream: JetStream, call: str, body: dict[str, Any] | None) -> Any:
    try:
        return await jetstream.api(call, body, seconds=SECONDS)
    except ApiRefusal as refused:
        kind = NoMajority if refused.code in FOR_A_WHILE else Unavailable
        raise kind(f"the log can't be trimmed: {refused}") from None
    except (BusError, TimeoutError) as error:
        raise NoMajority(f"the log can't be trimmed: {str(error) or 'no answer in time'}") from None
