"""Free ports of 127.0.0.1 for servers that must be told theirs.

A port found here lies below those that the system itself hands out. Between finding a port and listening
on it, no connection of another test can then take it.
"""

from __future__ import annotations

import random
import socket
from typing import Final

_FIRST: Final = 10_240
_LAST: Final = 32_767
"""Linux hands out the ports from 32768 on."""
_dice: Final = random.SystemRandom()
_given: Final[set[int]] = set()
"""The ports that this process has given out. Nobody may be listening on them yet."""


def free_port(*, apart: int = 0) -> int:
    """Return a port that was free a moment ago, as was the one that lies so far `apart` above it."""
    while True:
        port = _dice.randint(_FIRST, _LAST - apart)
        ports = {port, port + apart}
        if ports.isdisjoint(_given) and all(map(_is_free, ports)):
            _given.update(ports)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
