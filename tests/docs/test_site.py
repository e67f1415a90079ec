"""The documentation site has every page.

What the site needs of files is tested here without the generator. Whether the generator builds it is
tested by `./dev check --network`.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
SITE: Final[dict[str, Any]] = runpy.run_path(str(ROOT / "tools" / "docs_site.py"))


class Settings(yaml.SafeLoader):
    """Reads settings of a generator, which may name functions of Python."""


Settings.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def settings() -> dict[str, Any]:
    """The settings that the generator reads, with the navigation."""
    text = SITE["configuration"](SITE["SETTINGS"].read_text(), SITE["INDEX"].read_text())
    loaded: dict[str, Any] = yaml.load(text, Settings)
    return loaded


def pages_of(entries: list[dict[str, Any]]) -> list[str]:
    """The pages of a navigation, in their order."""
    found: list[str] = []
    for entry in entries:
        for part in entry.values():
            found += [part] if isinstance(part, str) else pages_of(part)
    return found


def test_every_page_is_in_the_navigation() -> None:
    """The navigation has every page of docs once, and none that does not exist."""
    listed = pages_of(settings()["nav"])
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_the_navigation_follows_what_a_reader_wants_to_do() -> None:
    """Pages are grouped by what a reader wants to do; references, explanations and decisions are together."""
    sections = {name: part for entry in settings()["nav"] for name, part in entry.items()}
    folders = {
        name: {page.split("/")[0] for page in pages_of(part)} for name, part in list(sections.items())[1:]
    }
    assert folders == {
        "Use": {"tutorial", "howto"},
        "Agents and frameworks": {"howto"},
        "Run": {"howto"},
        "Move": {"howto"},
        "Extend": {"howto"},
        "Look up": {"reference"},
        "Understand": {"explanation"},
        "Decisions": {"adr"},
    }


def test_navigation_of_an_index() -> None:
    """Headings become sections, deeper ones sections within, and links at the start of a line entries."""
    index = (
        "# Top\n\nSee [this](a.md).\n\n## One\n\n- [A](a.md): see [B](b.md).\n\n"
        "### Deep\n\n- [B: x](b.md)\n\n## Two\n\n- [C](c.md)\n- [elsewhere](https://a.example/b)\n"
    )
    assert SITE["navigation"](index) == [
        {"Overview": "index.md"},
        {"One": [{"A": "a.md"}, {"Deep": [{"B: x": "b.md"}]}]},
        {"Two": [{"C": "c.md"}]},
    ]


def test_settings_of_the_site() -> None:
    """A link that leads nowhere fails the build, there is a search, and no page fetches a font."""
    loaded = settings()
    assert loaded["strict"] is True
    assert loaded["theme"]["font"] is False
    assert [one if isinstance(one, str) else next(iter(one)) for one in loaded["plugins"]] == [
        "search",
        "mkdocstrings",
    ]
    assert SITE["MADE"].parent / loaded["docs_dir"] == DOCS
    assert SITE["MADE"].parent / loaded["site_dir"] == SITE["SITE"]
    # The list of pages is docs/index.md; a second one would have to be kept in step.
    assert "\nnav:" not in SITE["SETTINGS"].read_text()


def test_pages_that_fetch_from_other_servers_are_found(tmp_path: Path) -> None:
    """The build fails if reading a page would tell another server of it; a link to one is allowed."""
    (tmp_path / "fine.html").write_text(
        '<a href="https://a.example/">x</a><script src="assets/x.js"></script>'
    )
    (tmp_path / "script.html").write_text('<script async src="https://a.example/x.js"></script>')
    (tmp_path / "style.html").write_text('<link rel="stylesheet" href="//a.example/x.css">')
    (tmp_path / "picture.html").write_text('<pre class="mermaid"><code>graph</code></pre>')
    found = SITE["fetched"](tmp_path)
    assert [line.split(" ")[0] for line in found] == ["picture.html", "script.html", "style.html"]
