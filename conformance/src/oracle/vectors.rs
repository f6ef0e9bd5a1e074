//! A client of a collection.

use async_trait::async_trait;
use larder_kernel::{CollectionName, Contract, Document, DocumentId, Embedding, Metadata, PutMode, Result};

use super::cells::{Cells, Clauses};
use super::{Answer, Defect, Ended, Held, Op, OracleClient, Random, filler, other_contract};
use crate::harness::StoreSet;

const CLAUSES: Clauses = Clauses { equal: "VEC-001", whole: "VEC-004" };
/// The dimensions of an embedding.
const DIMENSIONS: usize = 8;

#[derive(Debug)]
pub(crate) struct VectorClient {
    era: String,
    documents: Cells,
}

impl VectorClient {
    pub(crate) fn new(era: &str, random: Random) -> Self {
        Self { era: era.to_owned(), documents: Cells::new("document", CLAUSES, random) }
    }

    fn collection(&self) -> Result<CollectionName> {
        CollectionName::new(&self.era)
    }

    fn ids(places: &[usize]) -> Result<Vec<DocumentId>> {
        places.iter().map(|at| DocumentId::new(format!("document {at}"))).collect()
    }

    /// Returns the document of a write.
    fn document(&self, id: DocumentId, number: u64) -> Result<Document> {
        let mut random = Random::new(number, id.as_str());
        let mut values = [1.0_f32; DIMENSIONS];
        for value in &mut values[1..] {
            *value = f32::from(u16::try_from(random.below(1_000)).unwrap_or(0)) - 500.0;
        }
        let content = format!("{} {number} {}", self.era, filler(number));
        let metadata = Metadata::new().with("number", number);
        Ok(Document::new(id, content).with_embedding(Embedding::new(values)?).with_metadata(metadata))
    }

    /// Returns the state of a document; `None` if no client wrote it.
    fn held(&self, id: DocumentId, found: Option<Document>) -> Option<Held> {
        let Some(found) = found else { return Some(Held::default()) };
        let number = found.metadata.get("number").and_then(serde_json::Value::as_u64)?;
        let same = self.document(id, number).is_ok_and(|written| written == found);
        same.then_some(Held { number: Some(number), ..Held::default() })
    }

    async fn look(&self, places: &[usize], stores: &StoreSet) -> Result<Vec<Option<Held>>> {
        let vectors = stores.vectors()?;
        let ids = Self::ids(places)?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found = vectors.get(&self.collection()?, &ids).await?;
        Ok(ids.into_iter().zip(found).map(|(id, found)| self.held(id, found)).collect())
    }
}

#[async_trait]
impl OracleClient for VectorClient {
    fn contract(&self) -> Contract {
        Contract::Vectors
    }

    fn next(&mut self) -> Op {
        self.documents.next(true)
    }

    async fn perform(&self, op: &Op, stores: &StoreSet) -> Result<Answer> {
        let vectors = stores.vectors()?;
        match op {
            Op::WriteCells { places, number, fresh } => {
                let documents = Self::ids(places)?.into_iter().map(|id| self.document(id, *number));
                let mode = if *fresh { PutMode::IfAbsent } else { PutMode::Upsert };
                let put = vectors.put(&self.collection()?, documents.collect::<Result<_>>()?, mode).await?;
                Ok(Answer::Numbers(vec![larder_kernel::check::size(put.ignored.len())]))
            }
            Op::Remove { place } => {
                let gone = vectors.delete(&self.collection()?, &Self::ids(&[*place])?).await?;
                Ok(Answer::Numbers(vec![gone]))
            }
            Op::Look { places } => Ok(Answer::Several(self.look(places, stores).await?)),
            _ => Err(other_contract()),
        }
    }

    fn settle(&mut self, op: &Op, ended: Ended) -> Option<Defect> {
        self.documents.settle(op, ended)
    }

    async fn verify(&self, stores: &StoreSet, lost: &'static str) -> Result<Vec<Defect>> {
        let found = self.look(&self.documents.all(), stores).await?;
        Ok(self.documents.verify(&found, lost))
    }
}
