-- The schema of version 12, continued: key-value.

-- One row per bucket. The row outlives its keys, so that its revisions continue. Its lock orders the bucket's writers.
-- `forgotten_revision` is the greatest revision of a tombstone that was dropped. `sweep_ms` is as in `threads`.
CREATE TABLE larder.kv_buckets (
    namespace text COLLATE "C" NOT NULL,
    bucket text COLLATE "C" NOT NULL,
    last_revision bigint NOT NULL DEFAULT 0,
    forgotten_revision bigint NOT NULL DEFAULT 0,
    sweep_ms bigint,
    PRIMARY KEY (namespace, bucket)
) WITH (fillfactor = 70);
CREATE INDEX kv_buckets_to_sweep ON larder.kv_buckets (sweep_ms) WHERE sweep_ms IS NOT NULL;

CREATE TABLE larder.kv_entries (
    namespace text COLLATE "C" NOT NULL,
    bucket text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    expires_ms bigint,
    value bytea NOT NULL,
    PRIMARY KEY (namespace, bucket, key)
);
CREATE INDEX kv_entries_by_revision ON larder.kv_entries (namespace, bucket, revision);
CREATE INDEX kv_entries_by_expiry ON larder.kv_entries (namespace, bucket, expires_ms) WHERE expires_ms IS NOT NULL;

-- Tombstones: removed keys, with the revision of their removal. `expired` is true if the time to live passed, and false if the
-- key was deleted; the revision of an expired key is that of its last put.
CREATE TABLE larder.kv_tombstones (
    namespace text COLLATE "C" NOT NULL,
    bucket text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    expired boolean NOT NULL,
    PRIMARY KEY (namespace, bucket, key)
);
CREATE INDEX kv_tombstones_by_revision ON larder.kv_tombstones (namespace, bucket, expired, revision);

-- Locks a bucket, which the first write creates, and returns its last revision.
CREATE FUNCTION larder.kv_lock(in_namespace text, in_bucket text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    last bigint;
BEGIN
    LOOP
        SELECT b.last_revision INTO last FROM larder.kv_buckets b
        WHERE b.namespace = in_namespace AND b.bucket = in_bucket FOR UPDATE;
        IF FOUND THEN
            RETURN last;
        END IF;
        INSERT INTO larder.kv_buckets (namespace, bucket) VALUES (in_namespace, in_bucket) ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;

-- Returns the revision of a key that exists.
CREATE FUNCTION larder.kv_revision(in_namespace text, in_bucket text, in_key text) RETURNS bigint LANGUAGE sql AS $$
    SELECT e.revision FROM larder.kv_entries e
    WHERE e.namespace = in_namespace AND e.bucket = in_bucket AND e.key = in_key
        AND (e.expires_ms IS NULL OR e.expires_ms > larder.now_ms());
$$;

-- Drops the oldest tombstones of a locked bucket beyond `kept`, and stores the greatest dropped revision.
CREATE FUNCTION larder.kv_forget(in_namespace text, in_bucket text, in_expired boolean, kept bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    forgotten bigint;
BEGIN
    SELECT t.revision INTO forgotten FROM larder.kv_tombstones t
    WHERE t.namespace = in_namespace AND t.bucket = in_bucket AND t.expired = in_expired
    ORDER BY t.revision DESC LIMIT 1 OFFSET kept;
    IF forgotten IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM larder.kv_tombstones t
    WHERE t.namespace = in_namespace AND t.bucket = in_bucket AND t.expired = in_expired AND t.revision <= forgotten;
    UPDATE larder.kv_buckets b SET forgotten_revision = greatest(b.forgotten_revision, forgotten)
    WHERE b.namespace = in_namespace AND b.bucket = in_bucket;
END
$$;

-- Ends a write to a locked bucket: saves and announces the revision, turns entries that expired a while ago into tombstones
-- (watchers in progress have read their put by then), and drops old tombstones from time to time.
CREATE FUNCTION larder.kv_written(in_namespace text, in_bucket text, in_revision bigint, kept bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE larder.kv_buckets b SET last_revision = in_revision
    WHERE b.namespace = in_namespace AND b.bucket = in_bucket;
    WITH old AS (
        SELECT e.key FROM larder.kv_entries e
        WHERE e.namespace = in_namespace AND e.bucket = in_bucket AND e.expires_ms <= larder.now_ms() - 60000
        ORDER BY e.expires_ms LIMIT 16
    ), gone AS (
        DELETE FROM larder.kv_entries e USING old
        WHERE e.namespace = in_namespace AND e.bucket = in_bucket AND e.key = old.key RETURNING e.key, e.revision
    )
    INSERT INTO larder.kv_tombstones SELECT in_namespace, in_bucket, gone.key, gone.revision, true FROM gone;
    IF in_revision % 256 = 0 THEN
        PERFORM larder.kv_forget(in_namespace, in_bucket, false, kept);
        PERFORM larder.kv_forget(in_namespace, in_bucket, true, kept);
    END IF;
    PERFORM larder.announce(larder.wake('k', in_namespace, in_bucket));
END
$$;

-- Writes a value and returns its revision, or NULL if the condition does not hold. `in_at`: NULL for no condition, -1 for a
-- key that must be absent, else the revision that the key must be at.
CREATE FUNCTION larder.kv_put(
    in_namespace text, in_bucket text, in_key text, in_value bytea, in_ttl_ms bigint, in_at bigint, kept bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    given bigint := larder.kv_lock(in_namespace, in_bucket) + 1;
    ends_ms bigint := larder.now_ms() + in_ttl_ms;
BEGIN
    IF in_at IS NOT NULL AND coalesce(larder.kv_revision(in_namespace, in_bucket, in_key), -1) <> in_at THEN
        RETURN NULL;
    END IF;
    INSERT INTO larder.kv_entries AS e (namespace, bucket, key, revision, expires_ms, value)
    VALUES (in_namespace, in_bucket, in_key, given, ends_ms, in_value)
    ON CONFLICT (namespace, bucket, key) DO UPDATE
    SET revision = excluded.revision, expires_ms = excluded.expires_ms, value = excluded.value;
    DELETE FROM larder.kv_tombstones t
    WHERE t.namespace = in_namespace AND t.bucket = in_bucket AND t.key = in_key;
    IF ends_ms IS NOT NULL THEN
        UPDATE larder.kv_buckets b SET sweep_ms = ends_ms
        WHERE b.namespace = in_namespace AND b.bucket = in_bucket AND coalesce(b.sweep_ms > ends_ms, true);
    END IF;
    PERFORM larder.kv_written(in_namespace, in_bucket, given, kept);
    RETURN given;
END
$$;

-- Deletes a key, at a revision if one is given. Returns whether the key existed, or NULL if it is at another revision.
CREATE FUNCTION larder.kv_delete(in_namespace text, in_bucket text, in_key text, in_at bigint, kept bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    given bigint := larder.kv_lock(in_namespace, in_bucket) + 1;
    found_at bigint := larder.kv_revision(in_namespace, in_bucket, in_key);
BEGIN
    IF in_at IS NOT NULL AND found_at IS DISTINCT FROM in_at THEN
        RETURN NULL;
    END IF;
    IF found_at IS NULL THEN
        RETURN false;
    END IF;
    DELETE FROM larder.kv_entries e WHERE e.namespace = in_namespace AND e.bucket = in_bucket AND e.key = in_key;
    INSERT INTO larder.kv_tombstones VALUES (in_namespace, in_bucket, in_key, given, false)
    ON CONFLICT (namespace, bucket, key) DO UPDATE SET revision = excluded.revision, expired = excluded.expired;
    PERFORM larder.kv_written(in_namespace, in_bucket, given, kept);
    RETURN true;
END
$$;

-- Turns entries of a bucket that expired a while ago into tombstones, up to a number and a size. `out_state`: 0 another
-- transaction holds the bucket, 1 no such entry is left, 2 some are left.
CREATE FUNCTION larder.sweep_bucket(
    in_namespace text, in_bucket text, keys_max bigint, bytes_max bigint, kept bigint,
    OUT out_state integer, OUT out_gone bigint
) LANGUAGE plpgsql AS $$
DECLARE
    passed_ms bigint := larder.now_ms() - 60000;
    next_ms bigint;
BEGIN
    out_state := 0;
    out_gone := 0;
    PERFORM FROM larder.kv_buckets b
    WHERE b.namespace = in_namespace AND b.bucket = in_bucket FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WITH due AS (
        SELECT e.key, e.expires_ms, octet_length(e.value) AS size FROM larder.kv_entries e
        WHERE e.namespace = in_namespace AND e.bucket = in_bucket AND e.expires_ms <= passed_ms
        ORDER BY e.expires_ms LIMIT keys_max
    ), old AS (
        SELECT d.key, sum(d.size) OVER (ORDER BY d.expires_ms ROWS UNBOUNDED PRECEDING) - d.size AS before FROM due d
    ), gone AS (
        DELETE FROM larder.kv_entries e USING old
        WHERE e.namespace = in_namespace AND e.bucket = in_bucket AND e.key = old.key AND old.before < bytes_max
        RETURNING e.key, e.revision
    ), buried AS (
        INSERT INTO larder.kv_tombstones SELECT in_namespace, in_bucket, gone.key, gone.revision, true FROM gone
        RETURNING 1
    )
    SELECT count(*) INTO out_gone FROM buried;
    IF out_gone > 0 THEN
        PERFORM larder.kv_forget(in_namespace, in_bucket, true, kept);
    END IF;
    SELECT min(e.expires_ms) INTO next_ms FROM larder.kv_entries e
    WHERE e.namespace = in_namespace AND e.bucket = in_bucket AND e.expires_ms IS NOT NULL;
    UPDATE larder.kv_buckets b SET sweep_ms = next_ms WHERE b.namespace = in_namespace AND b.bucket = in_bucket;
    out_state := CASE WHEN next_ms <= passed_ms THEN 2 ELSE 1 END;
END
$$;
