-- Rendered from the schema by ./dev pages, not to be edited.

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

CREATE FUNCTION holdfast_outside_turn() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    EXECUTE format('LOCK TABLE %I.holdfast_namespaces IN SHARE UPDATE EXCLUSIVE MODE', TG_TABLE_SCHEMA);
    RETURN NULL;
END $holdfast$;

CREATE TRIGGER holdfast_outside_turn
BEFORE INSERT OR UPDATE OR DELETE ON plugin_kv_storage FOR EACH STATEMENT
WHEN (current_setting('application_name') <> 'holdfast')
EXECUTE FUNCTION holdfast_outside_turn();

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
END $holdfast$;

CREATE TRIGGER holdfast_outside_insert AFTER INSERT ON plugin_kv_storage
FOR EACH ROW
WHEN (NEW.version < 1 AND current_setting('application_name') <> 'holdfast')
EXECUTE FUNCTION holdfast_outside();

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
EXECUTE FUNCTION holdfast_outside();

CREATE TRIGGER holdfast_outside_delete AFTER DELETE ON plugin_kv_storage
FOR EACH ROW
WHEN (current_setting('application_name') <> 'holdfast')
EXECUTE FUNCTION holdfast_outside();

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

CREATE TABLE IF NOT EXISTS holdfast_alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT holdfast_alembic_version_pkc PRIMARY KEY (version_num)
);

INSERT INTO holdfast_alembic_version (version_num) VALUES ('0007');
