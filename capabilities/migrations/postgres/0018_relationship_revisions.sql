-- Version 18: the revision of each relationship, from the numbers of the entities' revisions. The default gives each existing
-- relationship one, because it is volatile.
ALTER TABLE larder.relationships ADD COLUMN revision BIGINT NOT NULL DEFAULT nextval('larder.entity_revisions');
