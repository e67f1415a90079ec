"""A process that imports the library while coverage is measured, once for a whole run.

Law: it does nothing else. Only the first import of a module runs its definitions, and the workers of a run
import the library long before coverage starts in them. Programs are left out, and the migrations, which
Alembic loads by itself.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast

if TYPE_CHECKING:
    from collections.abc import Mapping


def measured(env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the process, in an environment in which a new Python process measures itself."""
    return subprocess.Popen([sys.executable, "-m", __name__], env=env, cwd=Path(__file__).parents[1])


def import_everything() -> None:
    """Import every module of the library."""
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not found.name.endswith("__main__") and ".migrations." not in found.name:
            importlib.import_module(found.name)


if __name__ == "__main__":
    import_everything()
