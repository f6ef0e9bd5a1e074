-- The schema of version 12, continued: vectors, graph and tasks, and the compression of all tables.

-- Vectors -------------------------------------------------------------------------------------------------------------

CREATE TABLE larder.collections (
    namespace TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    dimensions INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- `embedding` is 32-bit little-endian floats, one after the other, bit for bit as given. The column `direction`, the embedding
-- scaled to length 1 in pgvector's type, is added when vectors are first opened.
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

-- Compressing floats does not make them smaller, so the server does not try.
ALTER TABLE larder.documents ALTER COLUMN embedding SET STORAGE EXTERNAL;

-- Returns the name of a collection's own index. An index over all collections would visit the documents of the others. The
-- lengths keep two pairs of names apart; the names are hashed because an identifier ends at 63 bytes.
CREATE FUNCTION larder.index_name(kind text, in_namespace text, in_collection text, in_dimensions integer)
RETURNS name LANGUAGE sql STABLE AS $$
    SELECT (format('documents_%s_%s_%s', kind, left(encode(sha256(convert_to(
        format('%s:%s%s', length(in_namespace), in_namespace, in_collection), 'UTF8')), 'hex'), 32), in_dimensions))::name
$$;

-- Returns the `most` nearest documents that satisfy a condition, if fewer than `few` satisfy it and the collection has its
-- index, as the last column states. Otherwise, or if the embeddings have another dimension, returns the collection's row
-- without a document.
--
-- Only a plan for the given collection uses its indexes, so each call is planned; a session may keep the plan of a prepared
-- statement for all collections. The distance is computed during the scan, because storing the direction would copy it.
CREATE FUNCTION larder.nearest_among_few(
    in_namespace text, in_collection text, query real[], most bigint, in_dimensions integer, condition text, few bigint
) RETURNS TABLE (
    out_dimensions integer, out_id text, out_content bytea, out_metadata text, out_embedding bytea, out_complete boolean
) LANGUAGE plpgsql STABLE SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    RETURN QUERY WITH collection AS MATERIALIZED (
        SELECT c.dimensions, (
            SELECT x.indisvalid FROM pg_catalog.pg_index x
            WHERE x.indexrelid = pg_catalog.to_regclass(
                format('larder.%I', larder.index_name('hnsw', c.namespace, c.name, c.dimensions)))
        ) IS TRUE AS indexed
        FROM larder.collections c WHERE c.namespace = in_namespace AND c.name = in_collection
    ), found AS MATERIALIZED (
        SELECT d.id, d.content, d.metadata, d.embedding, d.direction <=> query::vector AS distance
        FROM larder.documents d
        WHERE d.namespace = in_namespace AND d.collection = in_collection AND d.metadata::jsonb @@ condition::jsonpath
            AND (SELECT c.indexed AND c.dimensions = in_dimensions FROM collection c)
        LIMIT few
    )
    SELECT c.dimensions, d.id, d.content, d.metadata, d.embedding, c.indexed AND (SELECT count(*) FROM found) < few
    FROM collection c LEFT JOIN (
        SELECT f.id, f.content, f.metadata, f.embedding FROM found f WHERE (SELECT count(*) FROM found) < few
        ORDER BY f.distance, f.id LIMIT most) d ON TRUE;
END
$$;

-- Graph ---------------------------------------------------------------------------------------------------------------

-- The revisions of entities. A sequence never returns a number twice, so an entity that is created again after its deletion gets
-- a revision that it never had. A write draws the number after it has locked the row, so the revisions of a row only increase.
CREATE SEQUENCE larder.entity_revisions;

-- `replaced` distinguishes replaced rows from created rows in an upsert.
CREATE TABLE larder.entities (
    namespace TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    entity_type TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL DEFAULT nextval('larder.entity_revisions'),
    properties TEXT NOT NULL,
    replaced BOOLEAN NOT NULL DEFAULT false,
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
    replaced BOOLEAN NOT NULL DEFAULT false,
    PRIMARY KEY (namespace, id),
    CONSTRAINT relationships_source FOREIGN KEY (namespace, source)
        REFERENCES larder.entities (namespace, id) ON DELETE CASCADE,
    CONSTRAINT relationships_target FOREIGN KEY (namespace, target)
        REFERENCES larder.entities (namespace, id) ON DELETE CASCADE
);
CREATE INDEX relationships_by_type ON larder.relationships (namespace, relationship_type, id);
-- A traversal reads these two, and a listing of an entity's relationships pages along them.
CREATE INDEX relationships_by_source ON larder.relationships (namespace, source, id);
CREATE INDEX relationships_by_target ON larder.relationships (namespace, target, id);

-- Returns the data within `depth` hops of an entity, up to `most` entities: the entities with their hops, then the
-- relationships from (or to) those of fewer than `depth` hops, with hops NULL. A relationship that is followed in both
-- directions is returned twice. If the limit left out entities, relationships to them are left out too: an entity may have
-- a million of them.
--
-- STABLE, so that all of it reads the caller's snapshot. The plans use the indexes whatever the arrays hold, and planning each
-- call would cost as much as a short traversal.
CREATE FUNCTION larder.neighbors(
    in_namespace text, in_start text, depth integer, forth boolean, back boolean, types text[], most integer
) RETURNS TABLE (
    out_hops integer, out_id text, out_type text, out_source text, out_target text, out_properties text
) LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    reached text[];
    hops integer[] := ARRAY[0];
    -- The entities of fewer than `depth` hops, whose relationships are followed.
    passed text[] := '{}';
    level text[];
    following text[];
BEGIN
    SELECT ARRAY[e.id] INTO reached FROM larder.entities e WHERE e.namespace = in_namespace AND e.id = in_start;
    IF reached IS NULL THEN
        RETURN;
    END IF;
    level := reached;
    FOR hop IN 1..depth LOOP
        passed := passed || level;
        -- Removes known entities by sorting or hashing, because a search in an array starts from its beginning each time.
        SELECT array_agg(found.id) INTO following FROM (
            (SELECT r.target AS id FROM larder.relationships r
             WHERE forth AND r.namespace = in_namespace AND r.source = ANY (level)
                AND (types IS NULL OR r.relationship_type = ANY (types))
             UNION ALL
             SELECT r.source FROM larder.relationships r
             WHERE back AND r.namespace = in_namespace AND r.target = ANY (level)
                AND (types IS NULL OR r.relationship_type = ANY (types)))
            EXCEPT SELECT unnest(reached) COLLATE "C"
            ORDER BY 1 LIMIT most - cardinality(reached)
        ) found;
        EXIT WHEN following IS NULL;
        reached := reached || following;
        hops := hops || array_fill(hop, ARRAY[cardinality(following)]);
        level := following;
    END LOOP;
    RETURN QUERY SELECT w.hops, e.id, e.entity_type, NULL::text, NULL::text, e.properties
        FROM unnest(reached, hops) w (id, hops)
        JOIN larder.entities e ON e.namespace = in_namespace AND e.id = w.id;
    IF forth THEN
        RETURN QUERY SELECT NULL::integer, r.id, r.relationship_type, r.source, r.target, r.properties
            FROM larder.relationships r
            WHERE r.namespace = in_namespace AND r.source = ANY (passed)
                AND (types IS NULL OR r.relationship_type = ANY (types))
                AND (cardinality(reached) < most OR r.target IN (SELECT unnest(reached) COLLATE "C"));
    END IF;
    IF back THEN
        RETURN QUERY SELECT NULL::integer, r.id, r.relationship_type, r.source, r.target, r.properties
            FROM larder.relationships r
            WHERE r.namespace = in_namespace AND r.target = ANY (passed)
                AND (types IS NULL OR r.relationship_type = ANY (types))
                AND (cardinality(reached) < most OR r.source IN (SELECT unnest(reached) COLLATE "C"));
    END IF;
END
$$;

-- Tasks ---------------------------------------------------------------------------------------------------------------

-- One row per board. A deleted board keeps its row with `live` false, so that its numbers continue if it is created again. Every
-- change of a board or its tasks begins with a lock of this row.
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

-- `status` is the name in JSON. The three lease columns are NULL together; only tasks in progress have them.
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
-- A claim takes the first row of each of these two, however many tasks are planned or done.
CREATE INDEX tasks_planned ON larder.tasks (namespace, conversation, agent, position) WHERE status = 'planned';
CREATE INDEX tasks_leased ON larder.tasks (namespace, conversation, agent, lease_expires_ms, position)
    WHERE lease_expires_ms IS NOT NULL;
CREATE INDEX tasks_in_progress ON larder.tasks (namespace, conversation, agent) WHERE status = 'in_progress';

-- Gives each of `in_workers`, in their order, the first task in board order that is planned or whose lease has expired, with a
-- lease of so many milliseconds. Returns a row for each task given: fewer than workers if none is left, and none if the board
-- does not exist.
--
-- A session keeps the plans, even those made while the table was small and had no statistics, when every index that begins with
-- the board looks equally good. So free tasks are read from the beginning of two indexes that hold nothing else, and each
-- task is written by its position alone.
CREATE FUNCTION larder.claim_tasks(
    in_namespace text, in_conversation text, in_agent text, in_workers text[], in_leases_ms bigint[]
) RETURNS SETOF larder.tasks LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    board larder.boards;
    claimed larder.tasks;
    clock_ms bigint;
    workers integer := cardinality(in_workers);
    free bigint[];
BEGIN
    -- Locks the board, so that claims run one at a time, each on the state that the previous one left.
    SELECT b.* INTO board FROM larder.boards b
        WHERE b.namespace = in_namespace AND b.conversation = in_conversation AND b.agent = in_agent AND b.live
        FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    clock_ms := larder.now_ms();
    SELECT array_agg(firsts.position) INTO free FROM (
        (SELECT t.position FROM larder.tasks t
         WHERE t.namespace = in_namespace AND t.conversation = in_conversation AND t.agent = in_agent
            AND t.status = 'planned'
         ORDER BY t.position LIMIT workers)
        UNION ALL
        -- The subquery is separate from the sort. Otherwise the planner could read all tasks by position.
        (SELECT passed.position FROM (
            SELECT t.position FROM larder.tasks t
            WHERE t.namespace = in_namespace AND t.conversation = in_conversation AND t.agent = in_agent
                AND t.lease_expires_ms IS NOT NULL AND t.lease_expires_ms <= clock_ms
            OFFSET 0) passed
         ORDER BY passed.position LIMIT workers)
        ORDER BY position LIMIT workers) firsts;
    FOR place IN 1..coalesce(cardinality(free), 0) LOOP
        UPDATE larder.tasks t
            SET revision = board.last_revision + place, status = 'in_progress', lease_worker = in_workers[place],
                lease_token = board.last_token + place, lease_expires_ms = clock_ms + in_leases_ms[place]
            WHERE t.namespace = in_namespace AND t.conversation = in_conversation AND t.agent = in_agent
                AND t.position = free[place]
            RETURNING t.* INTO claimed;
        RETURN NEXT claimed;
    END LOOP;
    IF free IS NOT NULL THEN
        UPDATE larder.boards b
            SET last_revision = b.last_revision + cardinality(free), last_token = b.last_token + cardinality(free)
            WHERE b.namespace = in_namespace AND b.conversation = in_conversation AND b.agent = in_agent;
    END IF;
END
$$;

-- Compression ---------------------------------------------------------------------------------------------------------

-- The program compresses messages itself, so the server does not try.
ALTER TABLE larder.messages ALTER COLUMN body SET STORAGE EXTERNAL;

-- lz4 is several times faster than the default, but not every server is built with it.
DO $$
BEGIN
    ALTER TABLE larder.kv_entries ALTER COLUMN value SET COMPRESSION lz4;
    ALTER TABLE larder.documents ALTER COLUMN content SET COMPRESSION lz4;
    ALTER TABLE larder.documents ALTER COLUMN metadata SET COMPRESSION lz4;
    ALTER TABLE larder.entities ALTER COLUMN properties SET COMPRESSION lz4;
    ALTER TABLE larder.relationships ALTER COLUMN properties SET COMPRESSION lz4;
    ALTER TABLE larder.tasks ALTER COLUMN description SET COMPRESSION lz4;
    ALTER TABLE larder.tasks ALTER COLUMN result SET COMPRESSION lz4;
    ALTER TABLE larder.tasks ALTER COLUMN metadata SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
    NULL;
END
$$;
