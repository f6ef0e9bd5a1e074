-- Claims of several workers at one board, in one round trip and one commit.

-- Gives each of `in_workers`, in their order, the first task in board order that is planned or whose lease has passed, under
-- a lease of so many milliseconds from now. Those for whom none is left, and all where there is no such board, get no row.
--
-- A session keeps the plans, also those made while the table was small and the server knew nothing of it: then each index
-- that begins with the board seems as good as another. So what is free is read from the beginning of two indexes that hold
-- nothing else, and what is written is found by its place alone, one after the other.
CREATE FUNCTION larder.claim_tasks(
    in_namespace text, in_conversation text, in_agent text, in_workers text[], in_leases_ms bigint[]
) RETURNS SETOF larder.tasks LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    board larder.boards;
    claimed larder.tasks;
    clock_ms bigint;
    workers integer := cardinality(in_workers);
    free bigint[];
BEGIN
    -- What follows is decided alone, on what the one before left.
    SELECT b.* INTO board FROM larder.boards b
        WHERE b.namespace = in_namespace AND b.conversation = in_conversation AND b.agent = in_agent AND b.live
        FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    clock_ms := larder.now_ms();
    SELECT array_agg(firsts.position) INTO free FROM (
        (SELECT t.position FROM larder.tasks t
         WHERE t.namespace = in_namespace AND t.conversation = in_conversation AND t.agent = in_agent
            AND t.status = 'planned'
         ORDER BY t.position LIMIT workers)
        UNION ALL
        -- Apart from the order: for its sake, all tasks could be read by their places.
        (SELECT passed.position FROM (
            SELECT t.position FROM larder.tasks t
            WHERE t.namespace = in_namespace AND t.conversation = in_conversation AND t.agent = in_agent
                AND t.lease_expires_ms IS NOT NULL AND t.lease_expires_ms <= clock_ms
            OFFSET 0) passed
         ORDER BY passed.position LIMIT workers)
        ORDER BY position LIMIT workers) firsts;
    FOR place IN 1..coalesce(cardinality(free), 0) LOOP
        UPDATE larder.tasks t
            SET revision = board.last_revision + place, status = 'in_progress', lease_worker = in_workers[place],
                lease_token = board.last_token + place, lease_expires_ms = clock_ms + in_leases_ms[place]
            WHERE t.namespace = in_namespace AND t.conversation = in_conversation AND t.agent = in_agent
                AND t.position = free[place]
            RETURNING t.* INTO claimed;
        RETURN NEXT claimed;
    END LOOP;
    IF free IS NOT NULL THEN
        UPDATE larder.boards b
            SET last_revision = b.last_revision + cardinality(free), last_token = b.last_token + cardinality(free)
            WHERE b.namespace = in_namespace AND b.conversation = in_conversation AND b.agent = in_agent;
    END IF;
END
$$;
