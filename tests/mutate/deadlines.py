"""Bugs in how a deadline goes from a call to its commit.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_UNIT: Final = ("tests/unit/test_deadlines.py",)
_RULES: Final = (*_UNIT, "tests/conformance/test_memory.py")
_NATS: Final = ("tests/edges/nats/test_deadlines.py",)

PLANTS: Final = (
    Plant(
        "decide does not look at the deadline",
        "decide/draft.py",
        "if self._group_now > deadline:",
        "if False:",
        _UNIT,
    ),
    Plant(
        "the last change makes a command late",
        "decide/draft.py",
        "if self._group_now > deadline:",
        "if self.now > deadline:",
        _UNIT,
    ),
    Plant(
        "a command is late at the instant of its deadline",
        "decide/draft.py",
        "if self._group_now > deadline:",
        "if self._group_now >= deadline:",
        _UNIT,
    ),
    Plant(
        "the latest deadline of a group counts",
        "decide/draft.py",
        "deadline < self._deadline",
        "deadline > self._deadline",
        _UNIT,
    ),
    Plant(
        "a group that is formed takes those who are late",
        "pipeline/commits.py",
        "if deadline is not UNSET and now > deadline:",
        "if False:",
        _UNIT,
    ),
    Plant(
        "those who are late get the results of others",
        "pipeline/commits.py",
        "[late.get(position) or next(results) for position in range(len(commands))]",
        "[*late.values(), *results]",
        _UNIT,
    ),
    Plant(
        "an error of the rest of a group is that of all",
        "pipeline/commits.py",
        "done = GroupDone([error] * len(rest))",
        "raise",
        _UNIT,
    ),
    Plant(
        "SQLite does not look when it has the file",
        "engines/sqlite/writer.py",
        """            if deadline is not None and now() > deadline:
                raise Stale(seen)
            for done, (sql, parameters) in enumerate(plan):
""",
        """            for done, (sql, parameters) in enumerate(plan):
""",
        _UNIT,
    ),
    Plant(
        "SQLite does not look before the commit",
        "engines/sqlite/writer.py",
        """                connection.execute(sql, parameters)
            if deadline is not None and now() > deadline:
                raise Stale(seen)
""",
        """                connection.execute(sql, parameters)
""",
        _UNIT,
    ),
    Plant(
        "SQLite decides by the time before it loaded",
        "engines/sqlite/deciding.py",
        "await self._load(wanted, loaded, room)\n"
        "            if decision is None:\n"
        "                at = now()",
        "at = now()\n            await self._load(wanted, loaded, room)\n            if decision is None:",
        _UNIT,
        equivalent="The writer looks at the clock again when everything is loaded, and it is decided anew.",
    ),
    Plant(
        "PostgreSQL does not look while it saves",
        "engines/postgres/save_sql.py",
        '{MARK} / {in_time(next(parameters))} AS mark"',
        '{MARK} + 0 * {in_time(next(parameters))} AS mark"',
        _UNIT,
    ),
    Plant(
        "PostgreSQL does not look while it commits",
        "engines/postgres/sql.py",
        'f"SELECT 1 / {in_time(str(until))}; COMMIT"',
        'f"SELECT 1 * {in_time(str(until))}; COMMIT"',
        _UNIT,
    ),
    Plant(
        "a deadline is not moved to the server's clock",
        "engines/postgres/transaction.py",
        "outcome.deadline + found.ahead",
        "outcome.deadline",
        (*_UNIT, "tests/conformance/test_postgres.py", "-k", "timeout or late or deadline or look"),
    ),
    Plant(
        "a commit that is too late leaves its transaction open",
        "engines/postgres/transaction.py",
        'await connection.execute("ROLLBACK")\n        raise _Late from None',
        "raise _Late from None",
        _UNIT,
    ),
    Plant(
        "a timeout is part of a request",
        "commands.py",
        "return msgspec.structs.replace(self, origin=self.origin.asked)",
        "return self",
        _RULES,
    ),
    Plant(
        "a timeout is part of a batch's parts",
        "verbs/keys.py",
        "made = tuple(self._write(part, write)",
        "made = tuple(self._write(origin, write)",
        _RULES,
    ),
    Plant(
        "attempts of a retry share a deadline",
        "handles/recipes/retry.py",
        "deadline=self._kv.verbs.deadline(timeout)",
        "deadline=command.origin.deadline",
        _UNIT,
    ),
    Plant(
        "a service keeps the deadline to itself",
        "edges/nats/service.py",
        'return False  # answered before the turn is over\n        fields["deadline"] = deadline',
        "return False  # answered before the turn is over",
        _NATS,
    ),
    Plant(
        "a set over NATS forgets its deadline",
        "handles/key_calls.py",
        'origin = verbs.origin(deadline=fields.get("deadline"))',
        "origin = verbs.origin()",
        _NATS,
    ),
    Plant(
        "a table over NATS forgets its deadline",
        "verbs/tables.py",
        '    "deadline": "deadline",\n',
        "",
        _NATS,
    ),
    Plant(
        "a caller's word on timeouts counts on the wire",
        "edges/nats/service.py",
        'fields.pop("timeout", None)',
        "pass",
        _NATS,
    ),
    Plant(
        "a deadline beyond every calendar reaches the database",
        "edges/intake/deadlines.py",
        "return deadline if deadline < farthest else farthest",
        "return deadline",
        _NATS,
    ),
    Plant(
        "a client ignores the timeout of a call",
        "engines/remote/exchange.py",
        "seconds = (origin.deadline - now()) / 1000",
        "seconds = self._address.timeout",
        _NATS,
    ),
    Plant(
        "a client sends what is too late",
        "engines/remote/exchange.py",
        "if seconds <= 0:",
        "if False:",
        _NATS,
    ),
    Plant(
        "a dead letter is tried again without a deadline",
        "operators/letters.py",
        '{**letter.request, "deadline": deadline}',
        "letter.request",
        _NATS,
    ),
)
