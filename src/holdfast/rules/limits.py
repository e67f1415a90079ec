"""The limits of all input.

Law: each limit of the contract is here once. Nothing else is.
"""

from typing import Final

MAX_KEY_CHARACTERS: Final = 255
MAX_SEMANTIC_KEY_CHARACTERS: Final = 128
MAX_VALUE_BYTES: Final = 65_536
MAX_RAISED_VALUE_BYTES: Final = 524_288
"""Maximum size of a value, and the most to which the policy of a namespace can raise it."""
MAX_COMPARED_VALUE_BYTES: Final = 655_360
"""Maximum size of a value that is compared with a policy. No policy allows a larger one."""
MAX_NESTING: Final = 64
MAX_DIGITS: Final = 4_300
MAX_TTL: Final = 2_147_483_647
MAX_LIMIT: Final = 10_000
DEFAULT_LIMIT: Final = 1_000
MAX_IDENTITY_CHARACTERS: Final = 200
MAX_SPEC_REF_CHARACTERS: Final = 500
MAX_REASON_CHARACTERS: Final = 500
MAX_HINTS: Final = 16
MAX_HINT_CHARACTERS: Final = 100
MAX_BATCH: Final = 1_000
MAX_TRANSFER_BYTES: Final = 524_288
"""Maximum size of one page, one batch and one reply of get_many."""
MAX_WORK: Final = 1_000_000
MAX_WORK_PER_WRITE: Final = 1_000
"""Maximum steps of work for a request, and the additional steps for each write in it (`holdfast.work`)."""
MAX_LOADED_BYTES: Final = 8_388_608
"""Maximum bytes of stored values that a request that writes may have to read."""
MAX_LETTER_BYTES: Final = 786_432
"""Maximum size of one dead letter: a batch at its limit, with the names of its fields."""
MAX_LETTERS_BYTES: Final = 67_108_864
"""Maximum size of all dead letters of a namespace. Each counts 256 bytes plus its content."""
MAX_VERSION: Final = 2**63 - 1
MAX_LOADED_VERSION: Final = 2**62
"""The largest version that an entry from another store may bring. The namespace continues from it."""

TRASH_RETENTION: Final = 7 * 86_400
"""Seconds for which removed entries can be restored."""
REQUEST_RETENTION: Final = 86_400
MAX_REQUESTS: Final = 1_000_000
"""Seconds for which a request is remembered, and the maximum number per namespace."""
JOURNAL_RETENTION: Final = 86_400
MAX_JOURNAL: Final = 1_000_000
"""Seconds for which the journal keeps a change, and the maximum number per namespace."""
