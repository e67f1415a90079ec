"""The storage behind a service under conformance, which is opened anew whenever the service is started.

Only how it is opened is defined here. What was stored is there when it is opened again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import holdfast
from holdfast.audit.keyring import Keyring, parse_keys
from holdfast.clock import Clock
from holdfast.engines.memory import MemoryEngine
from holdfast.store import Store
from holdfast.testing import AUDIT_KEY

if TYPE_CHECKING:
    from pathlib import Path

OpenStorage: TypeAlias = Callable[[Clock], Store]
"""The store of a service, with a clock, not open yet."""


def kept_at(url: str | Path) -> OpenStorage:
    """What is behind an address."""
    return lambda clock: holdfast.open(url, clock=clock, reap=False, audit_key=AUDIT_KEY)


def kept_in_memory() -> OpenStorage:
    """Rows of the reference engine, which stay as long as this can be called."""
    engine = MemoryEngine(Keyring(parse_keys(AUDIT_KEY)))
    return lambda clock: Store(engine, clock=clock, reap=False)
