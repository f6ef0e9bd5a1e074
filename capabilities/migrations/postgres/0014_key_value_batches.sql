-- Version 14: key-value writes of several keys, and deletions by prefix.

-- Drops old tombstones of a locked bucket if a write that `kv_written` ended took a 256th revision, but not as its last one.
CREATE FUNCTION larder.kv_forget_passed(in_namespace text, in_bucket text, in_before bigint, in_last bigint, kept bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF in_last % 256 <> 0 AND in_last / 256 > in_before / 256 THEN
        PERFORM larder.kv_forget(in_namespace, in_bucket, false, kept);
        PERFORM larder.kv_forget(in_namespace, in_bucket, true, kept);
    END IF;
END
$$;

-- Puts and deletes keys of a bucket, all of them or none. The arrays have one item per key: whether it is put or deleted, the
-- value and the time to live of a put, and the condition as in `kv_put`. Returns the revisions, NULL for the deletion of an
-- absent key; or in `out_failed` the position of the first condition that does not hold.
CREATE FUNCTION larder.kv_write(
    in_namespace text, in_bucket text, in_keys text[], in_puts boolean[], in_values bytea[], in_ttls_ms bigint[],
    in_ats bigint[], in_generations bigint[], kept bigint,
    OUT out_failed bigint, OUT out_revisions bigint[], OUT out_generation bigint
) LANGUAGE plpgsql AS $$
DECLARE
    locked larder.kv_buckets := larder.kv_lock(in_namespace, in_bucket);
    now_at bigint := larder.now_ms();
    seen_at bigint[];
    last bigint;
    ends_ms bigint;
BEGIN
    -- Each join also has the keys as an array: without statistics, a join alone may read the whole bucket.
    SELECT array_agg(e.revision ORDER BY g.place) INTO seen_at
    FROM unnest(in_keys) WITH ORDINALITY AS g (key, place)
    LEFT JOIN larder.kv_entries e ON e.namespace = in_namespace AND e.bucket = in_bucket AND e.key = g.key
        AND e.key = ANY(in_keys) AND (e.expires_ms IS NULL OR e.expires_ms > now_at);
    SELECT min(g.place) - 1 INTO out_failed
    FROM unnest(in_ats, in_generations, seen_at) WITH ORDINALITY AS g (at, generation, revision, place)
    WHERE g.generation <> locked.generation OR g.at IS NOT NULL AND coalesce(g.revision, -1) <> g.at;
    IF out_failed IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(CASE WHEN g.changes THEN locked.last_revision + g.number END ORDER BY g.place),
        locked.last_revision + max(g.number)
    INTO out_revisions, last
    FROM (
        SELECT u.place, u.is_put OR u.revision IS NOT NULL AS changes,
            count(*) FILTER (WHERE u.is_put OR u.revision IS NOT NULL) OVER (ORDER BY u.place) AS number
        FROM unnest(in_puts, seen_at) WITH ORDINALITY AS u (is_put, revision, place)
    ) g;
    out_generation := locked.generation;
    IF last = locked.last_revision THEN
        RETURN;
    END IF;
    INSERT INTO larder.kv_entries AS e (namespace, bucket, key, revision, expires_ms, value)
    SELECT in_namespace, in_bucket, g.key, g.revision, now_at + g.ttl_ms, g.value
    FROM unnest(in_keys, in_puts, in_values, in_ttls_ms, out_revisions) AS g (key, is_put, value, ttl_ms, revision)
    WHERE g.is_put
    ON CONFLICT (namespace, bucket, key) DO UPDATE
    SET revision = excluded.revision, expires_ms = excluded.expires_ms, value = excluded.value;
    DELETE FROM larder.kv_tombstones t USING unnest(in_keys, in_puts) AS g (key, is_put)
    WHERE t.namespace = in_namespace AND t.bucket = in_bucket AND t.key = g.key AND g.is_put
        AND t.key = ANY(in_keys);
    DELETE FROM larder.kv_entries e USING unnest(in_keys, in_puts, out_revisions) AS g (key, is_put, revision)
    WHERE e.namespace = in_namespace AND e.bucket = in_bucket AND e.key = g.key AND NOT g.is_put
        AND g.revision IS NOT NULL AND e.key = ANY(in_keys);
    INSERT INTO larder.kv_tombstones (namespace, bucket, key, revision, expired)
    SELECT in_namespace, in_bucket, g.key, g.revision, false
    FROM unnest(in_keys, in_puts, out_revisions) AS g (key, is_put, revision)
    WHERE NOT g.is_put AND g.revision IS NOT NULL
    ON CONFLICT (namespace, bucket, key) DO UPDATE SET revision = excluded.revision, expired = excluded.expired;
    SELECT min(now_at + g.ttl_ms) INTO ends_ms FROM unnest(in_ttls_ms) AS g (ttl_ms);
    IF ends_ms IS NOT NULL THEN
        UPDATE larder.kv_buckets b SET sweep_ms = ends_ms
        WHERE b.namespace = in_namespace AND b.bucket = in_bucket AND coalesce(b.sweep_ms > ends_ms, true);
    END IF;
    PERFORM larder.kv_written(in_namespace, in_bucket, last, kept);
    PERFORM larder.kv_forget_passed(in_namespace, in_bucket, locked.last_revision, last, kept);
END
$$;

-- Deletes the first keys of a bucket from `in_prefix` up to `in_end`, and returns their number and whether more exist.
CREATE FUNCTION larder.kv_delete_prefix(
    in_namespace text, in_bucket text, in_prefix text, in_end text, keys_max bigint, kept bigint,
    OUT out_deleted bigint, OUT out_more boolean
) LANGUAGE plpgsql AS $$
DECLARE
    locked larder.kv_buckets := larder.kv_lock(in_namespace, in_bucket);
    now_at bigint := larder.now_ms();
    keys text[];
BEGIN
    SELECT coalesce(array_agg(f.key ORDER BY f.key), '{}') INTO keys
    FROM (
        SELECT e.key FROM larder.kv_entries e
        WHERE e.namespace = in_namespace AND e.bucket = in_bucket AND e.key >= in_prefix AND e.key < in_end
            AND (e.expires_ms IS NULL OR e.expires_ms > now_at)
        ORDER BY e.key LIMIT keys_max + 1
    ) f;
    out_more := cardinality(keys) > keys_max;
    keys := keys[1:keys_max];
    out_deleted := cardinality(keys);
    IF out_deleted = 0 THEN
        RETURN;
    END IF;
    DELETE FROM larder.kv_entries e
    WHERE e.namespace = in_namespace AND e.bucket = in_bucket AND e.key = ANY(keys);
    INSERT INTO larder.kv_tombstones (namespace, bucket, key, revision, expired)
    SELECT in_namespace, in_bucket, g.key, locked.last_revision + g.place, false
    FROM unnest(keys) WITH ORDINALITY AS g (key, place)
    ON CONFLICT (namespace, bucket, key) DO UPDATE SET revision = excluded.revision, expired = excluded.expired;
    PERFORM larder.kv_written(in_namespace, in_bucket, locked.last_revision + out_deleted, kept);
    PERFORM larder.kv_forget_passed(
        in_namespace, in_bucket, locked.last_revision, locked.last_revision + out_deleted, kept
    );
END
$$;
