//! Documents with embeddings. Documents cross the border as JSON, and embeddings as buffers.

use std::sync::Arc;

use larder::{
    CollectionName, Document, DocumentId, Embedding, Filter, MetadataMode, MetadataUpdate, PageRequest,
    PutMode, SearchRequest, Vectors,
};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::call::Call;
use crate::errors::OrRaise as _;
use crate::input::{Limit, id, json, optional, wrong_type};
use crate::output;
use crate::process::Owned;
use crate::stores::Shared;

#[pyclass(frozen, module = "larder._native", name = "Vectors")]
pub(crate) struct NativeVectors {
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: Owned<Vectors>,
}

/// Documents as JSON without their embeddings, and the embeddings.
struct Encoded(String, Vec<Option<Embedding>>);

impl Encoded {
    /// Encodes documents, some of which may not exist. It runs without the interpreter.
    fn new(mut documents: Vec<Option<Document>>) -> larder::Result<Self> {
        let take =
            |document: &mut Option<Document>| document.as_mut().and_then(|found| found.embedding.take());
        let embeddings = documents.iter_mut().map(take).collect();
        Ok(Self(output::encode(&documents)?, embeddings))
    }

    fn into_python(self, py: Python<'_>, next: Option<&str>) -> PyResult<Py<PyAny>> {
        let bytes = |embedding: &Embedding| -> PyResult<Py<PyBytes>> {
            let values = embedding.as_slice();
            let bytes = PyBytes::new_with(py, size_of_val(values), |bytes| {
                for (target, value) in bytes.chunks_exact_mut(size_of::<f32>()).zip(values) {
                    target.copy_from_slice(&value.to_ne_bytes());
                }
                Ok(())
            })?;
            Ok(bytes.unbind())
        };
        let embeddings = self.1.iter().map(|found| found.as_ref().map(bytes).transpose());
        let embeddings = embeddings.collect::<PyResult<Vec<_>>>()?;
        Ok((self.0, embeddings, next).into_pyobject(py)?.into_any().unbind())
    }
}

/// Reads an embedding from a buffer of floats, such as an array of NumPy, or from a sequence of numbers.
#[allow(clippy::cast_possible_truncation)]
fn embedding(value: &Bound<'_, PyAny>) -> PyResult<Embedding> {
    let py = value.py();
    let values: Vec<f32> = if let Ok(buffer) = PyBuffer::<f32>::get(value) {
        buffer.to_vec(py)?
    } else if let Ok(buffer) = PyBuffer::<f64>::get(value) {
        buffer.to_vec(py)?.into_iter().map(|value| value as f32).collect()
    } else {
        let wrong = || wrong_type("embedding", value, "a sequence or an array of floats");
        let values: Vec<f64> = value.extract().map_err(|_| wrong())?;
        values.into_iter().map(|value| value as f32).collect()
    };
    Embedding::new(values).or_raise(py)
}

fn filter(operation: &'static str, text: Option<String>) -> larder::Result<Option<Filter>> {
    text.map(|text| json(operation, "filter", &text)).transpose()
}

fn ids(given: &[Bound<'_, PyAny>]) -> PyResult<Vec<DocumentId>> {
    given.iter().map(|document| id("document", document)).collect()
}

impl NativeVectors {
    fn handle(&self, py: Python<'_>) -> PyResult<Vectors> {
        self.handle.get().cloned().or_raise(py)
    }
}

#[pymethods]
impl NativeVectors {
    fn put(
        &self,
        py: Python<'_>,
        collection: &Bound<'_, PyAny>,
        documents: String,
        embeddings: Vec<Option<Bound<'_, PyAny>>>,
        if_absent: bool,
    ) -> PyResult<Call> {
        let collection: CollectionName = id("collection", collection)?;
        let embeddings: Vec<Option<Embedding>> =
            embeddings.iter().map(|given| optional(given.as_ref(), embedding)).collect::<PyResult<_>>()?;
        let mode = if if_absent { PutMode::IfAbsent } else { PutMode::Upsert };
        let handle = self.handle(py)?;
        self.shared.encoded(py, async move {
            let mut documents: Vec<Document> = json("vectors.put", "documents", &documents)?;
            for (document, embedding) in documents.iter_mut().zip(embeddings) {
                document.embedding = embedding;
            }
            handle.provider().put(&collection, documents, mode).await
        })
    }

    fn update_metadata(
        &self,
        py: Python<'_>,
        collection: &Bound<'_, PyAny>,
        updates: String,
        replace: bool,
    ) -> PyResult<Call> {
        let (collection, handle): (CollectionName, _) = (id("collection", collection)?, self.handle(py)?);
        let mode = if replace { MetadataMode::Replace } else { MetadataMode::Merge };
        self.shared.encoded(py, async move {
            let updates: Vec<MetadataUpdate> = json("vectors.update_metadata", "updates", &updates)?;
            handle.provider().update_metadata(&collection, updates, mode).await
        })
    }

    fn get(
        &self,
        py: Python<'_>,
        collection: &Bound<'_, PyAny>,
        documents: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let (collection, handle): (CollectionName, _) = (id("collection", collection)?, self.handle(py)?);
        let documents = ids(&documents)?;
        let work = async move { Encoded::new(handle.provider().get(&collection, &documents).await?) };
        self.shared.call(py, work, |py, found| found.into_python(py, None))
    }

    #[allow(clippy::too_many_arguments, clippy::cast_possible_truncation)]
    fn search(
        &self,
        py: Python<'_>,
        collection: &Bound<'_, PyAny>,
        embeddings: Vec<Bound<'_, PyAny>>,
        limit: Limit,
        filter_json: Option<String>,
        score_min: Option<f64>,
    ) -> PyResult<Call> {
        let (collection, handle): (CollectionName, _) = (id("collection", collection)?, self.handle(py)?);
        let embeddings = embeddings.iter().map(embedding).collect::<PyResult<Vec<_>>>()?;
        self.shared.encoded(py, async move {
            let filter = filter("vectors.search", filter_json)?;
            let request = |embedding| {
                let request = SearchRequest::new(embedding).with_limit(limit.0).with_filter(filter.clone());
                score_min.map_or(request.clone(), |score| request.with_score_min(score as f32))
            };
            let requests: Vec<SearchRequest> = embeddings.into_iter().map(request).collect();
            match requests.as_slice() {
                [request] => Ok(vec![handle.provider().search(&collection, request).await?]),
                requests => handle.provider().search_batch(&collection, requests).await,
            }
        })
    }

    fn delete(
        &self,
        py: Python<'_>,
        collection: &Bound<'_, PyAny>,
        documents: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let (collection, handle): (CollectionName, _) = (id("collection", collection)?, self.handle(py)?);
        let documents = ids(&documents)?;
        let work = async move { handle.provider().delete(&collection, &documents).await };
        self.shared.call(py, work, output::count)
    }

    fn delete_matching(
        &self,
        py: Python<'_>,
        collection: &Bound<'_, PyAny>,
        filter: String,
    ) -> PyResult<Call> {
        let (collection, handle): (CollectionName, _) = (id("collection", collection)?, self.handle(py)?);
        let work = async move {
            let filter: Filter = json("vectors.delete_matching", "filter", &filter)?;
            handle.provider().delete_matching(&collection, &filter).await
        };
        self.shared.call(py, work, output::count)
    }

    fn count(
        &self,
        py: Python<'_>,
        collection: &Bound<'_, PyAny>,
        filter_json: Option<String>,
    ) -> PyResult<Call> {
        let (collection, handle): (CollectionName, _) = (id("collection", collection)?, self.handle(py)?);
        let work = async move {
            let filter = filter("vectors.count", filter_json)?;
            handle.provider().count(&collection, filter.as_ref()).await
        };
        self.shared.call(py, work, output::count)
    }

    /// Lists documents by their ids.
    fn documents(
        &self,
        py: Python<'_>,
        collection: &Bound<'_, PyAny>,
        filter_json: Option<String>,
        after: Option<&Bound<'_, PyAny>>,
        limit: Limit,
    ) -> PyResult<Call> {
        let (collection, handle): (CollectionName, _) = (id("collection", collection)?, self.handle(py)?);
        let page = PageRequest::first(limit.0)
            .with_after(optional(after, |after| id::<DocumentId>("after", after))?);
        let work = async move {
            let page = match filter("vectors.list", filter_json)? {
                Some(filter) => handle.provider().list_matching(&collection, &filter, page).await?,
                None => handle.provider().list(&collection, page).await?,
            };
            Ok::<_, larder::Error>((Encoded::new(page.items.into_iter().map(Some).collect())?, page.next))
        };
        self.shared.call(py, work, |py, (found, next): (Encoded, Option<DocumentId>)| {
            found.into_python(py, next.as_ref().map(DocumentId::as_str))
        })
    }

    fn collections(&self, py: Python<'_>, after: Option<&Bound<'_, PyAny>>, limit: Limit) -> PyResult<Call> {
        let page = PageRequest::first(limit.0)
            .with_after(optional(after, |after| id::<CollectionName>("after", after))?);
        let handle = self.handle(py)?;
        self.shared.encoded(py, async move { handle.provider().list_collections(page).await })
    }

    fn drop_collection(&self, py: Python<'_>, collection: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (collection, handle): (CollectionName, _) = (id("collection", collection)?, self.handle(py)?);
        let work = async move { handle.provider().drop_collection(&collection).await };
        self.shared.call(py, work, output::flag)
    }
}
