//! Documents with embeddings.

use larder_kernel::{
    CollectionName, Document, DocumentId, Embedding, Error, Filter, Metadata, MetadataMode, MetadataUpdate,
    Page, PageRequest, PutMode, PutReport, Result, SearchHit, SearchRequest,
};

use crate::handle::{handle, id};

handle!(
    /// Documents with embeddings, found by cosine similarity.
    ///
    /// ```
    /// use larder::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let stores = larder::open("memory:").await?;
    /// let vectors = stores.vectors()?;
    /// vectors.put("notes", "tea", "Ada drinks tea", [0.9, 0.1]).await?;
    /// vectors.put("notes", "train", "The train leaves at 9:14", [0.1, 0.9]).await?;
    /// let hits = vectors.search("notes", [1.0, 0.0], 1).await?;
    /// assert_eq!(hits[0].content, "Ada drinks tea");
    /// # Ok(())
    /// # }
    /// ```
    Vectors,
    VectorStore,
    vectors
);

impl Vectors {
    /// Writes a document with its embedding, and replaces a document with the same id.
    ///
    /// # Errors
    /// As [`put`](larder_kernel::VectorStore::put), and `InvalidInput` for an embedding that
    /// [`Embedding::new`] refuses.
    pub async fn put(
        &self,
        collection: impl TryInto<CollectionName, Error: Into<Error>> + Send,
        document: impl TryInto<DocumentId, Error: Into<Error>> + Send,
        content: impl Into<String> + Send,
        embedding: impl TryInto<Embedding, Error: Into<Error>> + Send,
    ) -> Result<()> {
        let document = Document::new(id(document)?, content).with_embedding(id(embedding)?);
        self.put_all(collection, [document]).await.map(drop)
    }

    /// Adds a document with its embedding to the collection `default`, unless its id exists. Returns `true`
    /// if the document was written.
    ///
    /// ```
    /// use larder::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let vectors = larder::open("memory:").await?.vectors()?;
    /// assert!(vectors.add("tea", "Ada drinks tea", [0.9, 0.1]).await?);
    /// assert!(!vectors.add("tea", "Ada drinks coffee", [0.9, 0.2]).await?);
    /// assert_eq!(vectors.nearest([1.0, 0.0]).await?[0].content, "Ada drinks tea");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn add(
        &self,
        document: impl TryInto<DocumentId, Error: Into<Error>> + Send,
        content: impl Into<String> + Send,
        embedding: impl TryInto<Embedding, Error: Into<Error>> + Send,
    ) -> Result<bool> {
        let document = Document::new(id(document)?, content).with_embedding(id(embedding)?);
        let (collection, mode) = (CollectionName::default(), PutMode::IfAbsent);
        let report = self.provider().put(&collection, vec![document], mode).await?;
        Ok(!report.written.is_empty())
    }

    /// Writes up to 1,000 documents, all or none, and replaces documents with the same ids. The embedder of
    /// the stores embeds documents without an embedding.
    ///
    /// # Errors
    /// As [`put`](larder_kernel::VectorStore::put).
    pub async fn put_all(
        &self,
        collection: impl TryInto<CollectionName, Error: Into<Error>> + Send,
        documents: impl IntoIterator<Item = Document> + Send,
    ) -> Result<PutReport> {
        let (collection, documents) = (id(collection)?, documents.into_iter().collect());
        self.provider().put(&collection, documents, PutMode::Upsert).await
    }

    /// Returns the documents most similar to an embedding, at most `limit`, best first.
    ///
    /// # Errors
    /// As [`search`](larder_kernel::VectorStore::search), and `InvalidInput` for an embedding that
    /// [`Embedding::new`] refuses.
    pub async fn search(
        &self,
        collection: impl TryInto<CollectionName, Error: Into<Error>> + Send,
        embedding: impl TryInto<Embedding, Error: Into<Error>> + Send,
        limit: usize,
    ) -> Result<Vec<SearchHit>> {
        self.search_for(collection, SearchRequest::new(id(embedding)?).with_limit(limit)).await
    }

    /// Returns the five documents of the collection `default` that are most similar to an embedding, best
    /// first.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub async fn nearest(
        &self,
        embedding: impl TryInto<Embedding, Error: Into<Error>> + Send,
    ) -> Result<Vec<SearchHit>> {
        self.search_for(CollectionName::default(), SearchRequest::new(id(embedding)?)).await
    }

    /// Searches with a filter or a minimum score.
    ///
    /// # Errors
    /// As [`search`](larder_kernel::VectorStore::search).
    pub async fn search_for(
        &self,
        collection: impl TryInto<CollectionName, Error: Into<Error>> + Send,
        request: SearchRequest,
    ) -> Result<Vec<SearchHit>> {
        let collection = id(collection)?;
        self.provider().search(&collection, &request).await
    }

    /// Returns a document; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`get`](larder_kernel::VectorStore::get).
    pub async fn get(
        &self,
        collection: impl TryInto<CollectionName, Error: Into<Error>> + Send,
        document: impl TryInto<DocumentId, Error: Into<Error>> + Send,
    ) -> Result<Option<Document>> {
        let (collection, document) = (id(collection)?, id(document)?);
        Ok(self.provider().get(&collection, &[document]).await?.pop().flatten())
    }

    /// Merges keys into the metadata of a document. Its text and embedding remain. Returns `true` if the
    /// document exists.
    ///
    /// ```
    /// use larder::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let vectors = larder::open("memory:").await?.vectors()?;
    /// vectors.put("notes", "tea", "Ada drinks tea", [0.9, 0.1]).await?;
    /// let tags = Metadata::new().with("tags", vec!["ada", "tea"]);
    /// assert!(vectors.merge_metadata("notes", "tea", tags).await?);
    ///
    /// let found = vectors.find("notes", Filter::contains_any("tags", ["tea"]), 10).await?;
    /// assert_eq!(found.items[0].content, "Ada drinks tea");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`update_metadata`](larder_kernel::VectorStore::update_metadata).
    pub async fn merge_metadata(
        &self,
        collection: impl TryInto<CollectionName, Error: Into<Error>> + Send,
        document: impl TryInto<DocumentId, Error: Into<Error>> + Send,
        metadata: Metadata,
    ) -> Result<bool> {
        self.change_metadata(id(collection)?, id(document)?, metadata, MetadataMode::Merge).await
    }

    /// Replaces the metadata of a document. Its text and embedding remain. Returns `true` if the document
    /// exists.
    ///
    /// # Errors
    /// As [`update_metadata`](larder_kernel::VectorStore::update_metadata).
    pub async fn replace_metadata(
        &self,
        collection: impl TryInto<CollectionName, Error: Into<Error>> + Send,
        document: impl TryInto<DocumentId, Error: Into<Error>> + Send,
        metadata: Metadata,
    ) -> Result<bool> {
        self.change_metadata(id(collection)?, id(document)?, metadata, MetadataMode::Replace).await
    }

    async fn change_metadata(
        &self,
        collection: CollectionName,
        document: DocumentId,
        metadata: Metadata,
        mode: MetadataMode,
    ) -> Result<bool> {
        let update = MetadataUpdate::new(document, metadata);
        let report = self.provider().update_metadata(&collection, vec![update], mode).await?;
        Ok(report.missing.is_empty())
    }

    /// Returns the first documents that match a filter, at most `limit`, in the order of their ids and
    /// without their embeddings. [`list_matching`](larder_kernel::VectorStore::list_matching) continues after
    /// the page's `next`.
    ///
    /// # Errors
    /// As [`list_matching`](larder_kernel::VectorStore::list_matching).
    pub async fn find(
        &self,
        collection: impl TryInto<CollectionName, Error: Into<Error>> + Send,
        filter: Filter,
        limit: usize,
    ) -> Result<Page<Document, DocumentId>> {
        let collection = id(collection)?;
        self.provider().list_matching(&collection, &filter, PageRequest::first(limit)).await
    }

    /// Deletes a document and returns whether it existed.
    ///
    /// # Errors
    /// As [`delete`](larder_kernel::VectorStore::delete).
    pub async fn delete(
        &self,
        collection: impl TryInto<CollectionName, Error: Into<Error>> + Send,
        document: impl TryInto<DocumentId, Error: Into<Error>> + Send,
    ) -> Result<bool> {
        let (collection, document) = (id(collection)?, id(document)?);
        Ok(self.provider().delete(&collection, &[document]).await? > 0)
    }
}
