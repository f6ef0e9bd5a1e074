-- The names of a collection's own indexes, a mark on what was replaced, and cheaper compression for what may be large.

-- A collection that is searched by an index has its own: one over every collection would pass by all the others' documents
-- on its way. The lengths keep two pairs of names apart; an identifier ends at 63 bytes, so the names are hashed.
CREATE FUNCTION larder.index_name(kind text, in_namespace text, in_collection text, in_dimensions integer)
RETURNS name LANGUAGE sql STABLE AS $$
    SELECT (format('documents_%s_%s_%s', kind, left(encode(sha256(convert_to(
        format('%s:%s%s', length(in_namespace), in_namespace, in_collection), 'UTF8')), 'hex'), 32), in_dimensions))::name
$$;

-- Tells an upsert which rows it made and which it replaced.
ALTER TABLE larder.entities ADD COLUMN replaced boolean NOT NULL DEFAULT false;
ALTER TABLE larder.relationships ADD COLUMN replaced boolean NOT NULL DEFAULT false;

-- lz4 is several times quicker than the default, and not built into every server. Only what is written from now on changes.
DO $$
BEGIN
    ALTER TABLE larder.documents ALTER COLUMN content SET COMPRESSION lz4;
    ALTER TABLE larder.documents ALTER COLUMN metadata SET COMPRESSION lz4;
    ALTER TABLE larder.entities ALTER COLUMN properties SET COMPRESSION lz4;
    ALTER TABLE larder.relationships ALTER COLUMN properties SET COMPRESSION lz4;
    ALTER TABLE larder.tasks ALTER COLUMN description SET COMPRESSION lz4;
    ALTER TABLE larder.tasks ALTER COLUMN result SET COMPRESSION lz4;
    ALTER TABLE larder.tasks ALTER COLUMN metadata SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
    NULL;
END
$$;
