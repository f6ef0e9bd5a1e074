-- The schema `larder` of version 12. This file: the clock, notifications and the threads of the history.
--
-- Text that names something compares by its bytes (COLLATE "C"), so ids that differ in any byte are different keys, and
-- listings come in byte order. Text that may hold NUL is bytea. JSON is text: jsonb would rewrite its numbers. Times are
-- milliseconds since 1970-01-01T00:00:00Z on the database's clock, or NULL.
--
-- Every key begins with the namespace, so that the tables can be partitioned by its hash, or distributed by it with
-- Citus, without moving a row away from its neighbors.

-- Format --------------------------------------------------------------------------------------------------------------

-- Raises LF001 if the database has another format than the program that writes. Every write calls it or reads the version
-- in its own transaction, and so holds the lock of this table until it ends. An upgrade takes that lock exclusively first.
-- All later versions keep this function and the table.
CREATE FUNCTION larder.at_format(expected bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found bigint;
BEGIN
    SELECT v.version INTO found FROM larder.schema_version v;
    IF found IS DISTINCT FROM expected THEN
        RAISE EXCEPTION USING ERRCODE = 'LF001', MESSAGE = 'the database has another format',
            DETAIL = format('%s %s', coalesce(found, 0), expected);
    END IF;
    RETURN true;
END
$$;

-- Clock and notifications ---------------------------------------------------------------------------------------------

-- Returns the current time of the database's clock.
CREATE FUNCTION larder.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- Returns the number under which a change of a thread or a bucket is announced. Two of them may share a number, which
-- costs one useless read.
CREATE FUNCTION larder.wake(VARIADIC parts text[]) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT hashtextextended(array_to_string(parts, E'\x01'), 0) $$;

-- Returns whether no session listens, so that the transaction need not announce its change: all commits that announce queue for
-- one lock of the server until they are flushed. A listener holds the second lock shared, so if a writer gets it alone for
-- a moment, no listener exists. Every writer holds the fourth lock shared until its transaction ends: a new listener waits
-- for the writers that may have looked before, and then reads the log.
CREATE FUNCTION larder.nobody_listens() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN NOT pg_try_advisory_xact_lock_shared(1282565234, 4) THEN false
        WHEN pg_try_advisory_lock(1282565234, 2) THEN pg_advisory_unlock(1282565234, 2)
        ELSE false
    END
$$;

-- Announces a change when the transaction commits, if a session may listen.
CREATE FUNCTION larder.announce(wake bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT larder.nobody_listens() THEN
        PERFORM pg_notify('larder', wake::text);
    END IF;
END
$$;

-- History -------------------------------------------------------------------------------------------------------------

-- One row per thread. The row outlives a clear, so that its numbers continue. Its lock orders the thread's writers, so numbers
-- become visible in their order.
--
-- `changed_seq`       the number of the last clear, run clear or replacement
-- `sweep_ms`          when to look whether the thread has expired: never later than its expiry, but earlier if the expiry
--                     was prolonged, so that prolonging does not write the index; NULL if the thread does not expire
-- `watched_until_ms`  until when appends are announced: a subscriber renews it, and an append reads it in the row that it
--                     writes anyway; NULL without a recent subscription
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
    sweep_ms bigint,
    watched_until_ms bigint,
    PRIMARY KEY (namespace, agent, session)
) WITH (fillfactor = 70);
CREATE INDEX threads_to_sweep ON larder.threads (sweep_ms) WHERE sweep_ms IS NOT NULL;

-- `placed_by` is the number of the replacement that inserted the message, or NULL if it was appended. `body` is the message,
-- perhaps compressed; its first byte is the form of the rest. `author` and `author_role` are empty if the message has none; a
-- filter by author does not read the body.
CREATE TABLE larder.messages (
    namespace text COLLATE "C" NOT NULL,
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    bytes bigint NOT NULL,
    thread_bytes bigint NOT NULL,
    placed_by bigint,
    run text COLLATE "C",
    body bytea NOT NULL,
    author text COLLATE "C" NOT NULL,
    author_role text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, thread, seq)
);
CREATE INDEX messages_by_run ON larder.messages (namespace, thread, run) WHERE run IS NOT NULL;
CREATE INDEX messages_by_author ON larder.messages (namespace, thread, author, seq) WHERE author <> '';

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

-- Saves a locked thread and announces it. A thread without messages has no time to live, so that later messages do not
-- inherit one.
CREATE FUNCTION larder.save_thread(t larder.threads) RETURNS void LANGUAGE sql AS $$
    UPDATE larder.threads
    SET last_seq = t.last_seq, changed_seq = t.changed_seq, messages = t.messages, bytes = t.bytes,
        ttl_ms = CASE WHEN t.messages > 0 THEN t.ttl_ms END,
        ttl_refresh = t.messages > 0 AND t.ttl_refresh,
        expires_ms = CASE WHEN t.messages > 0 THEN t.expires_ms END,
        sweep_ms = CASE WHEN t.messages > 0 AND t.expires_ms IS NOT NULL THEN least(threads.sweep_ms, t.expires_ms) END
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

-- Locks a thread and returns it. If its time to live has passed, it is cleared first. Returns NULL for a thread that was
-- never used, unless `make` is set.
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

-- Clears a thread whose time to live has passed, and returns its state. In a read-only transaction, returns the state as if
-- it had been cleared.
CREATE FUNCTION larder.expire_thread(in_namespace text, in_agent text, in_session text)
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

-- The next three functions are called for few rows. They are functions because a statement looks up all that it may call
-- before it begins.

-- Returns whether an instant is in the future.
CREATE FUNCTION larder.is_to_come(at_ms bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN at_ms > larder.now_ms();
END
$$;

-- Returns the new expiry of a time to live that is renewed now.
CREATE FUNCTION larder.prolonged(expires_ms bigint, ttl_ms bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN greatest(expires_ms, larder.now_ms() + ttl_ms);
END
$$;

-- Announces a thread that was written, if it has a subscriber, and returns its id.
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

-- Records a subscription to the thread, and returns whether it was recorded: not if the thread does not exist, another
-- transaction holds it for long, or the server is a standby. Otherwise the subscriber must poll.
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
