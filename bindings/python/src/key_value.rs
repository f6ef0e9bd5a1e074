//! Small state.

use std::sync::Arc;
use std::time::Duration;

use larder::{
    BucketName, Key, KeyOrder, KeyValue, KeyValueCondition, KeyValueEntry, KeyValueEvent, KeyValueEventKind,
    KeyValuePutOptions, KeyValueQuery, KeyValueWrite, PageRequest, Revision, limits::BATCH_KEYS_MAX,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::call::Call;
use crate::errors::OrRaise as _;
use crate::input::{Limit, bytes, id, invalid, optional, position, text};
use crate::output;
use crate::process::Owned;
use crate::stores::Shared;
use crate::stream::NativeEvents;

/// A write: the key, the value or `None` to delete it, the time to live in milliseconds, `True` for a key
/// that must not exist, and the revision that the key must have.
type Write<'py> =
    (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, Option<u64>, bool, Option<Bound<'py, PyAny>>);

#[pyclass(frozen, module = "larder._native", name = "KeyValue")]
pub(crate) struct NativeKeyValue {
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: Owned<KeyValue>,
}

fn entry(py: Python<'_>, entry: KeyValueEntry) -> PyResult<Py<PyAny>> {
    let expires_at = entry.expires_at.map(larder::Timestamp::as_micros);
    let fields = (PyBytes::new(py, &entry.value), entry.revision.to_text(), expires_at);
    Ok(fields.into_pyobject(py)?.into_any().unbind())
}

fn change(py: Python<'_>, event: KeyValueEvent) -> PyResult<Py<PyAny>> {
    let (value, expires_at) = match event.kind {
        KeyValueEventKind::Put { value, expires_at } => (Some(value), expires_at),
        // A deletion, or a kind that this version does not know.
        _ => (None, None),
    };
    let value = value.map(|value| PyBytes::new(py, &value));
    let expires_at = expires_at.map(larder::Timestamp::as_micros);
    let fields = (event.key.as_str(), value, event.revision.to_text(), expires_at);
    Ok(fields.into_pyobject(py)?.into_any().unbind())
}

fn condition(py: Python<'_>, absent: bool, at: Option<&Bound<'_, PyAny>>) -> PyResult<KeyValueCondition> {
    match (absent, optional(at, |at| position::<Revision>("at", at))?) {
        (true, Some(_)) => Err(invalid(py, "at", "needs an existing key; pass either `at` or `create`")),
        (true, None) => Ok(KeyValueCondition::Absent),
        (false, Some(at)) => Ok(KeyValueCondition::AtRevision(at)),
        (false, None) => Ok(KeyValueCondition::None),
    }
}

fn options(condition: KeyValueCondition, ttl_ms: Option<u64>) -> KeyValuePutOptions {
    KeyValuePutOptions::default().with_condition(condition).with_ttl(ttl_ms.map(Duration::from_millis))
}

fn write(py: Python<'_>, (key, value, ttl_ms, create, at): Write<'_>) -> PyResult<KeyValueWrite> {
    let key: Key = id("key", &key)?;
    let at = at.as_ref();
    match value {
        Some(value) => {
            let options = options(condition(py, create, at)?, ttl_ms);
            Ok(KeyValueWrite::put(key, bytes("value", &value)?, options))
        }
        None => Ok(KeyValueWrite::delete(key, optional(at, |at| position::<Revision>("at", at))?)),
    }
}

impl NativeKeyValue {
    fn handle(&self, py: Python<'_>) -> PyResult<KeyValue> {
        self.handle.get().cloned().or_raise(py)
    }
}

#[pymethods]
impl NativeKeyValue {
    fn get(&self, py: Python<'_>, bucket: &Bound<'_, PyAny>, key: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (bucket, key): (BucketName, Key) = (id("bucket", bucket)?, id("key", key)?);
        let handle = self.handle(py)?;
        self.shared.call(py, async move { handle.get(bucket, key).await }, |py, value| {
            Ok(value.map_or_else(|| py.None(), |value| PyBytes::new(py, &value).into_any().unbind()))
        })
    }

    fn entry(&self, py: Python<'_>, bucket: &Bound<'_, PyAny>, key: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (bucket, key): (BucketName, Key) = (id("bucket", bucket)?, id("key", key)?);
        let handle = self.handle(py)?;
        self.shared.call(py, async move { handle.entry(bucket, key).await }, |py, found| {
            found.map_or_else(|| Ok(py.None()), |found| entry(py, found))
        })
    }

    fn get_many(
        &self,
        py: Python<'_>,
        bucket: &Bound<'_, PyAny>,
        keys: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let bucket: BucketName = id("bucket", bucket)?;
        let keys: Vec<Key> = keys.iter().map(|key| id("key", key)).collect::<PyResult<_>>()?;
        let handle = self.handle(py)?;
        let work = async move {
            let mut entries = Vec::with_capacity(keys.len());
            while entries.len() < keys.len() {
                let end = keys.len().min(entries.len() + BATCH_KEYS_MAX);
                entries.extend(handle.provider().get_many(&bucket, &keys[entries.len()..end]).await?.items);
            }
            Ok(entries)
        };
        self.shared.call(py, work, |py, entries| {
            let entries = entries.into_iter().map(|found| found.map(|found| entry(py, found)).transpose());
            Ok(entries.collect::<PyResult<Vec<_>>>()?.into_pyobject(py)?.into_any().unbind())
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn set(
        &self,
        py: Python<'_>,
        bucket: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl_ms: Option<u64>,
        create: bool,
        at: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let (bucket, key): (BucketName, Key) = (id("bucket", bucket)?, id("key", key)?);
        let value = bytes("value", value)?;
        let options = options(condition(py, create, at)?, ttl_ms);
        let handle = self.handle(py)?;
        let work = async move { handle.provider().put(&bucket, &key, value, options).await };
        self.shared
            .call(py, work, |py, revision| Ok(revision.to_text().into_pyobject(py)?.into_any().unbind()))
    }

    fn delete(
        &self,
        py: Python<'_>,
        bucket: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
        at: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let (bucket, key): (BucketName, Key) = (id("bucket", bucket)?, id("key", key)?);
        let at = optional(at, |at| position::<Revision>("at", at))?;
        let handle = self.handle(py)?;
        self.shared.call(
            py,
            async move { handle.provider().delete(&bucket, &key, at).await },
            |py, existed| Ok(existed.into_pyobject(py)?.to_owned().into_any().unbind()),
        )
    }

    fn write(&self, py: Python<'_>, bucket: &Bound<'_, PyAny>, writes: Vec<Write<'_>>) -> PyResult<Call> {
        let bucket: BucketName = id("bucket", bucket)?;
        let writes = writes.into_iter().map(|given| write(py, given)).collect::<PyResult<Vec<_>>>()?;
        let handle = self.handle(py)?;
        self.shared.call(py, async move { handle.write(bucket, writes).await }, |py, revisions| {
            let revisions: Vec<_> =
                revisions.into_iter().map(|revision| revision.map(Revision::to_text)).collect();
            Ok(revisions.into_pyobject(py)?.into_any().unbind())
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn entries(
        &self,
        py: Python<'_>,
        bucket: &Bound<'_, PyAny>,
        prefix: &Bound<'_, PyAny>,
        from: Option<&Bound<'_, PyAny>>,
        to: Option<&Bound<'_, PyAny>>,
        descending: bool,
        values: bool,
        after: Option<&Bound<'_, PyAny>>,
        limit: Limit,
    ) -> PyResult<Call> {
        let bucket: BucketName = id("bucket", bucket)?;
        let mut query = KeyValueQuery::prefix(text("prefix", prefix)?)
            .with_from(optional(from, |key| id::<Key>("from", key))?)
            .with_to(optional(to, |key| id::<Key>("to", key))?);
        if descending {
            query.order = KeyOrder::Descending;
        }
        query.values = values;
        let page = PageRequest::first(limit.0).with_after(optional(after, |key| id::<Key>("after", key))?);
        let handle = self.handle(py)?;
        let work = async move { handle.provider().list_entries(&bucket, &query, page).await };
        self.shared.call(py, work, |py, page| {
            let items: Vec<_> = page
                .items
                .iter()
                .map(|item| {
                    let value = item.value.as_ref().map(|value| PyBytes::new(py, value));
                    let expires_at = item.expires_at.map(larder::Timestamp::as_micros);
                    (item.key.as_str(), value, item.revision.to_text(), expires_at).into_pyobject(py)
                })
                .collect::<PyResult<_>>()?;
            let next = page.next.as_ref().map(Key::as_str);
            Ok((PyTuple::new(py, items)?, next).into_pyobject(py)?.into_any().unbind())
        })
    }

    fn delete_prefix(
        &self,
        py: Python<'_>,
        bucket: &Bound<'_, PyAny>,
        prefix: &Bound<'_, PyAny>,
    ) -> PyResult<Call> {
        let bucket: BucketName = id("bucket", bucket)?;
        let prefix = text("prefix", prefix)?.to_owned();
        let handle = self.handle(py)?;
        self.shared.call(py, async move { handle.delete_prefix(bucket, &prefix).await }, output::count)
    }

    /// Opens a stream of the changes after a revision.
    fn watch(
        &self,
        py: Python<'_>,
        bucket: &Bound<'_, PyAny>,
        prefix: &Bound<'_, PyAny>,
        after: &Bound<'_, PyAny>,
    ) -> PyResult<Call> {
        let bucket: BucketName = id("bucket", bucket)?;
        let (prefix, after) = (text("prefix", prefix)?.to_owned(), position("after", after)?);
        let handle = self.handle(py)?;
        let work = async move { handle.provider().watch(&bucket, &prefix, after).await };
        NativeEvents::open(py, &self.shared, work, change)
    }

    fn buckets(&self, py: Python<'_>, after: Option<&Bound<'_, PyAny>>, limit: Limit) -> PyResult<Call> {
        let after = optional(after, |bucket| id::<BucketName>("after", bucket))?;
        let page = PageRequest::first(limit.0).with_after(after);
        let handle = self.handle(py)?;
        self.shared.call(py, async move { handle.provider().list_buckets(page).await }, |py, page| {
            let items: Vec<_> = page.items.iter().map(|item| (item.bucket.as_str(), item.keys)).collect();
            let next = page.next.as_ref().map(BucketName::as_str);
            Ok((items, next).into_pyobject(py)?.into_any().unbind())
        })
    }
}
