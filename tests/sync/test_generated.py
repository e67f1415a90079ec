"""The handles without `await` are those with it, to the last argument."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.sync.facade import Facade
from tools import facade, handles

HANDLES = handles.discover()
LIFE = {"close", "start"}
"""The only methods that a facade has and its handle has not, by this name."""


def classes(name: str) -> tuple[Any, Any]:
    """A class of handles: with `await`, and without."""
    handle = HANDLES[name]
    sync = import_module(f"holdfast.sync.{handle.file}")
    return getattr(import_module(handle.module.name), name), getattr(sync, name)


def public(kind: type) -> set[str]:
    """The public names of a class."""
    return {name for name in dir(kind) if not name.startswith("_")}


def test_generated_files_are_up_to_date() -> None:
    """`python -m tools.facade` was run after the last change of a handle."""
    made = {name: facade.formatted(text) for name, text in facade.generate().items()}
    found = {name: (facade.TARGET / f"{name}.py").read_text() for name in made}
    assert found == made, "run python -m tools.facade"


def test_every_handle_has_a_sync_class() -> None:
    """Whatever a program can get from a store, it can get without asyncio."""
    expected = (
        "Audit Blobs CachedFlag Counter Flag KV Letters Lock Mirror Progress ReaperHandle Retry Store Tables"
    )
    assert set(expected.split()) <= HANDLES.keys()


@pytest.mark.parametrize("name", sorted(HANDLES))
def test_sync_handles_have_the_same_methods(name: str) -> None:
    """A handle has no method that its facade lacks, but for those that only edges call."""
    handle, sync = classes(name)
    assert issubclass(sync, Facade)
    if name == "Store":
        kept = {
            one for one in vars(handle).keys() | vars(handle.__mro__[1]).keys() if not one.startswith("_")
        }
        assert public(sync) - LIFE == kept - handles.FOR_EDGES
    else:
        attributes = public(sync) - public(handle) - LIFE
        edges = {
            member.name
            for where, member in HANDLES[name].members
            if isinstance(member, handles.Function) and not handles.public(where, member, name)
        }
        assert public(handle) - edges <= public(sync)
        assert all(isinstance(inspect.getattr_static(sync, one), property) for one in attributes)


@pytest.mark.parametrize("name", sorted(HANDLES))
def test_sync_handles_take_the_same_arguments(name: str) -> None:
    """A call is written the same way, apart from the `await`; and both are documented, at equal length."""
    handle, sync = classes(name)
    for method in sorted(public(handle) & public(sync) - LIFE):
        one, other = getattr(handle, method), getattr(sync, method)
        if isinstance(inspect.getattr_static(handle, method), property):
            continue
        assert inspect.signature(one).parameters == inspect.signature(other).parameters, method
        assert not inspect.iscoroutinefunction(other), method
        assert other.__doc__, method
        assert not re.search(r"\bawait\b", other.__doc__), method
        assert len(other.__doc__.splitlines()) == len(one.__doc__.splitlines()), method


class Recorder:
    """A handle that keeps the last call: its name and arguments."""

    def __init__(self) -> None:
        self.call: tuple[str, tuple[Any, ...], dict[str, Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        def method(*given: Any, **named: Any) -> Any:
            self.call = (name, given, named)
            return SimpleNamespace(store=None, verbs=SimpleNamespace(namespace=""))

        return method


class Here:
    """A thread that runs nothing elsewhere: the recorder has already answered."""

    running = True

    def run(self, answer: Any, feed: Any = None) -> Any:
        """Return the answer."""
        return answer

    def call(self, function: Any) -> Any:
        """Return the answer of a function."""
        return function()


@pytest.mark.parametrize("name", sorted(HANDLES))
def test_every_call_reaches_the_asynchronous_handle(name: str) -> None:
    """A method passes on all of its arguments, each under its own name, to the method of the same name."""
    _, sync = classes(name)
    own = {method for method in vars(sync) if not method.startswith("_")} - LIFE
    for method in sorted(own - facade.QUICK.get(name, frozenset())):
        if isinstance(inspect.getattr_static(sync, method), property):
            continue
        recorder, one = Recorder(), sync.__new__(sync)
        one._thread, one._handle = Here(), recorder
        kinds = dict(inspect.signature(getattr(one, method)).parameters)
        open_ended = [key for key, kind in kinds.items() if kind.kind is kind.VAR_KEYWORD]
        asked = {key: object() for key in kinds if key not in open_ended}
        more = {"request_id": object()} if open_ended else {}
        getattr(one, method)(**asked, **more)
        assert recorder.call is not None
        called, given, named = recorder.call
        places = [key for key, kind in kinds.items() if kind.kind is kind.POSITIONAL_OR_KEYWORD]
        assert (called, dict(zip(places, given, strict=True)) | named) == (method, asked | more)
