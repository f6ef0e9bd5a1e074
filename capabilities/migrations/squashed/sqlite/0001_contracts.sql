-- The tables of the five contracts that live in SQLite.
--
-- Text columns compare by their bytes (BINARY), so ids that differ in any byte are different keys and listings come in
-- byte order. Text that may hold NUL (document contents, task texts, values) is kept as BLOB. Times are milliseconds
-- since 1970-01-01T00:00:00Z; NULL where there is none. Large columns stand last, so that reading the small ones does
-- not walk their overflow pages.

-- History ----------------------------------------------------------------------------------------------------------

-- One row a thread, kept when the thread is cleared: its numbers go on. `changed_seq` is the number of the last clear,
-- run clear or replacement, by which a later replacement knows that its caller saw another state. `live` is 1 while the
-- thread holds messages; it stands for `messages > 0` in the index, which then need not follow every append.
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
    UNIQUE (namespace, agent, session)
) STRICT;
CREATE INDEX threads_live ON threads (namespace, agent, session) WHERE live = 1;

-- `placed_by` is the number of the replacement event that put the message in place; NULL for an appended one.
CREATE TABLE messages (
    thread INTEGER NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    run TEXT,
    placed_by INTEGER,
    bytes INTEGER NOT NULL,
    thread_bytes INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (thread, seq)
) STRICT;
CREATE INDEX messages_by_run ON messages (thread, run) WHERE run IS NOT NULL;

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

-- One row a bucket, kept when its keys are gone: its revisions go on. `forgotten_revision` is the greatest revision of
-- a tombstone that was dropped; a watch from before it could miss a deletion.
CREATE TABLE kv_buckets (
    namespace TEXT NOT NULL,
    bucket TEXT NOT NULL,
    last_revision INTEGER NOT NULL,
    forgotten_revision INTEGER NOT NULL,
    PRIMARY KEY (namespace, bucket)
) STRICT, WITHOUT ROWID;

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

-- Keys that are gone and the revision at which they went. `expired` is 1 where a passed time to live, not a deletion,
-- took the key away; the revision is then that of its last put.
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

-- Apart from the texts, so that a search reads nothing but numbers; the id stands here again to rank equal scores.
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

CREATE TABLE entities (
    key INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    entity_type TEXT NOT NULL,
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
-- A walk needs nothing but these two, and a listing of an entity's relationships pages along them.
CREATE INDEX relationships_by_source ON relationships (source, id, target, relationship_type);
CREATE INDEX relationships_by_target ON relationships (target, id, source, relationship_type);

-- Tasks ------------------------------------------------------------------------------------------------------------

-- One row a board, kept with `live` 0 when the board is deleted: its numbers go on in one made anew.
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

-- `status` is the name in JSON. The three lease columns are NULL together, and only tasks in progress have them.
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
CREATE INDEX tasks_leased ON tasks (board, position, lease_expires_ms) WHERE lease_expires_ms IS NOT NULL;
