"""The tables and the picture of the page about performance."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from bench.book import Book
from bench.page import page, picture


def found(*, busy: bool) -> dict[str, Any]:
    """A run with a bar, a profile and something else."""
    book = Book()
    for value in (10.0, 20.0, 30.0):
        book.add("nats.get.128", "holdfast", value, unit="/s")
        book.add("nats.get.128", "echo", 2 * value, unit="/s")
        book.add("where.get", "decode", value, unit="%")
        book.add("verbs.incr", "holdfast", value, unit="/s")
    machine = {
        "cores": 2,
        "processor": "P",
        "system": "S",
        "python": "3",
        "sqlite": "3.40",
        "command": "quick",
    }
    ratio = book.scenarios["nats.get.128"].ratio("holdfast", "echo").as_dict()
    bar = {
        "bar": "1",
        "name": "nats.get.128: holdfast / echo",
        "at_least": 0.75,
        "at_most": None,
        "reached": False,
    }
    return book.as_dict() | {"machine": machine, "busy": busy, "bars": [bar | ratio]}


def test_the_page_says_what_was_found() -> None:
    """Every bar stands there with its bound, what was found and whether that is enough, and a profile too."""
    text = page(found(busy=False))
    assert "| 1 | nats.get.128: holdfast / echo | at least 0.75 | 0.50 (0.50 to 0.50) | missed |" in text
    assert "| decode | 20.00 (10.00 to 30.00) |" in text
    assert "verbs.incr" not in text
    assert "quiet" in text


def test_the_page_says_how_busy_the_machine_was() -> None:
    """Figures of a busy machine are marked as such."""
    assert "busy with other things" in page(found(busy=True))


def test_the_picture_is_about_the_bars() -> None:
    """What a bar is about is drawn, for every run, and nothing else is."""
    drawn = ElementTree.fromstring(picture([found(busy=False), found(busy=True)]))
    words = [text.text or "" for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert sum(word.startswith("nats.get.128") for word in words) == 2
    assert not any("where" in word or "verbs" in word for word in words)
