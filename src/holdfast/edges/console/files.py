"""The files of the console: scripts, styles and the icon, and the page that loads them.

A file never changes under its address, because the address has the hash of all files. The page holds no data,
so it may be shown to everyone. Files are read and compressed once, when the first is asked for.
The first paint waits for one stylesheet, which is made of all, and for one script, which loads the others
after it.
"""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import msgspec

STATIC: Final = "/ui/static/"
_TYPES: Final = {
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
    "txt": b"text/plain; charset=utf-8",
    "md": b"text/plain; charset=utf-8",
}
_IMPORT: Final = re.compile(r'^import .* from "(\.[^"]+)";$', re.MULTILINE)
_STYLES: Final = ("parts.css", "keys.css", "console.css", "operators.css", "overview.css")
"""The stylesheets, in the order in which they apply."""
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Holdfast</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="{root}icon.svg" type="image/svg+xml">
<script src="{root}first.js" data-root="{root}" data-scripts="{scripts}"></script>
<link rel="stylesheet" href="{root}all.css">
</head>
<body>
<a class="skip" href="#main">Skip to content</a>
<div id="app">
<nav class="rail" aria-label="Pages"><span class="brand"><span class="mark"></span>Holdfast</span></nav>
<div class="page"><header class="bar"></header><main id="main"><p class="muted loading">Loading…</p>
<noscript><p class="note">The console needs JavaScript. Every page is also JSON: ask for its address with the
header Accept: application/json.</p></noscript></main></div>
</div>
</body>
</html>
"""


class File(msgspec.Struct, frozen=True):
    """A file: its media type, its bytes, and its bytes compressed."""

    kind: bytes
    plain: bytes
    zipped: bytes


class Site:
    """All files by path, and the pages that load them.

    Args:
        files: The files.
    """

    def __init__(self, files: dict[str, File]) -> None:
        self.files = files
        total = hashlib.sha256()
        for name in sorted(files):
            total.update(name.encode() + b"\0" + hashlib.sha256(files[name].plain).digest())
        self.tag = total.hexdigest()[:12]
        """The hash of all files, which is in their addresses."""
        self._pages: dict[str, File] = {}

    def find(self, path: str) -> File | None:
        """Return the file at an address; None if there is none, or if the address is of another version."""
        tag, _, name = path.removeprefix(STATIC).partition("/")
        return self.files.get(name) if tag == self.tag else None

    def page(self, name: str) -> File:
        """Return the page that loads the scripts of a page of the console, all of them at once."""
        page = self._pages.get(name)
        if page is None:
            root = f"{STATIC}{self.tag}/"
            scripts = sorted(self._needed("app.js") | self._needed(f"pages/{name}.js"))
            text = _PAGE.format(root=root, scripts=" ".join(scripts))
            page = self._pages[name] = _file(b"text/html; charset=utf-8", text.encode())
        return page

    def _needed(self, name: str) -> set[str]:
        """Return a script and all that it imports."""
        needed: set[str] = set()
        left = [name]
        while left:
            script = left.pop()
            if script in needed or script not in self.files:
                continue
            needed.add(script)
            imports = _IMPORT.findall(self.files[script].plain.decode())
            left += [posixpath.normpath(posixpath.join(posixpath.dirname(script), one)) for one in imports]
        return needed


@cache
def site() -> Site:
    """Return the files of the console."""
    by_path = dict(_walk(files("holdfast.edges.console").joinpath("static"), ""))
    styles = b"".join(by_path.pop(name).plain for name in _STYLES)
    return Site(by_path | {"all.css": _file(_TYPES["css"], styles)})


def _walk(folder: Traversable, path: str) -> list[tuple[str, File]]:
    walked: list[tuple[str, File]] = []
    for one in folder.iterdir():
        if one.is_dir():
            walked += _walk(one, f"{path}{one.name}/")
        elif (kind := _TYPES.get(one.name.rpartition(".")[2])) is not None:
            walked.append((path + one.name, _file(kind, one.read_bytes())))
    return walked


def _file(kind: bytes, plain: bytes) -> File:
    return File(kind, plain, gzip.compress(plain, 9, mtime=0))
