-- Who wrote each message, beside the message, so that a filter by author and role is evaluated without its body.
--
-- `author` and `author_role` are empty texts where the message names none. The table is made anew because the two have to
-- stand before the body, and have no default, so that a program which does not know them cannot write without them.
CREATE TABLE messages_with_authors (
    thread INTEGER NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    run TEXT,
    author TEXT NOT NULL,
    author_role TEXT NOT NULL,
    placed_by INTEGER,
    bytes INTEGER NOT NULL,
    thread_bytes INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (thread, seq)
) STRICT;
-- A body is JSON as far as its first line break. Only what names an author has to be looked into, and what cannot be read
-- is kept as it is.
INSERT INTO messages_with_authors (thread, seq, run, author, author_role, placed_by, bytes, thread_bytes, body)
SELECT thread, seq, run,
    CASE WHEN names THEN ifnull(json_extract(head, '$.author.agent'), '') ELSE '' END,
    CASE WHEN names THEN ifnull(json_extract(head, '$.author.role'), '') ELSE '' END,
    placed_by, bytes, thread_bytes, body
FROM (
    SELECT *, instr(head, '"author":{') > 0 AND json_valid(head) AS names
    FROM (
        SELECT *, CASE WHEN instr(body, char(10)) > 0 THEN substr(body, 1, instr(body, char(10)) - 1) ELSE body END AS head
        FROM messages
    )
);
DROP TABLE messages;
ALTER TABLE messages_with_authors RENAME TO messages;
CREATE INDEX messages_by_run ON messages (thread, run) WHERE run IS NOT NULL;
CREATE INDEX messages_by_author ON messages (thread, author, seq) WHERE author <> '';
