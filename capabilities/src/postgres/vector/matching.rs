//! The documents that match a filter, in the order of their ids. The server excludes most of the others, and
//! the kernel's filter decides.

use larder_kernel::{CollectionName, Document, DocumentId, Filter, Metadata, Namespace, Page, PageRequest};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::prefilter::prefilter;
use crate::postgres::decode;
use crate::postgres::encode::length;
use crate::postgres::failure::{Fallible, corrupt};

/// The number of metadata rows that a filter reads at a time.
const FILTERED_ROWS: usize = 5_000;
/// The smallest number of metadata rows that a page reads at first.
const FEW_ROWS: usize = 64;

macro_rules! filtered {
    ($condition:literal) => {
        concat!(
            "SELECT id, metadata FROM larder.documents WHERE namespace = $1 AND collection = $2 AND id > $3",
            $condition,
            " ORDER BY id LIMIT $4"
        )
    };
}

/// Returns the ids of the matching documents. The server excludes some documents, and the filters decide
/// about the rest. The connection must be inside one snapshot; otherwise the caller must check the documents
/// again.
pub(super) async fn matching(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    filters: &[&Filter],
) -> Fallible<Vec<Vec<String>>> {
    let mut matching = vec![Vec::new(); filters.len()];
    let mut scan = Scan::new(filters, FILTERED_ROWS);
    loop {
        let rows = scan.next(connection, namespace, collection).await?;
        for (id, metadata) in &rows {
            for (filter, matching) in filters.iter().zip(&mut matching) {
                if filter.matches(metadata) {
                    matching.push(id.clone());
                }
            }
        }
        if scan.ended {
            return Ok(matching);
        }
    }
}

/// A scan of metadata in the order of ids, without the rows that the server excludes.
struct Scan {
    condition: Option<String>,
    after: String,
    rows: usize,
    ended: bool,
}

impl Scan {
    /// Creates a scan that reads `rows` rows at first.
    fn new(filters: &[&Filter], rows: usize) -> Self {
        Self { condition: prefilter(filters), after: String::new(), rows, ended: false }
    }

    /// Returns the next rows. A long scan reads more rows at a time.
    async fn next(
        &mut self,
        connection: &mut PgConnection,
        namespace: &Namespace,
        collection: &CollectionName,
    ) -> Fallible<Vec<(String, Metadata)>> {
        let sql = match self.condition {
            None => filtered!(""),
            Some(_) => filtered!(" AND metadata::jsonb @@ $5::text::jsonpath"),
        };
        let query = sqlx::query(sql)
            .bind(namespace.as_str())
            .bind(collection.as_str())
            .bind(&self.after)
            .bind(length(self.rows));
        let query = match &self.condition {
            None => query,
            Some(condition) => query.bind(condition),
        };
        let rows = query.fetch_all(connection).await?;
        let read = |row: &PgRow| -> Fallible<(String, Metadata)> {
            Ok((row.try_get(0)?, decode::metadata(row, 1)?))
        };
        let read = rows.iter().map(read).collect::<Fallible<Vec<_>>>()?;
        if let Some((id, _)) = read.last() {
            self.after.clone_from(id);
        }
        self.ended = read.len() < self.rows;
        self.rows = (self.rows * 2).min(FILTERED_ROWS);
        Ok(read)
    }
}

/// Returns the number of matching documents. The connection must be inside one snapshot.
pub(super) async fn count(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    filter: &Filter,
) -> Fallible<u64> {
    let matching = matching(connection, namespace, collection, &[filter]).await?;
    Ok(matching.iter().map(|ids| larder_kernel::check::size(ids.len())).sum())
}

/// Returns one page of matching documents, without their embeddings. The connection must be inside one
/// snapshot. Texts are read only for the documents of the page.
pub(super) async fn list(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    filter: &Filter,
    page: &PageRequest<DocumentId>,
) -> Fallible<Page<Document, DocumentId>> {
    if page.limit == 0 {
        return Ok(Page::empty());
    }
    let mut scan = Scan::new(&[filter], page.limit.saturating_add(1).clamp(FEW_ROWS, FILTERED_ROWS));
    scan.after = page.after.as_ref().map_or_else(String::new, |id| id.as_str().to_owned());
    let mut found = Vec::new();
    while !scan.ended && found.len() <= page.limit {
        let mut rows = scan.next(connection, namespace, collection).await?;
        rows.retain(|(_, metadata)| filter.matches(metadata));
        found.append(&mut rows);
    }
    let Page { items, next, .. } = Page::from_surplus(found, page.limit, |(id, _)| id.clone());
    let documents = with_texts(connection, namespace, collection, items).await?;
    let next = next.map(DocumentId::new).transpose().map_err(|_| corrupt("postgres.read"))?;
    Ok(Page::new(documents, next))
}

/// Adds the texts to documents in the order of their ids.
async fn with_texts(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    documents: Vec<(String, Metadata)>,
) -> Fallible<Vec<Document>> {
    let (ids, metadata): (Vec<String>, Vec<Metadata>) = documents.into_iter().unzip();
    let rows = sqlx::query(
        "SELECT id, content FROM larder.documents WHERE namespace = $1 AND collection = $2 AND id = ANY($3)
         ORDER BY id",
    )
    .bind(namespace.as_str())
    .bind(collection.as_str())
    .bind(ids)
    .fetch_all(connection)
    .await?;
    let document = |(row, metadata): (&PgRow, Metadata)| -> Fallible<Document> {
        Ok(Document::new(decode::id(row, 0)?, decode::text(row, 1)?).with_metadata(metadata))
    };
    rows.iter().zip(metadata).map(document).collect()
}
