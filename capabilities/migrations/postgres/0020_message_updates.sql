-- Version 20: updates of messages in place.

-- The number of the event of the last update; NULL if the message was never updated. The revision of a message is `updated_by`,
-- or else `placed_by`, or else `seq`. An event of kind 6, updated, has the number of its message as `up_to`, so that a
-- replacement removes it with the message. It counts while the message has it as `updated_by`.
ALTER TABLE larder.messages ADD COLUMN updated_by bigint;

-- Updates the message `in_seq` if it has the revision `in_revision`. The thread must have reached `in_bound`, have the generation
-- `in_bound_generation`, and have the last number `in_if_last` and the generation `in_if_generation`, of which each may be NULL.
--
-- `out_state`: 0 done, 1 the key was used for another update or a removal, 2 the thread has another last number than `in_if_last`
-- or another generation, 3 it does not reach the bound or has another generation, 4 it has no such message, 5 the message has
-- the revision `out_revision`. `out_last` and `out_generation` are those of the thread, or of the first result.
CREATE FUNCTION larder.update_message(
    in_namespace text, in_agent text, in_session text, in_seq bigint, in_revision bigint,
    in_bound bigint, in_bound_generation bigint, in_if_last bigint, in_if_generation bigint,
    in_key text, in_digest bytea, in_fence bigint, in_run text, in_author text, in_role text, in_size bigint, in_body bytea,
    OUT out_state integer, OUT out_last bigint, OUT out_generation bigint, OUT out_revision bigint
) LANGUAGE plpgsql AS $$
DECLARE
    t larder.threads;
    k larder.removal_keys;
    was_updated_by bigint;
    was_bytes bigint;
BEGIN
    t := larder.lock_thread(in_namespace, in_agent, in_session, false);
    out_last := coalesce(t.last_seq, 0);
    out_generation := t.generation;
    out_state := 0;
    IF in_key IS NOT NULL THEN
        SELECT * INTO k FROM larder.removal_keys r
        WHERE r.namespace = in_namespace AND r.thread = t.id AND r.idempotency_key = in_key;
        IF FOUND THEN
            IF k.digest <> in_digest THEN
                out_state := 1;
                RETURN;
            END IF;
            out_last := k.last_seq;
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
    SELECT coalesce(m.updated_by, m.placed_by, m.seq), m.updated_by, m.bytes INTO out_revision, was_updated_by, was_bytes
    FROM larder.messages m WHERE m.namespace = in_namespace AND m.thread = t.id AND m.seq = in_seq;
    IF NOT FOUND THEN
        out_state := 4;
        RETURN;
    END IF;
    IF out_revision <> in_revision THEN
        out_state := 5;
        RETURN;
    END IF;
    t.bytes := t.bytes - was_bytes + in_size;
    t.last_seq := t.last_seq + 1;
    t.changed_seq := t.last_seq;
    UPDATE larder.messages m
    SET run = in_run, author = in_author, author_role = in_role, bytes = in_size, body = in_body, updated_by = t.last_seq
    WHERE m.namespace = in_namespace AND m.thread = t.id AND m.seq = in_seq;
    -- The event of the earlier update, which this one replaces.
    DELETE FROM larder.thread_events e WHERE e.namespace = in_namespace AND e.thread = t.id AND e.seq = was_updated_by;
    INSERT INTO larder.thread_events (namespace, thread, seq, kind, removed, up_to, thread_bytes)
    VALUES (in_namespace, t.id, t.last_seq, 6, 0, in_seq, t.bytes);
    IF in_key IS NOT NULL THEN
        INSERT INTO larder.removal_keys
        VALUES (in_namespace, t.id, in_key, in_digest, 1, t.last_seq, ARRAY[in_seq]);
    END IF;
    PERFORM larder.save_thread(t);
    out_last := t.last_seq;
    out_revision := t.last_seq;
END
$$;
