//! Updates of metadata, listings with a filter, and filters over arrays that are wrong.

use larder_kernel::{
    CollectionName, Document, DocumentId, Embedding, Filter, MetadataMode, MetadataReport, MetadataUpdate,
    Page, PageRequest, PutMode, Result, SearchHit, Store, VectorStore,
};

use super::{Defect, Wrong, length};
use crate::mutants::serve::lock;

impl Wrong {
    /// Returns the filter as the store evaluates it.
    pub(super) fn filter(&self, filter: &Filter) -> Filter {
        let all = |filters: &[Filter]| filters.iter().map(|filter| self.filter(filter)).collect();
        match (self.defect, filter) {
            (Defect::AnyIsAll, Filter::ContainsAll(field, values)) => {
                Filter::ContainsAny(field.clone(), values.clone())
            }
            (Defect::ValueIsArray, Filter::ContainsAny(field, values)) => {
                filter.clone() | Filter::In(field.clone(), values.clone())
            }
            (_, Filter::And(filters)) => Filter::And(all(filters)),
            (_, Filter::Or(filters)) => Filter::Or(all(filters)),
            (_, Filter::Not(filter)) => !self.filter(filter),
            _ => filter.clone(),
        }
    }

    pub(super) fn drop_updated(&self, hits: &mut Vec<SearchHit>) {
        let updated = lock(&self.updated);
        hits.retain(|hit| !updated.contains(&(self.inner.namespace().clone(), hit.id.clone())));
    }

    pub(super) async fn update_wrongly(
        &self,
        collection: &CollectionName,
        updates: Vec<MetadataUpdate>,
        mode: MetadataMode,
    ) -> Result<MetadataReport> {
        let ids: Vec<DocumentId> = updates.iter().map(|update| update.id.clone()).collect();
        let mode = match self.defect {
            Defect::ReplaceMerges => MetadataMode::Merge,
            Defect::MergeReplaces => MetadataMode::Replace,
            Defect::MergeReadsFirst if mode == MetadataMode::Merge => {
                return self.read_and_write(collection, updates).await;
            }
            Defect::UpdatesInPart if !updates.is_empty() => {
                return self.update_one_by_one(collection, updates, mode).await;
            }
            _ => mode,
        };
        let mut report = self.inner.update_metadata(collection, updates, mode).await?;
        match self.defect {
            Defect::UpdateReportsAll => report = MetadataReport::new(ids, Vec::new()),
            Defect::UpdateNormalises => self.normalise(collection, &report.updated).await?,
            Defect::UpdatedNotFound => {
                let names = ids.into_iter().map(|id| (self.inner.namespace().clone(), id));
                lock(&self.updated).extend(names);
            }
            _ => {}
        }
        Ok(report)
    }

    async fn update_one_by_one(
        &self,
        collection: &CollectionName,
        updates: Vec<MetadataUpdate>,
        mode: MetadataMode,
    ) -> Result<MetadataReport> {
        let mut whole = MetadataReport::default();
        for update in updates {
            let report = self.inner.update_metadata(collection, vec![update], mode).await?;
            whole.updated.extend(report.updated);
            whole.missing.extend(report.missing);
            tokio::task::yield_now().await;
        }
        Ok(whole)
    }

    /// Reads the metadata, merges, and writes the result.
    async fn read_and_write(
        &self,
        collection: &CollectionName,
        mut updates: Vec<MetadataUpdate>,
    ) -> Result<MetadataReport> {
        for update in &mut updates {
            let there = self.inner.get(collection, std::slice::from_ref(&update.id)).await?.pop().flatten();
            if let Some(there) = there {
                update.metadata = update.apply(&there.metadata, MetadataMode::Merge)?;
            }
        }
        tokio::task::yield_now().await;
        self.inner.update_metadata(collection, updates, MetadataMode::Replace).await
    }

    /// Writes documents again with embeddings of length 1.
    async fn normalise(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<()> {
        let mut documents: Vec<Document> =
            self.inner.get(collection, ids).await?.into_iter().flatten().collect();
        for embedding in documents.iter_mut().filter_map(|document| document.embedding.as_mut()) {
            let length = length(embedding.as_slice());
            *embedding =
                Embedding::new(embedding.as_slice().iter().map(|value| value / length).collect::<Vec<_>>())?;
        }
        if !documents.is_empty() {
            self.inner.put(collection, documents, PutMode::Upsert).await?;
        }
        Ok(())
    }

    pub(super) async fn list_matching_wrongly(
        &self,
        collection: &CollectionName,
        filter: &Filter,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        let all = Filter::And(Vec::new());
        let asked = if self.defect == Defect::MatchingListsAll { &all } else { filter };
        match self.defect {
            Defect::MatchingPageShort => {
                // Only to refuse what the store refuses.
                self.inner.list_matching(collection, filter, page.clone()).await?;
                let mut listed = self.inner.list_matching(collection, &all, page).await?;
                listed.items.retain(|document| filter.matches(&document.metadata));
                Ok(listed)
            }
            Defect::MatchingEmbedded => {
                let mut listed = self.inner.list_matching(collection, asked, page).await?;
                let ids: Vec<_> = listed.items.iter().map(|document| document.id.clone()).collect();
                listed.items = self.inner.get(collection, &ids).await?.into_iter().flatten().collect();
                Ok(listed)
            }
            _ => self.inner.list_matching(collection, asked, page).await,
        }
    }
}
