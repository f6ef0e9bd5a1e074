//! A client of a collection: documents that are written whole, and documents whose metadata is updated.

use async_trait::async_trait;
use larder_kernel::{
    CollectionName, Contract, Document, DocumentId, Embedding, Metadata, MetadataMode, MetadataUpdate,
    PutMode, Result, VectorStore,
};

use super::cells::{Cells, Clauses};
use super::{Answer, Defect, Ended, Held, Op, OracleClient, Random, filler, other_contract};
use crate::harness::StoreSet;

const CLAUSES: Clauses = Clauses { equal: "VEC-001", whole: "VEC-004" };
const UPDATES: Clauses = Clauses { equal: "VEC-043", whole: "VEC-046" };
/// The dimensions of an embedding.
const DIMENSIONS: usize = 8;

#[derive(Debug)]
pub(crate) struct VectorClient {
    era: String,
    random: Random,
    documents: Cells,
    metadata: Cells,
}

impl VectorClient {
    pub(crate) fn new(era: &str, mut random: Random) -> Self {
        let mut chance = |name| Random::new(random.draw(), name);
        let documents = Cells::new("document", CLAUSES, chance("documents"));
        let metadata = Cells::new("metadata of document", UPDATES, chance("metadata"));
        Self { era: era.to_owned(), random, documents, metadata }
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

    /// Returns a document whose metadata is updated. Its text and embedding never change.
    fn tagged(&self, at: usize) -> Result<Document> {
        let id = DocumentId::new(format!("tagged {at}"))?;
        Ok(self.document(id, 0)?.with_metadata(Metadata::new()))
    }

    fn tags(at: usize, number: u64) -> Metadata {
        Metadata::new().with("number", number).with("text", format!("{at} {}", filler(number)))
    }

    /// Replaces the metadata of documents by that of a write, or by none.
    async fn update(&self, places: &[usize], number: Option<u64>, store: &dyn VectorStore) -> Result<Answer> {
        let collection = self.collection()?;
        let documents = places.iter().map(|at| self.tagged(*at)).collect::<Result<Vec<_>>>()?;
        let updates = documents.iter().zip(places).map(|(document, at)| {
            let metadata = number.map_or_else(Metadata::new, |number| Self::tags(*at, number));
            MetadataUpdate::new(document.id.clone(), metadata)
        });
        let updates = updates.collect();
        // Documents that exist already stay as they are.
        store.put(&collection, documents, PutMode::IfAbsent).await?;
        store.update_metadata(&collection, updates, MetadataMode::Replace).await?;
        Ok(Answer::Numbers(Vec::new()))
    }

    async fn look_at_metadata(&self, places: &[usize], stores: &StoreSet) -> Result<Vec<Option<Held>>> {
        let vectors = stores.vectors()?;
        let written = places.iter().map(|at| self.tagged(*at)).collect::<Result<Vec<_>>>()?;
        let ids: Vec<DocumentId> = written.iter().map(|document| document.id.clone()).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found = vectors.get(&self.collection()?, &ids).await?;
        let held = |((at, written), found): ((&usize, Document), Option<Document>)| {
            let Some(found) = found else { return Some(Held::default()) };
            let number = found.metadata.get("number").and_then(serde_json::Value::as_u64);
            let metadata = number.map_or_else(Metadata::new, |number| Self::tags(*at, number));
            (found == written.with_metadata(metadata)).then_some(Held { number, ..Held::default() })
        };
        Ok(places.iter().zip(written).zip(found).map(held).collect())
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
        if self.random.once_in(3) {
            return Op::Edges(Box::new(self.metadata.next(false)));
        }
        self.documents.next(true)
    }

    async fn perform(&self, op: &Op, stores: &StoreSet) -> Result<Answer> {
        let vectors = stores.vectors()?;
        match op {
            Op::Edges(op) => match &**op {
                Op::WriteCells { places, number, .. } => self.update(places, Some(*number), &*vectors).await,
                Op::Remove { place } => self.update(&[*place], None, &*vectors).await,
                Op::Look { places } => Ok(Answer::Several(self.look_at_metadata(places, stores).await?)),
                _ => Err(other_contract()),
            },
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
        match op {
            Op::Edges(op) => self.metadata.settle(op, ended),
            op => self.documents.settle(op, ended),
        }
    }

    async fn verify(&self, stores: &StoreSet, lost: &'static str) -> Result<Vec<Defect>> {
        let found = self.look(&self.documents.all(), stores).await?;
        let mut defects = self.documents.verify(&found, lost);
        let found = self.look_at_metadata(&self.metadata.all(), stores).await?;
        defects.extend(self.metadata.verify(&found, lost));
        Ok(defects)
    }
}
