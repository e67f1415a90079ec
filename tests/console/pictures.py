"""Small PNG files: at most 256 colours, packed tightly.

Only how a picture is stored; nothing about what it shows. The browser reads the pixels, since it is
there anyway and no library for images is.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from playwright.async_api import Page

_COUNT: Final = """
async (encoded) => {
  const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], {type: "image/png"}));
  const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
  context.drawImage(image, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
  const split = (pixel) => [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255];
  const common = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 256).map(([pixel]) => split(pixel));
  const nearest = new Map();
  for (const pixel of counts.keys()) {
    const [r, g, b] = split(pixel);
    let best = 0, least = Infinity;
    common.forEach(([x, y, z], index) => {
      const far = (r - x) ** 2 + (g - y) ** 2 + (b - z) ** 2;
      if (far < least) [best, least] = [index, far];
    });
    nearest.set(pixel, best);
  }
  let text = "";
  const indexes = Uint8Array.from(pixels, (pixel) => nearest.get(pixel));
  for (let at = 0; at < indexes.length; at += 32768) {
    text += String.fromCharCode(...indexes.subarray(at, at + 32768));
  }
  return {width: image.width, height: image.height, palette: common.flat(), indexes: btoa(text)};
}
"""


async def smaller(page: Page, picture: bytes) -> bytes:
    """Return a PNG with the 256 most common colours of another one."""
    found: dict[str, Any] = await page.evaluate(_COUNT, base64.b64encode(picture).decode())
    width, height = found["width"], found["height"]
    indexes = base64.b64decode(found["indexes"])
    rows = b"".join(b"\0" + indexes[at : at + width] for at in range(0, width * height, width))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = (
        (b"IHDR", head),
        (b"PLTE", bytes(found["palette"])),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in parts)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
