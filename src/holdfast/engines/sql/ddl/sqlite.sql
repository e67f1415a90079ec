-- Rendered from the schema by ./dev pages, not to be edited.

CREATE TABLE plugin_kv_storage (
    plugin_name TEXT NOT NULL,
    "key" TEXT NOT NULL,
    value_json TEXT NOT NULL,
    expires_at INTEGER,
    created_at INTEGER DEFAULT (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) NOT NULL,
    updated_at INTEGER DEFAULT (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) NOT NULL,
    version INTEGER DEFAULT 0 NOT NULL,
    last_writer TEXT DEFAULT 'external' NOT NULL,
    semantics TEXT,
    request_id TEXT,
    spec_ref TEXT,
    PRIMARY KEY (plugin_name, "key")
)
 WITHOUT ROWID,
 STRICT;

CREATE INDEX idx_kv_expires_at ON plugin_kv_storage (expires_at) WHERE expires_at IS NOT NULL;

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
END;

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
END;

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
END;

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
END;

CREATE TABLE holdfast_rows (
    namespace TEXT NOT NULL,
    space TEXT NOT NULL,
    "key" BLOB NOT NULL,
    value TEXT NOT NULL,
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    last_writer TEXT NOT NULL,
    semantics TEXT,
    request_id TEXT,
    spec_ref TEXT,
    PRIMARY KEY (namespace, space, "key")
)
 WITHOUT ROWID,
 STRICT;

CREATE INDEX idx_rows_expires_at ON holdfast_rows (namespace, space, expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE holdfast_parts (
    namespace TEXT NOT NULL,
    space TEXT NOT NULL,
    "key" BLOB NOT NULL,
    value TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    last_writer TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (namespace, space, "key")
)
 STRICT;

CREATE TABLE holdfast_namespaces (
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    keys INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    journal_floor INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    policy TEXT,
    envelope_bytes INTEGER DEFAULT 0 NOT NULL,
    trash_bytes INTEGER DEFAULT 0 NOT NULL,
    journal_bytes INTEGER DEFAULT 0 NOT NULL,
    letter_bytes INTEGER DEFAULT 0 NOT NULL,
    request_bytes INTEGER DEFAULT 0 NOT NULL,
    index_bytes INTEGER DEFAULT 0 NOT NULL,
    other_bytes INTEGER DEFAULT 0 NOT NULL,
    audit_bytes INTEGER DEFAULT 0 NOT NULL,
    PRIMARY KEY (name)
)
 WITHOUT ROWID,
 STRICT;

CREATE TABLE holdfast_journal (
    namespace TEXT NOT NULL,
    version INTEGER NOT NULL,
    op TEXT NOT NULL,
    "key" TEXT NOT NULL,
    at INTEGER NOT NULL,
    last_writer TEXT,
    request_id TEXT,
    purpose TEXT,
    lag_ms INTEGER,
    expired_version INTEGER,
    detail TEXT,
    PRIMARY KEY (namespace, version)
)
 WITHOUT ROWID,
 STRICT;

CREATE TABLE holdfast_meta (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
)
 WITHOUT ROWID,
 STRICT;

CREATE VIEW plugin_kv AS SELECT plugin_kv_storage.plugin_name, plugin_kv_storage."key", plugin_kv_storage.value_json, replace(strftime('%Y-%m-%d %H:%M:%f', plugin_kv_storage.expires_at / 1000.0, 'unixepoch'), '.000', '') AS expires_at, replace(strftime('%Y-%m-%d %H:%M:%f', plugin_kv_storage.created_at / 1000.0, 'unixepoch'), '.000', '') AS created_at, replace(strftime('%Y-%m-%d %H:%M:%f', plugin_kv_storage.updated_at / 1000.0, 'unixepoch'), '.000', '') AS updated_at, plugin_kv_storage.version, plugin_kv_storage.last_writer, plugin_kv_storage.semantics, plugin_kv_storage.request_id, plugin_kv_storage.spec_ref
FROM plugin_kv_storage;

CREATE TABLE IF NOT EXISTS holdfast_alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT holdfast_alembic_version_pkc PRIMARY KEY (version_num)
);

INSERT INTO holdfast_alembic_version (version_num) VALUES ('0007');
