"""Have the NATS servers forget one that was removed, so that it no longer counts for their majority.

Five servers of which two were removed still need three that agree, until they are told that two are gone.
Only a user of the system account may tell them.

Law: the password of that user goes to this machine or through TLS, never over a network in plain text.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from holdfast.bus.connection import Requester
from holdfast.bus.errors import BusError
from holdfast.engines.cluster.jetstream import FOR_A_WHILE, ApiRefusal, JetStream, NodeConnection

if TYPE_CHECKING:
    from holdfast.engines.cluster.address import ClusterAddress

PAUSE_SECONDS: Final = 0.25
CALL_SECONDS: Final = 2.0
_NO_MEMBER: Final = 10044
"""The servers do not count that one."""
_HERE: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class NotForgotten(Exception):
    """The servers still count one of them. The text says why."""


async def forget(address: ClusterAddress, server: str, *, user: str, password: str, seconds: float) -> bool:
    """Have the servers forget one of them. Return whether they counted it.

    Args:
        address: The address of the cluster.
        server: The name of the server that is gone, or is to go.
        user: A user of the system account.
        password: The password of that user.
        seconds: How long to try while the servers elect a leader.

    Raises:
        NotForgotten: They still count it.
    """
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    places = [place for place in map(_place, address.servers) if place is not None]
    if not places:
        raise NotForgotten("no server of the URL is on this machine or has TLS")
    connection = NodeConnection(name=f"holdfast operator {address.name}")
    try:
        await connection.reach(
            [f"{scheme}://{login}@{place}" for scheme, place in places], address.remote.login()
        )
        jetstream = JetStream(connection, Requester(connection))
        return await _told(jetstream, server, seconds)
    except (OSError, BusError) as error:
        raise NotForgotten(str(error)) from error
    finally:
        await connection.close()


def _place(url: str) -> tuple[str, str] | None:
    """Return scheme and place of a server to which a password may go; None for another."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return (parts.scheme, place) if parts.scheme == "tls" or parts.hostname in _HERE else None


async def _told(jetstream: JetStream, server: str, seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        try:
            await jetstream.api("SERVER.REMOVE", {"peer": server}, seconds=CALL_SECONDS)
        except ApiRefusal as refused:
            if refused.code == _NO_MEMBER:
                return False
            why = str(refused)
            if refused.code not in FOR_A_WHILE:
                raise NotForgotten(why) from None
        except TimeoutError:
            why = "no server answers"
        else:
            return True
        if loop.time() > end:
            raise NotForgotten(why)
        await asyncio.sleep(PAUSE_SECONDS)
