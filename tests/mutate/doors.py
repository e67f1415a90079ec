"""Bugs at the doors: what a newcomer is told to install, to write and to try.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_EXTRAS: Final = ("tests/unit/test_extras.py",)
_INIT: Final = ("tests/edges/cli/test_config_init.py",)
_URLS: Final = ("tests/unit/test_registry.py",)
_TRY: Final = ("tests/edges/test_try.py", "-k", "not dev_up")

PLANTS: Final = (
    Plant(
        "a fault of ours is blamed on an extra",
        "extras.py",
        'if package in ("", "holdfast"):',
        'if package == "":',
        _EXTRAS,
    ),
    Plant(
        "an older store without the tools is a bare import error",
        "engines/migrate.py",
        '    with extras.needed("migrate", _PURPOSES[direction]):\n        from alembic import command\n',
        "    with contextlib.nullcontext():\n        from alembic import command\n",
        _EXTRAS,
    ),
    Plant(
        "config init replaces a file unasked",
        "edges/cli/config_init.py",
        'require_free(path, force=force, field="path")',
        'require_free(path, force=True, field="path")',
        _INIT,
    ),
    Plant(
        "config init lets others read the file",
        "edges/cli/config_init.py",
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
)
