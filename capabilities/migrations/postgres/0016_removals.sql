-- Version 16: removals of single messages.

-- For an event of kind 4, removed: the numbers of the messages. Of kind 5, rewound: the position after which every message
-- was removed.
ALTER TABLE larder.thread_events ADD COLUMN seqs bigint[];

-- The results of removals with an idempotency key.
CREATE TABLE larder.removal_keys (
    namespace text COLLATE "C" NOT NULL,
    thread bigint NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    removed bigint NOT NULL,
    last_seq bigint NOT NULL,
    seqs bigint[] NOT NULL,
    PRIMARY KEY (namespace, thread, idempotency_key)
);

-- The messages of pops with an idempotency key, which are kept for a few minutes.
CREATE TABLE larder.popped_messages (
    namespace text COLLATE "C" NOT NULL,
    thread bigint NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    kept_until_ms bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (namespace, thread, idempotency_key, seq)
);
CREATE INDEX popped_messages_to_sweep ON larder.popped_messages (kept_until_ms);

-- Removes all messages and the time to live of a locked thread, and the messages that pops kept.
CREATE OR REPLACE FUNCTION larder.cleared(t larder.threads) RETURNS larder.threads LANGUAGE plpgsql AS $$
DECLARE
    gone bigint := t.messages;
BEGIN
    t.ttl_ms := NULL;
    t.ttl_refresh := false;
    t.expires_ms := NULL;
    DELETE FROM larder.popped_messages p WHERE p.namespace = t.namespace AND p.thread = t.id;
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

-- Erases up to `at_most` threads of the namespace, and returns their number.
CREATE OR REPLACE FUNCTION larder.erase_threads(in_namespace text, at_most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
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
    DELETE FROM larder.removal_keys r WHERE r.namespace = in_namespace AND r.thread = ANY (gone);
    DELETE FROM larder.popped_messages p WHERE p.namespace = in_namespace AND p.thread = ANY (gone);
    RETURN cardinality(gone);
END
$$;

-- Removes the messages of pops that were kept long enough, in the order of their ends: up to `rows_max`, and none after
-- `bytes_max` bytes. Returns true if more may be left that others have not locked.
CREATE FUNCTION larder.sweep_popped(rows_max bigint, bytes_max bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    p record;
    gone bigint := 0;
    gone_bytes bigint := 0;
BEGIN
    FOR p IN
        SELECT d.namespace, d.thread, d.idempotency_key, d.seq, octet_length(d.body) AS bytes
        FROM larder.popped_messages d
        WHERE d.kept_until_ms <= (SELECT larder.now_ms()) ORDER BY d.kept_until_ms LIMIT rows_max FOR UPDATE SKIP LOCKED
    LOOP
        IF gone_bytes >= bytes_max THEN
            RETURN true;
        END IF;
        DELETE FROM larder.popped_messages d
        WHERE d.namespace = p.namespace AND d.thread = p.thread AND d.idempotency_key = p.idempotency_key AND d.seq = p.seq;
        gone := gone + 1;
        gone_bytes := gone_bytes + p.bytes;
    END LOOP;
    RETURN gone = rows_max;
END
$$;

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
    in_key text, in_digest bytea, bytes_max bigint, keep_ms bigint,
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
            RETURN;
        END IF;
    END IF;
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
