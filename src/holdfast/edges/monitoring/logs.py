"""The log of a running service: one line for each record, on stderr.

A terminal gets lines for people, anything else JSON. What the library says through the standard logging is
rendered alike, and what it adds to a record becomes fields of the line.

Law: values never appear. So a traceback shows where something happened, but never what the variables held.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

import structlog
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.processors import ExceptionRenderer, JSONRenderer, TimeStamper
from structlog.stdlib import ExtraAdder, ProcessorFormatter, add_log_level, add_logger_name
from structlog.tracebacks import ExceptionDictTransformer

from holdfast.edges.screen import harmless

if TYPE_CHECKING:
    from typing import TextIO

    from structlog.typing import EventDict, Processor, WrappedLogger

OTHERS: Final = logging.WARNING
"""From which level on the libraries that we use are heard."""


def configure(level: str, service_level: str | None = None, *, stream: TextIO | None = None) -> None:
    """Have every record rendered from now on.

    Args:
        level: From which level on Holdfast is heard.
        service_level: The same for what tells of requests alone; None for no difference.
        stream: Where the lines go; stderr if not given.
    """
    target = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(target)
    handler.setFormatter(_formatter(people=target.isatty()))
    logging.basicConfig(level=OTHERS, handlers=[handler], force=True)
    logging.getLogger("holdfast").setLevel(level)
    logging.getLogger("holdfast.service").setLevel(service_level or logging.NOTSET)


def _formatter(*, people: bool) -> ProcessorFormatter:
    shared: list[Processor] = [
        add_log_level,
        add_logger_name,
        ExtraAdder(),
        TimeStamper(fmt="iso", utc=not people),
    ]
    return ProcessorFormatter(
        foreign_pre_chain=shared, processors=[ProcessorFormatter.remove_processors_meta, *_rendering(people)]
    )


def _rendering(people: bool) -> list[Processor]:
    if people:
        return [_harmless, ConsoleRenderer(exception_formatter=plain_traceback)]
    traceback = ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
    return [structlog.processors.EventRenamer("message"), traceback, JSONRenderer(default=str)]


def _harmless(_logger: WrappedLogger, _name: str, fields: EventDict) -> EventDict:
    """What callers wrote, such as a key, as a terminal may be shown it."""
    return {name: harmless(said) if isinstance(said, str) else said for name, said in fields.items()}
