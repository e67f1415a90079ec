"""Compatibility layers: the interfaces of other programs over a store, one module each.

Nothing in Holdfast imports this package, so that an installation can leave it out.
"""

from holdfast import extras

with extras.imported("compat", "holdfast.compat"):
    import aiosqlite
    import sqlalchemy

__all__ = ["aiosqlite", "sqlalchemy"]
