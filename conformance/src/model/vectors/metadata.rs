//! Updates of metadata, and listings with a filter.

use larder_kernel::storage::vector::check_metadata_updates;
use larder_kernel::{
    CollectionName, Document, DocumentId, Filter, MetadataMode, MetadataReport, MetadataUpdate, PageRequest,
    VectorStore,
};

use super::Vectors;
use super::operation::updates_text;
use crate::model::compare::{Checked, Expected, same};
use crate::model::recorder::{Recorder, id, json, owned_id, page};
use crate::model::shared::page_of;

impl Vectors {
    pub(super) async fn update_metadata(
        &mut self,
        store: &dyn VectorStore,
        (collection, updates, mode): (&CollectionName, &[MetadataUpdate], MetadataMode),
        recorder: &mut Recorder,
    ) -> Checked {
        let clause = if mode == MetadataMode::Replace { "VEC-043" } else { "VEC-044" };
        recorder.call(clause, |_| {
            format!("update_metadata({}, {}, MetadataMode::{mode:?})", id(collection), updates_text(updates))
        });
        let applied = self.applied(collection, updates, mode);
        let expected: Expected<MetadataReport> = match &applied {
            Ok(_) => Ok(MetadataReport::of(updates, |id| self.document(collection, id).is_some())),
            Err(refusal) => Err(*refusal),
        };
        let got = store.update_metadata(collection, updates.to_vec(), mode).await;
        same(recorder, clause, &got, &expected)?;
        if let Some(held) = self.collections.get_mut(collection) {
            held.documents.extend(applied.unwrap_or_default().into_iter().map(|one| (one.id.clone(), one)));
        }
        Ok(())
    }

    /// Returns the existing documents with their new metadata.
    fn applied(
        &self,
        collection: &CollectionName,
        updates: &[MetadataUpdate],
        mode: MetadataMode,
    ) -> Expected<Vec<Document>> {
        check_metadata_updates(updates)?;
        let mut documents = Vec::new();
        for update in updates {
            let Some(mut document) = self.document(collection, &update.id) else { continue };
            document.metadata = update.apply(&document.metadata, mode)?;
            documents.push(document);
        }
        Ok(documents)
    }

    pub(super) async fn list_matching(
        &mut self,
        store: &dyn VectorStore,
        (collection, filter, request): (&CollectionName, &Filter, &PageRequest<DocumentId>),
        recorder: &mut Recorder,
    ) -> Checked {
        const OPERATION: &str = "vectors.list_matching";
        recorder.call("VEC-052", |_| {
            format!("list_matching({}, &{}, {})", id(collection), json(filter), page(request, owned_id))
        });
        let matching = self.documents(collection).filter(|document| filter.matches(&document.metadata));
        let documents = matching.map(|document| document.clone().with_embedding(None));
        let expected = request
            .check(OPERATION)
            .and_then(|()| filter.check(OPERATION))
            .map(|()| page_of(documents, request, |document: &Document| document.id.clone()))
            .map_err(Into::into);
        same(recorder, "VEC-052", &store.list_matching(collection, filter, request.clone()).await, &expected)
    }
}
