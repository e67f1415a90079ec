"""Builds the documentation site from docs/, or serves it on this machine while pages are written.

Docs/index.md is the only list of pages, and the navigation is made of it. No page makes a browser fetch
anything from another server. This file needs nothing but the standard library; the generator that it starts
is installed by `./dev docs`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ROOT / "mkdocs.yml"
INDEX = ROOT / "docs" / "index.md"
MADE = ROOT / ".mkdocs.yml"
"""The configuration with its navigation. The generator wants it above all files that it reads."""
SITE = ROOT / ".dev" / "site"
GENERATOR = [sys.executable, "-m", "zensical"]
HOST = "127.0.0.1"
PORT = 8000

_LINE = re.compile(
    r"^(?:(?P<marks>##+) (?P<title>.+)|- \[(?P<name>[^\]]+)\]\((?P<page>[^)#]+\.md)\).*)$", re.M
)

_FETCHED = re.compile(
    r'<(?:link|script|img|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"|class="mermaid"'
)
"""What makes a browser ask another server; the theme loads what draws Mermaid's pictures from one."""

Entries = list[dict[str, Any]]


def navigation(index: str) -> Entries:
    """Return the navigation that an index page describes.

    A heading becomes a section, a deeper heading a section within it, and each line of a list that begins
    with a link becomes an entry with the name of the link.
    """
    top: Entries = [{"Overview": "index.md"}]
    open_sections = {1: top}
    for line in _LINE.finditer(index):
        if line["marks"]:
            depth = len(line["marks"])
            open_sections = {level: part for level, part in open_sections.items() if level < depth}
            open_sections[depth] = []
            innermost(open_sections, below=depth).append({line["title"]: open_sections[depth]})
        else:
            innermost(open_sections).append({line["name"]: line["page"]})
    return top


def innermost(sections: dict[int, Entries], *, below: int = 7) -> Entries:
    """Return the deepest of the open sections that lies above a level."""
    return sections[max(level for level in sections if level < below)]


def configuration(settings: str, index: str) -> str:
    """Return the settings of the site with its navigation, as the generator reads them."""
    # JSON is YAML too, so no library is needed to write it.
    return f"{settings}\nnav: {json.dumps(navigation(index))}\n"


def prepare() -> None:
    """Write the configuration that the generator reads."""
    settings, index = (path.read_text(encoding="utf-8") for path in (SETTINGS, INDEX))
    MADE.write_text(configuration(settings, index), encoding="utf-8")


def build() -> int:
    """Build the site and return 0, or another exit code if a link or a name leads nowhere."""
    # A page that was taken away would stay in the folder for ever.
    shutil.rmtree(SITE, ignore_errors=True)
    prepare()
    command = [*GENERATOR, "build", "--strict", "--clean", "--config-file", str(MADE)]
    if code := subprocess.run(command, cwd=ROOT, check=False).returncode:
        say("the site was not built; the first message above says why")
        return code
    found = fetched(SITE)
    for line in found:
        say(line)
    say(f"the site is in {os.path.relpath(SITE)}; ./dev docs --serve shows it in a browser")
    return bool(found)


def fetched(site: Path) -> list[str]:
    """Return one sentence for everything that the pages of a site fetch from other servers."""
    return [
        f"{page.relative_to(site)} fetches from another server: {part}"
        for page in sorted(site.rglob("*.html"))
        for part in _FETCHED.findall(page.read_text(encoding="utf-8"))
    ]


def serve() -> None:
    """Become a server of the site for this machine alone, which builds a page anew when its file changes."""
    port = free_port()
    say(f"the site is at http://{HOST}:{port}/ until Ctrl-C; start again after a change to docs/index.md")
    prepare()
    command = [*GENERATOR, "serve", "--config-file", str(MADE), "--dev-addr", f"{HOST}:{port}"]
    os.chdir(ROOT)
    os.execv(command[0], command)


def free_port() -> int:
    """Return the usual port, or any other that is free if a program has taken that one."""
    for port in (PORT, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return int(probe.getsockname()[1])
    sys.exit(f"docs: no port of {HOST} is free")


def say(line: str) -> None:
    print(f"docs: {line}", flush=True)


def main(args: list[str]) -> int:
    match args:
        case ["build"]:
            return build()
        case ["serve"]:
            serve()
        case _:
            sys.exit("docs: give one of: build, serve")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
