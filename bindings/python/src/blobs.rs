//! Files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use larder::{
    BlobBody, BlobCondition, BlobGetOptions, BlobKey, BlobPutOptions, BlobStoreExt as _, BlobVersionId,
    Blobs, ByteRange, ETag, Error, PresignRequest, RenameMode,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::call::Call;
use crate::errors::OrRaise as _;
use crate::input::{Limit, bytes, id, invalid, optional, text};
use crate::output;
use crate::process::Owned;
use crate::stores::Shared;

#[pyclass(frozen, module = "larder._native", name = "Blobs")]
pub(crate) struct NativeBlobs {
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: Owned<Blobs>,
}

fn as_bytes(py: Python<'_>, found: Bytes) -> PyResult<Py<PyAny>> {
    Ok(PyBytes::new(py, &found).into_any().unbind())
}

fn range(start: u64, end: Option<u64>) -> Option<ByteRange> {
    match (start, end) {
        (0, None) => None,
        (start, None) => Some(ByteRange::From(start)),
        (start, Some(end)) => Some(ByteRange::Bounded { start, end }),
    }
}

impl NativeBlobs {
    fn handle(&self, py: Python<'_>) -> PyResult<Blobs> {
        self.handle.get().cloned().or_raise(py)
    }
}

#[pymethods]
impl NativeBlobs {
    #[allow(clippy::too_many_arguments)]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        content: &Bound<'_, PyAny>,
        content_type: Option<String>,
        metadata: BTreeMap<String, String>,
        create: bool,
        matches: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let (key, handle): (BlobKey, _) = (id("key", key)?, self.handle(py)?);
        let condition = match (create, optional(matches, |etag| ETag::new(text("etag", etag)?).or_raise(py))?)
        {
            (true, Some(_)) => {
                return Err(invalid(py, "etag", "needs a blob; pass either `etag` or `create`"));
            }
            (true, None) => BlobCondition::Absent,
            (false, Some(etag)) => BlobCondition::Matches(etag),
            (false, None) => BlobCondition::None,
        };
        let mut options = BlobPutOptions::default().with_condition(condition).with_all_metadata(metadata);
        options.content_type = content_type;
        let body = BlobBody::Bytes(bytes("content", content)?);
        self.shared.encoded(py, async move { handle.provider().put(&key, body, options).await })
    }

    /// Reads a blob, or the bytes from `start` to before `end`.
    fn get(&self, py: Python<'_>, key: &Bound<'_, PyAny>, start: u64, end: Option<u64>) -> PyResult<Call> {
        let (key, handle): (BlobKey, _) = (id("key", key)?, self.handle(py)?);
        let options = BlobGetOptions::default().with_range(range(start, end));
        let work = async move { handle.provider().get_range(&key, options).await };
        self.shared.call(py, work, as_bytes)
    }

    /// Reads a version of a blob, or the bytes from `start` to before `end`.
    fn get_version(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        version: &Bound<'_, PyAny>,
        start: u64,
        end: Option<u64>,
    ) -> PyResult<Call> {
        let (key, version): (BlobKey, BlobVersionId) = (id("key", key)?, id("version", version)?);
        let (options, handle) = (BlobGetOptions::default().with_range(range(start, end)), self.handle(py)?);
        let work = async move {
            let read = handle.provider().get_version(&key, &version, options).await?;
            let pieces: Vec<Bytes> = read.bytes.try_collect().await?;
            Ok(Bytes::from(pieces.concat()))
        };
        self.shared.call(py, work, as_bytes)
    }

    /// Lists the versions of a blob.
    fn versions(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (key, handle): (BlobKey, _) = (id("key", key)?, self.handle(py)?);
        self.shared.encoded(py, async move {
            handle.provider().list_versions(&key).await?.try_collect::<Vec<_>>().await
        })
    }

    fn delete_version(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        version: &Bound<'_, PyAny>,
    ) -> PyResult<Call> {
        let (key, version): (BlobKey, BlobVersionId) = (id("key", key)?, id("version", version)?);
        let handle = self.handle(py)?;
        let work = async move { handle.provider().delete_version(&key, &version).await };
        self.shared.call(py, work, output::flag)
    }

    /// Creates a URL that reads a blob, or writes it.
    fn presign(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        write: bool,
        valid_ms: u64,
        content_type: Option<String>,
    ) -> PyResult<Call> {
        let (key, handle): (BlobKey, _) = (id("key", key)?, self.handle(py)?);
        let valid_for = Duration::from_millis(valid_ms);
        let mut request = if write { PresignRequest::put(valid_for) } else { PresignRequest::get(valid_for) };
        request.content_type = content_type;
        self.shared.encoded(py, async move { handle.provider().presign(&key, &request).await })
    }

    fn info(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (key, handle): (BlobKey, _) = (id("key", key)?, self.handle(py)?);
        self.shared.encoded(py, async move { handle.info(key).await })
    }

    /// Lists up to `limit` blobs whose keys begin with a prefix.
    fn entries(
        &self,
        py: Python<'_>,
        prefix: &Bound<'_, PyAny>,
        after: Option<&Bound<'_, PyAny>>,
        limit: Limit,
    ) -> PyResult<Call> {
        let (prefix, handle) = (text("prefix", prefix)?.to_owned(), self.handle(py)?);
        let after = optional(after, |after| id::<BlobKey>("after", after))?;
        self.shared.encoded(py, async move {
            let mut entries = handle.provider().list(&prefix, after.as_ref()).await?;
            let mut found = Vec::new();
            while found.len() < limit.0
                && let Some(entry) = entries.try_next().await?
            {
                found.push(entry);
            }
            Ok::<_, Error>(found)
        })
    }

    fn copy(&self, py: Python<'_>, source: &Bound<'_, PyAny>, target: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (source, target): (BlobKey, BlobKey) = (id("source", source)?, id("target", target)?);
        let handle = self.handle(py)?;
        self.shared.encoded(py, async move { handle.provider().copy(&source, &target).await })
    }

    fn rename(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        target: &Bound<'_, PyAny>,
        replace: bool,
    ) -> PyResult<Call> {
        let (source, target): (BlobKey, BlobKey) = (id("source", source)?, id("target", target)?);
        let handle = self.handle(py)?;
        let mode = if replace { RenameMode::Replace } else { RenameMode::Refuse };
        self.shared.encoded(py, async move { handle.rename(source, target, mode).await })
    }

    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (key, handle): (BlobKey, _) = (id("key", key)?, self.handle(py)?);
        self.shared.call(py, async move { handle.delete(key).await }, output::flag)
    }
}
