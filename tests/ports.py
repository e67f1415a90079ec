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


def free_port() -> int:
    """Return a port that was free a moment ago."""
    while True:
        port = _dice.randint(_FIRST, _LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
