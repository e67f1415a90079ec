"""Gathers the fragments of changelog.d into CHANGELOG.md when a release is made.

Its law: the form of a fragment and of a section of the changelog is known here and nowhere else. It needs
nothing but the standard library, and it never writes a part of the release when something is wrong with it.
"""

import datetime
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
FRAGMENTS = ROOT / "changelog.d"
KINDS = ("added", "changed", "fixed", "removed")


def gather(version: str, day: datetime.date) -> int:
    """Move every fragment into a new section at the top of the changelog and return how many there were."""
    fragments = {kind: sorted(FRAGMENTS.glob(f"*.{kind}.md")) for kind in KINDS}
    taken = [path for paths in fragments.values() for path in paths]
    others = set(FRAGMENTS.iterdir()) - {FRAGMENTS / "README.md", *taken}
    strays = sorted(path.name for path in others)
    if strays:
        sys.exit(f"changelog: the name of a fragment ends in .KIND.md, but not that of: {', '.join(strays)}")
    if not taken:
        sys.exit("changelog: there are no fragments in changelog.d, so there is nothing to gather.")
    section = [f"## {version} ({day.isoformat()})"]
    for kind, paths in fragments.items():
        if paths:
            section += [f"### {kind.capitalize()}", "\n".join(map(entry, paths))]
    head, mark, past = CHANGELOG.read_text(encoding="utf-8").partition("\n## ")
    if past.startswith(f"{version} ") or f"\n## {version} " in past:
        sys.exit(f"changelog: CHANGELOG.md already has a section for {version}.")
    CHANGELOG.write_text("\n\n".join([head.rstrip(), *section]) + "\n" + mark + past, encoding="utf-8")
    for path in taken:
        path.unlink()
    return len(taken)


def entry(path: Path) -> str:
    """Return the text of one fragment as an item of a list."""
    text = path.read_text(encoding="utf-8").strip()
    if not text:
        sys.exit(f"changelog: {path.name} is empty.")
    return "- " + re.sub(r"\n(?=[^\n])", "\n  ", text)


def main(args: list[str]) -> None:
    if len(args) != 1 or not re.fullmatch(r"\d+\.\d+\.\d+\S*", args[0]):
        sys.exit("changelog: give the version of the release and nothing else, for example: 1.2.0")
    count = gather(args[0], datetime.datetime.now(datetime.UTC).date())
    print(f"changelog: gathered {count} fragments into the section {args[0]}")


if __name__ == "__main__":
    main(sys.argv[1:])
