"""Two processes share the work of compiling the test modules of a run.

Law: nothing here changes which tests run. pytest rewrites the assertions of a test module before it compiles
it, which takes as long as all the rest of collecting. A forked process therefore compiles the modules from
the last one on, while they are collected from the first one on. What was collected stays for the whole run,
so that looking for garbage in it is left out.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from _pytest.assertion import rewrite

from tests import forking

ROOT: Final = Path(__file__).parent


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Collect no garbage meanwhile, and never look for it later in what stays to the end of the run."""
    helper = None
    if session.config.getoption("spread"):
        helper = None if sys.dont_write_bytecode else _fork(session.config)
        forking.prepare()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        if helper is not None:
            os.waitpid(helper, 0)


def _fork(config: pytest.Config) -> int:
    helper = os.fork()
    if helper == 0:
        _compile_all(config)
    return helper


def _compile_all(config: pytest.Config) -> NoReturn:
    """Compile what is not compiled yet; without it the modules are compiled when they are collected."""
    try:
        for path in sorted(ROOT.rglob("test_*.py"), reverse=True):
            compile_one(path, config)
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)


def compile_one(path: Path, config: pytest.Config) -> None:
    """Leave a test module compiled where pytest looks for it."""
    state, folder = config.stash[rewrite.assertstate_key], rewrite.get_cache_dir(path)
    compiled = folder / (path.name.removesuffix(".py") + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, compiled) is None and rewrite.try_makedirs(folder):
        status, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(state, code, status, compiled)
