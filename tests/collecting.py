"""The workers of a whole run share the work of compiling the test modules.

Law: nothing here changes which tests run. Compiling a test module takes pytest longer than reading a compiled
one. Each worker therefore begins to collect at a folder of its own, and finds most of the others' compiled.
What was collected stays for the whole run, so that looking for garbage in it is left out.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parent
_TURNED: Final = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    """Give a worker of a whole run the folders of the suite, from another one on than its neighbours."""
    number = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if number.isdigit() and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        folders = sorted({str(ROOT / path.relative_to(ROOT).parts[0]) for path in ROOT.rglob("test_*.py")})
        first = len(folders) * int(number) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        config.args = [*folders[first:], *folders[:first]]
        config.stash[_TURNED] = True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect no garbage meanwhile, and never look for it later in what stays to the end of the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests into the order that all workers have to agree on."""
    if config.stash.get(_TURNED, False):
        items.sort(key=lambda item: item.path)
