"""The exit codes of the command line, which let scripts distinguish outcomes.

One table maps the code of an error to the exit code of the process. It contains every error; a test proves
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.errors import HoldfastError

OK: Final = 0
ERROR: Final = 1
"""An error that neither a retry nor a different request fixes."""
USAGE: Final = 2
"""The command line is not understood, or asks for something that is not allowed."""
NOT_FOUND: Final = 3
CONFLICT: Final = 4
"""Another writer came first: read again, then decide."""
UNAVAILABLE: Final = 5
"""The same command may succeed later."""
FORBIDDEN: Final = 6
INTERRUPTED: Final = 130
"""Ctrl-C, by the convention of shells: 128 plus the number of the signal."""
PIPE_CLOSED: Final = 141
"""The reader of the output has gone; numbered in the same way."""

EXIT_CODES: Final[dict[str, int]] = {
    "INVALID_JSON": USAGE,
    "MISSING_FIELD": USAGE,
    "INVALID_SUBJECT": USAGE,
    "INVALID_PLUGIN_NAME": USAGE,
    "VALIDATION_ERROR": USAGE,
    "VALUE_TOO_LARGE": USAGE,
    "TOO_EXPENSIVE": USAGE,
    "KEY_NOT_FOUND": NOT_FOUND,
    "TABLE_NOT_FOUND": NOT_FOUND,
    "ITEM_NOT_FOUND": NOT_FOUND,
    "INDEX_NOT_FOUND": NOT_FOUND,
    "VERSION_CONFLICT": CONFLICT,
    "CONDITION_FAILED": CONFLICT,
    "FENCED": CONFLICT,
    "TABLE_EXISTS": CONFLICT,
    "RATE_LIMITED": UNAVAILABLE,
    "BUSY": UNAVAILABLE,
    "TIMEOUT": UNAVAILABLE,
    "UNAVAILABLE": UNAVAILABLE,
    "STORAGE_FULL": UNAVAILABLE,
    "OUTCOME_UNKNOWN": UNAVAILABLE,
    "PERMISSION_DENIED": FORBIDDEN,
    "TTL_NOT_CONFIGURED": ERROR,
    "QUOTA_EXCEEDED": ERROR,
    "UNSUPPORTED": ERROR,
    "DATABASE_ERROR": ERROR,
    "INTERNAL_ERROR": ERROR,
}
"""The exit code of every error."""


def exit_code(error: HoldfastError) -> int:
    """Return the exit code of a command that failed with this error."""
    return EXIT_CODES[error.code]
