-- Version 15: appends on the condition that the thread has a known last position.

-- Clears a thread whose time to live has passed, and returns its state. In a read-only transaction, returns the state as if
-- it had been cleared, with the number that the clear will have.
CREATE OR REPLACE FUNCTION larder.expire_thread(in_namespace text, in_agent text, in_session text)
RETURNS TABLE (messages bigint, bytes bigint, last_seq bigint, generation bigint) LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_read_only')::boolean THEN
        RETURN QUERY SELECT CASE WHEN s.expires_ms <= larder.now_ms() THEN 0 ELSE s.messages END,
            CASE WHEN s.expires_ms <= larder.now_ms() THEN 0 ELSE s.bytes END,
            CASE WHEN s.expires_ms <= larder.now_ms() THEN s.last_seq + 1 ELSE s.last_seq END, s.generation
        FROM larder.threads s WHERE s.namespace = in_namespace AND s.agent = in_agent AND s.session = in_session;
    ELSE
        RETURN QUERY SELECT t.messages, t.bytes, t.last_seq, t.generation
        FROM larder.lock_thread(in_namespace, in_agent, in_session, false) t WHERE t.id IS NOT NULL;
    END IF;
END
$$;

DROP FUNCTION larder.append;
-- Appends messages, and returns their first and last number and the generation, or NULL numbers if the idempotency key was
-- used for other messages. If the thread does not have the last number `in_if_last` and the generation `in_if_generation`,
-- of which each may be NULL, writes nothing and returns the last number as `out_found`.
CREATE FUNCTION larder.append(
    in_namespace text, in_agent text, in_session text, runs text[], authors text[], roles text[],
    sizes bigint[], bodies bytea[], in_key text, in_digest bytea, in_ttl_ms bigint, in_ttl_refresh boolean,
    in_if_last bigint, in_if_generation bigint,
    OUT out_first bigint, OUT out_last bigint, OUT out_generation bigint, OUT out_found bigint
) LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
    k larder.append_keys;
    batch_count bigint := cardinality(bodies);
    batch_bytes bigint;
BEGIN
    -- The most frequent case, in the fewest steps: one message for an existing thread without a time to live.
    IF batch_count = 1 AND in_key IS NULL AND in_ttl_ms IS NULL AND in_if_last IS NULL THEN
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
            END IF;
            RETURN;
        END IF;
    END IF;
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
