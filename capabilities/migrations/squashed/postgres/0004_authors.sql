-- Who wrote each message, beside the message, so that a filter by author and role is evaluated without its body.
--
-- `author` and `author_role` are empty texts where the message names none. They have no default, and the functions that
-- write messages other parameters than before, so that a program which does not know them cannot write without them.
ALTER TABLE larder.messages ADD COLUMN author text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE larder.messages ADD COLUMN author_role text COLLATE "C" NOT NULL DEFAULT '';

-- A body is JSON as far as its first line break, and what may follow need not be text that the database takes. Only what
-- names an author is looked into. Where a string holds NUL, its escape is refused by what reads JSON; ids hold none, and
-- the escape of another character in its place leaves the rest as it is.
UPDATE larder.messages m
SET author = coalesce(j.body #>> '{author,agent}', ''), author_role = coalesce(j.body #>> '{author,role}', '')
FROM (
    SELECT namespace, thread, seq, replace(convert_from(substring(body FROM 1 FOR
        coalesce(nullif(position('\x0a'::bytea IN body), 0) - 1, length(body))), 'UTF8'), '\u0000', '\u0001')::json AS body
    FROM larder.messages WHERE position('"author":{'::bytea IN body) > 0
) j
WHERE m.namespace = j.namespace AND m.thread = j.thread AND m.seq = j.seq;

ALTER TABLE larder.messages ALTER COLUMN author DROP DEFAULT;
ALTER TABLE larder.messages ALTER COLUMN author_role DROP DEFAULT;
CREATE INDEX messages_by_author ON larder.messages (namespace, thread, author, seq) WHERE author <> '';

DROP FUNCTION larder.append(text, text, text, text[], bigint[], bytea[], text, bytea, bigint, boolean);
DROP FUNCTION larder.replace_beginning(text, text, text, bigint, bigint, text[], bigint[], bytea[]);

-- Appends, and answers the numbers given; NULL where the idempotency key was used for other messages.
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
    -- The most frequent case, in the fewest steps: one message for a thread that is there and lives for good.
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

-- Copies a thread. `out_state`: 0 done, 1 the target holds messages, 2 the source holds none.
CREATE OR REPLACE FUNCTION larder.fork_thread(
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

-- Puts messages in the place of a thread's beginning. `out_state`: 0 done, 1 the thread does not reach that far, 2 it
-- lost messages since it was seen.
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
    -- The new messages may stand on the numbers of these events, and the event that follows tells all they told.
    DELETE FROM larder.thread_events e
    WHERE e.namespace = in_namespace AND e.thread = t.id AND (e.seq <= in_up_to OR e.up_to <= in_up_to);
    INSERT INTO larder.thread_events (namespace, thread, seq, kind, removed, up_to, thread_bytes)
    VALUES (in_namespace, t.id, t.last_seq, 3, out_removed, in_up_to, t.bytes);
    PERFORM larder.save_thread(t);
    out_seq := t.last_seq;
END
$$;
