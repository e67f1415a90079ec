"""That no engine escapes the suite.

The registry says which engines there are, the subclasses of the suite which of them it certifies.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from holdfast.registry import BACKENDS
from holdfast.testing.conformance import Conformance


def certified() -> list[type[Conformance]]:
    """Every subclass of the suite in this folder, also those that `./dev soak conformance` runs."""
    folder = Path(__file__).parent
    modules = [
        import_module(f"tests.conformance.{path.stem}")
        for path in (*folder.glob("test_*.py"), *folder.glob("every_*.py"))
    ]
    return [
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Conformance) and kind is not Conformance
    ]


def test_every_registered_engine_is_under_conformance() -> None:
    """An engine that can be opened by a URL is certified, under whichever of its schemes."""
    assert {BACKENDS[kind.scheme] for kind in certified()} == set(BACKENDS.values())


def test_no_engine_is_excused() -> None:
    """An engine is certified by the whole suite: its class replaces none of the tests."""
    for kind in certified():
        replaced = [name for name in vars(kind) if name.startswith("test")]
        assert replaced == [], kind.__name__


def test_every_test_of_the_suite_is_its_own() -> None:
    """No theme hides a test of another by giving one of its own the same name."""
    names = [name for theme in Conformance.__mro__ for name in vars(theme) if name.startswith("test")]
    assert len(names) == len(set(names))
