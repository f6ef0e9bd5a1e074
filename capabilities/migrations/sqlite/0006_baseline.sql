-- The schema of version 6: the tables of the five contracts that SQLite serves.
--
-- Text columns compare by their bytes (BINARY), so ids that differ in any byte are different keys, and listings come in
-- byte order. Text that may hold NUL (document contents, task texts, values) is a BLOB. Times are milliseconds since
-- 1970-01-01T00:00:00Z, or NULL. Large columns come last, so that reading the small ones skips their overflow pages.

-- History ----------------------------------------------------------------------------------------------------------

-- One row per thread. The row outlives a clear, so that its numbers continue.
--
-- `changed_seq`  the number of the last clear, run clear or replacement: a later replacement whose caller read an older
--                state is refused
-- `live`         1 while the thread holds messages: an index on `messages > 0` would be written by every append
-- `sweep_ms`     when to look whether the thread has expired: never later than its expiry, but earlier if the expiry was
--                prolonged; NULL if the thread does not expire
CREATE TABLE threads (
    id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    agent TEXT NOT NULL,
    session TEXT NOT NULL,
    live INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    changed_seq INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    ttl_ms INTEGER,
    ttl_refresh INTEGER NOT NULL,
    expires_ms INTEGER,
    sweep_ms INTEGER,
    UNIQUE (namespace, agent, session)
) STRICT;
CREATE INDEX threads_live ON threads (namespace, agent, session) WHERE live = 1;
CREATE INDEX threads_to_sweep ON threads (sweep_ms) WHERE sweep_ms IS NOT NULL;

-- `placed_by` is the number of the replacement that inserted the message, or NULL if it was appended. `author` and
-- `author_role` are empty if the message names none; a filter by author does not read the body. `body` may be compressed;
-- its first byte is the form of the rest. `bytes` is the size of the message as the contract measures it.
CREATE TABLE messages (
    thread INTEGER NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    run TEXT,
    author TEXT NOT NULL,
    author_role TEXT NOT NULL,
    placed_by INTEGER,
    bytes INTEGER NOT NULL,
    thread_bytes INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (thread, seq)
) STRICT;
CREATE INDEX messages_by_run ON messages (thread, run) WHERE run IS NOT NULL;
CREATE INDEX messages_by_author ON messages (thread, author, seq) WHERE author <> '';

-- The events that are not messages. `kind`: 1 cleared, 2 run cleared, 3 replaced.
CREATE TABLE thread_events (
    thread INTEGER NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    removed INTEGER NOT NULL,
    run TEXT,
    up_to INTEGER,
    thread_bytes INTEGER,
    PRIMARY KEY (thread, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE append_keys (
    thread INTEGER NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    idempotency_key TEXT NOT NULL,
    digest BLOB NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    PRIMARY KEY (thread, idempotency_key)
) STRICT, WITHOUT ROWID;

-- Key-value --------------------------------------------------------------------------------------------------------

-- One row per bucket. The row outlives its keys, so that its revisions continue. `forgotten_revision` is the greatest revision
-- of a tombstone that was dropped; a watch from before it could miss a deletion. `sweep_ms` is as in `threads`.
CREATE TABLE kv_buckets (
    namespace TEXT NOT NULL,
    bucket TEXT NOT NULL,
    last_revision INTEGER NOT NULL,
    forgotten_revision INTEGER NOT NULL,
    sweep_ms INTEGER,
    PRIMARY KEY (namespace, bucket)
) STRICT, WITHOUT ROWID;
CREATE INDEX kv_buckets_to_sweep ON kv_buckets (sweep_ms) WHERE sweep_ms IS NOT NULL;

CREATE TABLE kv_entries (
    namespace TEXT NOT NULL,
    bucket TEXT NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    expires_ms INTEGER,
    value BLOB NOT NULL,
    PRIMARY KEY (namespace, bucket, key)
) STRICT;
CREATE INDEX kv_entries_by_revision ON kv_entries (namespace, bucket, revision);
CREATE INDEX kv_entries_by_expiry ON kv_entries (namespace, bucket, expires_ms) WHERE expires_ms IS NOT NULL;

-- Tombstones: removed keys, with the revision of their removal. `expired` is 1 if the time to live passed, and 0 if the key was
-- deleted; the revision of an expired key is that of its last put.
CREATE TABLE kv_tombstones (
    namespace TEXT NOT NULL,
    bucket TEXT NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    expired INTEGER NOT NULL,
    PRIMARY KEY (namespace, bucket, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX kv_tombstones_by_revision ON kv_tombstones (namespace, bucket, revision);

-- Vectors ----------------------------------------------------------------------------------------------------------

-- `documents` counts them, so that a count need not visit them.
CREATE TABLE collections (
    key INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    dimensions INTEGER NOT NULL,
    documents INTEGER NOT NULL,
    UNIQUE (namespace, name)
) STRICT;

-- `metadata` is a JSON object.
CREATE TABLE documents (
    key INTEGER PRIMARY KEY,
    collection INTEGER NOT NULL REFERENCES collections (key) ON DELETE CASCADE,
    id TEXT NOT NULL,
    metadata TEXT NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (collection, id)
) STRICT;

-- Separate from the texts, so that a search reads only numbers; the id is repeated here to rank equal scores.
-- `embedding` is 32-bit little-endian floats, one after the other, and `norm` their Euclidean length.
CREATE TABLE embeddings (
    key INTEGER PRIMARY KEY REFERENCES documents (key) ON DELETE CASCADE,
    collection INTEGER NOT NULL,
    id TEXT NOT NULL,
    norm REAL NOT NULL,
    embedding BLOB NOT NULL
) STRICT;
CREATE INDEX embeddings_by_collection ON embeddings (collection);

-- Graph ------------------------------------------------------------------------------------------------------------

-- One row: the greatest revision of an entity so far. It never decreases, so an entity that is created again after its deletion
-- gets a revision that it never had.
CREATE TABLE entity_revisions (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    last_revision INTEGER NOT NULL
) STRICT;
INSERT INTO entity_revisions (only_row, last_revision) VALUES (1, 0);

CREATE TABLE entities (
    key INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    entity_type TEXT NOT NULL,
    revision INTEGER NOT NULL,
    properties TEXT NOT NULL,
    UNIQUE (namespace, id)
) STRICT;
CREATE INDEX entities_by_type ON entities (namespace, entity_type, id);

CREATE TABLE relationships (
    key INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    relationship_type TEXT NOT NULL,
    source INTEGER NOT NULL REFERENCES entities (key) ON DELETE CASCADE,
    target INTEGER NOT NULL REFERENCES entities (key) ON DELETE CASCADE,
    properties TEXT NOT NULL,
    UNIQUE (namespace, id)
) STRICT;
CREATE INDEX relationships_by_type ON relationships (namespace, relationship_type, id);
-- A traversal reads only these two, and a listing of an entity's relationships pages along them.
CREATE INDEX relationships_by_source ON relationships (source, id, target, relationship_type);
CREATE INDEX relationships_by_target ON relationships (target, id, source, relationship_type);

-- Tasks ------------------------------------------------------------------------------------------------------------

-- One row per board. A deleted board keeps its row with `live` 0, so that its numbers continue if it is created again.
CREATE TABLE boards (
    key INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    conversation TEXT NOT NULL,
    agent TEXT NOT NULL,
    live INTEGER NOT NULL,
    last_position INTEGER NOT NULL,
    last_revision INTEGER NOT NULL,
    last_token INTEGER NOT NULL,
    parent TEXT,
    label BLOB,
    UNIQUE (namespace, conversation, agent)
) STRICT;
CREATE INDEX boards_live ON boards (namespace, conversation, agent) WHERE live = 1;

-- `status` is the name in JSON. The three lease columns are NULL together; only tasks in progress have them.
CREATE TABLE tasks (
    key INTEGER PRIMARY KEY,
    board INTEGER NOT NULL REFERENCES boards (key) ON DELETE CASCADE,
    id TEXT NOT NULL,
    position INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    status TEXT NOT NULL,
    retries INTEGER NOT NULL,
    retries_max INTEGER NOT NULL,
    lease_worker TEXT,
    lease_token INTEGER,
    lease_expires_ms INTEGER,
    title BLOB NOT NULL,
    metadata TEXT NOT NULL,
    description BLOB,
    result BLOB,
    UNIQUE (board, id),
    UNIQUE (board, position)
) STRICT;
CREATE INDEX tasks_by_status ON tasks (board, status, position);
CREATE INDEX tasks_leased ON tasks (board, lease_expires_ms, position) WHERE lease_expires_ms IS NOT NULL;
