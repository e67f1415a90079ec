"""`./dev screenshots`: pictures of every page, light and dark, wide and narrow, for the documentation.

The pages show a sample store, and nothing in a picture depends on the machine that took it except the
names of tokens and times. A picture is small enough for a repository.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests import browser as harness
from tests.console import sample
from tests.console.browsing.ground import console
from tests.console.pictures import smaller

if TYPE_CHECKING:
    from playwright.async_api import Page

OUT: Final = harness.ROOT / "docs" / "assets" / "console"
PAGES: Final = {
    "overview": "/",
    "browse": "/ui/kv/trivia",
    "entry": "/ui/kv/trivia/player:ada",
    "live": "/ui/live?namespace=kv/trivia",
    "inbox": "/ui/inbox",
    "audit": "/ui/audit?namespace=semantic/acme/search",
    "tables": "/ui/tables/arcade/scores",
    "item": "/ui/tables/arcade/scores/item?partition=asteroids&sort=4120",
    "blobs": "/ui/blobs/media",
    "policy": "/ui/policies/kv/trivia?try=1&quota_keys=12&ttl_required=true",
    "tokens": "/ui/tokens",
    "settings": "/ui/settings",
}
MOST_BYTES: Final = 1_500_000
"""Maximum number of bytes of all pictures together."""
LOOKS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("light", {"size": harness.WIDE, "theme": "light"}),
    ("dark", {"size": harness.WIDE, "theme": "dark"}),
    ("narrow-light", {"size": harness.NARROW, "theme": "light"}),
    ("narrow-dark", {"size": harness.NARROW, "theme": "dark"}),
)


async def take(folder: Path, names: list[str]) -> list[Path]:
    """Take the pictures of these pages, and return their files."""
    taken = []
    async with contextlib.AsyncExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-screenshots-"))
        service = await stack.enter_async_context(console(Path(data)))
        await stack.enter_async_context(sample.locked(service.store))
        sample.traffic(service.service.recent, service.store.now())
        browser = await stack.enter_async_context(harness.chromium())
        desk = await browser.new_page()
        for look, options in LOOKS:
            async with harness.window(browser, service.url, **options) as window:
                await service.enter(window)
                taken += [await _picture(window, desk, folder, f"{name}-{look}") for name in names]
    return taken


async def _picture(window: harness.Window, desk: Page, folder: Path, name: str) -> Path:
    await window.open(PAGES[name.partition("-")[0]])
    taken = await window.page.screenshot(animations="disabled", caret="hide", scale="css")
    file = folder / f"{name}.png"
    file.write_bytes(await smaller(desk, taken))
    return file


def main(names: list[str]) -> int:
    """Take the pictures of these pages, or of all."""
    unknown = [name for name in names if name not in PAGES]
    if unknown:
        print(f"there is no page {unknown[0]}; known are {', '.join(PAGES)}", file=sys.stderr)
        return 2
    if harness.program() is None:
        print(harness.NO_BROWSER, file=sys.stderr)
        return 1
    OUT.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(OUT, names or list(PAGES)))
    total = sum(file.stat().st_size for file in OUT.glob("*.png"))
    print(f"{len(list(OUT.glob('*.png')))} pictures, {total:,} bytes, in {OUT.relative_to(harness.ROOT)}")
    return total > MOST_BYTES


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
