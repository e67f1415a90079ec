"""A process that writes without pause and says what was acknowledged, to be killed at any moment.

A line on standard output means that the call had returned before. With `append` it appends to a log instead
of writing keys of its own, with `spread` it writes them to several namespaces in turn. With the planted bug
`early` the engine answers before it commits, which is what the test that kills this process must notice.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING

import holdfast
from holdfast.decide import Loaded, decide, needs
from holdfast.engines.sqlite import SqliteEngine, reads, sql
from holdfast.engines.sqlite.decider import Decider

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.commands import Command
    from holdfast.decide import Outcome

WRITERS = 16


LOG = "log"
"""The log that processes append to."""
SPREAD = [f"crash-{number}" for number in range(12)]
"""The plugins among which keys are spread."""


def plugin_of(key: str) -> str:
    """Return the plugin of a key that is spread."""
    *_, number, count = key.split(":")
    return SPREAD[(int(number) + int(count)) % len(SPREAD)]


async def write(path: str, life: str, *, appends: bool, spreads: bool) -> None:
    """Write new keys or items until killed."""
    async with holdfast.open(path) as store:
        kv = store.kv("crash")

        async def writer(number: int) -> None:
            count = 0
            while True:
                key, value = f"{life}:{number}:{count}", {"life": life, "count": count}
                try:
                    if appends:
                        entry = await kv.append(LOG, key)
                    elif spreads:
                        entry = await store.kv(plugin_of(key)).set(key, value, expected_version=0)
                    else:
                        entry = await kv.set(key, value, expected_version=0)
                except holdfast.Busy:  # another process is stopped in its turn: nothing was written
                    continue
                sys.stdout.write(f"{entry.key} {entry.version}\n")
                sys.stdout.flush()
                count += 1

        await asyncio.gather(*(writer(number) for number in range(WRITERS)))


async def acknowledge_early(
    self: SqliteEngine, commands: Sequence[Command], now: Callable[[], int]
) -> Outcome:
    """The planted bug: decide, answer, and commit a little later, in order."""
    backlog: list[list[sql.Statement]] = self.__dict__.setdefault("backlog", [])
    versions: dict[str, int] = self.__dict__.setdefault("versions", {})
    loaded = Loaded(namespaces={}, rows={})
    decider = Decider(self, self._cache, self.keys, self.defaults)
    await decider._load(needs(commands), loaded, reads.ByteBudget(commands))
    for name, namespace in loaded.namespaces.items():
        namespace.revision = max(namespace.revision, versions.get(name, 0))
    outcome = decide(loaded, commands, now())
    versions.update({namespace.name: namespace.revision for namespace in outcome.namespaces})
    backlog.append(sql.save(outcome))
    if len(backlog) > 20:
        for plan in backlog:
            seen = self._writer.data_version
            await self._writer.run(partial(self._writer.commit, plan, 1, now, None, seen))
        backlog.clear()
    return outcome


if __name__ == "__main__":
    if "early" in sys.argv[3:]:
        SqliteEngine.transact = acknowledge_early  # type: ignore[method-assign]
    words = sys.argv[3:]
    asyncio.run(write(sys.argv[1], sys.argv[2], appends="append" in words, spreads="spread" in words))
