"""The docstrings of the handles say what a caller needs, and their examples run.

Which classes and functions are meant is read from the pages of the API reference, and what they take
from their signatures.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import holdfast
from holdfast import errors
from holdfast.testing.conformance import Conformance
from tests.docs.api_pages import API, defined_in, resolved, shown

PAGES: Final = {"store", "kv", "tables", "recipes", "results", "testing"}
"""The pages of the API reference for users of Holdfast; those who write engines have their own guide."""
_SECTION: Final = re.compile(r"^(Args|Returns|Yields|Raises|Example):\n((?:    .*\n|\n)*)", re.MULTILINE)
_MEMBER: Final = re.compile(r"^    ([*\w]+): ", re.MULTILINE)
_QUESTION: Final = re.compile(r"(What|How|Whether|Who|Which|Where|When|Why|See)\b")


def subjects() -> dict[str, Any]:
    """Every class and function of these pages, and every public method of these classes, by name."""
    found: dict[str, Any] = {}
    for one in (resolved(name) for page in API if page.stem in PAGES for name in shown(page)):
        for part in defined_in(one) if inspect.ismodule(one) else [one]:
            if inspect.isfunction(part) or (inspect.isclass(part) and part is not Conformance):
                found[part.__name__] = part
                found |= {f"{part.__name__}.{name}": member for name, member in methods(part)}
    return found


def methods(one: Any) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class that Holdfast defines, inherited ones included."""
    ours = [kind for kind in reversed(getattr(one, "__mro__", ())) if kind.__module__.startswith("holdfast")]
    for name in {name: None for kind in ours for name in vars(kind) if name[0] != "_"}:
        member = inspect.getattr_static(one, name)
        if inspect.isfunction(member) or isinstance(member, property):
            yield name, member


SUBJECTS: Final = subjects()
CALLS: Final = {name: one for name, one in SUBJECTS.items() if inspect.isfunction(one)}


def sections(one: Any) -> dict[str, str]:
    """The sections of a docstring by their names."""
    return dict(_SECTION.findall(f"{inspect.getdoc(one)}\n"))


def parameters(call: Any) -> list[str]:
    """The parameters of a call as a docstring spells them."""
    given = inspect.signature(call).parameters.values()
    return [
        f"**{one.name}" if one.kind is one.VAR_KEYWORD else one.name for one in given if one.name != "self"
    ]


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    """A reader of the API reference is told at once what a thing does or is."""
    texts = {name: inspect.getdoc(one) or "" for name, one in SUBJECTS.items()}
    assert {name: text for name, text in texts.items() if not text or _QUESTION.match(text)} == {}


def test_every_parameter_is_documented() -> None:
    """A call names each of its parameters under Args, in order, and none that it does not have."""
    told = {name: _MEMBER.findall(sections(call).get("Args", "")) for name, call in CALLS.items()}
    assert told == {name: parameters(call) for name, call in CALLS.items()}


def test_every_result_is_documented() -> None:
    """A call that returns nothing has no section about it, and one with parameters says what it returns."""
    for name, call in CALLS.items():
        told = bool(sections(call).keys() & {"Returns", "Yields"})
        returns = inspect.signature(call).return_annotation != "None"
        assert told == returns or (returns and not parameters(call)), name


def test_every_error_exists() -> None:
    """Whatever a docstring says is raised is an exception that a caller can catch."""
    for one in SUBJECTS.values():
        for error in _MEMBER.findall(sections(one).get("Raises", "")):
            kind = getattr(errors, error, None) or getattr(builtins, error)
            assert issubclass(kind, Exception)


def test_these_checks_see_the_handles() -> None:
    """The tests above prove nothing about what they do not look at."""
    assert CALLS.keys() >= {"open", "KV.set", "KV.watch", "Tables.put_item", "Store.stats", "Lock.acquire"}
    assert SUBJECTS.keys() >= {"Entry", "Page.count", "ManualClock.advance", "refusal"}
    assert parameters(holdfast.KV.get_ttl) == ["key"]
    assert parameters(holdfast.KV.delete) == ["key", "expected_version", "**provenance"]
    assert sections(holdfast.KV.get).keys() == {"Args", "Returns", "Raises"}


EXAMPLES: Final = {
    name: sections(one)["Example"] for name, one in SUBJECTS.items() if "Example" in sections(one)
}


def test_there_are_examples() -> None:
    """The calls that are not obvious show one line of code."""
    assert {"open", "KV.batch", "KV.update", "Tables.query", "Retry.update", "Lock"} <= EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
async def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of a docstring does what a reader expects: it runs."""
    monkeypatch.chdir(tmp_path)
    line = re.fullmatch(r"    `(.+)`\n+", EXAMPLES[name])
    assert line is not None, EXAMPLES[name]
    code = compile(line[1], name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with holdfast.open("memory://", audit_key="signs-the-audit-of-tests-alone") as store:
        kv, tables = store.kv("trivia"), store.tables("trivia")
        await kv.set("game:42", {"turn": "alice"})
        await tables.create_table("scores", partition_key=("user", "string"), sort_key=("at", "number"))
        await tables.create_index("scores", "by-points", key=("points", "number"))
        await tables.put_item("scores", {"user": "alice", "at": 7, "points": 3})
        names = {"holdfast": holdfast, "store": store, "kv": kv, "tables": tables}
        names |= {"lock": kv.lock("import"), "progress": kv.checkpoint("import")}
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result
        if names.get("taken"):
            await names["lock"].release()  # type: ignore[attr-defined]
