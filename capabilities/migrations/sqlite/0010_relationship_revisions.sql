-- Version 10: the revision of each relationship, from the numbers of the entities' revisions. Existing relationships share one.
ALTER TABLE relationships ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
UPDATE entity_revisions SET last_revision = last_revision + 1;
UPDATE relationships SET revision = (SELECT last_revision FROM entity_revisions);
