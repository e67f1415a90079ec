"""The reference names everything that the code has, with its value, and nothing that it has not.

What a page can be compared with is taken from the package and never written down here a second time.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from pathlib import Path
from typing import Any, Final

import pytest

import holdfast
from holdfast import errors, model, registry, rules
from holdfast.audit import results
from holdfast.wire.errors import NUMBERS
from tools.pages import schema

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = [
    *map(ROOT.joinpath, ("README.md", "CONTRIBUTING.md", "examples/README.md")),
    *sorted(DOCS.rglob("*.md")),
]

_NAME: Final = re.compile(r"(?<![\w./\"'-])holdfast((?:\.[A-Za-z_]\w*)+)")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def read(name: str) -> str:
    """The text of a page below docs."""
    return (DOCS / name).read_text(encoding="utf-8")


def table_rows(text: str) -> list[list[str]]:
    """The cells of every row of every table, without the marks of code."""
    return [
        [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("|") and not set(line) <= set("|-: ")
    ]


def first_column(text: str) -> list[str]:
    """The first cells of the first table, without its heading."""
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [row[0] for row in table_rows(table[0] if table else "")[1:]]


def section(text: str, title: str) -> str:
    """What stands below a heading, up to the next one of its depth or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n", text, re.MULTILINE)
    assert found is not None, f"there is no section {title!r}"
    depth = len(found[1])
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{depth}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def headings(text: str) -> set[str]:
    """The anchors of a page's headings, as renderers make them."""
    without_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_every_number_of_an_error_is_in_the_reference() -> None:
    """The page about NATS has the number of every code, and no other."""
    rows = table_rows(section(read("reference/nats.md"), "Errors"))
    told = {code.strip(" `"): int(row[0]) for row in rows if row[0].isdecimal() for code in row[1].split(",")}
    assert told == NUMBERS
    assert set(NUMBERS) == {kind.code for kind in errors.error_classes()}


def test_every_limit_is_in_the_reference() -> None:
    """A caller finds every limit with its value, and no limit that does not exist."""
    rows = {row[0]: row[1] for row in table_rows(read("reference/rules.md")) if row[0].isupper()}
    limits = {
        name: value
        for name, value in vars(rules).items()
        if name.isupper() and name[0] != "_" and type(value) is int
    }
    assert rows == {name: f"{value:,}" for name, value in limits.items()}


def test_every_form_is_in_the_reference() -> None:
    """The patterns that names must match are shown as the code has them."""
    page = read("reference/rules.md")
    for pattern in vars(rules).values():
        if isinstance(pattern, re.Pattern):
            assert f"`{pattern.pattern}`" in page


def verbs() -> list[str]:
    """The names of the verbs."""
    return [name for name, _ in inspect.getmembers(holdfast.KV, inspect.isfunction) if name[0] != "_"]


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_is_in_the_reference(verb: str) -> None:
    """The section of a verb shows the call with all arguments and their defaults, as the code has them."""
    text = section(read("reference/verbs.md") + read("reference/recipes.md"), verb)
    calls = []
    for parameter in inspect.signature(getattr(holdfast.KV, verb)).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            calls.append(f"**{parameter.name}")
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in calls:
            calls.append("*")
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}".replace("'", '"')
        calls.append(parameter.name + default)
    assert text.strip().startswith(f"`{verb}({', '.join(calls)})`")


def test_no_verb_is_invented() -> None:
    """A section that shows a call is that of a verb, of a recipe or of a method of the store."""
    known = {*verbs(), "open", *(name for name in vars(holdfast.Store) if name[0] != "_")}
    pages = read("reference/verbs.md") + read("reference/recipes.md")
    shown = re.findall(r"^`(\w+)\(", pages, re.MULTILINE)
    assert set(shown) <= known


@pytest.mark.parametrize(
    ("page", "struct"),
    [
        ("reference/entry.md", model.Entry),
        ("reference/entry.md", model.Semantics),
        ("reference/journal.md", model.Change),
        ("reference/journal.md", model.Changes),
        ("reference/verbs.md", model.Page),
        ("reference/verbs.md", model.Stats),
        ("reference/verbs.md", model.Rescued),
        ("reference/verbs.md", model.Letter),
        ("reference/verbs.md", model.LetterPage),
        ("reference/verbs.md", model.TrashEntry),
        ("reference/verbs.md", model.TrashPage),
        ("reference/policies.md", model.Policy),
        ("reference/audit.md", results.AuditEntry),
        ("reference/audit.md", results.AuditPage),
        ("reference/audit.md", results.Verdict),
    ],
)
def test_every_field_is_in_the_reference(page: str, struct: type[Any]) -> None:
    """What a caller is given is described field by field, in order."""
    assert first_column(section(read(page), struct.__name__)) == list(struct.__struct_fields__)


def test_every_table_is_in_the_reference() -> None:
    """An operator who reads with SQL finds every table and column."""
    page = read("reference/schema.md")
    tables = [table for table in schema.metadata.sorted_tables if table is not schema.plugin_kv]
    for table in tables:
        assert first_column(section(page, table.name)) == [column.name for column in table.columns]
    assert len(tables) == 6
    assert headings(page) >= {"plugin_kv", "holdfast_alembic_version"}


def test_every_scheme_is_in_the_reference() -> None:
    """Every form of URL that opens a store is listed."""
    page = read("reference/urls.md")
    for scheme in (*registry.BACKENDS, *registry.DRIVERS):
        assert f"`{scheme}://" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """A link within the repository leads to a file that is there, and to a heading in it."""
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.is_relative_to(ROOT), target
        assert path.is_file(), target
        if anchor:
            assert anchor in headings(path.read_text(encoding="utf-8")), target


def test_every_page_can_be_reached() -> None:
    """The index leads to every page."""
    linked = {(DOCS / target).resolve() for target in _LINK.findall(read("index.md")) if "://" not in target}
    assert linked >= set(DOCS.rglob("*.md")) - {DOCS / "index.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_exist(page: Path) -> None:
    """A page speaks of no name of the package that is not there."""
    for found in _NAME.finditer(page.read_text(encoding="utf-8")):
        if found[0] not in loggers():
            assert exists(found[1][1:].split(".")), found[0]


@functools.cache
def loggers() -> set[str]:
    """The names of all loggers of the package."""
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    return set(re.findall(r'getLogger\("([\w.]+)"\)', sources))


def exists(parts: list[str]) -> bool:
    """Whether the package has a module, class or member of this dotted name."""
    here: Any = holdfast
    for number, part in enumerate(parts):
        if not hasattr(here, part):
            try:
                importlib.import_module(".".join(["holdfast", *parts[: number + 1]]))
            except ModuleNotFoundError:
                return part in getattr(here, "__struct_fields__", ())
        here = getattr(here, part)
    return True


def test_the_check_of_names_finds_them() -> None:
    """The test above proves nothing about names that it does not see."""
    assert [found[1] for found in _NAME.finditer("see `holdfast.KV.get` and holdfast.open(1).")] == [
        ".KV.get",
        ".open",
    ]
    assert exists(["engines", "memory", "MemoryEngine"])
    assert exists(["Entry", "version"])
    assert not exists(["KV", "nothing"])
    assert not exists(["nowhere", "nothing"])
