"""The command line: one file per group of commands.

A command reads its arguments, calls a store and prints. Only this module turns an outcome into an exit code,
whichever parser read the arguments.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Sequence

from holdfast.edges.cli.fast_parser import plain_call, wants_json
from holdfast.edges.cli.output import INTERRUPTED, OK, PIPE_CLOSED, complain, exit_code
from holdfast.errors import HoldfastError


def main() -> None:
    """Run the command of this process and exit with its code."""
    code = run(sys.argv[1:])
    # Otherwise the interpreter would run a last garbage collection, which takes longer than a command.
    gc.freeze()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run a command. Errors go to stderr and determine the exit code."""
    as_json = wants_json(arguments)
    try:
        code = _obey(arguments)
        print(end="", flush=True)
        return code
    except BrokenPipeError:
        # The rest of the output has no reader, and the interpreter would report that at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except HoldfastError as error:
        complain(error, as_json=as_json)
        return exit_code(error)


def _obey(arguments: Sequence[str]) -> int:
    call = plain_call(arguments)
    if call is not None:
        asyncio.run(call.command(*call.arguments, **call.options))
        return OK
    # late: it takes 75 ms, and the fast parser does without
    from holdfast.edges.cli.app import obey

    return obey(arguments)
