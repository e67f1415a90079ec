"""Bugs of the console and of its sessions.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_DOOR: Final = ("tests/console/test_door.py",)
_BROWSE: Final = ("tests/console/test_browse.py",)
_ENTRY: Final = ("tests/console/test_entry.py",)
_OPERATORS: Final = ("tests/console/test_operator_pages.py",)
_INSTANCES: Final = ("tests/console/test_instances.py",)
_LIVE: Final = ("tests/console/test_live.py",)

PLANTS: Final = (
    Plant(
        "with a session, any page can write",
        "edges/http/guard.py",
        'if scope["method"] not in SAFE and not _own_page(scope):',
        'if scope["method"] not in SAFE and not scope:',
        _DOOR,
    ),
    Plant(
        "a session outlives its token",
        "edges/http/guard.py",
        "            self.sessions.end(cookie)\n",
        "            pass\n",
        _DOOR,
    ),
    Plant(
        "the shortcut forgets the session",
        "edges/http/shortcut.py",
        'b"cookie", ',
        "",
        _DOOR,
    ),
    Plant(
        "an operator's session works from elsewhere",
        "edges/http/guard.py",
        "return None if far else stands_for",
        "return stands_for",
        _DOOR,
    ),
    Plant(
        "a link works twice",
        "edges/console/sessions.py",
        "made = self._links.pop(_hashed(secret), None)",
        "made = self._links.get(_hashed(secret))",
        _DOOR,
    ),
    Plant(
        "a session never ends",
        "edges/console/sessions.py",
        "now > self.opened + LIFE_SECONDS",
        "now < self.opened",
        _DOOR,
    ),
    Plant(
        "a followed link gets data",
        "edges/console/door.py",
        ' and said.get(b"sec-fetch-mode") != b"navigate"',
        "",
        _DOOR,
    ),
    Plant(
        "the masked page has the value",
        "edges/console/entry.py",
        "if value else kept",
        "",
        _ENTRY,
    ),
    Plant(
        "a policy that forbids it does not keep values from being revealed",
        "decide/reveals.py",
        'if how == "never":',
        'if how == "nobody":',
        _ENTRY,
    ),
    Plant(
        "a reveal leaves no record",
        "decide/reveals.py",
        "        _tell(draft, command, row, key=command.key)",
        "        pass",
        _ENTRY,
    ),
    Plant(
        "a reveal of an item leaves no record",
        "decide/reveals.py",
        "        _tell(draft, command, place.row,",
        "        repr(place.row) or _tell(draft, command, place.row,",
        _OPERATORS,
    ),
    Plant(
        "a reveal of an item needs no reason",
        "decide/reveals.py",
        'if how == "audited" and command.why is None:',
        'if how == "audited" and command.why is None and isinstance(command, Reveal):',
        _OPERATORS,
    ),
    Plant(
        "a reveal looks like a change that is missing",
        "operators/audit_values.py",
        "record.op == REVEALED or ",
        "",
        _ENTRY,
    ),
    Plant(
        "an instance that falls silent is not noticed",
        "edges/console/instances.py",
        "if silent > SILENT:",
        "if silent > FORGOTTEN:",
        _INSTANCES,
    ),
    Plant(
        "a large branch hides those behind it",
        "edges/console/browse.py",
        "cursor = cursor_after(full + last + _BEHIND)",
        "break",
        _BROWSE,
    ),
    Plant(
        "a restored store shows no gap",
        "edges/console/live.py",
        "if head != since.get(name, 0)]",
        "if head > since.get(name, 0)]",
        _LIVE,
    ),
)
