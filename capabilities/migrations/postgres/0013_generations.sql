-- Version 13: the generation of each thread, bucket and board. Positions name it, so a reader that continues in a place
-- that came back empty finds out. It is a random number of 1 to 2^62 - 1, drawn with the row.

CREATE FUNCTION larder.draw_generation() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (('x' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 16))::bit(64)::bigint & 4611686018427387903) | 1
$$;

-- Each row gets its own generation, because the default is volatile.
ALTER TABLE larder.threads ADD COLUMN generation bigint NOT NULL DEFAULT larder.draw_generation();
ALTER TABLE larder.kv_buckets ADD COLUMN generation bigint NOT NULL DEFAULT larder.draw_generation();
ALTER TABLE larder.boards ADD COLUMN generation bigint NOT NULL DEFAULT larder.draw_generation();

-- The functions that return or compare a position. Their results have other columns, so each replaces its predecessor.

DROP FUNCTION larder.expire_thread;
-- Clears a thread whose time to live has passed, and returns its state. In a read-only transaction, returns the state as if
-- it had been cleared.
CREATE FUNCTION larder.expire_thread(in_namespace text, in_agent text, in_session text)
RETURNS TABLE (messages bigint, bytes bigint, last_seq bigint, generation bigint) LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_read_only')::boolean THEN
        RETURN QUERY SELECT CASE WHEN s.expires_ms <= larder.now_ms() THEN 0 ELSE s.messages END,
            CASE WHEN s.expires_ms <= larder.now_ms() THEN 0 ELSE s.bytes END, s.last_seq, s.generation
        FROM larder.threads s WHERE s.namespace = in_namespace AND s.agent = in_agent AND s.session = in_session;
    ELSE
        RETURN QUERY SELECT t.messages, t.bytes, t.last_seq, t.generation
        FROM larder.lock_thread(in_namespace, in_agent, in_session, false) t WHERE t.id IS NOT NULL;
    END IF;
END
$$;

DROP FUNCTION larder.append;
-- Appends messages, and returns their first and last number and the generation, or NULL numbers if the idempotency key was
-- used for other messages.
CREATE FUNCTION larder.append(
    in_namespace text, in_agent text, in_session text, runs text[], authors text[], roles text[],
    sizes bigint[], bodies bytea[], in_key text, in_digest bytea, in_ttl_ms bigint, in_ttl_refresh boolean,
    OUT out_first bigint, OUT out_last bigint, OUT out_generation bigint
) LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
    k larder.append_keys;
    batch_count bigint := cardinality(bodies);
    batch_bytes bigint;
BEGIN
    -- The most frequent case, in the fewest steps: one message for an existing thread without a time to live.
    IF batch_count = 1 AND in_key IS NULL AND in_ttl_ms IS NULL THEN
        UPDATE larder.threads s
        SET last_seq = s.last_seq + 1, messages = s.messages + 1, bytes = s.bytes + sizes[1]
        WHERE s.namespace = in_namespace AND s.agent = in_agent AND s.session = in_session AND s.expires_ms IS NULL
        RETURNING s.id, s.last_seq, s.bytes, s.generation INTO t.id, out_first, batch_bytes, out_generation;
        IF FOUND THEN
            INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, author, author_role, body)
            VALUES (in_namespace, t.id, out_first, sizes[1], batch_bytes, runs[1], authors[1], roles[1], bodies[1]);
            PERFORM larder.announce(larder.wake('h', in_namespace, in_agent, in_session));
            out_last := out_first;
            RETURN;
        END IF;
    END IF;
    t := larder.lock_thread(in_namespace, in_agent, in_session, true);
    out_generation := t.generation;
    IF in_key IS NOT NULL THEN
        SELECT * INTO k FROM larder.append_keys a
        WHERE a.namespace = in_namespace AND a.thread = t.id AND a.idempotency_key = in_key;
        IF FOUND THEN
            IF k.digest = in_digest THEN
                out_first := k.first_seq;
                out_last := k.last_seq;
            END IF;
            RETURN;
        END IF;
        INSERT INTO larder.append_keys
        VALUES (in_namespace, t.id, in_key, in_digest, t.last_seq + 1, t.last_seq + batch_count);
    END IF;
    IF batch_count = 1 THEN
        batch_bytes := sizes[1];
        INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, author, author_role, body)
        VALUES (in_namespace, t.id, t.last_seq + 1, batch_bytes, t.bytes + batch_bytes, runs[1], authors[1],
            roles[1], bodies[1]);
    ELSE
        INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, author, author_role, body)
        SELECT in_namespace, t.id, t.last_seq + m.i, m.size, t.bytes + sum(m.size) OVER (ORDER BY m.i), m.run,
            m.author, m.role, m.body
        FROM unnest(runs, authors, roles, sizes, bodies) WITH ORDINALITY AS m (run, author, role, size, body, i);
        batch_bytes := (SELECT sum(size) FROM unnest(sizes) size);
    END IF;
    out_first := t.last_seq + 1;
    out_last := t.last_seq + batch_count;
    t.last_seq := out_last;
    t.messages := t.messages + batch_count;
    t.bytes := t.bytes + batch_bytes;
    IF in_ttl_ms IS NOT NULL THEN
        t.ttl_ms := in_ttl_ms;
        t.ttl_refresh := in_ttl_refresh;
        t.expires_ms := larder.now_ms() + in_ttl_ms;
    ELSIF t.ttl_refresh THEN
        t.expires_ms := greatest(t.expires_ms, larder.now_ms() + t.ttl_ms);
    END IF;
    PERFORM larder.save_thread(t);
END
$$;

DROP FUNCTION larder.append_together;
-- Appends to several threads in one statement. The threads come with the number of messages and bytes that each gets. Each
-- message comes with the place of its thread in that list, its number among the thread's messages, and the bytes up to it.
-- Returns the place of each thread that was written, and the number before its first message. Threads that do not exist,
-- whose time to live has passed, or that another transaction holds, are left as they are.
--
-- A session keeps the plan, even one made while the tables were small, so only the plan for large tables is allowed.
CREATE FUNCTION larder.append_together(
    namespaces text[], agents text[], sessions text[], counts bigint[], totals bigint[],
    places bigint[], numbers bigint[], sums bigint[], runs text[], authors text[], roles text[], sizes bigint[], bodies bytea[]
) RETURNS TABLE (place bigint, before bigint, generation bigint) LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    RETURN QUERY WITH wanted AS MATERIALIZED (
        SELECT w.* FROM unnest(namespaces, agents, sessions, counts, totals) WITH ORDINALITY
            AS w (namespace, agent, session, messages, bytes, place)
    ), free AS MATERIALIZED (
        SELECT w.* FROM wanted w JOIN larder.threads s
            ON s.namespace = w.namespace AND s.agent = w.agent AND s.session = w.session
        WHERE s.expires_ms IS NULL OR s.expires_ms > larder.now_ms()
        FOR NO KEY UPDATE OF s SKIP LOCKED
    ), written AS MATERIALIZED (
        UPDATE larder.threads s
        SET last_seq = s.last_seq + f.messages, messages = s.messages + f.messages, bytes = s.bytes + f.bytes,
            expires_ms = CASE WHEN s.ttl_refresh THEN larder.prolonged(s.expires_ms, s.ttl_ms) ELSE s.expires_ms END
        FROM free f WHERE s.namespace = f.namespace AND s.agent = f.agent AND s.session = f.session
        RETURNING f.place, s.namespace,
            CASE WHEN s.watched_until_ms IS NULL THEN s.id
                ELSE larder.announced(s.id, s.watched_until_ms, s.namespace, s.agent, s.session) END AS id,
            s.last_seq - f.messages AS seq, s.bytes - f.bytes AS bytes, s.generation
    ), messages AS (
        INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, author, author_role, body)
        SELECT t.namespace, t.id, t.seq + m.number, m.size, t.bytes + m.sum, m.run, m.author, m.role, m.body
        FROM unnest(places, numbers, sums, runs, authors, roles, sizes, bodies)
            AS m (place, number, sum, run, author, role, size, body)
            JOIN written t ON t.place = m.place
    )
    SELECT t.place, t.seq, t.generation FROM written t;
END
$$;

DROP FUNCTION larder.fork_thread;
-- Copies a thread. `out_state`: 0 done, 1 the target holds messages, 2 the source holds none, 3 the source has another
-- generation than `in_generation`, if that is given, or does not reach `in_up_to`; `out_generation` and `out_last` are then
-- those of the source.
CREATE FUNCTION larder.fork_thread(
    in_namespace text, from_agent text, from_session text, to_agent text, to_session text, in_up_to bigint,
    in_generation bigint, OUT out_state integer, OUT out_messages bigint, OUT out_last bigint, OUT out_generation bigint
) LANGUAGE plpgsql AS $$
DECLARE
    source larder.threads;
    target larder.threads;
    copied_bytes bigint;
BEGIN
    -- Both are locked in one order, so that two forks in opposite directions wait instead of deadlocking.
    IF (from_agent COLLATE "C", from_session COLLATE "C") < (to_agent COLLATE "C", to_session COLLATE "C") THEN
        source := larder.lock_thread(in_namespace, from_agent, from_session, false);
        target := larder.lock_thread(in_namespace, to_agent, to_session, true);
    ELSE
        target := larder.lock_thread(in_namespace, to_agent, to_session, true);
        source := larder.lock_thread(in_namespace, from_agent, from_session, false);
    END IF;
    IF target.messages > 0 THEN
        out_state := 1;
        RETURN;
    END IF;
    IF in_generation IS NOT NULL AND (source.generation IS DISTINCT FROM in_generation OR in_up_to > source.last_seq) THEN
        out_state := 3;
        out_last := coalesce(source.last_seq, 0);
        out_generation := source.generation;
        RETURN;
    END IF;
    INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, author, author_role, body)
    SELECT in_namespace, target.id, target.last_seq + row_number() OVER (ORDER BY m.seq), m.bytes,
        sum(m.bytes) OVER (ORDER BY m.seq), m.run, m.author, m.author_role, m.body
    FROM larder.messages m WHERE m.namespace = in_namespace AND m.thread = source.id AND m.seq <= in_up_to;
    GET DIAGNOSTICS out_messages = ROW_COUNT;
    IF out_messages = 0 THEN
        out_state := 2;
        RETURN;
    END IF;
    SELECT sum(m.bytes) INTO copied_bytes
    FROM larder.messages m WHERE m.namespace = in_namespace AND m.thread = target.id;
    target.last_seq := target.last_seq + out_messages;
    target.messages := out_messages;
    target.bytes := copied_bytes;
    PERFORM larder.save_thread(target);
    out_state := 0;
    out_last := target.last_seq;
    out_generation := target.generation;
END
$$;

DROP FUNCTION larder.replace_beginning;
-- Replaces the beginning of a thread with other messages. `out_state`: 0 done, 1 the thread does not reach that far, 2 it lost
-- messages since the caller read it, 3 it has another generation than `in_generation`, if that is given.
CREATE FUNCTION larder.replace_beginning(
    in_namespace text, in_agent text, in_session text, in_up_to bigint, in_seen bigint,
    in_generation bigint,
    runs text[], authors text[], roles text[], sizes bigint[], bodies bytea[],
    OUT out_state integer, OUT out_removed bigint, OUT out_seq bigint, OUT out_generation bigint
) LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
    gone_bytes bigint;
    placed bigint := cardinality(bodies);
BEGIN
    t := larder.lock_thread(in_namespace, in_agent, in_session, in_generation IS NULL);
    out_generation := t.generation;
    out_state := CASE WHEN in_generation <> coalesce(t.generation, 0) THEN 3 WHEN in_seen > t.last_seq THEN 1
        WHEN t.changed_seq > in_seen THEN 2 ELSE 0 END;
    IF out_state > 0 THEN
        RETURN;
    END IF;
    WITH d AS (
        DELETE FROM larder.messages m
        WHERE m.namespace = in_namespace AND m.thread = t.id AND m.seq <= in_up_to RETURNING m.bytes
    )
    SELECT count(*), coalesce(sum(d.bytes), 0) INTO out_removed, gone_bytes FROM d;
    t.messages := t.messages - out_removed + placed;
    t.bytes := t.bytes - gone_bytes + coalesce((SELECT sum(size) FROM unnest(sizes) size), 0);
    t.last_seq := t.last_seq + 1;
    t.changed_seq := t.last_seq;
    -- Each message carries the size of the thread after the whole: they are written in one step.
    INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, placed_by, run, author, author_role, body)
    SELECT in_namespace, t.id, in_up_to - placed + m.i, m.size, t.bytes, t.last_seq, m.run, m.author, m.role, m.body
    FROM unnest(runs, authors, roles, sizes, bodies) WITH ORDINALITY AS m (run, author, role, size, body, i);
    -- The new messages can take the numbers of these events. The following event replaces them.
    DELETE FROM larder.thread_events e
    WHERE e.namespace = in_namespace AND e.thread = t.id AND (e.seq <= in_up_to OR e.up_to <= in_up_to);
    INSERT INTO larder.thread_events (namespace, thread, seq, kind, removed, up_to, thread_bytes)
    VALUES (in_namespace, t.id, t.last_seq, 3, out_removed, in_up_to, t.bytes);
    PERFORM larder.save_thread(t);
    out_seq := t.last_seq;
END
$$;

DROP FUNCTION larder.kv_put;
DROP FUNCTION larder.kv_delete;
DROP FUNCTION larder.kv_lock;
-- Locks a bucket, which the first write creates, and returns its row.
CREATE FUNCTION larder.kv_lock(in_namespace text, in_bucket text) RETURNS larder.kv_buckets LANGUAGE plpgsql AS $$
DECLARE
    bucket_row larder.kv_buckets;
BEGIN
    LOOP
        SELECT b.* INTO bucket_row FROM larder.kv_buckets b
        WHERE b.namespace = in_namespace AND b.bucket = in_bucket FOR UPDATE;
        IF FOUND THEN
            RETURN bucket_row;
        END IF;
        INSERT INTO larder.kv_buckets (namespace, bucket) VALUES (in_namespace, in_bucket) ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;

-- Writes a value and returns its revision and the generation, or NULL if the condition does not hold. `in_at`: NULL for no
-- condition, -1 for a key that must be absent, else the revision that the key must be at. `in_generation`: the generation
-- that the bucket must have, or NULL for any.
CREATE FUNCTION larder.kv_put(
    in_namespace text, in_bucket text, in_key text, in_value bytea, in_ttl_ms bigint, in_at bigint,
    in_generation bigint, kept bigint, OUT out_revision bigint, OUT out_generation bigint
) LANGUAGE plpgsql AS $$
DECLARE
    locked larder.kv_buckets := larder.kv_lock(in_namespace, in_bucket);
    given bigint := locked.last_revision + 1;
    ends_ms bigint := larder.now_ms() + in_ttl_ms;
BEGIN
    IF in_generation <> locked.generation
        OR in_at IS NOT NULL AND coalesce(larder.kv_revision(in_namespace, in_bucket, in_key), -1) <> in_at THEN
        RETURN;
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
    out_revision := given;
    out_generation := locked.generation;
END
$$;

-- Deletes a key, at a revision if one is given. Returns whether the key existed, or NULL if it is at another
-- revision or the bucket has another generation.
CREATE FUNCTION larder.kv_delete(
    in_namespace text, in_bucket text, in_key text, in_at bigint, in_generation bigint, kept bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    locked larder.kv_buckets := larder.kv_lock(in_namespace, in_bucket);
    given bigint := locked.last_revision + 1;
    found_at bigint := larder.kv_revision(in_namespace, in_bucket, in_key);
BEGIN
    IF in_generation <> locked.generation OR in_at IS NOT NULL AND found_at IS DISTINCT FROM in_at THEN
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
