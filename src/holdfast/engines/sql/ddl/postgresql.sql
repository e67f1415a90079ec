-- Rendered from the schema by ./dev schema, not to be edited.

CREATE TABLE plugin_kv_storage (
    plugin_name TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    value_json TEXT NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    version BIGINT DEFAULT 0 NOT NULL,
    last_writer TEXT DEFAULT 'external' NOT NULL,
    semantics TEXT,
    request_id TEXT,
    spec_ref TEXT,
    PRIMARY KEY (plugin_name, key)
);

CREATE INDEX idx_kv_expires_at ON plugin_kv_storage (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE holdfast_rows (
    namespace TEXT COLLATE "C" NOT NULL,
    space TEXT COLLATE "C" NOT NULL,
    key BYTEA NOT NULL,
    value TEXT NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    version BIGINT NOT NULL,
    last_writer TEXT NOT NULL,
    semantics TEXT,
    request_id TEXT,
    spec_ref TEXT,
    PRIMARY KEY (namespace, space, key)
);

CREATE INDEX idx_rows_expires_at ON holdfast_rows (namespace, space, expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE holdfast_parts (
    namespace TEXT COLLATE "C" NOT NULL,
    space TEXT COLLATE "C" NOT NULL,
    key BYTEA NOT NULL,
    value TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    version BIGINT NOT NULL,
    last_writer TEXT NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (namespace, space, key)
);

CREATE TABLE holdfast_namespaces (
    name TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    keys BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    journal_floor BIGINT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    policy TEXT,
    envelope_bytes BIGINT DEFAULT 0 NOT NULL,
    trash_bytes BIGINT DEFAULT 0 NOT NULL,
    journal_bytes BIGINT DEFAULT 0 NOT NULL,
    letter_bytes BIGINT DEFAULT 0 NOT NULL,
    request_bytes BIGINT DEFAULT 0 NOT NULL,
    index_bytes BIGINT DEFAULT 0 NOT NULL,
    other_bytes BIGINT DEFAULT 0 NOT NULL,
    audit_bytes BIGINT DEFAULT 0 NOT NULL,
    PRIMARY KEY (name)
)
 WITH (fillfactor = 20);

CREATE TABLE holdfast_journal (
    namespace TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    op TEXT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_writer TEXT,
    request_id TEXT,
    purpose TEXT,
    lag_ms BIGINT,
    expired_version BIGINT,
    detail TEXT,
    PRIMARY KEY (namespace, version)
);

CREATE TABLE holdfast_meta (
    name TEXT COLLATE "C" NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
);

CREATE VIEW plugin_kv AS SELECT plugin_kv_storage.plugin_name, plugin_kv_storage.key, plugin_kv_storage.value_json, plugin_kv_storage.expires_at AS expires_at, plugin_kv_storage.created_at AS created_at, plugin_kv_storage.updated_at AS updated_at, plugin_kv_storage.version, plugin_kv_storage.last_writer, plugin_kv_storage.semantics, plugin_kv_storage.request_id, plugin_kv_storage.spec_ref
FROM plugin_kv_storage;

CREATE TABLE IF NOT EXISTS alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

INSERT INTO alembic_version (version_num) VALUES ('0005');
