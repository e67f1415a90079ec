"""The log of a running service: one line for each record, on stderr.

A terminal gets lines for people, any other output gets JSON. Records of the standard logging are rendered the
same way, and their extra attributes become fields of the line.

Values never appear. So a traceback shows where something happened, but not the contents of variables.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO

import structlog
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.processors import ExceptionRenderer, JSONRenderer, TimeStamper
from structlog.stdlib import ExtraAdder, ProcessorFormatter, add_log_level, add_logger_name
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, Processor, WrappedLogger

from holdfast.edges.screen import colours, harmless

OTHERS: Final = logging.WARNING
"""Lowest level that is logged for libraries that we use."""


def configure(level: str, service_level: str | None = None, *, stream: TextIO | None = None) -> None:
    """Set up the rendering of all log records.

    Args:
        level: Lowest level that is logged for Holdfast.
        service_level: Lowest level for the logger of requests; None for the same as `level`.
        stream: The output; stderr if not given.
    """
    target = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(target)
    handler.setFormatter(_formatter(people=target.isatty(), coloured=colours(target)))
    logging.basicConfig(level=OTHERS, handlers=[handler], force=True)
    logging.getLogger("holdfast").setLevel(level)
    logging.getLogger("holdfast.service").setLevel(service_level or logging.NOTSET)


def _formatter(*, people: bool, coloured: bool) -> ProcessorFormatter:
    shared: list[Processor] = [
        add_log_level,
        add_logger_name,
        ExtraAdder(),
        TimeStamper(fmt="iso", utc=not people),
    ]
    return ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[ProcessorFormatter.remove_processors_meta, *_rendering(people=people, coloured=coloured)],
    )


def _rendering(*, people: bool, coloured: bool) -> list[Processor]:
    if people:
        return [_harmless, ConsoleRenderer(colors=coloured, exception_formatter=plain_traceback)]
    traceback = ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
    return [structlog.processors.EventRenamer("message"), traceback, JSONRenderer(default=str)]


def _harmless(_logger: WrappedLogger, _name: str, fields: EventDict) -> EventDict:
    """Escape text from callers, such as keys, for a terminal."""
    return {name: harmless(field) if isinstance(field, str) else field for name, field in fields.items()}
