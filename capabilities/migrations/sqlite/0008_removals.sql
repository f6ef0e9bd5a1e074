-- Version 8: removals of single messages. `seqs` of an event: for kind 4, removed, the numbers of the messages, separated by
-- commas; for kind 5, rewound, the position after which every message was removed.
ALTER TABLE thread_events ADD COLUMN seqs TEXT;

-- The results of removals with an idempotency key. `seqs` as in kind 4 of an event.
CREATE TABLE removal_keys (
    thread INTEGER NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    idempotency_key TEXT NOT NULL,
    digest BLOB NOT NULL,
    removed INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    seqs TEXT NOT NULL,
    PRIMARY KEY (thread, idempotency_key)
) STRICT, WITHOUT ROWID;

-- The messages of pops with an idempotency key, which are kept for a few minutes.
CREATE TABLE popped_messages (
    thread INTEGER NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    idempotency_key TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kept_until_ms INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (thread, idempotency_key, seq)
) STRICT;
CREATE INDEX popped_messages_to_sweep ON popped_messages (kept_until_ms);
