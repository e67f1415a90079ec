"""OpenFeature's Gherkin suite for evaluations, with our provider.

The specification has scenarios and the flags that they are about; each SDK brings the steps. These are ours:
they define the flags in a store, and evaluate them with the SDK's client.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest
from gherkin import Compiler, Parser  # type: ignore[import-not-found]
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from openfeature.flag_evaluation import FlagEvaluationDetails, FlagEvaluationOptions
from openfeature.hook import Hook

import holdfast.sync
from holdfast.integrations.openfeature import HoldfastProvider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_TARGETING: Final = "flags have no targeting, so the evaluation context is not looked at"
LEFT_OUT: Final = {
    "@targeting": _TARGETING,
    "@context-handling": _TARGETING,
    "@reason-codes-cached": "an evaluation reads the current value, so no reason says that it is an old one",
    "@reason-codes-disabled": "a flag is set or not set, and not disabled",
    "@provider-status-fatal": "the provider has no fatal state: the store may come back",
    "a fatal provider": "the provider has no fatal state: the store may come back",
    "@immutability": "the details that the SDK returns for Python can be changed",
}
KINDS: Final[dict[str, Callable[[str], Any]]] = {
    "Boolean": lambda text: text == "true",
    "String": str,
    "Integer": int,
    "Float": float,
    "Object": lambda text: json.loads(text.replace('\\"', '"')),
}


class Loading(HoldfastProvider):
    """Our provider, which does not finish loading."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.gate = threading.Event()

    def initialize(self, evaluation_context: EvaluationContext) -> None:
        """Wait, and then load."""
        self.gate.wait()
        super().initialize(evaluation_context)


class Noted(Hook):
    """A hook that writes down its name."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self._name = name
        self._notes = notes

    def before(self, *given: Any, **more: Any) -> None:
        """Write the name down before an evaluation."""
        self._notes.append(self._name)

    def finally_after(self, *given: Any, **more: Any) -> None:
        """Write the name down after an evaluation."""
        self._notes.append(self._name)


class Steps:
    """The state of a scenario; each step is a method whose docstring is its pattern."""

    def __init__(self, flags: dict[str, Any], blocks: contextlib.ExitStack) -> None:
        self._store = blocks.enter_context(holdfast.sync.open("memory://"))
        self._kv = self._store.kv("flags")
        self._blocks = blocks
        self._details: FlagEvaluationDetails[Any]
        self._hooks: list[str] = []
        for name, flag in flags.items():
            if flag.get("defaultVariant") is not None:
                variants, metadata = flag["variants"], flag.get("flagMetadata") or {}
                default = next(iter(variants.values()))
                self._kv.flag(name, default).define(variants, use=flag["defaultVariant"], metadata=metadata)

    def run(self, step: dict[str, Any]) -> None:
        """Run a step of a scenario."""
        for name in dir(self):
            method = getattr(self, name)
            found = re.fullmatch(method.__doc__ or "", step["text"]) if name.startswith("step_") else None
            if found is not None:
                rows = step.get("argument", {}).get("dataTable", {}).get("rows")
                method(*found.groups(), *([] if rows is None else [rows]))
                return
        raise LookupError(f"there is no step for {step['text']!r}")

    def step_provider(self, state: str) -> None:
        """an? (stable|not ready|error|stale) provider"""
        if state == "not ready":
            loading = Loading(self._kv)
            self._blocks.callback(loading.gate.set)
            api.set_provider(loading)
        elif state == "error":
            self._store.close()
            with contextlib.suppress(Exception):
                api.set_provider_and_wait(HoldfastProvider(self._kv))
        else:
            api.set_provider_and_wait(HoldfastProvider(self._kv, stale_after=0 if state == "stale" else 60))
            api.get_client().get_boolean_value("boolean-flag", False)

    def step_status(self, status: str) -> None:
        """the provider status should be "(.*)\""""
        assert api.get_client().get_provider_status().name == status

    def step_flag(self, kind: str, key: str, default: str) -> None:
        """a (.*)-flag with key "(.*)" and a fallback value "(.*)\""""
        self._kind, self._key, self._default = kind, key, KINDS[kind](default)

    def step_evaluated(self) -> None:
        """the flag was evaluated with details"""
        self._evaluate(None)

    def step_hooks(self) -> None:
        """evaluation options containing specific hooks"""
        self._options = FlagEvaluationOptions(hooks=[Noted(name, self._hooks) for name in "ab"])

    def step_with_hooks(self) -> None:
        """the flag was evaluated with details using the evaluation options"""
        self._evaluate(self._options)

    def step_asynchronously(self) -> None:
        """the flag was evaluated with details asynchronously"""
        evaluate = getattr(api.get_client(), f"get_{self._kind.lower()}_details_async")
        self._details = asyncio.run(asyncio.wait_for(evaluate(self._key, self._default), 60))

    def step_not_blocked(self) -> None:
        """the evaluation should complete without blocking"""
        assert self._details.error_code is None

    def step_hooked(self) -> None:
        """the specified hooks should execute during evaluation"""
        assert set(self._hooks) == {"a", "b"}

    def step_hook_order(self) -> None:
        """the hook order should be maintained"""
        assert self._hooks == ["a", "b", "b", "a"]

    def step_value(self, value: str) -> None:
        """the resolved details value should be "(.*)\""""
        assert self._details.value == KINDS[self._kind](value)
        assert type(self._details.value) is type(self._default)

    def step_reason(self, reason: str) -> None:
        """the reason should be "(.*)\""""
        assert str(self._details.reason).rpartition(".")[2] == reason

    def step_error(self, code: str) -> None:
        """the error-code should be "(.*)\""""
        assert self._details.error_code is not None
        assert self._details.error_code.name == code

    def step_key(self, key: str) -> None:
        """the flag key should be "(.*)\""""
        assert self._details.flag_key == key

    def step_variant(self, variant: str) -> None:
        """the variant should be "(.*)\""""
        assert self._details.variant == variant

    def step_metadata(self, rows: list[dict[str, Any]]) -> None:
        """the resolved metadata should contain"""
        for key, kind, value in ([cell["value"] for cell in row["cells"]] for row in rows[1:]):
            assert self._details.flag_metadata[key] == KINDS[kind](value)

    def _evaluate(self, options: FlagEvaluationOptions | None) -> None:
        evaluate = getattr(api.get_client(), f"get_{self._kind.lower()}_details")
        self._details = evaluate(self._key, self._default, flag_evaluation_options=options)


class Scenario(pytest.Item):
    """A scenario with one row of its examples."""

    def __init__(self, *, pickle: dict[str, Any], **more: Any) -> None:
        super().__init__(**more)
        self._pickle = pickle
        tags = [tag["name"] for tag in pickle["tags"]]
        for reason in [LEFT_OUT[one] for one in (*tags, pickle["steps"][-2]["text"]) if one in LEFT_OUT][:1]:
            self.add_marker(pytest.mark.skip(reason=reason))

    def runtest(self) -> None:
        """Run the steps with a store and a provider of their own."""
        flags = json.loads(self.path.with_name("test-flags.json").read_text())
        try:
            with contextlib.ExitStack() as blocks:
                steps = Steps(flags, blocks)
                blocks.callback(api.shutdown)
                for step in self._pickle["steps"]:
                    steps.run(step)
        finally:
            api.clear_providers()

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the scenario is, for pytest's report."""
        return self.path, 0, self.name


class Feature(pytest.File):
    """A file of scenarios."""

    def collect(self) -> Iterator[Scenario]:
        """Yield the scenarios, one for each row of examples."""
        document = {**Parser().parse(self.path.read_text()), "uri": self.path.name}
        for number, pickle in enumerate(Compiler().compile(document)):
            yield Scenario.from_parent(self, name=f"{pickle['name']} {number}", pickle=pickle)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Feature | None:
    """Collect files of scenarios."""
    return Feature.from_parent(parent, path=file_path) if file_path.suffix == ".feature" else None
