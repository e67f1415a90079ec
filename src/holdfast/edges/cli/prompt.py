"""The prompt itself: a line that can be edited, with completion and a history.

Law: all that is known here of the library for prompts. What the history has is what was typed, in a file that
only its owner can read; where there can be no such file, the history ends with the prompt.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.layout.processors import Processor, Transformation

from holdfast import private
from holdfast.edges.cli.completing import offers
from holdfast.edges.cli.completing import typed as taken_apart
from holdfast.edges.cli.output import say
from holdfast.edges.screen import HARMFUL, harmless

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.layout.processors import TransformationInput

    from holdfast.edges.cli.target import Target

_FILE: Final = "shell-history"


async def typed(target: Target) -> AsyncIterator[str]:
    """The lines that are typed, until Ctrl-D; one that Ctrl-C cleared is none."""
    session: PromptSession[str] = PromptSession(
        f"holdfast{_where(target)}> ",
        history=_history(),
        completer=_Names(target),
        complete_while_typing=False,
        input_processors=[_Harmless()],
        enable_open_in_editor=False,
    )
    while True:
        try:
            yield await session.prompt_async()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def history_file() -> Path:
    """Where the history is kept."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "holdfast" / _FILE


def _history() -> History:
    path = history_file()
    try:
        private.make_folder(path.parent)
        os.close(private.opened(path, os.O_WRONLY | os.O_APPEND))
    except OSError as error:
        say(f"the history of this prompt is not kept: {path}: {(error.strerror or 'no file').lower()}")
        return InMemoryHistory()
    return _OwnHistory(path)


class _OwnHistory(FileHistory):
    def store_string(self, string: str) -> None:
        """Keep a line, unless it begins with a space: so whoever types a secret can keep it out."""
        if not string.startswith(" "):
            super().store_string(string)


class _Names(Completer):
    def __init__(self, target: Target) -> None:
        self._target = target

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """None that could be had without waiting."""
        return iter(())

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """What the word before the cursor could become."""
        text = document.text_before_cursor
        replaced = taken_apart(text).start - len(text)
        for offer in await offers(text, self._target):
            yield Completion(offer.text, start_position=replaced, display=offer.shown)


class _Harmless(Processor):
    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Show a mark in the place of each character that a terminal might obey, so that places stay."""
        mark = "\N{REPLACEMENT CHARACTER}"
        fragments = transformation_input.fragments
        return Transformation([(fragment[0], HARMFUL.sub(mark, fragment[1])) for fragment in fragments])


def _where(target: Target) -> str:
    """The namespace that commands are about, if one was said."""
    plugin, tenant, project = target.chosen
    name = f"{tenant}/{project}" if tenant and project else plugin
    return f" {harmless(name)}" if name else ""
