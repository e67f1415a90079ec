"""Databases that hold an empty store, used again and again: making one takes longer than most tests.

Whoever takes one can't tell it from one in which a store was just created, except that there is nothing
to create. One whose tables or settings were changed is not used again. On a server of the user's, everybody
gets a new and empty database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import asyncpg

from holdfast.engines.sql import layout
from tests.postgres import UNCHANGED
from tests.postgres_session import execute_now, run_now

if TYPE_CHECKING:
    from tests.postgres import Server

OBJECTS: Final = """
SELECT md5(string_agg(line, ' ' ORDER BY line)) FROM (
    SELECT format('class %s %s', oid, xmin) FROM pg_class WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT format('column %s %s %s', attrelid, attnum, it.xmin) FROM pg_attribute AS it
        JOIN pg_class ON pg_class.oid = attrelid WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT format('default %s %s %s', adrelid, adnum, xmin) FROM pg_attrdef
    UNION ALL SELECT format('constraint %s %s', oid, xmin) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT format('type %s %s', oid, xmin) FROM pg_type WHERE typnamespace = 'public'::regnamespace
    UNION ALL SELECT format('function %s %s', oid, xmin) FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT format('trigger %s %s', oid, xmin) FROM pg_trigger
    UNION ALL SELECT format('rule %s %s', it.oid, it.xmin) FROM pg_rewrite AS it
        JOIN pg_class ON pg_class.oid = ev_class WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT format('policy %s %s', oid, xmin) FROM pg_policy
    UNION ALL SELECT format('rights %s %s', oid, xmin) FROM pg_default_acl
    UNION ALL SELECT format('schema %s %s', oid, xmin) FROM pg_namespace WHERE nspname = 'public'
    UNION ALL SELECT format('extension %s %s', oid, xmin) FROM pg_extension
    UNION ALL SELECT format('revision %s', version_num) FROM holdfast_alembic_version
) AS found (line)
"""
"""A digest of all that stands in the database beside rows. Each change gives an object a new `xmin`."""
_EMPTY: Final = """
DO $$
DECLARE name text;
BEGIN
    %s
    IF (%s) <> '%s' THEN
        RAISE 'it is not as it was';
    END IF;
    PERFORM set_config('application_name', 'holdfast', true);  -- the triggers look at others only
    FOR name IN
        SELECT quote_ident(tablename) FROM pg_tables
        WHERE schemaname = 'public' AND tablename <> 'holdfast_alembic_version'
    LOOP
        EXECUTE 'DELETE FROM ' || name;
    END LOOP;
END $$
"""


class Stores:
    """The databases of a server that hold an empty store."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._unused: list[str] = []
        self._digests: dict[str, str] = {}

    def take(self) -> str:
        """Make a store, or take one that was made empty again, and return the address of its database."""
        if self._unused:
            return self._unused.pop()
        url = self._server.create_database()
        if self._server.passing:
            execute_now(url, layout.ddl("postgresql"))
            [[self._digests[url]]] = run_now(url, OBJECTS)
        return url

    def give_back(self, url: str) -> None:
        """Take a database back, also when somebody is still connected to it."""
        if (digest := self._digests.get(url)) is not None:
            try:
                execute_now(url, _EMPTY % (UNCHANGED, OBJECTS, digest))
            except asyncpg.PostgresError:
                del self._digests[url]
            else:
                self._unused.append(url)
                return
        self._server.drop_database(url)
