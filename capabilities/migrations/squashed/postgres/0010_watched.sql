-- Appends announce themselves only in threads that somebody follows.
--
-- Who follows a thread says so in its row, for a while, and then reads the log; an append writes that row anyway, and so
-- sees it at no cost. Whoever appended before held the row, so what it wrote is in the log by then.

-- NULL where nobody follows, or did not for long.
ALTER TABLE larder.threads ADD COLUMN watched_until_ms bigint;

-- What follows is called for few rows, and in functions, as a statement looks up all that it may call before it begins.

CREATE FUNCTION larder.is_to_come(at_ms bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN at_ms > larder.now_ms();
END
$$;

-- When a time to live ends that is used now.
CREATE FUNCTION larder.prolonged(expires_ms bigint, ttl_ms bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN greatest(expires_ms, larder.now_ms() + ttl_ms);
END
$$;

-- The id of a thread that was written, announced if somebody still follows it.
CREATE FUNCTION larder.announced(
    id bigint, watched_until_ms bigint, namespace text, agent text, session text
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF watched_until_ms > larder.now_ms() THEN
        PERFORM pg_notify('larder', larder.wake('h', namespace, agent, session)::text);
    END IF;
    RETURN id;
END
$$;

-- Says that somebody follows the thread, and answers whether that is noted: not where there is no such thread, or somebody
-- works on it for long, and not on a standby. Who is not noted has to look, which is no reason to fail.
CREATE FUNCTION larder.watch_thread(
    in_namespace text, in_agent text, in_session text, in_lease_ms bigint
) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '250ms' AS $$
BEGIN
    IF current_setting('transaction_read_only')::boolean THEN
        RETURN false;
    END IF;
    UPDATE larder.threads s SET watched_until_ms = larder.now_ms() + in_lease_ms
    WHERE s.namespace = in_namespace AND s.agent = in_agent AND s.session = in_session;
    RETURN FOUND;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;

-- Makes an expiry that has passed into its clear, and answers how the thread stands; where nothing can be written, how it
-- stands all the same.
CREATE OR REPLACE FUNCTION larder.expire_thread(in_namespace text, in_agent text, in_session text)
RETURNS TABLE (messages bigint, bytes bigint, last_seq bigint) LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_read_only')::boolean THEN
        RETURN QUERY SELECT CASE WHEN s.expires_ms <= larder.now_ms() THEN 0 ELSE s.messages END,
            CASE WHEN s.expires_ms <= larder.now_ms() THEN 0 ELSE s.bytes END, s.last_seq
        FROM larder.threads s WHERE s.namespace = in_namespace AND s.agent = in_agent AND s.session = in_session;
    ELSE
        RETURN QUERY SELECT t.messages, t.bytes, t.last_seq
        FROM larder.lock_thread(in_namespace, in_agent, in_session, false) t WHERE t.id IS NOT NULL;
    END IF;
END
$$;

-- As before, except that each thread is announced only where somebody follows it.
CREATE OR REPLACE FUNCTION larder.append_together(
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
