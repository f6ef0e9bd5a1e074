//! Searches, compared to within the tolerance that the contract allows a score.

use larder_kernel::storage::vector::{check_search, check_search_batch};
use larder_kernel::{
    CollectionName, Document, Embedding, Error, ErrorKind, Result, SearchHit, SearchRequest, VectorStore,
};

use super::operation::request_text;
use super::{Vectors, bits_of};
use crate::model::compare::{Checked, Refusal, answered, holds};
use crate::model::recorder::{Recorder, id, json_text};

/// The largest difference between a score and the cosine.
const NEAR: f64 = 1e-5;

impl Vectors {
    pub(super) async fn search(
        &mut self,
        store: &dyn VectorStore,
        (collection, request): (&CollectionName, &SearchRequest),
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "VEC-023";
        recorder.call(CLAUSE, |_| format!("search({}, &{})", id(collection), request_text(request)));
        let got = store.search(collection, request).await;
        let mut expected = check_search("vectors.search", request).map_err(Refusal::from);
        if expected.is_ok() && self.is_of_other_dimension(collection, request) {
            expected = Err(dimension_refused());
            // Two clauses apply to a limit of 0, and either result is valid.
            if request.limit == 0 && matches!(&got, Ok(hits) if hits.is_empty()) {
                expected = Ok(());
            }
        }
        let clause = if expected.is_err() { "VEC-028" } else { CLAUSE };
        let Some(hits) = answered(recorder, clause, got, &expected)? else { return Ok(()) };
        self.compare(collection, request, &hits, &|| format!("{}.unwrap()", recorder.answer()))
    }

    pub(super) async fn search_batch(
        &mut self,
        store: &dyn VectorStore,
        (collection, requests): (&CollectionName, &[SearchRequest]),
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "VEC-032";
        recorder.call(CLAUSE, |_| {
            let requests = requests.iter().map(request_text).collect::<Vec<_>>().join(", ");
            format!("search_batch({}, &[{requests}])", id(collection))
        });
        let got: Result<Vec<Vec<SearchHit>>> = store.search_batch(collection, requests).await;
        let mut expected = check_search_batch(requests).map_err(Refusal::from);
        let mut others = requests.iter().filter(|request| self.is_of_other_dimension(collection, request));
        if expected.is_ok() && others.clone().next().is_some() {
            let refused = got.as_ref().err().map(Error::kind) == Some(ErrorKind::InvalidInput);
            if refused || others.any(|request| request.limit > 0) {
                expected = Err(dimension_refused());
            }
        }
        let clause = if expected.is_err() { "VEC-033" } else { CLAUSE };
        let Some(answers) = answered(recorder, clause, got, &expected)? else { return Ok(()) };
        let count = || format!("{} results", requests.len());
        let assertion = || format!("assert_eq!({}.unwrap().len(), {});", recorder.answer(), requests.len());
        holds(CLAUSE, answers.len() == requests.len(), count, &answers.len(), assertion)?;
        for (at, (request, hits)) in requests.iter().zip(&answers).enumerate() {
            let answer = || format!("{}.unwrap()[{at}].clone()", recorder.answer());
            self.compare(collection, request, hits, &answer)?;
        }
        Ok(())
    }

    fn is_of_other_dimension(&self, collection: &CollectionName, request: &SearchRequest) -> bool {
        let held = self.collections.get(collection);
        held.is_some_and(|held| held.dimensions != request.embedding.dimensions())
    }

    /// Compares the hits with the possible hits. `answer` is the expression for the hits.
    fn compare(
        &self,
        collection: &CollectionName,
        request: &SearchRequest,
        hits: &[SearchHit],
        answer: &dyn Fn() -> String,
    ) -> Checked {
        let scored = |document| Some((score(document, &request.embedding)?, document));
        let matches = |document: &&Document| {
            request.filter.as_ref().is_none_or(|filter| filter.matches(&document.metadata))
        };
        let matching: Vec<(f64, &Document)> =
            self.documents(collection).filter(matches).filter_map(scored).collect();
        let floor = request.score_min.map_or(f64::NEG_INFINITY, f64::from);
        let surely = matching.iter().filter(|(score, _)| *score >= floor + NEAR).count();
        let perhaps = matching.iter().filter(|(score, _)| *score >= floor - NEAR).count();
        let differs = || differs(&matching, request, &answer());
        let counts = surely.min(request.limit)..=perhaps.min(request.limit);
        let wanted = || format!("{counts:?} hits");
        holds("VEC-023", counts.contains(&hits.len()), wanted, &hits, differs)?;
        let mut found: Vec<(f64, &Document)> = Vec::new();
        for hit in hits {
            let known = matching.iter().find(|(_, document)| document.id == hit.id);
            let Some((score, document)) = known else {
                return holds("VEC-024", false, || "matching documents".to_owned(), hit, differs);
            };
            let near = (f64::from(hit.score) - score).abs() <= NEAR && *score >= floor - NEAR;
            let wanted = || format!("a score of {score}, at least {floor}");
            holds("VEC-020", near && hit.score.abs() <= 1.0, wanted, hit, differs)?;
            let same = hit.content == document.content && hit.metadata == document.metadata;
            holds("VEC-030", same, || format!("{document:?}"), hit, differs)?;
            let once = !found.iter().any(|(_, other)| other.id == document.id);
            holds("VEC-020", once, || "each document once".to_owned(), hit, differs)?;
            found.push((*score, *document));
        }
        in_order(hits, &found, &differs)?;
        // No better document was left out, and none with the same embedding and a smaller id.
        let Some((least, last)) = found.last().filter(|_| hits.len() == request.limit) else { return Ok(()) };
        for (score, document) in &matching {
            if found.iter().any(|(_, other)| other.id == document.id) {
                continue;
            }
            let better = *score > least + 2.0 * NEAR;
            let earlier = bits_of(document) == bits_of(last) && document.id < last.id;
            let clause = if better { "VEC-020" } else { "VEC-022" };
            holds(clause, !better && !earlier, || format!("{document:?} to be found"), &hits, differs)?;
        }
        Ok(())
    }
}

fn in_order(hits: &[SearchHit], found: &[(f64, &Document)], differs: &dyn Fn() -> String) -> Checked {
    for (pair, documents) in hits.windows(2).zip(found.windows(2)) {
        let ([first, second], [(one, left), (other, right)]) = (pair, documents) else { continue };
        let falls = first.score >= second.score && *other <= one + 2.0 * NEAR;
        holds("VEC-020", falls, || "descending scores".to_owned(), &pair, differs)?;
        if bits_of(left) == bits_of(right) {
            let tie = first.score.to_bits() == second.score.to_bits() && left.id < right.id;
            let wanted = || "one score and the order of ids for one embedding".to_owned();
            holds("VEC-022", tie, wanted, &pair, differs)?;
        }
    }
    Ok(())
}

fn score(document: &Document, query: &Embedding) -> Option<f64> {
    document.embedding.as_ref()?.cosine(query)
}

fn dimension_refused() -> Refusal {
    Refusal { kind: ErrorKind::InvalidInput, field: Some("embedding") }
}

/// Returns the statements of which one fails: they require the best hits in order.
fn differs(matching: &[(f64, &Document)], request: &SearchRequest, answer: &str) -> String {
    let floor = request.score_min.map_or(f64::NEG_INFINITY, f64::from);
    let mut best: Vec<&(f64, &Document)> = matching.iter().filter(|(score, _)| *score >= floor).collect();
    best.sort_by(|(one, left), (other, right)| other.total_cmp(one).then_with(|| left.id.cmp(&right.id)));
    best.truncate(request.limit);
    let ids: Vec<&str> = best.iter().map(|(_, document)| document.id.as_str()).collect();
    let scores: Vec<f64> = best.iter().map(|(score, _)| *score).collect();
    let held: Vec<_> = best.iter().map(|(_, document)| (&document.content, &document.metadata)).collect();
    format!(
        "let answer = {answer};\n\
         assert_eq!(answer.iter().map(|hit| hit.id.to_string()).collect::<Vec<_>>(), \
         of::<Vec<String>>({}));\n\
         let held = answer.iter().map(|hit| (hit.content.clone(), \
         hit.metadata.clone())).collect::<Vec<_>>();\n\
         assert_eq!(held, of::<Vec<(String, Metadata)>>({}));\n\
         for (hit, score) in answer.iter().zip(of::<Vec<f64>>({})) {{\n    \
         assert!((f64::from(hit.score) - score).abs() < 1e-4, \"{{hit:?}} has another score than \
         {{score}}\");\n}}",
        json_text(&ids),
        json_text(&held),
        json_text(&scores)
    )
}
