"""The exit codes of the command line, for scripts to tell outcomes apart.

Law: one table from the code of an error to the number with which the process ends. It knows every error that
there is; a test proves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.errors import HoldfastError

OK: Final = 0
ERROR: Final = 1
"""Something is wrong that trying again or asking otherwise does not mend."""
USAGE: Final = 2
"""The command line is not understood, or what it asks for is not legal."""
NOT_FOUND: Final = 3
CONFLICT: Final = 4
"""Somebody else was faster: read again, then decide."""
UNAVAILABLE: Final = 5
"""The same command may succeed later."""
FORBIDDEN: Final = 6
INTERRUPTED: Final = 130
"""Ctrl-C, as shells count it: 128 and the number of the signal."""
PIPE_CLOSED: Final = 141
"""Nobody reads on; counted in the same way."""

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
    """With which number a command ends that this error has ended."""
    return EXIT_CODES[error.code]
