"""The page about the architecture names every folder of the library, and nothing that is not there.

What the page is compared with is taken from the tree, never written down here a second time.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tools import layers

ROOT: Final = Path(__file__).resolve().parents[2]
LIBRARY: Final = ROOT / "src" / "holdfast"
PAGE: Final = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")

_ROW: Final = re.compile(r"^\| `([\w/]+)` \|", re.MULTILINE)
_PATH: Final = re.compile(r"`([\w.-]+(?:/[\w.-]+)+|\w+\.py)`")


def folders() -> set[str]:
    """The folders of the library that hold files."""
    files = (path for path in LIBRARY.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    inside = {path.parent.relative_to(LIBRARY) for path in files}
    return {str(folder) for found in inside for folder in (found, *found.parents)} - {"."}


def there(path: str) -> bool:
    """Whether a path that a page names leads somewhere, from the library or from the repository."""
    return (LIBRARY / path).exists() or (ROOT / path).exists()


def test_the_page_has_every_folder_once() -> None:
    """A reader finds each folder of the library in the table, and no folder that is gone."""
    named = _ROW.findall(PAGE)
    assert set(named) == folders()
    assert len(named) == len(set(named))


def test_every_path_leads_somewhere() -> None:
    """The walks of requests name files that are there."""
    named = _PATH.findall(PAGE)
    assert len(named) > 60
    assert [path for path in named if not there(path)] == []


def test_a_path_that_is_gone_is_noticed() -> None:
    """The test above proves nothing about paths that it does not see or that it takes for granted."""
    assert _PATH.findall("`edges/nats/calls.py` and `kv.py`, not `a b/c` or `Store.kv`") == [
        "edges/nats/calls.py",
        "kv.py",
    ]
    assert there("pipeline/batcher.py")
    assert not there("edges/nats/calls.py")


def test_the_picture_is_drawn_from_the_tree() -> None:
    """The picture has today's layers and docstrings; `./dev pages` draws it anew."""
    assert layers.PICTURE.read_text(encoding="utf-8") == layers.drawn()
    assert {name for layer in layers.layers() for name in layer} == {
        path.stem for path in LIBRARY.iterdir() if path.suffix == ".py" and not path.stem.startswith("__")
    } | {folder for folder in folders() if "/" not in folder}


def test_there_are_at_most_twelve_layers() -> None:
    """A reader can keep the layers in mind."""
    assert len(layers.layers()) <= 12
