"""A program that says what it has done, line by line, and is killed in the middle of it.

It is killed as soon as it has said so many lines, or a moment later, since at a line itself a commit is
just over. What it has said before its end counts.
"""

from __future__ import annotations

import os
import threading
import time

import pytest

from tests.forking import fork

PATIENCE = 60.0


def said_until_killed(module: str, *arguments: str, after_lines: int, later: float = 0.0) -> list[list[str]]:
    """Run a module of this folder until it has said so many lines, and kill it.

    Args:
        module: The name of the module.
        *arguments: What it is called with.
        after_lines: How many lines it says before it is killed.
        later: How many seconds after that line.

    Returns:
        The words of each whole line that it has said.
    """
    reader, writer = os.pipe()
    with open(reader, encoding="utf-8") as said:
        try:
            process = fork(f"tests.robustness.{module}", arguments, env=os.environ, streams=(0, writer, 2))
        finally:
            os.close(writer)
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        lines = []
        for line in said:
            lines.append(line)
            if len(lines) == after_lines:
                time.sleep(later)
                process.kill()
        process.wait()
        watchdog.cancel()
    if len(lines) < after_lines:
        pytest.fail(f"{module} stopped by itself after {len(lines)} lines")
    return [line.split() for line in lines if line.endswith("\n")]
