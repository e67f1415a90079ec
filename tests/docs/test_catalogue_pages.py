"""What is generated is up to date, and the tables of verbs and fields are those of the catalogue."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, Final, get_type_hints

import pytest

from holdfast.edges.calls import tables
from holdfast.handles.tables import Tables
from holdfast.verbs.fields import Viewing
from holdfast.verbs.tables import Expecting, Walk
from tools.pages.generated import BLOCKS, ROOT, generated, with_blocks
from tools.pages.verbs import own_fields

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
REFERENCE: Final = DOCS / "reference"
SPELLED_IN_PYTHON: Final = {"sort_key_condition": "sk", "index_key": "key", "last_writer": "writer"}
"""Fields of calls about tables that are called otherwise in Python, as the page says."""
FOR_NATS_ALONE: Final = {
    "binary": tables.VERBS.keys(),
    "return_values": {"set_ttl", "remove_ttl"},
    "table": {"transact_write"},
}
"""Fields that verbs have over NATS alone, as the page says."""
GROUPS: Final[dict[str, Any]] = {"walk": Walk, "expecting": Expecting, "viewing": Viewing}
"""What arguments with these names stand for in a signature."""


def test_generated_files_are_up_to_date() -> None:
    """Pages, documents, example files, pictures and DDL are what `./dev pages` writes."""
    texts = generated()
    stale = [str(path.relative_to(ROOT)) for path, text in texts.items() if path.read_text("utf-8") != text]
    assert stale == [], "run ./dev pages"


def test_every_block_stands_on_a_page() -> None:
    """No block is made that no page shows, and no marker is broken."""
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*/*.md"))
    assert sorted(re.findall(r"<!-- begin (\w+):", pages)) == sorted(BLOCKS)
    assert sorted(re.findall(r"<!-- end (\w+) -->", pages)) == sorted(BLOCKS)


@pytest.mark.parametrize(
    ("page", "shown", "changed"),
    [
        ("verbs.md", "| `get` | reads |", "| `get` | writes |"),
        ("http.md", "`VERSION_CONFLICT`", "`CONFLICT`"),
        ("mcp.md", "| `expected_version` |", "| `version` |"),
        ("settings.md", "| `metrics_prefix` |", "| `prefix` |"),
    ],
)
def test_a_changed_page_is_noticed(page: str, shown: str, changed: str) -> None:
    """The test above fails for a page that says something else."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    other = text.replace(shown, changed)
    assert other != text == with_blocks(other)


@pytest.mark.parametrize("verb", sorted(tables.VERBS.keys() - {"stats"}))
def test_fields_of_tables_are_arguments(verb: str) -> None:
    """Every field of a verb on tables is an argument of that verb in Python, as the page says."""
    text = " ".join((REFERENCE / "tables.md").read_text(encoding="utf-8").split())
    assert all(f"`{field}`, which is `{name}`" in text for field, name in SPELLED_IN_PYTHON.items())
    parameters = set(inspect.signature(getattr(Tables, verb)).parameters)
    for group in parameters & GROUPS.keys():
        parameters |= set(get_type_hints(GROUPS[group]))
    fields = [
        name for name in own_fields(tables.VERBS[verb].fields) if verb not in FOR_NATS_ALONE.get(name, ())
    ]
    assert {SPELLED_IN_PYTHON.get(name, name) for name in fields} <= parameters
