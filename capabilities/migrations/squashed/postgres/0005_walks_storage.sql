-- A walk through the graph in one round trip and one snapshot, and directions of embeddings beside their rows.

-- What a search reads of every document that it ranks is not to be looked up out of line. The embedding itself is: it is
-- read of the hits alone. Only what is written from now on changes.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_attribute
               WHERE attrelid = 'larder.documents'::regclass AND attname = 'direction' AND NOT attisdropped) THEN
        ALTER TABLE larder.documents ALTER COLUMN direction SET STORAGE MAIN;
    END IF;
END
$$;

-- What is reached from an entity within `depth` hops, `most` entities at most: the entities with their hops, then the
-- relationships that leave (or enter) those of fewer than `depth` hops, with hops NULL. A relationship that is walked both
-- ways comes twice, and one whose other end the limit left out comes, too: who asks has the entities and can tell.
-- STABLE, so that all of it reads the caller's snapshot. The plans go along the indexes whatever the arrays hold, and making
-- them anew for each call costs as much as a short walk does.
CREATE FUNCTION larder.neighbors(
    in_namespace text, in_start text, depth integer, forth boolean, back boolean, types text[], most integer
) RETURNS TABLE (
    out_hops integer, out_id text, out_type text, out_source text, out_target text, out_properties text
) LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    reached text[];
    hops integer[] := ARRAY[0];
    -- Those of fewer than `depth` hops, whose relationships are walked.
    passed text[] := '{}';
    level text[];
    following text[];
BEGIN
    SELECT ARRAY[e.id] INTO reached FROM larder.entities e WHERE e.namespace = in_namespace AND e.id = in_start;
    IF reached IS NULL THEN
        RETURN;
    END IF;
    level := reached;
    FOR hop IN 1..depth LOOP
        passed := passed || level;
        -- What was met before is taken out by sorting or hashing: an array is searched from its beginning each time.
        SELECT array_agg(found.id) INTO following FROM (
            (SELECT r.target AS id FROM larder.relationships r
             WHERE forth AND r.namespace = in_namespace AND r.source = ANY (level)
                AND (types IS NULL OR r.relationship_type = ANY (types))
             UNION ALL
             SELECT r.source FROM larder.relationships r
             WHERE back AND r.namespace = in_namespace AND r.target = ANY (level)
                AND (types IS NULL OR r.relationship_type = ANY (types)))
            EXCEPT SELECT unnest(reached) COLLATE "C"
            ORDER BY 1 LIMIT most - cardinality(reached)
        ) found;
        EXIT WHEN following IS NULL;
        reached := reached || following;
        hops := hops || array_fill(hop, ARRAY[cardinality(following)]);
        level := following;
    END LOOP;
    RETURN QUERY SELECT w.hops, e.id, e.entity_type, NULL::text, NULL::text, e.properties
        FROM unnest(reached, hops) w (id, hops)
        JOIN larder.entities e ON e.namespace = in_namespace AND e.id = w.id;
    IF forth THEN
        RETURN QUERY SELECT NULL::integer, r.id, r.relationship_type, r.source, r.target, r.properties
            FROM larder.relationships r
            WHERE r.namespace = in_namespace AND r.source = ANY (passed)
                AND (types IS NULL OR r.relationship_type = ANY (types));
    END IF;
    IF back THEN
        RETURN QUERY SELECT NULL::integer, r.id, r.relationship_type, r.source, r.target, r.properties
            FROM larder.relationships r
            WHERE r.namespace = in_namespace AND r.target = ANY (passed)
                AND (types IS NULL OR r.relationship_type = ANY (types));
    END IF;
END
$$;
