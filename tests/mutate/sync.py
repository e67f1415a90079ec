"""Bugs in the handles without `await`.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_SYNC: Final = ("tests/sync/test_sync.py",)
_STREAMS: Final = ("tests/sync/test_streams.py",)
_PROCESS: Final = ("tests/sync/test_process.py",)

PLANTS: Final = (
    Plant(
        "a quick read is not counted",
        "pipeline/pipeline.py",
        "or self._refusal is not None or not self._rates.unlimited(namespace):",
        "or self._refusal is not None:",
        _SYNC,
    ),
    Plant(
        "a quick read shows what has expired",
        "engines/sqlite/reader.py",
        "isinstance(row, Later) or row.alive(now) else None",
        "isinstance(row, Later) or row else None",
        _SYNC,
    ),
    Plant(
        "threads share a connection",
        "engines/sqlite/peeks.py",
        "self._mine = threading.local()",
        "self._mine = threading.Event()",
        _SYNC,
    ),
    Plant(
        "a child uses its parent's store",
        "sync/thread.py",
        "self.thread.running = False\n            self.parents",
        "self.thread.running = True\n            self.parents",
        _PROCESS,
    ),
    Plant(
        "the thread of the loop keeps the process alive",
        "sync/thread.py",
        'self._thread = threading.Thread(target=self._serve, name="holdfast sync", daemon=True)',
        'self._thread = threading.Thread(target=self._serve, name="holdfast sync", daemon=False)',
        _PROCESS,
    ),
    Plant(
        "tasks are left behind at the end",
        "sync/thread.py",
        "for task in left:\n            task.cancel()",
        "for task in left:\n            task.get_name()",
        _PROCESS,
    ),
    Plant(
        "a handle that is passed on is taken for a file",
        "sync/facade.py",
        'file = hasattr(given, "read") and not isinstance(given, Facade)',
        'file = hasattr(given, "read")',
        _STREAMS,
    ),
    Plant(
        "an iterator that fails is taken for one that has ended",
        "sync/feeding.py",
        "step = partial(_fail, answer, error)",
        "step = partial(_give, answer, END)",
        _STREAMS,
    ),
)
