"""The SQL that reads the parts of blobs in PostgreSQL.

Law: as in `sql`. A group loads parts, without their bytes, by the statement that loads its other rows.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from holdfast.engines.postgres.columns import ROW, part
from holdfast.engines.postgres.sql import OTHER_KEY, looked_up

READ_PARTS: Final = (
    f"SELECT position, {', '.join(ROW)}, data "
    "FROM unnest($1::text[], $2::text[], $3::text::bytea[]) "
    "WITH ORDINALITY AS asked (asked_namespace, asked_space, asked_key, position) "
    f"CROSS JOIN LATERAL {looked_up(f'{part()}, data', 'holdfast_parts', OTHER_KEY)}"
)
"""Parts of blobs with their bytes, by position from 1. Parameters: as for `sql.READ_OTHERS`."""


@cache
def scan_parts(*, after: bool) -> str:
    """Scan the keys of the parts of an upload. Their rows are read by address.

    Parameters: the namespace, the space, the first key, the limit; with `after` the key to continue after.
    """
    return (
        "SELECT key FROM holdfast_parts WHERE namespace = $1 AND space = $2 AND key >= $3"
        f"{' AND key > $5' if after else ''} ORDER BY key LIMIT $4"
    )
