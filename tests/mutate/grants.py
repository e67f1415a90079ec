"""Bugs in the configuration of a NATS server: who may use which verb, limits, renewed credentials.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_GRANTS: Final = ("tests/security/test_grants.py",)
_LIMITS: Final = ("tests/security/test_limits.py",)
_ROTATE: Final = ("tests/security/test_rotate.py",)

PLANTS: Final = (
    Plant(
        "who may only read may sweep",
        "edges/calls/tables.py",
        "        RemovedReply,\n        writes=True,\n",
        "        RemovedReply,\n",
        _GRANTS,
    ),
    Plant(
        "who may only read may delete by prefix",
        "edges/nats/grants.py",
        "family: reading(family) for family",
        'family: reading(family) | {"delete_prefix"} for family',
        _GRANTS,
    ),
    Plant(
        "a user with few verbs may use all",
        "edges/nats/server_config.py",
        'for verb in ([">"] if who.verbs is None else who.verbs_of(family))',
        'for verb in [">"]',
        _GRANTS,
    ),
    Plant(
        "users with few verbs shut out the one with all",
        "edges/nats/server_config.py",
        "{whole: None} if whole in self._users else {}",
        "{}",
        _GRANTS,
    ),
    Plant(
        "who may not read the changes hears the events",
        "edges/nats/grants.py",
        "if EVENTS in self.verbs_of(family)]",
        "if family]",
        _GRANTS,
    ),
    Plant(
        "a refusal of what the server sends elsewhere goes unnoticed",
        "engines/remote/mailbox.py",
        "asked_at(found.subject, self._address.prefix).lower()",
        "found.subject.lower()",
        _GRANTS,
    ),
    Plant(
        "an account has any number of connections",
        "edges/nats/server_config.py",
        '"limits": {"max_connections": self._connections},',
        '"limits": {"max_connections": 65_536},',
        _LIMITS,
    ),
    Plant(
        "the server keeps what nobody reads",
        "edges/nats/server_settings.py",
        '"max_pending": PENDING if connections is None else PENDING_UNCOUNTED,',
        '"max_pending": 67_108_864,',
        _LIMITS,
    ),
    Plant(
        "the renewed credentials of a plugin stay in force",
        "edges/cli/nats_files.py",
        "text = text.replace(_mark(_in_force(one, text)), _mark(fresh))",
        "text = text.replace(_mark(_in_force(one, text)), _mark(_in_force(one, text)))",
        _ROTATE,
    ),
    Plant(
        "an interrupted renewal is forgotten",
        "edges/cli/nats_files.py",
        "for file in (one.file, _next(one.file)):",
        "for file in (one.file,):",
        _ROTATE,
    ),
)
