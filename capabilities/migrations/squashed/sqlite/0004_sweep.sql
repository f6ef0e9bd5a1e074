-- Finding what has expired without looking through what has not.
--
-- `sweep_ms` is when to look whether a thread, or a key of a bucket, has expired: never later than the first expiry, and
-- earlier where use has prolonged a life since. NULL where nothing expires.

ALTER TABLE threads ADD COLUMN sweep_ms INTEGER;
UPDATE threads SET sweep_ms = expires_ms WHERE expires_ms IS NOT NULL;
CREATE INDEX threads_to_sweep ON threads (sweep_ms) WHERE sweep_ms IS NOT NULL;

ALTER TABLE kv_buckets ADD COLUMN sweep_ms INTEGER;
UPDATE kv_buckets SET sweep_ms = (
    SELECT min(e.expires_ms) FROM kv_entries e
    WHERE e.namespace = kv_buckets.namespace AND e.bucket = kv_buckets.bucket AND e.expires_ms IS NOT NULL
);
CREATE INDEX kv_buckets_to_sweep ON kv_buckets (sweep_ms) WHERE sweep_ms IS NOT NULL;
