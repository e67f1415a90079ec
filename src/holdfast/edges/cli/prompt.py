"""The prompt: an editable line with completion and a history.

Only this module knows the library for prompts. The history holds the typed lines in a file that only its
owner can read; without such a file, the history ends with the prompt.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

from holdfast import private
from holdfast.edges.cli.commands.commands import offers
from holdfast.edges.cli.commands.commands import typed as taken_apart
from holdfast.edges.cli.output import say
from holdfast.edges.cli.target import Target
from holdfast.edges.screen import HARMFUL, harmless

_FILE: Final = "shell-history"


async def typed(target: Target) -> AsyncIterator[str]:
    """Yield the typed lines until Ctrl-D; lines cleared by Ctrl-C are skipped."""
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
    """Return the path of the history."""
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
        """Store a line unless it starts with a space, which keeps a typed secret out of the history."""
        if not string.startswith(" "):
            super().store_string(string)


class _Names(Completer):
    def __init__(self, target: Target) -> None:
        self._target = target

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Return nothing: all completions are asynchronous."""
        return iter(())

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield completions of the word before the cursor."""
        text = document.text_before_cursor
        replaced = taken_apart(text).start - len(text)
        for offer in await offers(text, self._target):
            yield Completion(offer.text, start_position=replaced, display=offer.shown)


class _Harmless(Processor):
    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Replace each character that could affect a terminal with a mark, so that positions are kept."""
        mark = "\N{REPLACEMENT CHARACTER}"
        fragments = transformation_input.fragments
        return Transformation([(fragment[0], HARMFUL.sub(mark, fragment[1])) for fragment in fragments])


def _where(target: Target) -> str:
    """Return the chosen namespace for the prompt, if any."""
    plugin, tenant, project = target.chosen
    name = f"{tenant}/{project}" if tenant and project else plugin
    return f" {harmless(name)}" if name else ""
