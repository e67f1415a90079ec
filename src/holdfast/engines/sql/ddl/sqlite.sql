-- Rendered from the schema by ./dev schema, not to be edited.

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

CREATE TABLE IF NOT EXISTS alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

INSERT INTO alembic_version (version_num) VALUES ('0005');
