-- Version 19: blobs.

-- The numbers of versions.
CREATE SEQUENCE larder.blob_numbers;

-- One row per blob. Each write draws a new `version`, which a rename keeps. The bytes of a small blob are in `bytes`. Those of
-- a larger one are the chunks of `content`, which never change and which copies share. `crc` is the CRC-64/NVME of all bytes.
-- `metadata` is JSON, or NULL without user metadata.
CREATE TABLE larder.blobs (
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    size bigint NOT NULL,
    crc bigint NOT NULL,
    modified_ms bigint NOT NULL,
    content bigint,
    content_type text,
    metadata text,
    bytes bytea,
    PRIMARY KEY (namespace, key)
);
ALTER TABLE larder.blobs ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE INDEX blobs_by_content ON larder.blobs (namespace, content) WHERE content IS NOT NULL;

-- The bytes of larger blobs. `crc` is the CRC-64/NVME of the two numbers and the bytes, so it also finds a chunk that is in the
-- wrong place.
CREATE TABLE larder.blob_chunks (
    namespace text COLLATE "C" NOT NULL,
    content bigint NOT NULL,
    chunk integer NOT NULL,
    crc bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (namespace, content, chunk)
);
ALTER TABLE larder.blob_chunks ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- The contents that may belong to no blob: those of writes in progress, and those of blobs that were replaced or deleted.
-- `sweep_ms` is when to look for them.
CREATE TABLE larder.blob_leftovers (
    namespace text COLLATE "C" NOT NULL,
    content bigint NOT NULL,
    sweep_ms bigint NOT NULL,
    PRIMARY KEY (namespace, content)
);
CREATE INDEX blob_leftovers_to_sweep ON larder.blob_leftovers (sweep_ms);

-- Begins the write of a content, which is swept if no chunk comes for `keep_ms`, and returns its number. The number is random:
-- this commit is not flushed, so a server that crashes would draw a number of a sequence again, for another write.
CREATE FUNCTION larder.blob_begin(in_namespace text, keep_ms bigint) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO larder.blob_leftovers (namespace, content, sweep_ms)
    VALUES (in_namespace, larder.draw_generation(), larder.now_ms() + keep_ms) RETURNING content
$$;

-- Writes chunks of a content that was begun, from the number `in_first` on. Returns whether the content still exists. A
-- repetition changes nothing.
CREATE FUNCTION larder.blob_push(
    in_namespace text, in_content bigint, in_first integer, crcs bigint[], chunks bytea[], keep_ms bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    -- The lock holds back the sweep. A content that was discarded stays so: the server may run a dropped call late.
    UPDATE larder.blob_leftovers l SET sweep_ms = larder.now_ms() + keep_ms
    WHERE l.namespace = in_namespace AND l.content = in_content AND l.sweep_ms > 0;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO larder.blob_chunks (namespace, content, chunk, crc, bytes)
    SELECT in_namespace, in_content, in_first + p.place - 1, p.crc, p.bytes
    FROM unnest(crcs, chunks) WITH ORDINALITY AS p (crc, bytes, place)
    ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;

-- Lets a content that a blob no longer has be swept after `keep_ms`, so that readers can end.
CREATE FUNCTION larder.blob_leave(in_namespace text, in_content bigint, keep_ms bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF in_content IS NOT NULL THEN
        INSERT INTO larder.blob_leftovers (namespace, content, sweep_ms)
        VALUES (in_namespace, in_content, larder.now_ms() + keep_ms)
        ON CONFLICT (namespace, content) DO UPDATE SET sweep_ms = excluded.sweep_ms;
    END IF;
END
$$;

-- Stores the row of a blob in place of the one with its key, and returns it. Without a version, it gets a new one. Returns
-- NULL if the condition does not hold. `if_version`: NULL for no condition, -1 for a key without a blob, else the version
-- and checksum that the blob must have.
CREATE FUNCTION larder.blob_place(b larder.blobs, if_version bigint, if_crc bigint, keep_ms bigint)
RETURNS larder.blobs LANGUAGE plpgsql AS $$
DECLARE
    is_new boolean := b.version IS NULL;
    is_there boolean;
    old_version bigint;
    old_crc bigint;
    old_content bigint;
BEGIN
    LOOP
        SELECT o.version, o.crc, o.content INTO old_version, old_crc, old_content FROM larder.blobs o
        WHERE o.namespace = b.namespace AND o.key = b.key FOR UPDATE;
        is_there := FOUND;
        IF is_there AND (if_version <> old_version OR if_crc <> old_crc) OR NOT is_there AND if_version >= 0 THEN
            RETURN NULL;
        END IF;
        -- Drawn under the lock, so that a key's versions have the order of its writes.
        IF is_new THEN
            b.version := nextval('larder.blob_numbers');
            b.modified_ms := larder.now_ms();
        END IF;
        IF is_there THEN
            UPDATE larder.blobs o SET version = b.version, size = b.size, crc = b.crc, modified_ms = b.modified_ms,
                content = b.content, content_type = b.content_type, metadata = b.metadata, bytes = b.bytes
            WHERE o.namespace = b.namespace AND o.key = b.key;
            IF old_content IS DISTINCT FROM b.content THEN
                PERFORM larder.blob_leave(b.namespace, old_content, keep_ms);
            END IF;
            RETURN b;
        END IF;
        INSERT INTO larder.blobs SELECT b.* ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN b;
        END IF;
    END LOOP;
END
$$;

-- Ends the write of a blob whose bytes are `in_bytes`, or the `in_chunks` chunks of `in_content`.
--
-- `out_state`: 0 written, 1 the condition of `blob_place` does not hold, 2 chunks of the content are missing.
CREATE FUNCTION larder.blob_put(
    in_namespace text, in_key text, in_size bigint, in_crc bigint, in_content bigint, in_chunks bigint, in_bytes bytea,
    in_content_type text, in_metadata text, if_version bigint, if_crc bigint, keep_ms bigint,
    OUT out_state integer, OUT out_version bigint, OUT out_modified_ms bigint
) LANGUAGE plpgsql AS $$
DECLARE
    b larder.blobs;
BEGIN
    -- The most frequent case, in one step: a small blob that replaces no large one. A replaced blob gets its version under
    -- the lock of its row.
    IF in_bytes IS NOT NULL AND if_version IS NULL THEN
        INSERT INTO larder.blobs AS o (namespace, key, version, size, crc, modified_ms, content_type, metadata, bytes)
        VALUES (in_namespace, in_key, nextval('larder.blob_numbers'), in_size, in_crc, larder.now_ms(), in_content_type,
            in_metadata, in_bytes)
        ON CONFLICT (namespace, key) DO UPDATE SET version = nextval('larder.blob_numbers'), size = excluded.size,
            crc = excluded.crc, modified_ms = larder.now_ms(), content_type = excluded.content_type,
            metadata = excluded.metadata, bytes = excluded.bytes
        WHERE o.content IS NULL
        RETURNING o.version, o.modified_ms INTO out_version, out_modified_ms;
        IF FOUND THEN
            out_state := 0;
            RETURN;
        END IF;
    END IF;
    IF in_content IS NOT NULL THEN
        -- The sweep waits for this lock. The chunks were written without waiting for the disk, so a server that lost its
        -- power may have lost them.
        PERFORM FROM larder.blob_leftovers l WHERE l.namespace = in_namespace AND l.content = in_content FOR UPDATE;
        IF NOT FOUND OR in_chunks <> (SELECT count(*) FROM larder.blob_chunks c
                WHERE c.namespace = in_namespace AND c.content = in_content) THEN
            out_state := 2;
            RETURN;
        END IF;
    END IF;
    b.namespace := in_namespace;
    b.key := in_key;
    b.size := in_size;
    b.crc := in_crc;
    b.content := in_content;
    b.content_type := in_content_type;
    b.metadata := in_metadata;
    b.bytes := in_bytes;
    b := larder.blob_place(b, if_version, if_crc, keep_ms);
    out_version := b.version;
    out_modified_ms := b.modified_ms;
    out_state := CASE WHEN out_version IS NULL THEN 1 ELSE 0 END;
    IF in_content IS NOT NULL AND out_state = 0 THEN
        DELETE FROM larder.blob_leftovers l WHERE l.namespace = in_namespace AND l.content = in_content;
    END IF;
END
$$;

-- Locks two blobs in the order of their keys, so that no two calls wait for each other, and returns the first one given.
CREATE FUNCTION larder.blob_lock(in_namespace text, in_source text, in_target text) RETURNS larder.blobs
LANGUAGE plpgsql AS $$
DECLARE
    b larder.blobs;
BEGIN
    PERFORM FROM larder.blobs o WHERE o.namespace = in_namespace AND o.key IN (in_source, in_target)
    ORDER BY o.key FOR UPDATE;
    SELECT * INTO b FROM larder.blobs o WHERE o.namespace = in_namespace AND o.key = in_source FOR UPDATE;
    RETURN b;
END
$$;

-- Copies a blob to another key, or to its own. Returns the row of the copy, or NULL if the source does not exist.
CREATE FUNCTION larder.blob_copy(in_namespace text, in_source text, in_target text, keep_ms bigint)
RETURNS larder.blobs LANGUAGE plpgsql AS $$
DECLARE
    b larder.blobs := larder.blob_lock(in_namespace, in_source, in_target);
BEGIN
    IF b.key IS NULL THEN
        RETURN NULL;
    END IF;
    b.key := in_target;
    b.version := NULL;
    RETURN larder.blob_place(b, NULL, NULL, keep_ms);
END
$$;

-- Moves a blob to another key, with its version.
--
-- `out_state`: 0 moved, 1 the target has a blob and `in_replace` is false, 2 the source does not exist.
CREATE FUNCTION larder.blob_rename(
    in_namespace text, in_source text, in_target text, in_replace boolean, keep_ms bigint,
    OUT out_state integer, OUT out_blob larder.blobs
) LANGUAGE plpgsql AS $$
BEGIN
    out_blob := larder.blob_lock(in_namespace, in_source, in_target);
    out_state := CASE WHEN out_blob.key IS NULL THEN 2 WHEN in_source = in_target AND NOT in_replace THEN 1 ELSE 0 END;
    IF out_state <> 0 OR in_source = in_target THEN
        RETURN;
    END IF;
    out_blob.key := in_target;
    out_blob := larder.blob_place(out_blob, CASE WHEN NOT in_replace THEN -1 END, NULL, keep_ms);
    IF out_blob.key IS NULL THEN
        out_state := 1;
        RETURN;
    END IF;
    DELETE FROM larder.blobs o WHERE o.namespace = in_namespace AND o.key = in_source;
END
$$;

-- Deletes a blob, and returns whether it existed.
CREATE FUNCTION larder.blob_delete(in_namespace text, in_key text, keep_ms bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    old_content bigint;
BEGIN
    DELETE FROM larder.blobs o WHERE o.namespace = in_namespace AND o.key = in_key RETURNING o.content INTO old_content;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM larder.blob_leave(in_namespace, old_content, keep_ms);
    RETURN true;
END
$$;

-- Lets the content of a write that failed be swept now.
CREATE FUNCTION larder.blob_discard(in_namespace text, in_content bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE larder.blob_leftovers l SET sweep_ms = 0 WHERE l.namespace = in_namespace AND l.content = in_content
$$;

-- Deletes up to `at_most` blobs of the namespace, lets all its contents without a blob be swept now, and returns the number.
CREATE FUNCTION larder.erase_blobs(in_namespace text, at_most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    gone bigint[];
BEGIN
    WITH chosen AS (
        SELECT o.key FROM larder.blobs o WHERE o.namespace = in_namespace ORDER BY o.key LIMIT at_most FOR UPDATE
    ), d AS (
        DELETE FROM larder.blobs o USING chosen c WHERE o.namespace = in_namespace AND o.key = c.key RETURNING o.content
    )
    SELECT coalesce(array_agg(d.content), '{}') INTO gone FROM d;
    INSERT INTO larder.blob_leftovers (namespace, content, sweep_ms)
    SELECT DISTINCT in_namespace, g.content, 0 FROM unnest(gone) AS g (content) WHERE g.content IS NOT NULL
    ON CONFLICT (namespace, content) DO UPDATE SET sweep_ms = 0;
    IF cardinality(gone) < at_most THEN
        UPDATE larder.blob_leftovers l SET sweep_ms = 0 WHERE l.namespace = in_namespace AND l.sweep_ms <> 0;
    END IF;
    RETURN cardinality(gone);
END
$$;

-- Removes up to `at_most` chunks of a content that is due and that no blob has. Returns 0 if it is not due or another
-- transaction uses it, 1 if nothing of it is left, 2 if more is left, 3 if a blob has it.
CREATE FUNCTION larder.sweep_blob(in_namespace text, in_content bigint, at_most bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    gone bigint;
    state integer := 1;
BEGIN
    PERFORM FROM larder.blob_leftovers l
    WHERE l.namespace = in_namespace AND l.content = in_content AND l.sweep_ms <= larder.now_ms()
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    -- A copy locks the blob that it copies, so a content that no committed blob has gets none.
    IF EXISTS (SELECT FROM larder.blobs o WHERE o.namespace = in_namespace AND o.content = in_content) THEN
        state := 3;
    ELSE
        DELETE FROM larder.blob_chunks c USING (
            SELECT d.chunk FROM larder.blob_chunks d WHERE d.namespace = in_namespace AND d.content = in_content
            ORDER BY d.chunk LIMIT at_most
        ) d WHERE c.namespace = in_namespace AND c.content = in_content AND c.chunk = d.chunk;
        GET DIAGNOSTICS gone = ROW_COUNT;
        IF gone = at_most THEN
            RETURN 2;
        END IF;
    END IF;
    DELETE FROM larder.blob_leftovers l WHERE l.namespace = in_namespace AND l.content = in_content;
    RETURN state;
END
$$;
