"""Ctrl-C works in what tests start, however the suite itself was started.

A process that a shell puts in the background, or that `nohup` starts, ignores SIGINT, and so does every
process below it. Whatever a test starts would not hear the SIGINT that the test sends.
"""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take SIGINT as Python usually does; a handler of Python's is not inherited, and ignoring is."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
