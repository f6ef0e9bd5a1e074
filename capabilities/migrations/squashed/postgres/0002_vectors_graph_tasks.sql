-- The tables of vectors, graph and tasks.
--
-- Ids compare by their bytes (COLLATE "C"), so ids that differ in any byte are different keys and listings come in byte
-- order. Text that may hold NUL (document contents, task texts) is kept as BYTEA. Metadata and properties are JSON text:
-- jsonb would rewrite their numbers. Times are milliseconds since 1970-01-01T00:00:00Z; NULL where there is none.
--
-- Each key begins with the namespace and then the collection, graph item or board, so that tables can be distributed by
-- those columns.

-- Vectors ----------------------------------------------------------------------------------------------------------

CREATE TABLE larder.collections (
    namespace TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    dimensions INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- `embedding` is 32-bit little-endian floats, one after the other, bit for bit as given. The column `direction`, the
-- same brought to length 1 as pgvector's type, is added where the extension is there.
CREATE TABLE larder.documents (
    namespace TEXT COLLATE "C" NOT NULL,
    collection TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    metadata TEXT NOT NULL,
    content BYTEA NOT NULL,
    embedding BYTEA NOT NULL,
    PRIMARY KEY (namespace, collection, id),
    CONSTRAINT documents_collection FOREIGN KEY (namespace, collection)
        REFERENCES larder.collections (namespace, name) ON DELETE CASCADE
);
-- Numbers that look random do not shrink, so no time is spent on trying.
ALTER TABLE larder.documents ALTER COLUMN embedding SET STORAGE EXTERNAL;

-- Graph ------------------------------------------------------------------------------------------------------------

CREATE TABLE larder.entities (
    namespace TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    entity_type TEXT COLLATE "C" NOT NULL,
    properties TEXT NOT NULL,
    PRIMARY KEY (namespace, id)
);
CREATE INDEX entities_by_type ON larder.entities (namespace, entity_type, id);

CREATE TABLE larder.relationships (
    namespace TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    relationship_type TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    target TEXT COLLATE "C" NOT NULL,
    properties TEXT NOT NULL,
    PRIMARY KEY (namespace, id),
    CONSTRAINT relationships_source FOREIGN KEY (namespace, source)
        REFERENCES larder.entities (namespace, id) ON DELETE CASCADE,
    CONSTRAINT relationships_target FOREIGN KEY (namespace, target)
        REFERENCES larder.entities (namespace, id) ON DELETE CASCADE
);
CREATE INDEX relationships_by_type ON larder.relationships (namespace, relationship_type, id);
-- A walk goes along these two, and a listing of an entity's relationships pages along them.
CREATE INDEX relationships_by_source ON larder.relationships (namespace, source, id);
CREATE INDEX relationships_by_target ON larder.relationships (namespace, target, id);

-- Tasks ------------------------------------------------------------------------------------------------------------

-- One row a board, kept with `live` false when the board is deleted: its numbers go on in one made anew. Every change of
-- a board or its tasks begins with a lock of this row.
CREATE TABLE larder.boards (
    namespace TEXT COLLATE "C" NOT NULL,
    conversation TEXT COLLATE "C" NOT NULL,
    agent TEXT COLLATE "C" NOT NULL,
    live BOOLEAN NOT NULL,
    last_position BIGINT NOT NULL,
    last_revision BIGINT NOT NULL,
    last_token BIGINT NOT NULL,
    parent TEXT COLLATE "C",
    label BYTEA,
    PRIMARY KEY (namespace, conversation, agent)
);

-- `status` is the name in JSON. The three lease columns are NULL together, and only tasks in progress have them.
CREATE TABLE larder.tasks (
    namespace TEXT COLLATE "C" NOT NULL,
    conversation TEXT COLLATE "C" NOT NULL,
    agent TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    retries INTEGER NOT NULL,
    retries_max INTEGER NOT NULL,
    lease_worker TEXT COLLATE "C",
    lease_token BIGINT,
    lease_expires_ms BIGINT,
    title BYTEA NOT NULL,
    metadata TEXT NOT NULL,
    description BYTEA,
    result BYTEA,
    PRIMARY KEY (namespace, conversation, agent, id),
    CONSTRAINT tasks_place UNIQUE (namespace, conversation, agent, position),
    CONSTRAINT tasks_board FOREIGN KEY (namespace, conversation, agent)
        REFERENCES larder.boards (namespace, conversation, agent) ON DELETE CASCADE
);
-- A claim takes the first of each of these two, however many tasks are planned or done.
CREATE INDEX tasks_planned ON larder.tasks (namespace, conversation, agent, position) WHERE status = 'planned';
CREATE INDEX tasks_leased ON larder.tasks (namespace, conversation, agent, lease_expires_ms, position)
    WHERE lease_expires_ms IS NOT NULL;
CREATE INDEX tasks_in_progress ON larder.tasks (namespace, conversation, agent) WHERE status = 'in_progress';
