"""Write all generated pages and files anew: `./dev pages`."""

from __future__ import annotations

from tools.pages.generated import ROOT, generated

if __name__ == "__main__":
    for path, text in generated().items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))
