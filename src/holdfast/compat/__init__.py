"""Other programs' ways of speaking to a store, one module each.

Law: nothing in Holdfast imports what lives here, so that a layer can be left out of an installation.
"""

from holdfast import extras

with extras.imported("compat", "holdfast.compat"):
    import aiosqlite
    import sqlalchemy

__all__ = ["aiosqlite", "sqlalchemy"]
