"""Triggers that give versions to rows which other programs write to `plugin_kv_storage`, and count them.

Rows that were written so before this migration get their versions now. From this revision on, Alembic's table
of a store has a name of its own: see `holdfast.engines.sql.migrations.env`.

A released migration never changes.
"""

from __future__ import annotations

from typing import Final

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_SQLITE: Final = (
    """\
CREATE TRIGGER holdfast_outside_insert AFTER INSERT ON plugin_kv_storage
WHEN NEW.version < 1 AND NOT EXISTS (SELECT 1 FROM holdfast_meta WHERE name = 'inside')
BEGIN
    INSERT INTO holdfast_namespaces (
            name, revision, keys, bytes, requests, journal_floor, created_at, changed_at)
    SELECT CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name,
        1, 0, 0, 0, 0, coalesce(kept, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
        coalesce(kept, 0)
    FROM (SELECT (SELECT CAST(value AS INTEGER) FROM holdfast_meta WHERE name = 'clock') AS kept) WHERE true
    ON CONFLICT (name) DO UPDATE SET revision = revision + 1,
        changed_at = max(changed_at, excluded.changed_at);
    UPDATE plugin_kv_storage SET version = (SELECT revision FROM holdfast_namespaces WHERE name =
        CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name),
        last_writer = NEW.last_writer
    WHERE plugin_name = NEW.plugin_name AND key = NEW.key;
    UPDATE holdfast_namespaces SET keys = keys + 1,
        bytes = bytes + (
            SELECT length(CAST(key AS BLOB)) + length(CAST(value_json AS BLOB))
            FROM plugin_kv_storage WHERE plugin_name = NEW.plugin_name AND key = NEW.key),
        envelope_bytes = envelope_bytes + (
            SELECT length(last_writer) + coalesce(length(request_id), 0)
            + coalesce(length(semantics), 0) + coalesce(length(spec_ref), 0)
            FROM plugin_kv_storage WHERE plugin_name = NEW.plugin_name AND key = NEW.key)
    WHERE name =
        CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name;
    INSERT INTO holdfast_journal (namespace, version, op, key, at, last_writer)
    SELECT name, revision, 'set', NEW.key,
        max(changed_at, coalesce((SELECT CAST(value AS INTEGER) FROM holdfast_meta WHERE name = 'clock'),
            CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER))),
        (SELECT last_writer FROM plugin_kv_storage WHERE plugin_name = NEW.plugin_name AND key = NEW.key)
    FROM holdfast_namespaces WHERE name =
        CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name;
    UPDATE holdfast_namespaces SET journal_bytes = journal_bytes + 128 + length(NEW.key)
        + length(
        (SELECT last_writer FROM plugin_kv_storage WHERE plugin_name = NEW.plugin_name AND key = NEW.key))
    WHERE name =
        CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name;
END""",
    """\
CREATE TRIGGER holdfast_outside_update AFTER UPDATE ON plugin_kv_storage
WHEN (NEW.version < 1 OR (NEW.version = OLD.version AND (
    NEW.value_json IS NOT OLD.value_json
    OR NEW.expires_at IS NOT OLD.expires_at
    OR NEW.semantics IS NOT OLD.semantics
    OR NEW.spec_ref IS NOT OLD.spec_ref
    OR NEW.last_writer IS NOT OLD.last_writer
    OR NEW.request_id IS NOT OLD.request_id
)))
AND NOT (NEW.plugin_name <> OLD.plugin_name OR NEW.key <> OLD.key)
AND NOT EXISTS (SELECT 1 FROM holdfast_meta WHERE name = 'inside')
BEGIN
    UPDATE holdfast_namespaces SET keys = keys - 1,
        bytes = bytes - (length(CAST(OLD.key AS BLOB)) + length(CAST(OLD.value_json AS BLOB))),
        envelope_bytes = envelope_bytes - (length(OLD.last_writer) + coalesce(length(OLD.request_id), 0)
            + coalesce(length(OLD.semantics), 0) + coalesce(length(OLD.spec_ref), 0))
    WHERE OLD.version > 0 AND name =
        CASE WHEN OLD.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || OLD.plugin_name;
    INSERT INTO holdfast_namespaces (
            name, revision, keys, bytes, requests, journal_floor, created_at, changed_at)
    SELECT CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name,
        1, 0, 0, 0, 0, coalesce(kept, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
        coalesce(kept, 0)
    FROM (SELECT (SELECT CAST(value AS INTEGER) FROM holdfast_meta WHERE name = 'clock') AS kept) WHERE true
    ON CONFLICT (name) DO UPDATE SET revision = revision + 1,
        changed_at = max(changed_at, excluded.changed_at);
    UPDATE plugin_kv_storage SET version = (SELECT revision FROM holdfast_namespaces WHERE name =
        CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name),
        last_writer = CASE WHEN NEW.last_writer = OLD.last_writer THEN 'external' ELSE NEW.last_writer END,
        request_id = CASE WHEN NEW.request_id IS OLD.request_id THEN NULL ELSE NEW.request_id END
    WHERE plugin_name = NEW.plugin_name AND key = NEW.key;
    UPDATE holdfast_namespaces SET keys = keys + 1,
        bytes = bytes + (
            SELECT length(CAST(key AS BLOB)) + length(CAST(value_json AS BLOB))
            FROM plugin_kv_storage WHERE plugin_name = NEW.plugin_name AND key = NEW.key),
        envelope_bytes = envelope_bytes + (
            SELECT length(last_writer) + coalesce(length(request_id), 0)
            + coalesce(length(semantics), 0) + coalesce(length(spec_ref), 0)
            FROM plugin_kv_storage WHERE plugin_name = NEW.plugin_name AND key = NEW.key)
    WHERE name =
        CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name;
    INSERT INTO holdfast_journal (namespace, version, op, key, at, last_writer)
    SELECT name, revision, 'set', NEW.key,
        max(changed_at, coalesce((SELECT CAST(value AS INTEGER) FROM holdfast_meta WHERE name = 'clock'),
            CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER))),
        (SELECT last_writer FROM plugin_kv_storage WHERE plugin_name = NEW.plugin_name AND key = NEW.key)
    FROM holdfast_namespaces WHERE name =
        CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name;
    UPDATE holdfast_namespaces SET journal_bytes = journal_bytes + 128 + length(NEW.key)
        + length(
        (SELECT last_writer FROM plugin_kv_storage WHERE plugin_name = NEW.plugin_name AND key = NEW.key))
    WHERE name =
        CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name;
END""",
    """\
CREATE TRIGGER holdfast_outside_rename AFTER UPDATE OF plugin_name, key ON plugin_kv_storage
WHEN (NEW.plugin_name <> OLD.plugin_name OR NEW.key <> OLD.key)
AND NOT EXISTS (SELECT 1 FROM holdfast_meta WHERE name = 'inside')
BEGIN
    UPDATE holdfast_namespaces SET keys = keys - 1,
        bytes = bytes - (length(CAST(OLD.key AS BLOB)) + length(CAST(OLD.value_json AS BLOB))),
        envelope_bytes = envelope_bytes - (length(OLD.last_writer) + coalesce(length(OLD.request_id), 0)
            + coalesce(length(OLD.semantics), 0) + coalesce(length(OLD.spec_ref), 0))
    WHERE OLD.version > 0 AND name =
        CASE WHEN OLD.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || OLD.plugin_name;
    INSERT INTO holdfast_namespaces (
            name, revision, keys, bytes, requests, journal_floor, created_at, changed_at)
    SELECT CASE WHEN OLD.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || OLD.plugin_name,
        1, 0, 0, 0, 0, coalesce(kept, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
        coalesce(kept, 0)
    FROM (SELECT (SELECT CAST(value AS INTEGER) FROM holdfast_meta WHERE name = 'clock') AS kept) WHERE true
    ON CONFLICT (name) DO UPDATE SET revision = revision + 1,
        changed_at = max(changed_at, excluded.changed_at);
    INSERT INTO holdfast_journal (namespace, version, op, key, at, last_writer)
    SELECT name, revision, 'deleted', OLD.key,
        max(changed_at, coalesce((SELECT CAST(value AS INTEGER) FROM holdfast_meta WHERE name = 'clock'),
            CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER))),
        'external'
    FROM holdfast_namespaces WHERE name =
        CASE WHEN OLD.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || OLD.plugin_name;
    UPDATE holdfast_namespaces SET journal_bytes = journal_bytes + 128 + length(OLD.key)
        + length(
        'external')
    WHERE name =
        CASE WHEN OLD.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || OLD.plugin_name;
    INSERT INTO holdfast_namespaces (
            name, revision, keys, bytes, requests, journal_floor, created_at, changed_at)
    SELECT CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name,
        1, 0, 0, 0, 0, coalesce(kept, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
        coalesce(kept, 0)
    FROM (SELECT (SELECT CAST(value AS INTEGER) FROM holdfast_meta WHERE name = 'clock') AS kept) WHERE true
    ON CONFLICT (name) DO UPDATE SET revision = revision + 1,
        changed_at = max(changed_at, excluded.changed_at);
    UPDATE plugin_kv_storage SET version = (SELECT revision FROM holdfast_namespaces WHERE name =
        CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name),
        last_writer = CASE WHEN NEW.last_writer = OLD.last_writer THEN 'external' ELSE NEW.last_writer END,
        request_id = CASE WHEN NEW.request_id IS OLD.request_id THEN NULL ELSE NEW.request_id END
    WHERE plugin_name = NEW.plugin_name AND key = NEW.key;
    UPDATE holdfast_namespaces SET keys = keys + 1,
        bytes = bytes + (
            SELECT length(CAST(key AS BLOB)) + length(CAST(value_json AS BLOB))
            FROM plugin_kv_storage WHERE plugin_name = NEW.plugin_name AND key = NEW.key),
        envelope_bytes = envelope_bytes + (
            SELECT length(last_writer) + coalesce(length(request_id), 0)
            + coalesce(length(semantics), 0) + coalesce(length(spec_ref), 0)
            FROM plugin_kv_storage WHERE plugin_name = NEW.plugin_name AND key = NEW.key)
    WHERE name =
        CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name;
    INSERT INTO holdfast_journal (namespace, version, op, key, at, last_writer)
    SELECT name, revision, 'set', NEW.key,
        max(changed_at, coalesce((SELECT CAST(value AS INTEGER) FROM holdfast_meta WHERE name = 'clock'),
            CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER))),
        (SELECT last_writer FROM plugin_kv_storage WHERE plugin_name = NEW.plugin_name AND key = NEW.key)
    FROM holdfast_namespaces WHERE name =
        CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name;
    UPDATE holdfast_namespaces SET journal_bytes = journal_bytes + 128 + length(NEW.key)
        + length(
        (SELECT last_writer FROM plugin_kv_storage WHERE plugin_name = NEW.plugin_name AND key = NEW.key))
    WHERE name =
        CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name;
END""",
    """\
CREATE TRIGGER holdfast_outside_delete AFTER DELETE ON plugin_kv_storage
WHEN NOT EXISTS (SELECT 1 FROM holdfast_meta WHERE name = 'inside')
BEGIN
    UPDATE holdfast_namespaces SET keys = keys - 1,
        bytes = bytes - (length(CAST(OLD.key AS BLOB)) + length(CAST(OLD.value_json AS BLOB))),
        envelope_bytes = envelope_bytes - (length(OLD.last_writer) + coalesce(length(OLD.request_id), 0)
            + coalesce(length(OLD.semantics), 0) + coalesce(length(OLD.spec_ref), 0))
    WHERE OLD.version > 0 AND name =
        CASE WHEN OLD.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || OLD.plugin_name;
    INSERT INTO holdfast_namespaces (
            name, revision, keys, bytes, requests, journal_floor, created_at, changed_at)
    SELECT CASE WHEN OLD.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || OLD.plugin_name,
        1, 0, 0, 0, 0, coalesce(kept, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
        coalesce(kept, 0)
    FROM (SELECT (SELECT CAST(value AS INTEGER) FROM holdfast_meta WHERE name = 'clock') AS kept) WHERE true
    ON CONFLICT (name) DO UPDATE SET revision = revision + 1,
        changed_at = max(changed_at, excluded.changed_at);
    INSERT INTO holdfast_journal (namespace, version, op, key, at, last_writer)
    SELECT name, revision, 'deleted', OLD.key,
        max(changed_at, coalesce((SELECT CAST(value AS INTEGER) FROM holdfast_meta WHERE name = 'clock'),
            CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER))),
        'external'
    FROM holdfast_namespaces WHERE name =
        CASE WHEN OLD.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || OLD.plugin_name;
    UPDATE holdfast_namespaces SET journal_bytes = journal_bytes + 128 + length(OLD.key)
        + length(
        'external')
    WHERE name =
        CASE WHEN OLD.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || OLD.plugin_name;
END""",
)

_POSTGRESQL: Final = (
    """\
CREATE FUNCTION holdfast_outside_turn() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    EXECUTE format('LOCK TABLE %I.holdfast_namespaces IN EXCLUSIVE MODE', TG_TABLE_SCHEMA);
    RETURN NULL;
END $holdfast$""",
    """\
CREATE TRIGGER holdfast_outside_turn
BEFORE INSERT OR UPDATE OR DELETE ON plugin_kv_storage FOR EACH STATEMENT
WHEN (current_setting('application_name') <> 'holdfast')
EXECUTE FUNCTION holdfast_outside_turn()""",
    """\
CREATE FUNCTION holdfast_outside() RETURNS trigger LANGUAGE plpgsql
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
        place := CASE WHEN OLD.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || OLD.plugin_name;
        IF OLD.version > 0 THEN
            UPDATE holdfast_namespaces SET keys = keys - 1,
                bytes = bytes - (octet_length(OLD.key) + octet_length(OLD.value_json)),
                envelope_bytes = envelope_bytes - (
            length(OLD.last_writer) + coalesce(length(OLD.request_id), 0)
            + coalesce(length(OLD.semantics), 0) + coalesce(length(OLD.spec_ref), 0))
            WHERE name = place;
        END IF;
        IF NOT stays THEN
            INSERT INTO holdfast_namespaces AS known (
            name, revision, keys, bytes, requests, journal_floor, created_at, changed_at)
            VALUES (place, 1, 0, 0, 0, 0, time, kept)
            ON CONFLICT (name) DO UPDATE SET revision = known.revision + 1,
                changed_at = greatest(known.changed_at, excluded.changed_at)
            RETURNING revision, greatest(changed_at, time) INTO number, time;
            UPDATE holdfast_namespaces
            SET journal_bytes = journal_bytes + 136 + length(OLD.key)
            WHERE name = place;
            INSERT INTO holdfast_journal (namespace, version, op, key, at, last_writer)
            VALUES (place, number, 'deleted', OLD.key, time, 'external');
        END IF;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        place := CASE WHEN NEW.plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || NEW.plugin_name;
        INSERT INTO holdfast_namespaces AS known (
            name, revision, keys, bytes, requests, journal_floor, created_at, changed_at)
        VALUES (place, 1, 0, 0, 0, 0, time, kept)
        ON CONFLICT (name) DO UPDATE SET revision = known.revision + 1,
            changed_at = greatest(known.changed_at, excluded.changed_at)
        RETURNING revision, greatest(changed_at, time) INTO number, time;
        stored := NEW;
        IF TG_OP = 'UPDATE' THEN
            IF NEW.last_writer = OLD.last_writer THEN
                stored.last_writer := 'external';
            END IF;
            IF NEW.request_id IS NOT DISTINCT FROM OLD.request_id THEN
                stored.request_id := NULL;
            END IF;
        END IF;
        UPDATE plugin_kv_storage SET version = number, last_writer = stored.last_writer,
            request_id = stored.request_id
        WHERE plugin_name = NEW.plugin_name AND key = NEW.key;
        UPDATE holdfast_namespaces SET keys = keys + 1,
            bytes = bytes + octet_length(stored.key) + octet_length(stored.value_json),
            envelope_bytes = envelope_bytes +
            length(stored.last_writer) + coalesce(length(stored.request_id), 0)
            + coalesce(length(stored.semantics), 0) + coalesce(length(stored.spec_ref), 0),
            journal_bytes = journal_bytes + 128 + length(stored.key) + length(stored.last_writer)
        WHERE name = place;
        INSERT INTO holdfast_journal (namespace, version, op, key, at, last_writer)
        VALUES (place, number, 'set', NEW.key, time, stored.last_writer);
    END IF;
    RETURN NULL;
END $holdfast$""",
    """\
CREATE TRIGGER holdfast_outside_insert AFTER INSERT ON plugin_kv_storage
FOR EACH ROW
WHEN (NEW.version < 1 AND current_setting('application_name') <> 'holdfast')
EXECUTE FUNCTION holdfast_outside()""",
    """\
CREATE TRIGGER holdfast_outside_update AFTER UPDATE ON plugin_kv_storage
FOR EACH ROW
WHEN ((NEW.version < 1 OR NEW.version = OLD.version AND (
    NEW.plugin_name IS DISTINCT FROM OLD.plugin_name
    OR NEW.key IS DISTINCT FROM OLD.key
    OR NEW.value_json IS DISTINCT FROM OLD.value_json
    OR NEW.expires_at IS DISTINCT FROM OLD.expires_at
    OR NEW.semantics IS DISTINCT FROM OLD.semantics
    OR NEW.spec_ref IS DISTINCT FROM OLD.spec_ref
    OR NEW.last_writer IS DISTINCT FROM OLD.last_writer
    OR NEW.request_id IS DISTINCT FROM OLD.request_id
)) AND current_setting('application_name') <> 'holdfast')
EXECUTE FUNCTION holdfast_outside()""",
    """\
CREATE TRIGGER holdfast_outside_delete AFTER DELETE ON plugin_kv_storage
FOR EACH ROW
WHEN (current_setting('application_name') <> 'holdfast')
EXECUTE FUNCTION holdfast_outside()""",
)

_TRIGGERS: Final = {"sqlite": _SQLITE, "postgresql": _POSTGRESQL}
_NAMES: Final = {
    "sqlite": ("insert", "update", "rename", "delete"),
    "postgresql": ("turn", "insert", "update", "delete"),
}


def upgrade() -> None:
    """Create the triggers, and let them give versions to the rows that have none."""
    for statement in _TRIGGERS[op.get_context().dialect.name]:
        op.execute(statement)
    op.execute("UPDATE plugin_kv_storage SET version = 0 WHERE version < 1")


def downgrade() -> None:
    """Drop the triggers. Rows keep the versions that they were given."""
    dialect = op.get_context().dialect.name
    where = "" if dialect == "sqlite" else " ON plugin_kv_storage"
    for name in _NAMES[dialect]:
        op.execute(f"DROP TRIGGER holdfast_outside_{name}{where}")
    if dialect == "postgresql":
        op.execute("DROP FUNCTION holdfast_outside()")
        op.execute("DROP FUNCTION holdfast_outside_turn()")
