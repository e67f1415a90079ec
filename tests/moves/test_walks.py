"""Walks over sections and hashes of their ranges: everything once, in order, whatever the pages are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.raw import Positioned, Section
from holdfast.moves import differences, walks
from holdfast.moves.differences import ranges
from holdfast.moves.walks import packed, walk
from holdfast.rows import Row

if TYPE_CHECKING:
    from holdfast.engine.raw import Position


def held(number: int, value: str = "1", version: int = 1) -> Positioned:
    """An entry in a section."""
    row = Row(value=value, size=len(value), version=version, created_at=1, updated_at=1, last_writer="w")
    return Positioned((f"k{number:04}",), row)


class Contents:
    """A snapshot with entries of one namespace."""

    def __init__(self, entries: list[Positioned]) -> None:
        self.entries = entries
        self.limits: list[int] = []

    async def page(
        self, namespace: str, section: Section, *, after: Position | None, limit: int
    ) -> list[Positioned]:
        """Return what comes after a position."""
        self.limits.append(limit)
        return [one for one in self.entries if after is None or one.position > after][:limit]


async def walked(snapshot: Any, **bounds: Position | None) -> list[Positioned]:
    """Everything that a walk yields."""
    return [one async for page in walk(snapshot, "kv/p", Section.ENTRIES, **bounds) for one in page]


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 128, 500])
async def test_a_walk_yields_everything_once(count: int) -> None:
    """Also where a page ends with the section."""
    entries = [held(number) for number in range(count)]
    assert await walked(Contents(entries)) == entries


@pytest.mark.parametrize(("after", "upto"), [(0, 100), (10, 64), (62, 65), (63, 63), (5, 5), (150, 300)])
async def test_a_walk_stays_within_its_bounds(after: int, upto: int) -> None:
    """It begins after one position and ends with another, which may be missing."""
    entries = [held(number) for number in range(200)]
    found = await walked(Contents(entries), after=held(after).position, upto=held(upto).position)
    assert found == entries[after + 1 : upto + 1]
    gaps = [held(number) for number in range(0, 200, 3)]
    found = await walked(Contents(gaps), after=held(after).position, upto=held(upto).position)
    assert found == [one for one in gaps if held(after).position < one.position <= held(upto).position]


async def test_pages_of_large_values_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds a page at a time, so its length goes by the size of what was seen, and is at least one."""
    monkeypatch.setattr(walks, "PAGE_BYTES", 10_000)
    for size, expected in ((1, 77), (5_000, 1), (50_000, 1)):
        snapshot = Contents([held(number, "x" * size) for number in range(200)])
        assert len(await walked(snapshot)) == 200
        assert snapshot.limits[1] == expected
    monkeypatch.setattr(walks, "MOST", 70)
    snapshot = Contents([held(number) for number in range(200)])
    await walked(snapshot)
    assert max(snapshot.limits) == 70


def test_encoding_differs_wherever_contents_differ() -> None:
    """Values, versions and positions that differ are encoded differently, so that their hashes differ."""
    found = {packed(one) for one in (held(1), held(2), held(1, "2"), held(1, version=2))}
    assert len(found) == 4
    assert packed(held(1)) == packed(held(1))


async def test_a_change_moves_one_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges touch each other, cover the section, and only the one with the change has another hash."""
    monkeypatch.setattr(differences, "USUAL", 8)
    entries = [held(number) for number in range(200)]
    changed = [held(100, "2") if one == entries[100] else one for one in entries]
    one: Any = Contents(entries)
    two: Any = Contents(changed)
    before, after = [await ranges(snapshot, "kv/p", Section.ENTRIES) for snapshot in (one, two)]
    assert len(before) > 10
    assert [found.after for found in before] == [None, *(found.upto for found in before[:-1])]
    assert (before[-1].upto, sum(found.count for found in before)) == (None, 200)
    differing = [(left, right) for left, right in zip(before, after, strict=True) if left.hash != right.hash]
    assert len(differing) == 1
    [(left, _)] = differing
    assert left.after is None or left.after < entries[100].position
