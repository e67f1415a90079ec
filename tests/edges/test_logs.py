"""The log: lines for people on a terminal, JSON elsewhere, and never what a variable held."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import TYPE_CHECKING

import pytest

from holdfast.edges.monitoring import logs

if TYPE_CHECKING:
    from collections.abc import Iterator


class Terminal(io.StringIO):
    """Somebody who looks."""

    def isatty(self) -> bool:
        """Yes."""
        return True


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Afterwards logging is as pytest had set it up."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    for name in ("holdfast", "holdfast.service"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def fail(value: str) -> None:
    """Fail with something in a variable that is nobody's business."""
    try:
        raise RuntimeError("it broke")
    except RuntimeError:
        logging.getLogger("holdfast.service").exception("a request failed", extra={"plugin": "trivia"})


def test_a_line_is_json_with_its_fields() -> None:
    """What a record carries beside its text are fields of the line, and a traceback is one of them."""
    stream = io.StringIO()
    logs.configure("INFO", stream=stream)
    fail("a secret")
    line = json.loads(stream.getvalue())
    assert (line["message"], line["plugin"]) == ("a request failed", "trivia")
    assert (line["level"], line["logger"]) == ("error", "holdfast.service")
    assert line["timestamp"].endswith("Z")
    assert line["exception"][0]["exc_value"] == "it broke"
    assert "a secret" not in stream.getvalue()


def test_a_terminal_gets_readable_lines() -> None:
    """On a terminal the same record is text with its traceback, and shows no variable either."""
    stream = Terminal()
    logs.configure("INFO", stream=stream)
    fail("a secret")
    said = stream.getvalue()
    assert "a request failed" in said
    assert "RuntimeError: it broke" in said
    assert "a secret" not in said


@pytest.mark.parametrize(
    ("variable", "coloured"),
    [(("TERM", "xterm"), True), (("NO_COLOR", "1"), False), (("TERM", "dumb"), False)],
)
def test_levels_have_colours_unless_disabled(
    variable: tuple[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal shows levels in colour; with NO_COLOR, or a terminal without colours, as plain text."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(*variable)
    stream = Terminal()
    logs.configure("INFO", stream=stream)
    logging.getLogger("holdfast").warning("look")
    assert "look" in stream.getvalue()
    assert ("\x1b[" in stream.getvalue()) is coloured


@pytest.mark.parametrize(
    ("level", "service_level", "heard"),
    [
        ("INFO", None, {"holdfast", "holdfast.service"}),
        ("ERROR", "DEBUG", {"holdfast.service"}),
        ("DEBUG", "WARNING", {"holdfast"}),
    ],
)
def test_each_logger_has_its_level(level: str, service_level: str | None, heard: set[str]) -> None:
    """What tells of requests can be louder or quieter than the rest; other libraries only warn."""
    stream = io.StringIO()
    logs.configure(level, service_level, stream=stream)
    for name in ("holdfast", "holdfast.service", "another.library"):
        logging.getLogger(name).info("something")
    assert {json.loads(line)["logger"] for line in stream.getvalue().splitlines()} == heard


def test_a_key_in_the_log_cannot_control_the_terminal() -> None:
    """A key that a caller chose neither colours the log nor begins a line of its own."""
    stream = Terminal()
    logs.configure("INFO", stream=stream)
    nasty = "\x1b]0;x\x07\n\x7f\x9b31m\u202e"
    logging.getLogger("holdfast.service").info("refused %s", nasty, extra={"key": nasty})
    shown = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert shown.count("\n") == 1
    assert not set(nasty) & set(shown.rstrip("\n")) - set("]0;x31m")
    assert shown.count("\\u202e") == 2
