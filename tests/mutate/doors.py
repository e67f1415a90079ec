"""Bugs at the doors: what a newcomer is told to install, to write and to try.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_EXTRAS: Final = ("tests/unit/test_extras.py",)
_UNKNOWN: Final = ("tests/edges/nats/test_unknown_fields.py",)
_INIT: Final = ("tests/edges/cli/test_config_init.py",)
_URLS: Final = ("tests/unit/test_registry.py",)
_TRY: Final = ("tests/edges/test_try.py", "-k", "not dev_up")

PLANTS: Final = (
    Plant(
        "deleting by prefix removes what was written meanwhile",
        "verbs/keys.py",
        "self._delete(part, key, version or None)",
        "self._delete(part, key, None)",
        ("tests/edges/nats/test_delete_prefix.py",),
    ),
    Plant(
        "a write overtakes the deletion by prefix that was sent before it",
        "edges/nats/service.py",
        "writes=verb is not None and verb.in_order,",
        "writes=verb is not None and verb.writes,",
        ("tests/edges/nats/test_delete_prefix.py",),
    ),
    Plant(
        "a flood fills the slow log",
        "edges/intake/request_log.py",
        """        if not self._lines.may_be_written(owner, verb, "slow", most=SLOW_LINES):
            return
""",
        """        self._lines.may_be_written(owner, verb, "slow")
""",
        ("tests/edges/nats/test_slowlog.py",),
    ),
    Plant(
        "a prompt opens the store for each command",
        "edges/cli/kept.py",
        "return place.address == self._address",
        "return False",
        ("tests/edges/cli/test_shell.py",),
    ),
    Plant(
        "a key is completed as a shell would take it apart",
        "edges/cli/completing.py",
        "[Offer(shlex.quote(key), shown_key(key)) for key in page.keys]",
        "[Offer(key, shown_key(key)) for key in page.keys]",
        ("tests/edges/cli/test_prompt.py",),
    ),
    Plant(
        "a fault of ours is blamed on an extra",
        "extras.py",
        'if package in ("", "holdfast"):',
        'if package == "":',
        _EXTRAS,
    ),
    Plant(
        "an older store without the tools is a bare import error",
        "engines/sql/migrate.py",
        '    with extras.needed("migrate", _PURPOSES[direction]):\n        # late: optional driver\n'
        "        from alembic import command\n",
        "    with contextlib.nullcontext():\n        from alembic import command\n",
        _EXTRAS,
    ),
    Plant(
        "config init replaces a file unasked",
        "edges/cli/commands/config_init.py",
        'require_free(path, force=force, field="path")',
        'require_free(path, force=True, field="path")',
        _INIT,
    ),
    Plant(
        "config init lets others read the file",
        "edges/cli/commands/config_init.py",
        'open(private.create(unfinished), "w", encoding="utf-8")',
        'open(unfinished, "w", encoding="utf-8")',
        _INIT,
    ),
    Plant(
        "the command to try is one that the shell does not find",
        "edges/greeting.py",
        'return "holdfast" if found is not None and own.samefile(found) else quote(str(own))',
        'return "holdfast"',
        _TRY,
    ),
    Plant(
        "the command to try logs in as the service where only plugins may ask",
        "edges/greeting.py",
        "return _plugin_beside(config) or Caller",
        "return Caller",
        _TRY,
    ),
    Plant(
        "the command to try shows a password",
        "edges/greeting.py",
        'return PLACEHOLDER if variable is None or escaped(value, safe="") != value else f"${variable}"',
        "return value",
        _TRY,
    ),
    Plant(
        "an engine of a package takes the place of one of Holdfast's own",
        "registry.py",
        "    if scheme in ENGINES:\n",
        "    if scheme in DRIVERS:\n",
        _URLS,
    ),
    Plant(
        "an engine of one's own is not given the keys of the audit",
        "registry.py",
        "return other(text, Keyring() if keys is None else keys)",
        "return other(text, Keyring())",
        _URLS,
    ),
    Plant(
        "the engine of an installed package is not looked for",
        "registry.py",
        "other = _registered.get(scheme) or _installed(scheme)",
        "other = _registered.get(scheme)",
        _URLS,
    ),
    Plant(
        "a caller is not warned of an unknown field",
        "edges/nats/replies.py",
        'return {"Holdfast-Warning": warning} if warning else {}',
        "return {}",
        _UNKNOWN,
    ),
    Plant(
        "unknown fields of members go unnoticed",
        "edges/calls/catalogue.py",
        "yield from inner._unknown_of_several(field, where + name)",
        "continue",
        _UNKNOWN,
    ),
    Plant(
        "a misspelt name in a member is ignored",
        "verbs/unknown.py",
        "if isinstance(member, Mapping) and not known.issuperset(member):",
        "if member is None:",
        ("tests/unit/test_unknown_names.py",),
    ),
    Plant(
        "strict fields refuse nothing",
        "edges/nats/service.py",
        "if self._settings.strict_fields:",
        "if self._settings.plugin:",
        _UNKNOWN,
    ),
    Plant(
        "a verb forgets one of its fields",
        "edges/calls/key_fields.py",
        "    producer: Annotated[",
        "    produced: Annotated[",
        ("tests/edges/calls/test_catalogue.py",),
    ),
)
