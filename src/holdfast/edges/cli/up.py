"""`holdfast up`: run the store."""

from __future__ import annotations

from holdfast.edges.config import read_config
from holdfast.edges.serve import serve


async def up(*, db: str | None = None, log_level: str | None = None) -> None:
    """Open the store, migrate it if it is older, and keep it swept until Ctrl-C.

    Parameters
    ----------
    db
        The store: a path or a URL. Without it $HOLDFAST_DB, else $XDG_DATA_HOME/holdfast/holdfast.db.
    log_level
        How much is told: debug, info, warning or error.
    """
    await serve(read_config(db=db, log_level=log_level))
