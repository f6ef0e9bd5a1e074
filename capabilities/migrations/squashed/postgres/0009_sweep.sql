-- Finding what has expired without looking through what has not, and taking it away a part at a time.
--
-- `sweep_ms` is when to look whether a thread, or a key of a bucket, has expired: never later than the first expiry, and
-- earlier where use has prolonged a life since, which then leaves the index as it is. NULL where nothing expires.

ALTER TABLE larder.threads ADD COLUMN sweep_ms bigint;
UPDATE larder.threads SET sweep_ms = expires_ms WHERE expires_ms IS NOT NULL;
CREATE INDEX threads_to_sweep ON larder.threads (sweep_ms) WHERE sweep_ms IS NOT NULL;

ALTER TABLE larder.kv_buckets ADD COLUMN sweep_ms bigint;
UPDATE larder.kv_buckets b SET sweep_ms = e.first_ms
FROM (
    SELECT namespace, bucket, min(expires_ms) AS first_ms FROM larder.kv_entries
    WHERE expires_ms IS NOT NULL GROUP BY namespace, bucket
) e
WHERE e.namespace = b.namespace AND e.bucket = b.bucket;
CREATE INDEX kv_buckets_to_sweep ON larder.kv_buckets (sweep_ms) WHERE sweep_ms IS NOT NULL;

-- A thread that holds nothing has no time to live, so what comes next does not inherit one.
CREATE OR REPLACE FUNCTION larder.save_thread(t larder.threads) RETURNS void LANGUAGE sql AS $$
    UPDATE larder.threads
    SET last_seq = t.last_seq, changed_seq = t.changed_seq, messages = t.messages, bytes = t.bytes,
        ttl_ms = CASE WHEN t.messages > 0 THEN t.ttl_ms END,
        ttl_refresh = t.messages > 0 AND t.ttl_refresh,
        expires_ms = CASE WHEN t.messages > 0 THEN t.expires_ms END,
        sweep_ms = CASE WHEN t.messages > 0 AND t.expires_ms IS NOT NULL THEN least(threads.sweep_ms, t.expires_ms) END
    WHERE threads.namespace = t.namespace AND threads.agent = t.agent AND threads.session = t.session;
    SELECT larder.announce(larder.wake('h', t.namespace, t.agent, t.session));
$$;

-- Takes away the messages of a thread whose time to live has passed, of so many and so many bytes at most. `out_state`: 0
-- somebody works on the thread, 1 it lives, 2 its messages are gone, 3 some are gone and the thread is nothing else ever
-- again, whatever the clock says.
CREATE FUNCTION larder.sweep_thread(
    in_namespace text, in_agent text, in_session text, messages_max bigint, bytes_max bigint, OUT out_state integer
) LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
    first_left bigint;
BEGIN
    SELECT * INTO t FROM larder.threads s
    WHERE s.namespace = in_namespace AND s.agent = in_agent AND s.session = in_session FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        out_state := 0;
        RETURN;
    END IF;
    IF t.expires_ms IS NULL OR t.expires_ms > larder.now_ms() THEN
        UPDATE larder.threads s SET sweep_ms = t.expires_ms
        WHERE s.namespace = in_namespace AND s.agent = in_agent AND s.session = in_session;
        out_state := 1;
        RETURN;
    END IF;
    SELECT min(n.seq) INTO first_left FROM (
        SELECT m.seq, row_number() OVER (ORDER BY m.seq) AS place, sum(m.bytes) OVER (ORDER BY m.seq) - m.bytes AS before
        FROM (
            SELECT f.seq, f.bytes FROM larder.messages f WHERE f.namespace = in_namespace AND f.thread = t.id
            ORDER BY f.seq LIMIT messages_max + 1
        ) m
    ) n WHERE n.place > messages_max OR n.before >= bytes_max;
    IF first_left IS NULL THEN
        PERFORM larder.cleared(t);
        out_state := 2;
        RETURN;
    END IF;
    UPDATE larder.threads s SET expires_ms = 0, sweep_ms = 0
    WHERE s.namespace = in_namespace AND s.agent = in_agent AND s.session = in_session AND s.expires_ms <> 0;
    DELETE FROM larder.messages m WHERE m.namespace = in_namespace AND m.thread = t.id AND m.seq < first_left;
    out_state := 3;
END
$$;

-- Writes a value and answers its revision. `in_at`: NULL for no condition, -1 for a key that must be absent, else the
-- revision that it must be at. The answer is NULL where the condition does not hold.
CREATE OR REPLACE FUNCTION larder.kv_put(
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

-- Makes tombstones of a bucket's entries whose time passed a while ago, of so many and so many bytes at most. `out_state`:
-- 0 somebody works on the bucket, 1 no such entry is left, 2 some are.
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
