"""The triggers that keep what other programs write to `plugin_kv_storage` in step with the store.

A row that a program inserts or changes with SQL gets the next version of its namespace, is counted, and has a
record in the journal. A row that it deletes is no longer counted and leaves a record too.

The triggers do nothing for a store's own writes, which have done all this already. Those are told apart
by the version that they give; where that does not help, by the row `inside` in `holdfast_meta`, which a
transaction of SQLite writes and removes again, and by the `application_name` of a connection to PostgreSQL.
The time of a change is the latest that the store remembers, so that another program's clock moves nothing. A
store that remembers none has the database's time in its records, and nothing else goes by that.
"""

from __future__ import annotations

from typing import Final

from holdfast.engines.sql.layout import OUTSIDE_WRITER, WRITER_MARK
from holdfast.rows import OVERHEAD

_NAMESPACE: Final = "CASE WHEN {0}.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || {0}.plugin_name"
_COLUMNS: Final = (
    "(\n            name, revision, keys, bytes, requests, journal_floor, created_at, changed_at)"
)
_TEXTS: Final = (
    "length({0}last_writer) + coalesce(length({0}request_id), 0)\n            "
    "+ coalesce(length({0}semantics), 0) + coalesce(length({0}spec_ref), 0)"
)
_PLACE: Final = ("plugin_name", "key")
_CHANGED: Final = ("value_json", "expires_at", "semantics", "spec_ref", "last_writer", "request_id")
"""The columns whose change makes another entry of a row."""

# -- SQLite

_OTHERS: Final = "NOT EXISTS (SELECT 1 FROM holdfast_meta WHERE name = 'inside')"
_SQLITE_KEPT: Final = "(SELECT CAST(value AS INTEGER) FROM holdfast_meta WHERE name = 'clock')"
_SQLITE_NOW: Final = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
_SQLITE_SIZE: Final = "length(CAST({0}key AS BLOB)) + length(CAST({0}value_json AS BLOB))"
_NEW_ROW: Final = "plugin_name = NEW.plugin_name AND key = NEW.key"
_OF_NEW: Final = f"name =\n        {_NAMESPACE.format('NEW')}"
_OF_OLD: Final = f"name =\n        {_NAMESPACE.format('OLD')}"


def _new_version(row: str) -> str:
    """Give the namespace of a row its next version."""
    return f"""
    INSERT INTO holdfast_namespaces {_COLUMNS}
    SELECT {_NAMESPACE.format(row)},
        1, 0, 0, 0, 0, coalesce(kept, {_SQLITE_NOW}),
        coalesce(kept, 0)
    FROM (SELECT {_SQLITE_KEPT} AS kept) WHERE true
    ON CONFLICT (name) DO UPDATE SET revision = revision + 1,
        changed_at = max(changed_at, excluded.changed_at);"""


def _record(op: str, row: str, of_row: str, writer: str) -> str:
    """Record a change of a row, with the version that its namespace was given last."""
    return f"""
    INSERT INTO holdfast_journal (namespace, version, op, key, at, last_writer)
    SELECT name, revision, '{op}', {row}.key,
        max(changed_at, coalesce({_SQLITE_KEPT},
            {_SQLITE_NOW})),
        {writer}
    FROM holdfast_namespaces WHERE {of_row};
    UPDATE holdfast_namespaces SET journal_bytes = journal_bytes + {OVERHEAD} + length({row}.key)
        + length(
        {writer})
    WHERE {of_row};"""


def _arrived(writer: str) -> str:
    """Give the new row a version, count it and record it."""
    return f"""{_new_version("NEW")}
    UPDATE plugin_kv_storage SET version = (SELECT revision FROM holdfast_namespaces WHERE {_OF_NEW}),
        {writer}
    WHERE {_NEW_ROW};
    UPDATE holdfast_namespaces SET keys = keys + 1,
        bytes = bytes + (
            SELECT {_SQLITE_SIZE.format("")}
            FROM plugin_kv_storage WHERE {_NEW_ROW}),
        envelope_bytes = envelope_bytes + (
            SELECT {_TEXTS.format("")}
            FROM plugin_kv_storage WHERE {_NEW_ROW})
    WHERE {_OF_NEW};""" + _record(
        "set", "NEW", _OF_NEW, f"(SELECT last_writer FROM plugin_kv_storage WHERE {_NEW_ROW})"
    )


_GONE: Final = f"""
    UPDATE holdfast_namespaces SET keys = keys - 1,
        bytes = bytes - ({_SQLITE_SIZE.format("OLD.")}),
        envelope_bytes = envelope_bytes - ({_TEXTS.format("OLD.")})
    WHERE OLD.version > 0 AND {_OF_OLD};"""
_LEFT: Final = _GONE + _new_version("OLD") + _record("deleted", "OLD", _OF_OLD, f"'{OUTSIDE_WRITER}'")
# An entry that is changed with SQL has a new writer, unless the program has named one.
_WRITER: Final = (
    f"last_writer = CASE WHEN NEW.last_writer = OLD.last_writer THEN '{OUTSIDE_WRITER}' "
    "ELSE NEW.last_writer END,\n        "
    "request_id = CASE WHEN NEW.request_id IS OLD.request_id THEN NULL ELSE NEW.request_id END"
)
_ELSEWHERE: Final = "(NEW.plugin_name <> OLD.plugin_name OR NEW.key <> OLD.key)"
_DIFFERS: Final = "\n    OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in _CHANGED)


def _trigger(name: str, change: str, when: str, body: str) -> str:
    return (
        f"CREATE TRIGGER holdfast_outside_{name} AFTER {change} ON plugin_kv_storage\n"
        f"WHEN {when}{_OTHERS}\nBEGIN{body}\nEND"
    )


_SQLITE: Final = (
    _trigger("insert", "INSERT", "NEW.version < 1 AND ", _arrived("last_writer = NEW.last_writer")),
    _trigger(
        "update",
        "UPDATE",
        f"(NEW.version < 1 OR (NEW.version = OLD.version AND (\n    {_DIFFERS}\n)))\n"
        f"AND NOT {_ELSEWHERE}\nAND ",
        _GONE + _arrived(_WRITER),
    ),
    _trigger("rename", "UPDATE OF plugin_name, key", f"{_ELSEWHERE}\nAND ", _LEFT + _arrived(_WRITER)),
    _trigger("delete", "DELETE", "", _LEFT),
)

# -- PostgreSQL

_PG_SIZE: Final = "octet_length({0}key) + octet_length({0}value_json)"
_PG_FUNCTION: Final = f"""CREATE FUNCTION holdfast_outside() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
    place text;
    number bigint;
    kept timestamptz;
    time timestamptz;
    stays boolean := TG_OP = 'UPDATE';
    stored record;
BEGIN
    PERFORM set_config('search_path', format('pg_catalog, %I, pg_temp', TG_TABLE_SCHEMA), true);
    kept := (
        SELECT timestamptz 'epoch' + value::bigint * interval '1 millisecond' FROM holdfast_meta
        WHERE name = 'clock'
    );
    time := coalesce(kept, date_trunc('milliseconds', clock_timestamp()));
    kept := coalesce(kept, timestamptz 'epoch');
    IF stays THEN
        stays := NEW.plugin_name = OLD.plugin_name AND NEW.key = OLD.key;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        place := {_NAMESPACE.format("OLD")};
        IF OLD.version > 0 THEN
            UPDATE holdfast_namespaces SET keys = keys - 1,
                bytes = bytes - ({_PG_SIZE.format("OLD.")}),
                envelope_bytes = envelope_bytes - (
            {_TEXTS.format("OLD.")})
            WHERE name = place;
        END IF;
        IF NOT stays THEN
            INSERT INTO holdfast_namespaces AS known {_COLUMNS}
            VALUES (place, 1, 0, 0, 0, 0, time, kept)
            ON CONFLICT (name) DO UPDATE SET revision = known.revision + 1,
                changed_at = greatest(known.changed_at, excluded.changed_at)
            RETURNING revision, greatest(changed_at, time) INTO number, time;
            UPDATE holdfast_namespaces
            SET journal_bytes = journal_bytes + {OVERHEAD + len(OUTSIDE_WRITER)} + length(OLD.key)
            WHERE name = place;
            INSERT INTO holdfast_journal (namespace, version, op, key, at, last_writer)
            VALUES (place, number, 'deleted', OLD.key, time, '{OUTSIDE_WRITER}');
        END IF;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        place := {_NAMESPACE.format("NEW")};
        INSERT INTO holdfast_namespaces AS known {_COLUMNS}
        VALUES (place, 1, 0, 0, 0, 0, time, kept)
        ON CONFLICT (name) DO UPDATE SET revision = known.revision + 1,
            changed_at = greatest(known.changed_at, excluded.changed_at)
        RETURNING revision, greatest(changed_at, time) INTO number, time;
        stored := NEW;
        IF TG_OP = 'UPDATE' THEN
            IF NEW.last_writer = OLD.last_writer THEN
                stored.last_writer := '{OUTSIDE_WRITER}';
            END IF;
            IF NEW.request_id IS NOT DISTINCT FROM OLD.request_id THEN
                stored.request_id := NULL;
            END IF;
        END IF;
        UPDATE plugin_kv_storage SET version = number, last_writer = stored.last_writer,
            request_id = stored.request_id
        WHERE plugin_name = NEW.plugin_name AND key = NEW.key;
        UPDATE holdfast_namespaces SET keys = keys + 1,
            bytes = bytes + {_PG_SIZE.format("stored.")},
            envelope_bytes = envelope_bytes +
            {_TEXTS.format("stored.")},
            journal_bytes = journal_bytes + {OVERHEAD} + length(stored.key) + length(stored.last_writer)
        WHERE name = place;
        INSERT INTO holdfast_journal (namespace, version, op, key, at, last_writer)
        VALUES (place, number, 'set', NEW.key, time, stored.last_writer);
    END IF;
    RETURN NULL;
END $holdfast$"""


_PG_TURN: Final = """CREATE FUNCTION holdfast_outside_turn() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    EXECUTE format('LOCK TABLE %I.holdfast_namespaces IN SHARE UPDATE EXCLUSIVE MODE', TG_TABLE_SCHEMA);
    RETURN NULL;
END $holdfast$"""
# Another program locks entries first, and the row of their namespace afterwards, in the trigger of each row.
# Two such programs would meet half way in a deadlock. So each waits for its turn before its first statement,
# until the transaction of the other one has ended. This lock lets a store write: a store locks the row of the
# namespace first, and gives way to a program that has locked an entry (`holdfast.engines.postgres.save_sql`).
# It keeps programs out while a store is being loaded, which holds the table in EXCLUSIVE mode.
_PG_TAKE_TURN: Final = f"""CREATE TRIGGER holdfast_outside_turn
BEFORE INSERT OR UPDATE OR DELETE ON plugin_kv_storage FOR EACH STATEMENT
WHEN (current_setting('application_name') <> '{WRITER_MARK}')
EXECUTE FUNCTION holdfast_outside_turn()"""


def _pg_trigger(name: str, change: str, when: str) -> str:
    return (
        f"CREATE TRIGGER holdfast_outside_{name} AFTER {change} ON plugin_kv_storage\nFOR EACH ROW\n"
        f"WHEN ({when}current_setting('application_name') <> '{WRITER_MARK}')\n"
        "EXECUTE FUNCTION holdfast_outside()"
    )


_PG_SAME: Final = (
    "NEW.version = OLD.version AND (\n    "
    + "\n    OR ".join(
        f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in ("plugin_name", "key", *_CHANGED)
    )
    + "\n)"
)
_POSTGRESQL: Final = (
    _PG_TURN,
    _PG_TAKE_TURN,
    _PG_FUNCTION,
    _pg_trigger("insert", "INSERT", "NEW.version < 1 AND "),
    _pg_trigger("update", "UPDATE", f"(NEW.version < 1 OR {_PG_SAME}) AND "),
    _pg_trigger("delete", "DELETE", ""),
)

TRIGGERS: Final = {"sqlite": _SQLITE, "postgresql": _POSTGRESQL}
"""The statements that create the triggers, by dialect."""
