//! The sizes, chunks and numbers of blobs.

use super::FaultKind::{Counter, Record, Reference};
use super::SqlCheck;

pub(super) const CHECKS: &[SqlCheck] = &[
    SqlCheck {
        kind: Record,
        subject: "blobs",
        sql: "SELECT 'blob ' || b.namespace || ' ' || b.key,
                CASE WHEN b.content IS NULL OR b.bytes IS NOT NULL
                    THEN 'it has no bytes, or bytes in its row and in chunks'
                    ELSE format('its size is %s; it has %s bytes in %s chunks', b.size, coalesce(c.total, 0),
                        coalesce(c.chunks, 0)) END
              FROM larder.blobs b LEFT JOIN (
                SELECT namespace, content, count(*) AS chunks, max(chunk) AS last,
                    sum(octet_length(bytes)) AS total
                FROM larder.blob_chunks GROUP BY namespace, content
              ) c ON c.namespace = b.namespace AND c.content = b.content
              WHERE (b.content IS NULL) = (b.bytes IS NULL)
                OR (b.content IS NOT NULL AND (b.size <> coalesce(c.total, 0) OR c.chunks <> c.last + 1))",
        repair: None,
    },
    SqlCheck {
        kind: Reference,
        subject: "blob_chunks",
        sql: "SELECT format('content %s in %s', c.content, c.namespace),
                format('no blob has its %s chunks, and no sweep removes them', count(*))
              FROM larder.blob_chunks c
              WHERE NOT EXISTS (SELECT FROM larder.blobs b
                    WHERE b.namespace = c.namespace AND b.content = c.content)
                AND NOT EXISTS (SELECT FROM larder.blob_leftovers l
                    WHERE l.namespace = c.namespace AND l.content = c.content)
              GROUP BY c.namespace, c.content",
        repair: None,
    },
    SqlCheck {
        kind: Counter,
        subject: "blob_numbers",
        sql: "SELECT 'sequence blob_numbers',
                format('its last number is %s; the greatest number in use is %s', s.last, e.top)
              FROM (SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END AS last
                    FROM larder.blob_numbers) s,
                (SELECT max(version) AS top FROM larder.blobs) e WHERE e.top > s.last",
        repair: Some((
            "raise the last number",
            "SELECT setval('larder.blob_numbers', greatest((SELECT last_value FROM larder.blob_numbers),
                (SELECT max(version) FROM larder.blobs)))",
        )),
    },
];
