"""The results of the torture: a table with all of them, a short one, and a picture."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "explanation" / "agents.md"
README: Final = ROOT / "README.md"
PICTURE: Final = ROOT / "docs" / "explanation" / "torture.svg"
BEGIN, END = "<!-- torture -->", "<!-- /torture -->"
COLUMNS: Final = (
    *("store", "2 workers: lost / acknowledged of 10", "10 workers: lost / acknowledged of 50", "refused"),
    *(
        "forks",
        "stale accepted of 3",
        "killed: lost",
        "answers cut: lost / doubled of 8",
        "sent twice: doubled of 5",
        "seconds",
    ),
)


def is_bad(row: dict[str, Any]) -> bool:
    """Return whether a store has lost, doubled or forked something, or accepted a stale write."""
    none = {"lost": 0, "doubled": 0, "forks": 0}
    outcomes = [*row["crowds"].values(), row["killed"], row["twice"] or none, row["cut"] or none]
    harmed = any(outcome["lost"] or outcome["doubled"] or outcome["forks"] for outcome in outcomes)
    return bool(row["stale"]) or harmed or any(not one["acknowledged"] for one in row["crowds"].values())


def table(results: dict[str, Any]) -> str:
    """Return the table as Markdown, with the versions below it."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for row in results["rows"]:
        two, ten = row["crowds"].get("2"), row["crowds"].get("10")
        most = ten or two
        cells = [
            f"**{row['name']}**" if row["ours"] else row["name"],
            *("" if one is None else f"{one['lost']} / {one['acknowledged']}" for one in (two, ten)),
            str(most["refused"]),
            str(most["forks"]),
            str(row["stale"]),
            str(row["killed"]["lost"]),
            "" if row["cut"] is None else f"{row['cut']['lost']} / {row['cut']['doubled']}",
            "" if row["twice"] is None else str(row["twice"]["doubled"]),
            f"{most['seconds']:.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + f"\n\n{_origin(results)}\n"


def short_table(results: dict[str, Any]) -> str:
    """Return what ten workers have lost, as Markdown: a line for each kind of state, theirs beside ours."""
    lines = ["| state | the framework's own stores | Holdfast |", "|---|---|---|"]
    for state in dict.fromkeys(row["state"] for row in results["rows"]):
        rows = [row for row in results["rows"] if row["state"] == state]
        theirs = "<br>".join(_in_short(row) for row in rows if not row["ours"])
        ours = "<br>".join(_in_short(row) for row in rows if row["ours"])
        lines.append(f"| {state} | {theirs} | {ours} |")
    return "\n".join(lines) + f"\n\n{_origin(results)}\n"


def _in_short(row: dict[str, Any]) -> str:
    outcome = row["crowds"].get("10") or row["crowds"]["2"]
    _, _, store = row["name"].partition(" ")
    lost = f"**{outcome['lost']}**" if outcome["lost"] else "0"
    refused = f", {outcome['refused']} refused" if outcome["refused"] else ""
    return f"{store}: {lost} of {outcome['acknowledged']} lost{refused}"


def _origin(results: dict[str, Any]) -> str:
    packages: dict[str, str] = {}
    for row in results["rows"]:
        packages |= row["packages"]
    named = ", ".join(f"{name} {number}" for name, number in sorted(packages.items()))
    return f"Measured on {results['date']} ({results['machine']}) with {named}."


def picture(results: dict[str, Any]) -> str:
    """Return the share of acknowledged turns that each store has lost with ten workers, as SVG."""
    rows = [(row, row["crowds"].get("10") or row["crowds"]["2"]) for row in results["rows"]]
    height = 34 * len(rows) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {height}" font-family="sans-serif"'
        ' font-size="14" role="img" aria-label="Acknowledged turns that were lost">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        '<text x="20" y="28" font-size="16" font-weight="bold">Ten workers, 50 turns:'
        " acknowledged (outline) and lost of these (filled)</text>",
    ]
    for number, (row, outcome) in enumerate(rows):
        top = 48 + 34 * number
        kept, lost = outcome["acknowledged"], outcome["lost"]
        weight = ' font-weight="bold"' if row["ours"] else ""
        parts += [
            f'<text x="20" y="{top + 15}"{weight}>{escape(row["name"])}</text>',
            f'<rect x="440" y="{top}" width="{7 * kept}" height="20" fill="none" stroke="#357"/>',
            f'<rect x="440" y="{top}" width="{7 * lost}" height="20" fill="#b33"/>',
            f'<text x="{446 + 7 * kept}" y="{top + 15}">{lost} of {kept}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def write(results: dict[str, Any]) -> None:
    """Put a table between the marks of the page and of the README, and draw the picture."""
    for page, text in ((PAGE, table(results)), (README, short_table(results))):
        before, _, rest = page.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")
    PICTURE.write_text(picture(results))
