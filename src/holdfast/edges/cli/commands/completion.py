"""`holdfast completion` and `--install-completion`: Tab completion of commands and options.

Law: the library that parses the command line generates the scripts from the same declarations.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cyclopts.completion.detect import ShellDetectionError, detect_shell

from holdfast.edges.cli.app import app
from holdfast.edges.cli.commands.transfer import require_free
from holdfast.edges.cli.output import file_trouble, line, say
from holdfast.errors import ValidationError

Shell = Literal["bash", "zsh", "fish", "powershell"]


def completion(shell: Shell | None = None, /) -> None:
    """Print the script that completes commands and options.

    Parameters
    ----------
    shell
        The shell it is for; the one that this runs in if not given.
    """
    line(app.generate_completion(shell=_known(shell)))


def install(*, shell: Shell | None = None, output: Path | None = None, force: bool = False) -> None:
    """Install the script that completes commands and options.

    Parameters
    ----------
    shell
        The shell it is for; the one that this runs in if not given.
    output
        Where to put the script instead of the shell's own place.
    force
        Replace the file that --output names if it exists.
    """
    require_free(output, force=force, field="output")

    try:
        path = app.install_completion(shell=_known(shell), output=output)
    except OSError as error:
        raise file_trouble(error, error.filename, field="output") from None
    say(f"completion is installed in {path}: start a new shell to use it")


def _known(shell: Shell | None) -> Shell:
    try:
        return shell or detect_shell()
    except ShellDetectionError:
        raise ValidationError("which shell? Name bash, zsh, fish or powershell", field="shell") from None
