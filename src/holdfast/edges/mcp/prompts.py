"""Prompts: how agents claim a task and hand it over, with the tools of this server.

A prompt only uses tools that are declared. What it asks for is safe against a second agent that follows the
same prompt at the same time.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.errors import MissingField, ValidationError


class Argument(msgspec.Struct, frozen=True):
    """An argument of a prompt."""

    name: str
    help: str
    required: bool = True


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt. `tools` are those that its text names."""

    name: str
    title: str
    help: str
    arguments: tuple[Argument, ...]
    tools: tuple[str, ...]
    text: str

    def filled(self, arguments: dict[str, str]) -> str:
        """Return the text with its arguments.

        Raises:
            MissingField: A required argument is missing.
            ValidationError: There is no such argument.
        """
        known = {argument.name for argument in self.arguments}
        if unknown := sorted(arguments.keys() - known):
            raise ValidationError(f"the prompt has no argument {unknown[0][:60]!a}", field=unknown[0][:60])
        for argument in self.arguments:
            if argument.required and not arguments.get(argument.name, "").strip():
                raise MissingField(f"the prompt needs the argument {argument.name}", field=argument.name)
        return self.text.format_map(
            {argument.name: arguments.get(argument.name, "") for argument in self.arguments}
        )


_CLAIM: Final = """\
Claim the task "{task}" and work on it, so that no other agent does the same work.

1. Call lock_acquire with name "task/{task}". If acquired is false, another agent has the task: do not \
work on it; tell me who holds it and until when, and stop.
2. Remember the token. Every write for this task must carry fence {{"lock": "task/{task}", "token": \
<token>}}. A write that is refused with FENCED means that you have lost the task: stop at once and tell me.
3. Call checkpoint_load with name "task/{task}". If it exists, go on from what it says and do not repeat \
what is done. Remember its version.
4. Work in small steps. After each step call checkpoint_save with the version that you have as \
expected_version and with the fence. If it answers with a conflict, read current, and go on from there.
5. Call lock_renew well before expires_at, at the latest after half the time. If renewed is false, stop.
6. When all is done, save a last checkpoint with {{"state": "done"}} in it, then call lock_release.
"""

_HAND_OVER: Final = """\
Hand over the task "{task}" to the next agent, so that it can go on without asking you.

1. Call checkpoint_load with name "task/{task}" and remember its version; it is 0 if there is no \
checkpoint.
2. Call checkpoint_save with that version as expected_version and, if you hold the lock of the task, with \
fence {{"lock": "task/{task}", "token": <token>}}. The value is an object with: "state": "handed over"; \
"done": what is finished, with the keys where results are; "next": the next steps, in order; "open": \
questions and what you tried in vain; "notes": {notes!r} and anything else that the next agent must know. \
Write facts, not intentions.
3. If it answers with a conflict, another agent has saved meanwhile: read current, put both together, and \
save with its version.
4. Only then call lock_release with name "task/{task}" and your token, so that the next agent can claim \
the task.
5. Tell me the version of the checkpoint.
"""

_TASK: Final = Argument(
    "task", "The name of the task: a-z, 0-9, '.', '_' and '-', with '/' between components."
)
_DECLARED: Final = (
    Prompt(
        name="claim_task",
        title="Claim a task",
        help="Take a task so that no other agent works on it, go on from its checkpoint, and keep the lease.",
        arguments=(_TASK,),
        tools=("lock_acquire", "lock_renew", "lock_release", "checkpoint_load", "checkpoint_save"),
        text=_CLAIM,
    ),
    Prompt(
        name="hand_over",
        title="Hand over a task",
        help="Save what is done and what comes next, then release the task for the next agent.",
        arguments=(_TASK, Argument("notes", "What the next agent must know.", required=False)),
        tools=("lock_release", "checkpoint_load", "checkpoint_save"),
        text=_HAND_OVER,
    ),
)

PROMPTS: Final[dict[str, Prompt]] = {prompt.name: prompt for prompt in _DECLARED}
"""Every prompt by its name."""
