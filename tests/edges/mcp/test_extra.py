"""The SDK is optional: nothing imports it before it is needed, and its absence is told in words."""

from __future__ import annotations

import subprocess
import sys

IMPORTED = """
import sys, holdfast, holdfast.edges.cli.app, holdfast.edges.serve
print([name for name in sys.modules if name.partition(".")[0] in ("mcp", "mcp_types")])
"""
MISSING = """
import sys
sys.modules["mcp"] = sys.modules["mcp_types"] = None
from holdfast.edges.cli import run
sys.exit(run(["mcp", "--plugin", "trivia", "--url", "memory://"]))
"""


def test_importing_holdfast_imports_no_sdk() -> None:
    """Neither the library nor the command line nor a service imports the SDK, which takes a second."""
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_missing_sdk_names_the_extra() -> None:
    """Without the SDK `holdfast mcp` says what to install."""
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "pip install 'holdfast-kv[mcp]'" in done.stderr
    assert "Traceback" not in done.stderr
