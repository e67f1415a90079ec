"""The states of a session, and the lines that each accepts.

| state | what has happened | what is accepted |
|---|---|---|
| `GREETING` | the connection is made, encrypted with `tls_first` | `INFO`, `-ERR` |
| `SECURING` | `INFO` has arrived, and TLS is next | nothing: any byte ends the session |
| `LOGIN` | TLS, if used, is active; `CONNECT` and `PING` go out | `INFO`, `-ERR`, `PING`, `PONG` |
| `OPEN` | the `PONG` has arrived: the server has accepted the login | every line of the protocol |
| `OVER` | the session has ended | nothing, and nothing is answered |

Law: a line that is not listed here for a state ends the session.
"""

from enum import Enum, auto
from typing import Final


class State(Enum):
    """The state of a session; see the table above."""

    GREETING = auto()
    SECURING = auto()
    LOGIN = auto()
    OPEN = auto()
    OVER = auto()


ACCEPTED: Final = {
    State.GREETING: frozenset({"INFO", "-ERR"}),
    State.SECURING: frozenset[str](),
    State.LOGIN: frozenset({"INFO", "-ERR", "PING", "PONG"}),
    State.OPEN: frozenset({"INFO", "-ERR", "PING", "PONG", "+OK", "MSG", "HMSG"}),
    State.OVER: frozenset[str](),
}
"""The lines that each state accepts."""
