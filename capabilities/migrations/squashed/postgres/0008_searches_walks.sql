-- Searches among few and walks: what is read anew each time, and what is sent though nobody asked for it, falls away.

-- The `most` nearest of the documents that satisfy a condition, where these are fewer than `few` and the collection has its
-- index, which the last column tells. Else, or where its embeddings have another dimension, its row comes without a document.
--
-- The indexes of a collection are only found by plans that know the collection, so the plan is made for each call; what a
-- prepared statement gives, a session may keep for all collections. The distance is computed on the way: kept for later, the
-- direction of each document would be copied.
CREATE FUNCTION larder.nearest_among_few(
    in_namespace text, in_collection text, query real[], most bigint, in_dimensions integer, condition text, few bigint
) RETURNS TABLE (
    out_dimensions integer, out_id text, out_content bytea, out_metadata text, out_embedding bytea, out_complete boolean
) LANGUAGE plpgsql STABLE SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    RETURN QUERY WITH collection AS MATERIALIZED (
        SELECT c.dimensions, (
            SELECT x.indisvalid FROM pg_catalog.pg_index x
            WHERE x.indexrelid = pg_catalog.to_regclass(
                format('larder.%I', larder.index_name('hnsw', c.namespace, c.name, c.dimensions)))
        ) IS TRUE AS indexed
        FROM larder.collections c WHERE c.namespace = in_namespace AND c.name = in_collection
    ), found AS MATERIALIZED (
        SELECT d.id, d.content, d.metadata, d.embedding, d.direction <=> query::vector AS distance
        FROM larder.documents d
        WHERE d.namespace = in_namespace AND d.collection = in_collection AND d.metadata::jsonb @@ condition::jsonpath
            AND (SELECT c.indexed AND c.dimensions = in_dimensions FROM collection c)
        LIMIT few
    )
    SELECT c.dimensions, d.id, d.content, d.metadata, d.embedding, c.indexed AND (SELECT count(*) FROM found) < few
    FROM collection c LEFT JOIN (
        SELECT f.id, f.content, f.metadata, f.embedding FROM found f WHERE (SELECT count(*) FROM found) < few
        ORDER BY f.distance, f.id LIMIT most) d ON TRUE;
END
$$;

-- Walks outward as `larder.neighbors` of before did, but where the limit left out an end, the relationship stays here as
-- well: an entity may have a million of them and a walk ask for ten.
CREATE OR REPLACE FUNCTION larder.neighbors(
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
                AND (types IS NULL OR r.relationship_type = ANY (types))
                AND (cardinality(reached) < most OR r.target IN (SELECT unnest(reached) COLLATE "C"));
    END IF;
    IF back THEN
        RETURN QUERY SELECT NULL::integer, r.id, r.relationship_type, r.source, r.target, r.properties
            FROM larder.relationships r
            WHERE r.namespace = in_namespace AND r.target = ANY (passed)
                AND (types IS NULL OR r.relationship_type = ANY (types))
                AND (cardinality(reached) < most OR r.source IN (SELECT unnest(reached) COLLATE "C"));
    END IF;
END
$$;
