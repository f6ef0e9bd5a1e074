-- The schema of version 12, continued: the functions that write and remove messages.

-- Appends messages, and returns their first and last number, or NULL if the idempotency key was used for other messages.
CREATE FUNCTION larder.append(
    in_namespace text, in_agent text, in_session text, runs text[], authors text[], roles text[],
    sizes bigint[], bodies bytea[], in_key text, in_digest bytea, in_ttl_ms bigint, in_ttl_refresh boolean,
    OUT out_first bigint, OUT out_last bigint
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
        RETURNING s.id, s.last_seq, s.bytes INTO t.id, out_first, batch_bytes;
        IF FOUND THEN
            INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, author, author_role, body)
            VALUES (in_namespace, t.id, out_first, sizes[1], batch_bytes, runs[1], authors[1], roles[1], bodies[1]);
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
-- whose time to live has passed, or that another transaction holds, are left as they are.
--
-- A session keeps the plan, even one made while the tables were small, so only the plan for large tables is allowed.
CREATE FUNCTION larder.append_together(
    namespaces text[], agents text[], sessions text[], counts bigint[], totals bigint[],
    places bigint[], numbers bigint[], sums bigint[], runs text[], authors text[], roles text[], sizes bigint[], bodies bytea[]
) RETURNS TABLE (place bigint, before bigint) LANGUAGE plpgsql VOLATILE
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
            s.last_seq - f.messages AS seq, s.bytes - f.bytes AS bytes
    ), messages AS (
        INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, author, author_role, body)
        SELECT t.namespace, t.id, t.seq + m.number, m.size, t.bytes + m.sum, m.run, m.author, m.role, m.body
        FROM unnest(places, numbers, sums, runs, authors, roles, sizes, bodies)
            AS m (place, number, sum, run, author, role, size, body)
            JOIN written t ON t.place = m.place
    )
    SELECT t.place, t.seq FROM written t;
END
$$;

-- Clears a thread, and returns the number of its messages.
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

-- Removes the messages of one run, and returns their number.
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
END
$$;

-- Replaces the beginning of a thread with other messages. `out_state`: 0 done, 1 the thread does not reach that far, 2 it lost
-- messages since the caller read it.
CREATE FUNCTION larder.replace_beginning(
    in_namespace text, in_agent text, in_session text, in_up_to bigint, in_seen bigint,
    runs text[], authors text[], roles text[], sizes bigint[], bodies bytea[],
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

-- Sets or removes the time to live, and returns whether the thread holds messages.
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

-- Removes messages of a thread whose time to live has passed, up to a number and a size. `out_state`: 0 another transaction
-- holds the thread, 1 it has not expired, 2 its messages were removed, 3 some were removed and the thread stays expired
-- regardless of the clock.
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

-- Erases up to `at_most` threads of the namespace, and returns their number.
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
