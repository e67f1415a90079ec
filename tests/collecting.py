"""Collecting a whole suite takes no longer than it must: test modules are compiled beforehand.

Law: nothing here changes which tests run. pytest rewrites the assertions of a test module before it compiles
it, which takes as long as all the rest of collecting. `./dev setup` therefore has all of them compiled, by
`pytest --compile`; one that changed since is compiled when it is collected. What was collected stays for the
whole run, so that looking for garbage in it is left out.
"""

from __future__ import annotations

import contextlib
import gc
import os
import traceback
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from _pytest.assertion import rewrite

from tests import forking

ROOT: Final = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Make the option known."""
    parser.addoption("--compile", action="store_true", help="compile the test modules, and run none")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Compile all test modules by as many processes as there are cores, if that was asked for."""
    if not config.getoption("compile"):
        return None
    paths, processes = sorted(ROOT.rglob("test_*.py")), os.cpu_count() or 2
    children = [_fork(paths[number::processes], config) for number in range(processes)]
    ends = [os.waitpid(child, 0)[1] for child in children]
    return int(any(ends))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Collect no garbage meanwhile, and never look for it later in what stays to the end of the run."""
    if session.config.getoption("spread"):
        forking.prepare()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _fork(paths: Iterable[Path], config: pytest.Config) -> int:
    child = os.fork()
    if child == 0:
        _compile(paths, config)
    return child


def _compile(paths: Iterable[Path], config: pytest.Config) -> NoReturn:
    code = 1
    try:
        for path in paths:
            with contextlib.suppress(SyntaxError):  # collecting it says where
                compile_one(path, config)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def compile_one(path: Path, config: pytest.Config) -> None:
    """Leave a test module compiled where pytest looks for it."""
    state, folder = config.stash[rewrite.assertstate_key], rewrite.get_cache_dir(path)
    compiled = folder / (path.name.removesuffix(".py") + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, compiled) is None and rewrite.try_makedirs(folder):
        status, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(state, code, status, compiled)
