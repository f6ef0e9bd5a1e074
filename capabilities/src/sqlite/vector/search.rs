//! Exact search: one pass over the collection for any number of requests.

use larder_kernel::{CollectionName, DocumentId, Filter, Metadata, Namespace, SearchHit, SearchRequest};
use rusqlite::{Connection, Row};

use super::read::{Collection, collection, content};
use super::score::{Candidate, Query, TopK};
use crate::sqlite::failure::{Fallible, corrupt};
use crate::sqlite::value;

/// A running request.
struct Ranking<'q> {
    query: Query,
    filter: Option<&'q Filter>,
    top: TopK,
}

impl Ranking<'_> {
    fn wants(&self, metadata: &Metadata) -> bool {
        !self.top.is_closed() && self.filter.is_none_or(|filter| filter.matches(metadata))
    }

    /// Scores a document and keeps it if it is among the best so far.
    fn rank(&mut self, key: i64, id: &[u8], norm: f64, embedding: &[u8]) -> Fallible<()> {
        let score = self.query.score(embedding, norm).ok_or_else(|| corrupt("sqlite.read"))?;
        if self.top.wants(score, id) {
            let id = std::str::from_utf8(id).map_err(|_| corrupt("sqlite.read"))?;
            let id = DocumentId::new(id).map_err(|_| corrupt("sqlite.read"))?;
            self.top.push(Candidate { score, id, key });
        }
        Ok(())
    }
}

/// Runs the requests and returns their results in the same order.
pub(super) fn search(
    connection: &Connection,
    namespace: &Namespace,
    name: &CollectionName,
    requests: &[SearchRequest],
    operation: &'static str,
) -> Fallible<Vec<Vec<SearchHit>>> {
    let Some(found) = collection(connection, namespace, name)? else {
        return Ok(vec![Vec::new(); requests.len()]);
    };
    for request in requests {
        found.check(operation, request.embedding.dimensions())?;
    }
    let mut rankings: Vec<Ranking<'_>> = requests
        .iter()
        .map(|request| Ranking {
            query: Query::new(&request.embedding),
            filter: request.filter.as_ref(),
            top: TopK::new(request.limit, request.score_min),
        })
        .collect();
    if rankings.iter().any(|ranking| ranking.filter.is_some() && !ranking.top.is_closed()) {
        scan_filtered(connection, found, &mut rankings)?;
    } else if rankings.iter().any(|ranking| !ranking.top.is_closed()) {
        scan_all(connection, found, &mut rankings)?;
    }
    rankings.into_iter().map(|ranking| hits(connection, ranking.top)).collect()
}

/// Returns the columns norm and embedding, which begin at `column`.
fn numbers<'r>(row: &'r Row<'_>, column: usize) -> Fallible<(f64, &'r [u8])> {
    let embedding = row.get_ref(column + 1)?.as_blob().map_err(|_| corrupt("sqlite.read"))?;
    Ok((row.get(column)?, embedding))
}

fn id_bytes<'r>(row: &'r Row<'_>, column: usize) -> Fallible<&'r [u8]> {
    Ok(row.get_ref(column)?.as_bytes().map_err(|_| corrupt("sqlite.read"))?)
}

fn scan_all(connection: &Connection, found: Collection, rankings: &mut [Ranking<'_>]) -> Fallible<()> {
    let mut statement =
        connection.prepare_cached("SELECT key, id, norm, embedding FROM embeddings WHERE collection = ?1")?;
    let mut rows = statement.query([found.key])?;
    while let Some(row) = rows.next()? {
        let (key, id, (norm, embedding)) = (row.get(0)?, id_bytes(row, 1)?, numbers(row, 2)?);
        for ranking in rankings.iter_mut() {
            ranking.rank(key, id, norm, embedding)?;
        }
    }
    Ok(())
}

/// Filters by metadata first and reads the embedding only of documents that match some request.
fn scan_filtered(connection: &Connection, found: Collection, rankings: &mut [Ranking<'_>]) -> Fallible<()> {
    let mut documents =
        connection.prepare_cached("SELECT key, id, metadata FROM documents WHERE collection = ?1")?;
    let mut embeddings =
        connection.prepare_cached("SELECT norm, embedding FROM embeddings WHERE key = ?1")?;
    let mut rows = documents.query([found.key])?;
    let mut wanting = Vec::with_capacity(rankings.len());
    while let Some(row) = rows.next()? {
        let metadata = value::metadata(row, 2)?;
        wanting.clear();
        wanting.extend(rankings.iter().map(|ranking| ranking.wants(&metadata)));
        if !wanting.contains(&true) {
            continue;
        }
        let (key, id): (i64, _) = (row.get(0)?, id_bytes(row, 1)?);
        let mut found = embeddings.query([key])?;
        let found = found.next()?.ok_or_else(|| corrupt("sqlite.read"))?;
        let (norm, embedding) = numbers(found, 0)?;
        for (ranking, _) in rankings.iter_mut().zip(&wanting).filter(|(_, wants)| **wants) {
            ranking.rank(key, id, norm, embedding)?;
        }
    }
    Ok(())
}

fn hits(connection: &Connection, top: TopK) -> Fallible<Vec<SearchHit>> {
    top.into_sorted()
        .into_iter()
        .map(|Candidate { score, id, key }| {
            let (content, metadata) = content(connection, key)?;
            Ok(SearchHit::new(id, score, content).with_metadata(metadata))
        })
        .collect()
}
