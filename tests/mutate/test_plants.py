"""That every bug can still be planted, since the library goes on changing under the list."""

from __future__ import annotations

from collections import Counter

from tests.mutate.plant import LIBRARY, ROOT
from tests.mutate.plants import FAST, PLANTS


def test_every_bug_can_be_planted() -> None:
    """The text that a bug replaces is there once, and what comes of it is another program."""
    for plant in PLANTS:
        source = (ROOT / LIBRARY / plant.file).read_text()
        planted = plant.planted(source)
        assert planted != source, plant.name
        compile(planted, plant.file, "exec")


def test_there_are_enough_and_each_has_a_name() -> None:
    """At least 60 bugs are planted, and a name means one of them."""
    names = Counter(plant.name for plant in PLANTS)
    assert len(names) == len(PLANTS) >= 60
    assert not [name for name in names if not name or name != name.strip()]


def test_the_tests_that_look_for_bugs_are_there() -> None:
    """A bug is looked for by files that exist, and a sentence says why one can't be noticed."""
    for plant in PLANTS:
        chosen = plant.tests[: plant.tests.index("-k")] if "-k" in plant.tests else plant.tests
        assert chosen, plant.name
        for path in chosen:
            assert (ROOT / path.partition("::")[0]).exists(), (plant.name, path)
        assert plant.equivalent is None or plant.equivalent.endswith("."), plant.name
    for path in FAST:
        assert (ROOT / path).exists(), path
