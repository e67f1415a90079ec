"""Bugs in the engines that talk to a server: PostgreSQL, and a Holdfast service over NATS.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_LOOKS: Final = ("tests/engines/test_postgres_looks.py", "tests/engines/test_postgres.py")
_FAULTS: Final = ("tests/engines/test_postgres_faults.py", *_LOOKS)
_ALIKE: Final = ("tests/engines/test_postgres_alike.py", *_LOOKS)
_REMOTE: Final = (
    "tests/engines/test_remote_clock.py",
    "tests/engines/test_remote.py",
    "tests/engines/test_remote_tables.py",
)

PLANTS: Final = (
    Plant(
        "two looks are believed to be one",
        "engines/postgres/transaction.py",
        "return None if more else outcome",
        "return outcome",
        _LOOKS,
    ),
    Plant(
        "what went between two looks is still there",
        "engines/postgres/transaction.py",
        "            loaded.rows.pop(address, None)  # without a lock it may be gone by now\n",
        "            assert address\n",
        _LOOKS,
    ),
    Plant(
        "a namespace is loaded before it is locked",
        "engines/postgres/transaction.py",
        "        await self._lock(connection, known=marks.known(self.namespace))\n"
        "        found = await self._load(connection, self._wanted)\n",
        "        found = await self._load(connection, self._wanted)\n"
        "        await self._lock(connection, known=marks.known(self.namespace))\n",
        _FAULTS,
    ),
    Plant(
        "a commit that rolled back is believed",
        "engines/postgres/transaction.py",
        'if done != "COMMIT":',
        "if not done:",
        _LOOKS,
    ),
    Plant(
        "a commit that nobody confirmed is tried again",
        "engines/postgres/transaction.py",
        "        raise _Late from None\n"
        "    except DRIVER_ERRORS as error:\n        raise unknown() from error",
        "        raise _Late from None\n    except DRIVER_ERRORS:\n        raise",
        _FAULTS,
    ),
    Plant(
        "a write that nobody confirmed is tried again",
        "engines/postgres/transaction.py",
        "if commits and may_have_committed(error):",
        "if not commits and may_have_committed(error):",
        _FAULTS,
    ),
    Plant(
        "others are never noticed",
        "engines/postgres/marks.py",
        "            self._shared.keep(namespace, None)",
        "            self._shared.pop(namespace, None)",
        _FAULTS,
    ),
    Plant(
        "a changed namespace is taken for the same",
        "engines/postgres/save_sql.py",
        'return f"name = {name} AND xmin = {mark}::bigint::text::xid"',
        'return f"name = {name} AND {mark}::bigint IS NOT NULL"',
        _FAULTS,
    ),
    Plant(
        "rows are put though the namespace has changed",
        "engines/postgres/save_sql.py",
        '_UNCHANGED: Final = "EXISTS (SELECT FROM unchanged)"',
        '_UNCHANGED: Final = "true"',
        _FAULTS,
    ),
    Plant(
        "a change that counts nothing leaves no mark",
        "engines/postgres/save_sql.py",
        "SET name = name WHERE {row} RETURNING {mark}",
        "SET name = name WHERE {row} AND false RETURNING {mark}",
        _FAULTS,
    ),
    Plant(
        "a record is dropped by the group that made it",
        "engines/postgres/save_parts.py",
        "if upto is None or record.version > upto]",
        "if upto is None]",
        _ALIKE,
    ),
    Plant(
        "a broken connection is used again",
        "engines/postgres/connections.py",
        "            connection.terminate()\n            raise\n        self._idle",
        "            self._idle.append(connection)\n            raise\n        self._idle",
        _FAULTS,
    ),
    Plant(
        "a dead connection fails a write",
        "engines/postgres/connections.py",
        "                    if not is_lost(error):\n                        raise",
        "                    if is_lost(error):\n                        raise",
        _FAULTS,
    ),
    Plant(
        "a cancelled caller cancels its write",
        "engines/postgres/connections.py",
        "            if not begun:\n                task.cancel()",
        "            task.cancel()",
        _FAULTS,
    ),
    Plant(
        "a large read is never answered",
        "engines/postgres/reads.py",
        "if room < 0 and position:",
        "if room < 0:",
        ("tests/conformance/test_postgres.py", "-k", "as_many_as"),
    ),
    Plant(
        "a read goes by the time of another",
        "engines/postgres/reads.py",
        "_alive(rows.get(address), asked.now)",
        "_alive(rows.get(address), group[0].now)",
        _LOOKS,
    ),
    Plant(
        "a lane for reads is used up",
        "engines/postgres/reads.py",
        "            self._free += 1",
        "            self._free += 0",
        _LOOKS,
    ),
    Plant(
        "a lost connection may have committed nothing",
        "engines/postgres/errors.py",
        '_REFUSED: Final = ("0A000", "25006", CLOSED)',
        '_REFUSED: Final = ("0A000", "25006", CLOSED, "57P01")',
        ("tests/engines/test_postgres_errors.py", *_FAULTS),
    ),
    Plant(
        "a run removes more than it counted",
        "engines/postgres/save_sql.py",
        'f"ORDER BY expires_at, key LIMIT {most})) AND {_UNCHANGED} "',
        'f"ORDER BY expires_at, key LIMIT {most} + 1)) AND {_UNCHANGED} "',
        ("tests/engines/test_runs.py", "-k", "postgres"),
    ),
    Plant(
        "a write without a reply is said to be undone",
        "engines/remote/engine.py",
        "await self._ask(command.namespace, verb, fields, late, seconds)",
        "await self._ask(command.namespace, verb, fields, None, seconds)",
        _REMOTE,
    ),
    Plant(
        "a client's clock is taken for the service's",
        "engines/remote/exchange.py",
        "int(self._mailbox.time() + seconds * 1000)",
        "int((time.time() + seconds) * 1000)",
        _REMOTE,
    ),
    Plant(
        "a client never asks again after a jump",
        "engines/remote/exchange.py",
        "_TOO_LATE = (Timeout.code, Timeout.code.lower())",
        "_TOO_LATE = (Timeout.code.title(),)",
        _REMOTE,
    ),
    Plant(
        "a client's page of changes is always the last",
        "engines/remote/engine.py",
        'complete=reply["next"] == reply["head"]',
        "complete=True",
        ("tests/conformance/test_remote.py", "-k", "since_and_next"),
    ),
    Plant(
        "nobody there looks like no answer",
        "engines/remote/mailbox.py",
        'if message.status == "503":',
        'if message.status == "408":',
        _REMOTE,
    ),
    Plant(
        "a reply goes to the request before",
        "engines/remote/mailbox.py",
        'send(subject, payload, reply=f"{self._inbox}.{token}"',
        'send(subject, payload, reply=f"{self._inbox}.{max(1, self._number - 1)}"',
        _REMOTE,
    ),
    Plant(
        "one refused subject fails all requests",
        "engines/remote/mailbox.py",
        "(self._denied or pending.subject.lower() == subject)",
        "(self._denied or pending.subject)",
        _REMOTE,
    ),
    Plant(
        "a slow reply spoils the clock",
        "engines/remote/service_time.py",
        "if took <= self._best:",
        "if took >= 0:",
        _REMOTE,
    ),
)
