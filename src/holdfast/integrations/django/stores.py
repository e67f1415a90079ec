"""The stores that Django's settings name, each opened once in a process.

Law: Django makes cache and session objects for every thread and request; none of them opens or closes a
store. A store opens at its first use and closes with the process. A process that was forked opens its own.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from holdfast import sync

if TYPE_CHECKING:
    from holdfast.sync import Store

_one_at_a_time: Final = threading.Lock()
_open: Final[dict[tuple[int, str], Store]] = {}


def opened(url: str) -> Store:
    """Return the store of a URL in this process, after opening it if it is not open yet."""
    name = os.getpid(), url
    found = _open.get(name)
    if found is not None:
        return found
    with _one_at_a_time:
        if name not in _open:
            _open[name] = sync.open(url).__enter__()
        return _open[name]


def close(url: str) -> None:
    """Close the store of a URL, if it is open in this process. The next use opens it again."""
    with _one_at_a_time:
        store = _open.pop((os.getpid(), url), None)
    if store is not None:
        store.close()


os.register_at_fork(before=_one_at_a_time.acquire, after_in_child=_one_at_a_time.release)
os.register_at_fork(after_in_parent=_one_at_a_time.release)
