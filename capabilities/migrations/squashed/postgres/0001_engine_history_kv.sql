-- The clock, the wake-up, the conversations and the buckets.
--
-- Text that names something compares by its bytes (COLLATE "C"), so ids that differ in any byte are different keys and
-- listings come in byte order. Text that may hold NUL is kept as bytea. Times are milliseconds since
-- 1970-01-01T00:00:00Z on the database's clock; NULL where there is none.
--
-- Every key begins with the namespace, so that the tables can be partitioned by its hash, or distributed by it with
-- Citus, without a row ever leaving its neighbours.

-- Clock and wake-up ------------------------------------------------------------------------------------------------

CREATE FUNCTION larder.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- The number under which a thread or a bucket is announced. Two may share one, which costs a read in vain.
CREATE FUNCTION larder.wake(VARIADIC parts text[]) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT hashtextextended(array_to_string(parts, E'\x01'), 0) $$;

-- Announces a change when the transaction commits, if anybody may be listening. Listeners hold the lock shared, so a
-- writer that gets it alone has no listener, and is spared the lock that all announcing commits queue for. A listener
-- that comes in between waits for such a writer's commit and then reads the log.
CREATE FUNCTION larder.announce(wake bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(1282565234, 2) THEN
        PERFORM pg_notify('larder', wake::text);
    END IF;
END
$$;

-- History ----------------------------------------------------------------------------------------------------------

-- One row a thread, kept when the thread is cleared: its numbers go on. Its lock orders the thread's writers, so numbers
-- become visible in their order. `changed_seq` is the number of the last clear, run clear or replacement.
CREATE TABLE larder.threads (
    namespace text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    last_seq bigint NOT NULL DEFAULT 0,
    changed_seq bigint NOT NULL DEFAULT 0,
    messages bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    ttl_ms bigint,
    ttl_refresh boolean NOT NULL DEFAULT false,
    expires_ms bigint,
    PRIMARY KEY (namespace, agent, session)
) WITH (fillfactor = 70);

-- `placed_by` is the number of the replacement event that put the message in place; NULL for an appended one. `body` is
-- the message in JSON.
CREATE TABLE larder.messages (
    namespace text COLLATE "C" NOT NULL,
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    bytes bigint NOT NULL,
    thread_bytes bigint NOT NULL,
    placed_by bigint,
    run text COLLATE "C",
    body bytea NOT NULL,
    PRIMARY KEY (namespace, thread, seq)
);
CREATE INDEX messages_by_run ON larder.messages (namespace, thread, run) WHERE run IS NOT NULL;

-- The events that are not messages. `kind`: 1 cleared, 2 run cleared, 3 replaced.
CREATE TABLE larder.thread_events (
    namespace text COLLATE "C" NOT NULL,
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    kind smallint NOT NULL,
    removed bigint NOT NULL,
    run text COLLATE "C",
    up_to bigint,
    thread_bytes bigint,
    PRIMARY KEY (namespace, thread, seq)
);

CREATE TABLE larder.append_keys (
    namespace text COLLATE "C" NOT NULL,
    thread bigint NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    PRIMARY KEY (namespace, thread, idempotency_key)
);

-- A thread that holds nothing has no time to live, so what comes next does not inherit one.
CREATE FUNCTION larder.save_thread(t larder.threads) RETURNS void LANGUAGE sql AS $$
    UPDATE larder.threads
    SET last_seq = t.last_seq, changed_seq = t.changed_seq, messages = t.messages, bytes = t.bytes,
        ttl_ms = CASE WHEN t.messages > 0 THEN t.ttl_ms END,
        ttl_refresh = t.messages > 0 AND t.ttl_refresh,
        expires_ms = CASE WHEN t.messages > 0 THEN t.expires_ms END
    WHERE threads.namespace = t.namespace AND threads.agent = t.agent AND threads.session = t.session;
    SELECT larder.announce(larder.wake('h', t.namespace, t.agent, t.session));
$$;

-- Removes all messages and the time to live of a locked thread.
CREATE FUNCTION larder.cleared(t larder.threads) RETURNS larder.threads LANGUAGE plpgsql AS $$
DECLARE
    gone bigint := t.messages;
BEGIN
    t.ttl_ms := NULL;
    t.ttl_refresh := false;
    t.expires_ms := NULL;
    IF gone > 0 THEN
        DELETE FROM larder.messages m WHERE m.namespace = t.namespace AND m.thread = t.id;
        DELETE FROM larder.thread_events e WHERE e.namespace = t.namespace AND e.thread = t.id;
        t.messages := 0;
        t.bytes := 0;
        t.last_seq := t.last_seq + 1;
        t.changed_seq := t.last_seq;
        INSERT INTO larder.thread_events (namespace, thread, seq, kind, removed)
        VALUES (t.namespace, t.id, t.last_seq, 1, gone);
    END IF;
    PERFORM larder.save_thread(t);
    RETURN t;
END
$$;

-- The thread as it stands now, locked; a time to live that has passed is made into the clear that it is. NULL for one
-- that was never used, unless it is to be made.
CREATE FUNCTION larder.lock_thread(in_namespace text, in_agent text, in_session text, make boolean)
RETURNS larder.threads LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
BEGIN
    LOOP
        SELECT * INTO t FROM larder.threads s
        WHERE s.namespace = in_namespace AND s.agent = in_agent AND s.session = in_session FOR UPDATE;
        IF FOUND THEN
            IF t.expires_ms <= larder.now_ms() THEN
                t := larder.cleared(t);
            END IF;
            RETURN t;
        END IF;
        IF NOT make THEN
            RETURN NULL;
        END IF;
        INSERT INTO larder.threads (namespace, agent, session) VALUES (in_namespace, in_agent, in_session)
        ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;

-- Makes an expiry that has passed into its clear, and answers how the thread stands.
CREATE FUNCTION larder.expire_thread(in_namespace text, in_agent text, in_session text)
RETURNS TABLE (messages bigint, bytes bigint, last_seq bigint) LANGUAGE sql AS $$
    SELECT t.messages, t.bytes, t.last_seq
    FROM larder.lock_thread(in_namespace, in_agent, in_session, false) t WHERE t.id IS NOT NULL;
$$;

-- Appends, and answers the numbers given; NULL where the idempotency key was used for other messages.
CREATE FUNCTION larder.append(
    in_namespace text, in_agent text, in_session text, runs text[], sizes bigint[], bodies bytea[],
    in_key text, in_digest bytea, in_ttl_ms bigint, in_ttl_refresh boolean,
    OUT out_first bigint, OUT out_last bigint
) LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
    k larder.append_keys;
    batch_count bigint := cardinality(bodies);
    batch_bytes bigint;
BEGIN
    -- The most frequent case, in the fewest steps: one message for a thread that is there and lives for good.
    IF batch_count = 1 AND in_key IS NULL AND in_ttl_ms IS NULL THEN
        UPDATE larder.threads s
        SET last_seq = s.last_seq + 1, messages = s.messages + 1, bytes = s.bytes + sizes[1]
        WHERE s.namespace = in_namespace AND s.agent = in_agent AND s.session = in_session AND s.expires_ms IS NULL
        RETURNING s.id, s.last_seq, s.bytes INTO t.id, out_first, batch_bytes;
        IF FOUND THEN
            INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, body)
            VALUES (in_namespace, t.id, out_first, sizes[1], batch_bytes, runs[1], bodies[1]);
            PERFORM larder.announce(larder.wake('h', in_namespace, in_agent, in_session));
            out_last := out_first;
            RETURN;
        END IF;
    END IF;
    t := larder.lock_thread(in_namespace, in_agent, in_session, true);
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
        INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, body)
        VALUES (in_namespace, t.id, t.last_seq + 1, batch_bytes, t.bytes + batch_bytes, runs[1], bodies[1]);
    ELSE
        INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, body)
        SELECT in_namespace, t.id, t.last_seq + m.i, m.size, t.bytes + sum(m.size) OVER (ORDER BY m.i), m.run, m.body
        FROM unnest(runs, sizes, bodies) WITH ORDINALITY AS m (run, size, body, i);
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

CREATE FUNCTION larder.clear_thread(in_namespace text, in_agent text, in_session text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
    gone bigint;
BEGIN
    t := larder.lock_thread(in_namespace, in_agent, in_session, false);
    IF t.id IS NULL THEN
        RETURN 0;
    END IF;
    gone := t.messages;
    t := larder.cleared(t);
    RETURN gone;
END
$$;

CREATE FUNCTION larder.clear_run(in_namespace text, in_agent text, in_session text, in_run text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
    gone bigint;
    gone_bytes bigint;
BEGIN
    t := larder.lock_thread(in_namespace, in_agent, in_session, false);
    IF t.id IS NULL THEN
        RETURN 0;
    END IF;
    WITH d AS (
        DELETE FROM larder.messages m
        WHERE m.namespace = in_namespace AND m.thread = t.id AND m.run = in_run RETURNING m.bytes
    )
    SELECT count(*), coalesce(sum(d.bytes), 0) INTO gone, gone_bytes FROM d;
    IF gone = 0 THEN
        RETURN 0;
    END IF;
    t.messages := t.messages - gone;
    t.bytes := t.bytes - gone_bytes;
    t.last_seq := t.last_seq + 1;
    t.changed_seq := t.last_seq;
    INSERT INTO larder.thread_events (namespace, thread, seq, kind, removed, run)
    VALUES (in_namespace, t.id, t.last_seq, 2, gone, in_run);
    PERFORM larder.save_thread(t);
    RETURN gone;
END
$$;

-- Copies a thread. `out_state`: 0 done, 1 the target holds messages, 2 the source holds none.
CREATE FUNCTION larder.fork_thread(
    in_namespace text, from_agent text, from_session text, to_agent text, to_session text, in_up_to bigint,
    OUT out_state integer, OUT out_messages bigint, OUT out_last bigint
) LANGUAGE plpgsql AS $$
DECLARE
    source larder.threads;
    target larder.threads;
    copied_bytes bigint;
BEGIN
    -- Both are locked in one order, so that two forks across each other wait instead of killing one another.
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
    INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, body)
    SELECT in_namespace, target.id, target.last_seq + row_number() OVER (ORDER BY m.seq), m.bytes,
        sum(m.bytes) OVER (ORDER BY m.seq), m.run, m.body
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
END
$$;

-- Puts messages in the place of a thread's beginning. `out_state`: 0 done, 1 the thread does not reach that far, 2 it
-- lost messages since it was seen.
CREATE FUNCTION larder.replace_beginning(
    in_namespace text, in_agent text, in_session text, in_up_to bigint, in_seen bigint,
    runs text[], sizes bigint[], bodies bytea[],
    OUT out_state integer, OUT out_removed bigint, OUT out_seq bigint
) LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
    gone_bytes bigint;
    placed bigint := cardinality(bodies);
BEGIN
    t := larder.lock_thread(in_namespace, in_agent, in_session, true);
    out_state := CASE WHEN in_seen > t.last_seq THEN 1 WHEN t.changed_seq > in_seen THEN 2 ELSE 0 END;
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
    INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, placed_by, run, body)
    SELECT in_namespace, t.id, in_up_to - placed + m.i, m.size, t.bytes, t.last_seq, m.run, m.body
    FROM unnest(runs, sizes, bodies) WITH ORDINALITY AS m (run, size, body, i);
    -- The new messages may stand on the numbers of these events, and the event that follows tells all they told.
    DELETE FROM larder.thread_events e
    WHERE e.namespace = in_namespace AND e.thread = t.id AND (e.seq <= in_up_to OR e.up_to <= in_up_to);
    INSERT INTO larder.thread_events (namespace, thread, seq, kind, removed, up_to, thread_bytes)
    VALUES (in_namespace, t.id, t.last_seq, 3, out_removed, in_up_to, t.bytes);
    PERFORM larder.save_thread(t);
    out_seq := t.last_seq;
END
$$;

-- Sets or removes the time to live, and says whether the thread holds messages.
CREATE FUNCTION larder.set_ttl(
    in_namespace text, in_agent text, in_session text, in_ttl_ms bigint, in_ttl_refresh boolean
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
BEGIN
    t := larder.lock_thread(in_namespace, in_agent, in_session, false);
    IF t.id IS NULL OR t.messages = 0 THEN
        RETURN false;
    END IF;
    t.ttl_ms := in_ttl_ms;
    t.ttl_refresh := in_ttl_refresh;
    t.expires_ms := larder.now_ms() + in_ttl_ms;
    PERFORM larder.save_thread(t);
    RETURN true;
END
$$;

-- Erases a number of the namespace's threads, and says how many there were.
CREATE FUNCTION larder.erase_threads(in_namespace text, at_most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    gone bigint[];
BEGIN
    WITH chosen AS (
        SELECT s.agent, s.session FROM larder.threads s WHERE s.namespace = in_namespace
        ORDER BY s.agent, s.session LIMIT at_most FOR UPDATE
    ), d AS (
        DELETE FROM larder.threads t USING chosen c
        WHERE t.namespace = in_namespace AND t.agent = c.agent AND t.session = c.session RETURNING t.id
    )
    SELECT coalesce(array_agg(d.id), '{}') INTO gone FROM d;
    DELETE FROM larder.messages m WHERE m.namespace = in_namespace AND m.thread = ANY (gone);
    DELETE FROM larder.thread_events e WHERE e.namespace = in_namespace AND e.thread = ANY (gone);
    DELETE FROM larder.append_keys a WHERE a.namespace = in_namespace AND a.thread = ANY (gone);
    RETURN cardinality(gone);
END
$$;

-- Key-value --------------------------------------------------------------------------------------------------------

-- One row a bucket, kept when its keys are gone: its revisions go on. Its lock orders the bucket's writers.
-- `forgotten_revision` is the greatest revision of a tombstone that was dropped.
CREATE TABLE larder.kv_buckets (
    namespace text COLLATE "C" NOT NULL,
    bucket text COLLATE "C" NOT NULL,
    last_revision bigint NOT NULL DEFAULT 0,
    forgotten_revision bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, bucket)
) WITH (fillfactor = 70);

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

-- Keys that are gone and the revision at which they went. `expired` where a passed time to live, not a deletion, took
-- the key away; the revision is then that of its last put.
CREATE TABLE larder.kv_tombstones (
    namespace text COLLATE "C" NOT NULL,
    bucket text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    expired boolean NOT NULL,
    PRIMARY KEY (namespace, bucket, key)
);
CREATE INDEX kv_tombstones_by_revision ON larder.kv_tombstones (namespace, bucket, expired, revision);

-- Locks a bucket, which begins with its first write, and gives its last revision.
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

-- The revision of a key that is there.
CREATE FUNCTION larder.kv_revision(in_namespace text, in_bucket text, in_key text) RETURNS bigint LANGUAGE sql AS $$
    SELECT e.revision FROM larder.kv_entries e
    WHERE e.namespace = in_namespace AND e.bucket = in_bucket AND e.key = in_key
        AND (e.expires_ms IS NULL OR e.expires_ms > larder.now_ms());
$$;

-- Drops the oldest tombstones of a locked bucket beyond `kept`, and notes the greatest revision dropped.
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

-- Ends a write of a locked bucket: the revision is kept and announced, expired entries become tombstones once watchers
-- under way have met their put, and old tombstones go at times.
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

-- Writes a value and answers its revision. `in_at`: NULL for no condition, -1 for a key that must be absent, else the
-- revision that it must be at. The answer is NULL where the condition does not hold.
CREATE FUNCTION larder.kv_put(
    in_namespace text, in_bucket text, in_key text, in_value bytea, in_ttl_ms bigint, in_at bigint, kept bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    given bigint := larder.kv_lock(in_namespace, in_bucket) + 1;
BEGIN
    IF in_at IS NOT NULL AND coalesce(larder.kv_revision(in_namespace, in_bucket, in_key), -1) <> in_at THEN
        RETURN NULL;
    END IF;
    INSERT INTO larder.kv_entries AS e (namespace, bucket, key, revision, expires_ms, value)
    VALUES (in_namespace, in_bucket, in_key, given, larder.now_ms() + in_ttl_ms, in_value)
    ON CONFLICT (namespace, bucket, key) DO UPDATE
    SET revision = excluded.revision, expires_ms = excluded.expires_ms, value = excluded.value;
    DELETE FROM larder.kv_tombstones t
    WHERE t.namespace = in_namespace AND t.bucket = in_bucket AND t.key = in_key;
    PERFORM larder.kv_written(in_namespace, in_bucket, given, kept);
    RETURN given;
END
$$;

-- Deletes a key, at a revision if one is given, and says whether it was there; NULL where it is at another revision.
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

-- Large values -----------------------------------------------------------------------------------------------------

-- lz4 is several times quicker than the default, and not built into every server.
DO $$
BEGIN
    ALTER TABLE larder.messages ALTER COLUMN body SET COMPRESSION lz4;
    ALTER TABLE larder.kv_entries ALTER COLUMN value SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
    NULL;
END
$$;
