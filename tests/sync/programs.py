"""Programs that use a store of `holdfast.sync`, each run in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PATIENCE = 30.0

OPENED = """
import os, sys, threading, time
import holdfast, holdfast.sync
store = holdfast.sync.open(sys.argv[1])
store.start()
kv = store.kv("trivia")
"""


def program(text: str, url: object) -> subprocess.Popen[str]:
    """Start a program that has opened a store."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", OPENED + textwrap.dedent(text), str(url)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(text: str, url: object) -> tuple[int, str, str]:
    """Run such a program to its end."""
    with program(text, url) as process:
        out, err = ended(process)
        return process.returncode, out, err


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a program has printed when it has ended; one that does not end is killed."""
    try:
        return process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
