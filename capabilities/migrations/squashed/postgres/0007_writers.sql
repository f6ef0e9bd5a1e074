-- Writers that do not stand in each other's way.

-- Whether nobody waits for announcements, so that the transaction need not make one: all commits that announce queue for
-- one lock of the server's until the disk has them. Listeners hold the second lock shared, so who gets it alone, for as
-- long as it takes to give it back, has none. Every writer holds the fourth, shared, to the end of its transaction: who
-- begins to listen waits for those that may have looked before, and then reads the log.
CREATE FUNCTION larder.nobody_listens() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN NOT pg_try_advisory_xact_lock_shared(1282565234, 4) THEN false
        WHEN pg_try_advisory_lock(1282565234, 2) THEN pg_advisory_unlock(1282565234, 2)
        ELSE false
    END
$$;

-- Announces a change when the transaction commits, if anybody may be listening.
CREATE OR REPLACE FUNCTION larder.announce(wake bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT larder.nobody_listens() THEN
        PERFORM pg_notify('larder', wake::text);
    END IF;
END
$$;

-- Appends to several threads in one statement. The threads come with the messages and bytes that each gets; the messages
-- with the place of their thread among these, the number that each has among its thread's, and the bytes of those up to it.
-- Gives the place of each thread that was written, and the number before its first message. Those that are not there, whose
-- time to live has passed, or on which somebody else is working, are left as they are.
--
-- A session keeps the plan, also one made while the tables were small: so it may only be the one that is right for large ones.
CREATE FUNCTION larder.append_together(
    namespaces text[], agents text[], sessions text[], counts bigint[], totals bigint[],
    places bigint[], numbers bigint[], sums bigint[], runs text[], authors text[], roles text[], sizes bigint[], bodies bytea[]
) RETURNS TABLE (place bigint, before bigint) LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    silent boolean := larder.nobody_listens();
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
            expires_ms = CASE WHEN s.ttl_refresh THEN greatest(s.expires_ms, larder.now_ms() + s.ttl_ms)
                ELSE s.expires_ms END
        FROM free f WHERE s.namespace = f.namespace AND s.agent = f.agent AND s.session = f.session
        RETURNING f.place, s.namespace, s.agent, s.session, s.id, s.last_seq - f.messages AS seq,
            s.bytes - f.bytes AS bytes
    ), messages AS (
        INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, author, author_role, body)
        SELECT t.namespace, t.id, t.seq + m.number, m.size, t.bytes + m.sum, m.run, m.author, m.role, m.body
        FROM unnest(places, numbers, sums, runs, authors, roles, sizes, bodies)
            AS m (place, number, sum, run, author, role, size, body)
            JOIN written t ON t.place = m.place
    )
    SELECT t.place, t.seq FROM written t
    -- All of them; announcing is what it does on the way.
    WHERE silent OR pg_notify('larder', larder.wake('h', t.namespace, t.agent, t.session)::text)::text IS NOT NULL;
END
$$;
