"""Bugs between the handles and the engines: groups, order, sweeping, watching.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_BATCHER: Final = (
    "tests/unit/test_batcher.py",
    "tests/unit/test_company.py",
    "tests/unit/test_order.py",
    "tests/unit/test_store.py",
)
_GROUPS: Final = ("tests/unit/test_commits.py", "tests/unit/test_store.py", "tests/unit/test_policies.py")
_REAPER: Final = ("tests/unit/test_reaper.py", "tests/unit/test_upkeep.py", "tests/unit/test_policies.py")
_RULES: Final = ("tests/conformance/test_memory.py",)
_WATCH: Final = ("tests/unit/test_watch.py", *_RULES)

PLANTS: Final = (
    Plant(
        "a shared group has one namespace too many",
        "pipeline/carriers.py",
        "len(taken) < most_lanes",
        "len(taken) <= most_lanes",
        ("tests/unit/test_carriers.py",),
    ),
    Plant(
        "the first of two shared groups takes all namespaces",
        "pipeline/carriers.py",
        "(ready + 1) // 2",
        "ready",
        ("tests/unit/test_carriers.py",),
    ),
    Plant(
        "a shared group is halved while another is in flight",
        "pipeline/carriers.py",
        "if self._executing or ready",
        "if ready",
        ("tests/unit/test_carriers.py",),
    ),
    Plant(
        "any command shares a group with other namespaces",
        "pipeline/carriers.py",
        "plain=not alone)",
        "plain=False)",
        ("tests/unit/test_carriers.py",),
    ),
    Plant(
        "a shared transaction does not look at the marks",
        "engines/postgres/shared_sql.py",
        " AND stored.xmin = given.mark AND",
        " AND",
        ("tests/engines/test_postgres_shared.py",),
    ),
    Plant(
        "commands share a group with a policy change",
        "pipeline/batcher.py",
        "if type(command) is SetPolicy:",
        "if type(command) is SetPolicy and not pending:",
        _BATCHER,
    ),
    Plant(
        "a run shares its group with those before it",
        "pipeline/batcher.py",
        "if runs not in (None, run):",
        "if runs and not run:",
        _BATCHER,
    ),
    Plant(
        "a write passes a read that is not done",
        "pipeline/pending.py",
        "return not all(read.done() for read in self.after)",
        "return not any(read.done() for read in self.after)",
        _BATCHER,
    ),
    Plant(
        "a dear command does not wait for reads",
        "pipeline/batcher.py",
        "_is_dear(waiting) and not waiting.held:",
        "_is_dear(waiting):",
        _BATCHER,
    ),
    Plant(
        "a write that waits for a read holds up other namespaces",
        "pipeline/batcher.py",
        "or waiting.namespace in behind or waiting.held:",
        "or behind or waiting.held:",
        _BATCHER,
    ),
    Plant(
        "a new command does not end the wait for a read",
        "pipeline/batcher.py",
        "            lane.wake()\n        return lane\n",
        "            pass\n        return lane\n",
        _BATCHER,
    ),
    Plant(
        "a dear command shares its group",
        "pipeline/batcher.py",
        "                dear = _is_dear(waiting)\n",
        "                dear = False\n",
        _BATCHER,
    ),
    Plant(
        "dear commands wait until no cheap one is left",
        "pipeline/batcher.py",
        "            if lane.dear:\n",
        "            if lane.dear and not group:\n",
        _BATCHER,
    ),
    Plant(
        "commands pass a dear one of their namespace",
        "pipeline/batcher.py",
        "        behind = set(self.away)  # ",
        "        behind: set[str] = set()  # ",
        _BATCHER,
    ),
    Plant(
        "dear commands of two namespaces run at once",
        "pipeline/batcher.py",
        "        if self.away:\n            return None\n",
        "",
        _BATCHER,
    ),
    Plant(
        "a dear command begins beside the group of its namespace",
        "pipeline/batcher.py",
        "        behind = {waiting.namespace for waiting in group}\n",
        "        behind: set[str] = set()\n",
        _BATCHER,
    ),
    Plant(
        "a dear command passes those before it in its namespace",
        "pipeline/batcher.py",
        "            if waiting.namespace not in behind:\n                behind.add(waiting.namespace)\n",
        "            if waiting.namespace not in behind:\n",
        _BATCHER,
    ),
    Plant(
        "a barrier passes the writes that stay",
        "pipeline/pending.py",
        "        return self.of\n",
        '        return ""\n',
        _BATCHER,
    ),
    Plant(
        "a group has no bound in bytes",
        "pipeline/batcher.py",
        "            if room < 0 and group:\n",
        "            if False:\n",
        _BATCHER,
    ),
    Plant(
        "a group has one command too many",
        "pipeline/batcher.py",
        "while pending and len(group) < most:",
        "while pending and len(group) <= most:",
        _BATCHER,
    ),
    Plant(
        "a key counts as written while one write waits",
        "pipeline/batcher.py",
        "                if left:\n                    unsettled[address] = left",
        "                if left > 1:\n                    unsettled[address] = left",
        _BATCHER,
    ),
    Plant(
        "a listing does not wait for writes of keys",
        "pipeline/pending.py",
        "return (namespace, None), (namespace, command.key)",
        "return ((namespace, command.key),)",
        _BATCHER,
    ),
    Plant(
        "namespaces wait for each other",
        "pipeline/batcher.py",
        'name = namespace if self._lane_per_namespace else ""',
        'name = ""',
        _BATCHER,
    ),
    Plant(
        "others are told before the callers",
        "pipeline/batcher.py",
        "        self._settle(group, iter(done.results))\n"
        "        if done.tell is not None:\n"
        "            await self._tell(done.tell)\n",
        "        if done.tell is not None:\n"
        "            await self._tell(done.tell)\n"
        "        self._settle(group, iter(done.results))\n",
        _BATCHER,
    ),
    Plant(
        "a caller that left is logged as an error",
        "pipeline/batcher.py",
        "    if future.done():\n        return\n",
        "",
        _BATCHER,
    ),
    Plant(
        "a closed store takes one more",
        "pipeline/batcher.py",
        "        self._closed = True\n",
        "",
        _BATCHER,
    ),
    Plant(
        "a quota refuses without a sweep",
        "pipeline/commits.py",
        "return kind is QuotaExceeded or ",
        "return ",
        _GROUPS,
    ),
    Plant(
        "one poisoned command spoils its group",
        "pipeline/commits.py",
        "if error is not None and len(commands) == 1:",
        "if error is not None:",
        _GROUPS,
    ),
    Plant(
        "a defect is not tried one by one",
        "pipeline/commits.py",
        "if isinstance(error, HoldfastError) and not isinstance(error, (Defect, TooExpensive)):",
        "if isinstance(error, HoldfastError):",
        _GROUPS,
    ),
    Plant(
        "what fits after a sweep is told to nobody",
        "pipeline/commits.py",
        "            journal += again.journal\n",
        "",
        _GROUPS,
    ),
    Plant(
        "what a sweep for a quota removed is told to nobody",
        "pipeline/commits.py",
        "replace(outcome, results=results, journal=journal, expired=True)",
        "replace(outcome, results=results, journal=journal[-1:], expired=True)",
        _GROUPS,
    ),
    Plant(
        "a quota refuses parts without a sweep",
        "pipeline/commits.py",
        ' or hasattr(kind, "items")',
        "",
        _GROUPS,
    ),
    Plant(
        "parts that were done are done again after a sweep",
        "pipeline/commits.py",
        "tuple(parts[position] for position in positions)",
        "parts",
        _GROUPS,
    ),
    Plant(
        "the last of a run is told twice",
        "pipeline/commits.py",
        "for since in range(run.first - 1, last, PART):",
        "for since in range(run.first - 1, last + 1, PART - 1):",
        _GROUPS,
    ),
    Plant(
        "one by one forgets what was recorded",
        "pipeline/commits.py",
        "                together.journal.extend(outcome.journal)\n",
        "",
        _GROUPS,
    ),
    Plant(
        "a sweep for a quota stops after one look",
        "upkeep/reaper.py",
        "if not outcome.journal or len(due) < LOOK:",
        "if not outcome.journal or len(due) <= LOOK:",
        _REAPER,
    ),
    Plant(
        "a sweep for a quota leaves items",
        "upkeep/purge.py",
        "more = len(due) == DUE",
        "more = len(due) > DUE",
        _REAPER,
    ),
    Plant(
        "a crowd that can't go in runs stays",
        "upkeep/reaper.py",
        "rest = [row for row in due if not gone.get(row.namespace)]",
        "rest = [row for row in due if row.namespace not in gone]",
        (*_REAPER, *_RULES),
    ),
    Plant(
        "only the first run of a crowd goes",
        "upkeep/reaper.py",
        "        while removed == RUN:\n",
        "        while removed == RUN and not total:\n",
        _REAPER,
    ),
    Plant(
        "a sweep counts the last run alone",
        "upkeep/reaper.py",
        "removed = await self._ask(ExpireRun(namespace=namespace, limit=RUN))\n            total += removed",
        "removed = await self._ask(ExpireRun(namespace=namespace, limit=RUN))\n            total = removed",
        _REAPER,
    ),
    Plant(
        "a failed sweep is taken for done",
        "upkeep/reaper.py",
        "                raise result\n",
        "                continue\n",
        _REAPER,
    ),
    Plant(
        "the journal keeps a record too long",
        "upkeep/reaper.py",
        "if record.at <= old or",
        "if record.at < old or",
        (*_REAPER, *_RULES),
    ),
    Plant(
        "the journal keeps one record too many",
        "upkeep/reaper.py",
        "record.version <= many]",
        "record.version < many]",
        _REAPER,
    ),
    Plant(
        "the audit is pruned a moment too late",
        "upkeep/reaper.py",
        "record_of(row).at <= before",
        "record_of(row).at < before",
        ("tests/unit/test_audit.py", *_REAPER, *_RULES),
    ),
    Plant(
        "one request too many is forgotten",
        "upkeep/reaper.py",
        "limit = min(LOOK, left - rules.MAX_REQUESTS)",
        "limit = min(LOOK, left - rules.MAX_REQUESTS + 1)",
        _REAPER,
    ),
    Plant(
        "a watch takes its own floor for a gap",
        "pipeline/watch.py",
        "gap = since < page.floor or",
        "gap = since <= page.floor or",
        _WATCH,
    ),
    Plant(
        "a watch skips what did not fit",
        "pipeline/watch.py",
        "next=page.head if complete else records[-1].version",
        "next=page.head",
        _WATCH,
    ),
    Plant(
        "a bell that rings while nobody waits is not heard",
        "pipeline/watch.py",
        "            async with asyncio.timeout(LOOK_AGAIN):\n                await self._rung.wait()",
        "            self._rung.clear()\n"
        "            async with asyncio.timeout(LOOK_AGAIN):\n                await self._rung.wait()",
        _WATCH,
    ),
    Plant(
        "a restored storage looks like the old one",
        "pipeline/watch.py",
        "if epoch not in (None, page.epoch):",
        "if epoch not in (None, page.epoch, epoch):",
        _WATCH,
    ),
    Plant(
        "a page ends one key too late",
        "pipeline/listing.py",
        "last=found.keys[-1] if found.more else None",
        "last=found.keys[-2:][0] if found.more else None",
        _RULES,
    ),
)
