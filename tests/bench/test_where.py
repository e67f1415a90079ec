"""Where the time goes: whose a sample is."""

from __future__ import annotations

import pytest

from bench.where import PARTS, part_of, shares

OUTSIDE = "run (uvloop/__init__.py:92);NatsService._take (holdfast/edges/nats/service.py:170)"


@pytest.mark.parametrize(
    ("innermost", "part"),
    [
        ("load_rows (holdfast/engines/sqlite/reads.py:1)", "SQL"),
        ("Writer._finish (holdfast/engines/sqlite/writer.py:1)", "commit"),
        ("decide (holdfast/decide/entries.py:1)", "decide"),
        ("encode (holdfast/wire/replies.py:1)", "encode"),
        ("route (holdfast/wire/subjects.py:1)", "decode"),
        ("Reader.feed (holdfast/bus/protocol.py:1)", "bus"),
        ("Session._send (holdfast/bus/session.py:1)", "loop and sockets"),
        ("Batcher.add (holdfast/pipeline/batcher.py:1)", "queue"),
    ],
)
def test_a_sample_belongs_to_the_innermost_part(innermost: str, part: str) -> None:
    """What a part calls of the standard library counts as its own; what encloses it does not."""
    assert part in PARTS
    assert part_of([*OUTSIDE.split(";"), innermost, "match (re.py:1)"]) == part


def test_shares_are_of_all_samples() -> None:
    """They add up to 100, with what nobody claims as `other`; who only waits for work is not at work."""
    waiting = "Writer._work (holdfast/writer.py:1);Writer._waited (holdfast/writer.py:2)"
    found = shares(f"{waiting} 50\n{OUTSIDE} 6\nrun (uvloop/__init__.py:92) 3\nmain (somewhere.py:1) 1\n")
    assert list(found.items()) == [("queue", 60.0), ("loop and sockets", 30.0), ("other", 10.0)]
