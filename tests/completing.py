"""Programs that are forked and run to their end.

Law: what they print is kept in files, so that no program waits for a reader; see `tests.forking`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from typing import TYPE_CHECKING

from tests.forking import fork

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def completed(
    module: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: str | Path = ".",
    given: str = "",
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its exit code and what it printed.

    Args:
        module: The module, of the library or of its tests, or the path of a file.
        *arguments: What the program is called with.
        env: Its environment; by default that of this process.
        cwd: Its folder.
        given: What it reads from stdin.
        timeout: The seconds that are waited for its end.
    """
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(given.encode())
        files[0].seek(0)
        stdin, stdout, stderr = (file.fileno() for file in files)
        given_env = os.environ if env is None else env
        forked = fork(module, arguments, env=given_env, cwd=cwd, streams=(stdin, stdout, stderr))
        code = forked.wait(timeout)
        for file in files:
            file.seek(0)
        out, err = (file.read().decode() for file in files[1:])
        return subprocess.CompletedProcess([module, *arguments], code, out, err)
