-- Version 7: the generation of each thread, bucket and board. Positions name it, so a reader that continues in a place
-- that came back empty finds out. It is a random number of 1 to 2^62 - 1, drawn with the row.
ALTER TABLE threads ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
UPDATE threads SET generation = (random() & 4611686018427387903) | 1;
ALTER TABLE kv_buckets ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
UPDATE kv_buckets SET generation = (random() & 4611686018427387903) | 1;
ALTER TABLE boards ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
UPDATE boards SET generation = (random() & 4611686018427387903) | 1;
