-- Version 17: fences.

-- The greatest fencing token with which a write on the thread succeeded; NULL if it is not fenced.
ALTER TABLE larder.threads ADD COLUMN fence bigint;

-- Returns a locked thread with the fence that it has after a write with the token `in_fence`, which may be NULL. Raises LF002 if
-- the thread has a greater token, or has one and the write has none. The detail is the thread's token.
CREATE FUNCTION larder.fenced(t larder.threads, in_fence bigint) RETURNS larder.threads LANGUAGE plpgsql AS $$
BEGIN
    IF t.fence > coalesce(in_fence, -1) THEN
        RAISE EXCEPTION USING ERRCODE = 'LF002', MESSAGE = 'the thread has a greater fencing token', DETAIL = t.fence::text;
    END IF;
    t.fence := coalesce(in_fence, t.fence);
    RETURN t;
END
$$;

-- Stores the fence of a locked thread after a write that changed nothing else.
CREATE FUNCTION larder.raise_fence(t larder.threads, in_fence bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF in_fence IS NOT NULL THEN
        UPDATE larder.threads s SET fence = greatest(s.fence, in_fence)
        WHERE s.namespace = t.namespace AND s.agent = t.agent AND s.session = t.session;
    END IF;
END
$$;

-- Saves a locked thread and announces it. A thread without messages has no time to live, so that later messages do not
-- inherit one.
CREATE OR REPLACE FUNCTION larder.save_thread(t larder.threads) RETURNS void LANGUAGE sql AS $$
    UPDATE larder.threads
    SET last_seq = t.last_seq, changed_seq = t.changed_seq, messages = t.messages, bytes = t.bytes, fence = t.fence,
        ttl_ms = CASE WHEN t.messages > 0 THEN t.ttl_ms END,
        ttl_refresh = t.messages > 0 AND t.ttl_refresh,
        expires_ms = CASE WHEN t.messages > 0 THEN t.expires_ms END,
        sweep_ms = CASE WHEN t.messages > 0 AND t.expires_ms IS NOT NULL THEN least(threads.sweep_ms, t.expires_ms) END
    WHERE threads.namespace = t.namespace AND threads.agent = t.agent AND threads.session = t.session;
    SELECT larder.announce(larder.wake('h', t.namespace, t.agent, t.session));
$$;

DROP FUNCTION larder.append;
-- Appends messages, and returns their first and last number and the generation, or NULL numbers if the idempotency key was
-- used for other messages. If the thread does not have the last number `in_if_last` and the generation `in_if_generation`,
-- of which each may be NULL, writes nothing and returns the last number as `out_found`.
-- `in_fence` is the fencing token of the writer, or NULL.
CREATE FUNCTION larder.append(
    in_namespace text, in_agent text, in_session text, runs text[], authors text[], roles text[],
    sizes bigint[], bodies bytea[], in_key text, in_digest bytea, in_ttl_ms bigint, in_ttl_refresh boolean,
    in_if_last bigint, in_if_generation bigint, in_fence bigint,
    OUT out_first bigint, OUT out_last bigint, OUT out_generation bigint, OUT out_found bigint
) LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
    k larder.append_keys;
    batch_count bigint := cardinality(bodies);
    batch_bytes bigint;
BEGIN
    -- The most frequent case, in the fewest steps: one message for an existing thread without a time to live.
    IF batch_count = 1 AND in_key IS NULL AND in_ttl_ms IS NULL AND in_if_last IS NULL AND in_fence IS NULL THEN
        UPDATE larder.threads s
        SET last_seq = s.last_seq + 1, messages = s.messages + 1, bytes = s.bytes + sizes[1]
        WHERE s.namespace = in_namespace AND s.agent = in_agent AND s.session = in_session AND s.expires_ms IS NULL
            AND s.fence IS NULL
        RETURNING s.id, s.last_seq, s.bytes, s.generation INTO t.id, out_first, batch_bytes, out_generation;
        IF FOUND THEN
            INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, author, author_role, body)
            VALUES (in_namespace, t.id, out_first, sizes[1], batch_bytes, runs[1], authors[1], roles[1], bodies[1]);
            PERFORM larder.announce(larder.wake('h', in_namespace, in_agent, in_session));
            out_last := out_first;
            RETURN;
        END IF;
    END IF;
    -- A condition that cannot hold for a new thread creates none.
    t := larder.lock_thread(in_namespace, in_agent, in_session,
        coalesce(in_if_last, 0) = 0 AND in_if_generation IS NULL);
    out_generation := t.generation;
    IF in_key IS NOT NULL THEN
        SELECT * INTO k FROM larder.append_keys a
        WHERE a.namespace = in_namespace AND a.thread = t.id AND a.idempotency_key = in_key;
        IF FOUND THEN
            IF k.digest = in_digest THEN
                out_first := k.first_seq;
                out_last := k.last_seq;
                PERFORM larder.raise_fence(t, in_fence);
            END IF;
            RETURN;
        END IF;
    END IF;
    t := larder.fenced(t, in_fence);
    IF in_if_last <> coalesce(t.last_seq, 0) OR in_if_generation <> coalesce(t.generation, 0) THEN
        out_found := coalesce(t.last_seq, 0);
        RETURN;
    END IF;
    IF in_key IS NOT NULL THEN
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

-- Appends to several threads in one statement. The threads come with the number of messages and bytes that each gets. Each
-- message comes with the place of its thread in that list, its number among the thread's messages, and the bytes up to it.
-- Returns the place of each thread that was written, and the number before its first message. Threads that do not exist,
-- that are fenced, whose time to live has passed, or that another transaction holds, are left as they are.
--
-- A session keeps the plan, even one made while the tables were small, so only the plan for large tables is allowed.
CREATE OR REPLACE FUNCTION larder.append_together(
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
        WHERE (s.expires_ms IS NULL OR s.expires_ms > larder.now_ms()) AND s.fence IS NULL
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

DROP FUNCTION larder.clear_thread;
-- Clears a thread, and returns the number of its messages.
CREATE FUNCTION larder.clear_thread(in_namespace text, in_agent text, in_session text, in_fence bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
    gone bigint;
BEGIN
    t := larder.lock_thread(in_namespace, in_agent, in_session, false);
    IF t.id IS NULL THEN
        RETURN 0;
    END IF;
    t := larder.fenced(t, in_fence);
    gone := t.messages;
    t := larder.cleared(t);
    RETURN gone;
END
$$;

DROP FUNCTION larder.clear_run;
-- Removes the messages of one run, and returns their number.
CREATE FUNCTION larder.clear_run(in_namespace text, in_agent text, in_session text, in_run text, in_fence bigint)
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
    t := larder.fenced(t, in_fence);
    WITH d AS (
        DELETE FROM larder.messages m
        WHERE m.namespace = in_namespace AND m.thread = t.id AND m.run = in_run RETURNING m.bytes
    )
    SELECT count(*), coalesce(sum(d.bytes), 0) INTO gone, gone_bytes FROM d;
    IF gone = 0 THEN
        PERFORM larder.raise_fence(t, in_fence);
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

DROP FUNCTION larder.remove_messages;
-- Removes messages: those with the numbers `in_numbers`, those after `in_after`, or the newest `in_newest`; the others are
-- NULL. The thread must have reached `in_bound`, have the generation `in_bound_generation`, and have the last number
-- `in_if_last` and the generation `in_if_generation`, of which each may be NULL.
--
-- `out_state`: 0 done, 1 the key was used for another removal, 2 the thread has another last number than `in_if_last` or
-- another generation, 3 it does not reach the bound or has another generation, 4 the messages have more than `bytes_max`
-- bytes, which `out_bytes` returns. `out_last` and `out_generation` are those of the thread, or of the first result.
CREATE FUNCTION larder.remove_messages(
    in_namespace text, in_agent text, in_session text, in_numbers bigint[], in_after bigint, in_newest bigint,
    in_bound bigint, in_bound_generation bigint, in_if_last bigint, in_if_generation bigint,
    in_key text, in_digest bytea, bytes_max bigint, keep_ms bigint, in_fence bigint,
    OUT out_state integer, OUT out_removed bigint, OUT out_last bigint, OUT out_generation bigint,
    OUT out_seqs bigint[], OUT out_bodies bytea[], OUT out_bytes bigint
) LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
    k larder.removal_keys;
    now_at bigint := larder.now_ms();
BEGIN
    -- Only a key must be remembered, so only a removal with a key creates the thread.
    t := larder.lock_thread(in_namespace, in_agent, in_session, in_key IS NOT NULL AND coalesce(in_if_last, 0) = 0
        AND in_if_generation IS NULL AND coalesce(in_bound, 0) <= 0 AND in_bound_generation IS NULL);
    out_last := coalesce(t.last_seq, 0);
    out_generation := t.generation;
    out_removed := 0;
    out_seqs := '{}';
    out_state := 0;
    IF in_key IS NOT NULL THEN
        SELECT * INTO k FROM larder.removal_keys r
        WHERE r.namespace = in_namespace AND r.thread = t.id AND r.idempotency_key = in_key;
        IF FOUND THEN
            IF k.digest <> in_digest THEN
                out_state := 1;
                RETURN;
            END IF;
            out_removed := k.removed;
            out_last := k.last_seq;
            out_seqs := k.seqs;
            SELECT array_agg(p.body ORDER BY p.seq) INTO out_bodies FROM larder.popped_messages p
            WHERE p.namespace = in_namespace AND p.thread = t.id AND p.idempotency_key = in_key
                AND p.kept_until_ms > now_at;
            -- All messages of a pop or none.
            IF cardinality(out_bodies) <> cardinality(out_seqs) THEN
                out_bodies := NULL;
            END IF;
            PERFORM larder.raise_fence(t, in_fence);
            RETURN;
        END IF;
    END IF;
    t := larder.fenced(t, in_fence);
    IF in_if_last <> out_last OR in_if_generation <> coalesce(t.generation, 0) THEN
        out_state := 2;
        RETURN;
    END IF;
    IF in_bound > out_last OR in_bound_generation <> coalesce(t.generation, 0) THEN
        out_state := 3;
        RETURN;
    END IF;
    IF t.id IS NULL THEN
        RETURN;
    END IF;
    IF in_after IS NOT NULL THEN
        WITH d AS (
            DELETE FROM larder.messages m
            WHERE m.namespace = in_namespace AND m.thread = t.id AND m.seq > in_after RETURNING m.bytes
        )
        SELECT count(*), coalesce(sum(d.bytes), 0) INTO out_removed, out_bytes FROM d;
    ELSE
        IF in_newest IS NOT NULL THEN
            SELECT coalesce(array_agg(n.seq ORDER BY n.seq), '{}'), coalesce(sum(n.bytes), 0) INTO out_seqs, out_bytes
            FROM (
                SELECT m.seq, m.bytes FROM larder.messages m WHERE m.namespace = in_namespace AND m.thread = t.id
                ORDER BY m.seq DESC LIMIT in_newest
            ) n;
        ELSE
            SELECT coalesce(array_agg(m.seq ORDER BY m.seq), '{}'), coalesce(sum(m.bytes), 0) INTO out_seqs, out_bytes
            FROM larder.messages m
            WHERE m.namespace = in_namespace AND m.thread = t.id AND m.seq = ANY (in_numbers);
        END IF;
        IF out_bytes > bytes_max THEN
            out_state := 4;
            RETURN;
        END IF;
        WITH d AS (
            DELETE FROM larder.messages m
            WHERE m.namespace = in_namespace AND m.thread = t.id AND m.seq = ANY (out_seqs) RETURNING m.seq, m.body
        )
        SELECT count(*), array_agg(d.body ORDER BY d.seq) INTO out_removed, out_bodies FROM d;
    END IF;
    IF out_removed > 0 THEN
        t.messages := t.messages - out_removed;
        t.bytes := t.bytes - out_bytes;
        t.last_seq := t.last_seq + 1;
        t.changed_seq := t.last_seq;
        INSERT INTO larder.thread_events (namespace, thread, seq, kind, removed, seqs)
        VALUES (in_namespace, t.id, t.last_seq, CASE WHEN in_after IS NULL THEN 4 ELSE 5 END, out_removed,
            CASE WHEN in_after IS NULL THEN out_seqs ELSE ARRAY[in_after] END);
        PERFORM larder.save_thread(t);
        out_last := t.last_seq;
    ELSE
        PERFORM larder.raise_fence(t, in_fence);
    END IF;
    IF in_key IS NOT NULL THEN
        INSERT INTO larder.removal_keys
        VALUES (in_namespace, t.id, in_key, in_digest, out_removed, out_last, out_seqs);
        IF in_newest IS NOT NULL THEN
            INSERT INTO larder.popped_messages (namespace, thread, idempotency_key, seq, kept_until_ms, body)
            SELECT in_namespace, t.id, in_key, p.seq, now_at + keep_ms, p.body
            FROM unnest(out_seqs, out_bodies) AS p (seq, body);
        END IF;
    END IF;
END
$$;

DROP FUNCTION larder.fork_thread;
-- Copies a thread. `out_state`: 0 done, 1 the target holds messages, 2 the source holds none, 3 the source has another
-- generation than `in_generation`, if that is given, or does not reach `in_up_to`; `out_generation` and `out_last` are then
-- those of the source.
CREATE FUNCTION larder.fork_thread(
    in_namespace text, from_agent text, from_session text, to_agent text, to_session text, in_up_to bigint,
    in_generation bigint, in_fence bigint, OUT out_state integer, OUT out_messages bigint, OUT out_last bigint, OUT out_generation bigint
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
    target := larder.fenced(target, in_fence);
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
    in_generation bigint, in_fence bigint,
    runs text[], authors text[], roles text[], sizes bigint[], bodies bytea[],
    OUT out_state integer, OUT out_removed bigint, OUT out_seq bigint, OUT out_generation bigint
) LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
    gone_bytes bigint;
    placed bigint := cardinality(bodies);
BEGIN
    t := larder.lock_thread(in_namespace, in_agent, in_session, in_generation IS NULL);
    t := larder.fenced(t, in_fence);
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

DROP FUNCTION larder.set_ttl;
-- Sets or removes the time to live, and returns whether the thread holds messages.
CREATE FUNCTION larder.set_ttl(
    in_namespace text, in_agent text, in_session text, in_ttl_ms bigint, in_ttl_refresh boolean, in_fence bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
BEGIN
    t := larder.lock_thread(in_namespace, in_agent, in_session, false);
    t := larder.fenced(t, in_fence);
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
