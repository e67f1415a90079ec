"""Late imports: names that a package exports and imports on first use.

A package lists such names in a table next to its other exports, and says there what starting without them
saves. Everything else is imported at the top of a module. An import inside a function is for a driver that
may not be installed or for a measured gain, and a comment that begins with `late:` says which.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_demand(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package.

    Args:
        package: The package's name.
        names: The modules of the names that are imported on first use. A name may also be that of the module.

    Returns:
        A function that imports a name. The package then has it, so that it is not called for that name again.
    """

    def found(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(names[name])
        value = module if names[name].endswith(f".{name}") else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return found
