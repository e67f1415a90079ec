"""`holdfast completion` and `--install-completion`: Tab completion of commands, options, namespaces and keys.

Law: in bash, zsh and fish the script asks `holdfast complete`, so keys come from the store that the line
names. PowerShell completes commands and options alone.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final, Literal

from cyclopts.completion.detect import ShellDetectionError, detect_shell

from holdfast.edges.cli.app import app
from holdfast.edges.cli.commands.transfer import require_free
from holdfast.edges.cli.completing import offers
from holdfast.edges.cli.output import file_trouble, line, say
from holdfast.edges.cli.target import HERE
from holdfast.errors import ValidationError

Shell = Literal["bash", "zsh", "fish", "powershell"]

_BASH: Final = r"""_holdfast() {
    local line="${COMP_LINE:0:COMP_POINT}" word
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$(printf %q "$word")")
    done < <(holdfast complete -- "$line" 2>/dev/null)
    # Readline takes what follows a colon for a new word.
    local typed="${line##* }"
    if [[ $typed == *:* && $COMP_WORDBREAKS == *:* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${typed%"${typed##*:}"}"}")
    fi
}
complete -o default -F _holdfast holdfast
"""
_ZSH: Final = r"""#compdef holdfast
_holdfast() {
    local -a offered
    offered=("${(@f)$(holdfast complete -- "$LBUFFER" 2>/dev/null)}")
    offered=("${(@)offered:#}")
    if (( $#offered )); then
        compadd -a offered
    else
        _files
    fi
}
if [ "$funcstack[1]" = "_holdfast" ]; then _holdfast "$@"; else compdef _holdfast holdfast; fi
"""
_FISH: Final = r"""function __holdfast_complete
    set -l offered (holdfast complete -- (commandline -cp) 2>/dev/null)
    if test (count $offered) -gt 0
        printf '%s\n' $offered
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c holdfast -f -a '(__holdfast_complete)'
"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(shell: Shell | None = None, /) -> None:
    """Print the script that completes commands, options and keys.

    Parameters
    ----------
    shell
        The shell it is for; the one that this runs in if not given.
    """
    line(_script(_known(shell)))


def install(*, shell: Shell | None = None, output: Path | None = None, force: bool = False) -> None:
    """Install the script that completes commands, options and keys.

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
    known = _known(shell)
    try:
        path = app.install_completion(shell=known, output=output)
        path.write_text(_script(known), encoding="utf-8")
    except OSError as error:
        raise file_trouble(error, error.filename, field="output") from None
    say(f"completion is installed in {path}: start a new shell to use it")


async def complete(text: str, /) -> None:
    """Print how the last word of a command line may go on, a line each.

    Parameters
    ----------
    text
        The command line up to the cursor.
    """
    for offer in await offers(text, HERE):
        [word] = shlex.split(offer.text) or [""]
        if word.isprintable():
            line(word)


def _script(shell: Shell) -> str:
    return _SCRIPTS.get(shell) or app.generate_completion(shell=shell)


def _known(shell: Shell | None) -> Shell:
    try:
        return shell or detect_shell()
    except ShellDetectionError:
        raise ValidationError("which shell? Name bash, zsh, fish or powershell", field="shell") from None
