//! Checkpoints. A value is a pair of the serializer's type and its bytes, which are stored as one.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use larder::checkpoint::{
    ChannelUpdate, Checkpoint, CheckpointFilter, CheckpointId, CheckpointNamespace, CheckpointThread,
    Checkpointer, NewCheckpoint, PendingWrite, Prune, UnnamedChannels,
};
use larder::{Error, ErrorKind, Metadata, PageRequest, RunId};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::call::Call;
use crate::errors::OrRaise as _;
use crate::input::{Limit, id, invalid, json, optional, text, wrong_type};
use crate::output;
use crate::process::Owned;
use crate::stores::Shared;

/// A value from Python.
type Value<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);
/// A pending write: the task, the index, the path, the channel and the value.
type Write<'py> = (Bound<'py, PyAny>, i32, Bound<'py, PyAny>, Bound<'py, PyAny>, Value<'py>);

#[pyclass(frozen, module = "larder._native", name = "Checkpoints")]
pub(crate) struct NativeCheckpoints {
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: Owned<Arc<Checkpointer>>,
}

/// Joins the length of the type in one byte, the type and the bytes.
fn joined(field: &'static str, (kind, bytes): &Value<'_>) -> PyResult<Bytes> {
    let py = bytes.py();
    let kind = text("type", kind)?;
    let length =
        u8::try_from(kind.len()).map_err(|_| invalid(py, "type", "is over 255 bytes; shorten it"))?;
    let start = |bytes: usize| {
        let mut value = BytesMut::with_capacity(1 + kind.len() + bytes);
        value.put_u8(length);
        value.extend_from_slice(kind.as_bytes());
        value
    };
    if let Ok(bytes) = bytes.cast::<PyBytes>() {
        let mut value = start(bytes.as_bytes().len());
        value.extend_from_slice(bytes.as_bytes());
        return Ok(value.freeze());
    }
    let buffer = PyBuffer::<u8>::get(bytes).map_err(|_| wrong_type(field, bytes, "bytes"))?;
    let mut value = start(buffer.len_bytes());
    let head = value.len();
    value.resize(head + buffer.len_bytes(), 0);
    buffer.copy_to_slice(py, &mut value[head..])?;
    Ok(value.freeze())
}

/// Divides a value into its type and its bytes.
fn divided<'py>(py: Python<'py>, value: &Bytes) -> PyResult<(String, Bound<'py, PyBytes>)> {
    let parts = value.split_first().and_then(|(length, rest)| rest.split_at_checked(usize::from(*length)));
    let parts = parts.and_then(|(kind, bytes)| Some((std::str::from_utf8(kind).ok()?, bytes)));
    let (kind, bytes) = parts
        .ok_or_else(|| {
            let message = "a value was not written by this binding; use another thread";
            Error::new(ErrorKind::Corrupt, "checkpoint.get", message)
        })
        .or_raise(py)?;
    Ok((kind.to_owned(), PyBytes::new(py, bytes)))
}

fn thread(value: &Bound<'_, PyAny>) -> PyResult<CheckpointThread> {
    CheckpointThread::new(text("thread", value)?).or_raise(value.py())
}

fn namespace(of: &Bound<'_, PyAny>, name: &Bound<'_, PyAny>) -> PyResult<CheckpointNamespace> {
    thread(of)?.namespace(text("namespace", name)?).or_raise(name.py())
}

fn checkpoint_id(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<CheckpointId> {
    let id = CheckpointId::new(text(field, value)?);
    id.map_err(|error| error.with_field(field)).or_raise(value.py())
}

fn pending_write((task, index, path, channel, value): &Write<'_>) -> PyResult<PendingWrite> {
    let (task, channel) = (text("task", task)?, text("channel", channel)?);
    Ok(PendingWrite::new(task, *index, channel, joined("value", value)?).with_path(text("path", path)?))
}

fn writes_of<'py>(py: Python<'py>, writes: &[PendingWrite]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for write in writes {
        list.append((&write.task, &write.channel, divided(py, &write.value)?))?;
    }
    Ok(list)
}

/// Returns the id, the parent, the metadata, the state, the values of the channels and the pending writes.
fn checkpoint(py: Python<'_>, found: Checkpoint, metadata: String) -> PyResult<Py<PyAny>> {
    let channels = PyDict::new(py);
    for (name, channel) in &found.channels {
        // A channel with pending writes of ancestors has only an inherited value.
        if let (Some(value), false) = (&channel.value, channel.pending) {
            channels.set_item(name, divided(py, value)?)?;
        }
    }
    let parent = found.info.parent.as_ref().map(CheckpointId::as_str);
    let fields = (
        found.info.id.as_str(),
        parent,
        metadata,
        divided(py, &found.state)?,
        channels,
        writes_of(py, &found.writes)?,
    );
    Ok(fields.into_pyobject(py)?.into_any().unbind())
}

impl NativeCheckpoints {
    fn handle(&self, py: Python<'_>) -> PyResult<Arc<Checkpointer>> {
        self.handle.get().cloned().or_raise(py)
    }
}

#[pymethods]
impl NativeCheckpoints {
    /// Writes a checkpoint. Channels that are not named are absent.
    #[allow(clippy::too_many_arguments)]
    fn put(
        &self,
        py: Python<'_>,
        of: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        checkpoint: &Bound<'_, PyAny>,
        parent: Option<&Bound<'_, PyAny>>,
        run: Option<&Bound<'_, PyAny>>,
        metadata: String,
        state: Value<'_>,
        values: Vec<(Bound<'_, PyAny>, Value<'_>)>,
        keep: Vec<Bound<'_, PyAny>>,
        pending: Vec<Bound<'_, PyAny>>,
        fork: bool,
    ) -> PyResult<Call> {
        let (namespace, handle) = (namespace(of, name)?, self.handle(py)?);
        let parent = optional(parent, |parent| checkpoint_id("parent", parent))?;
        let mut new = NewCheckpoint::new(parent, joined("state", &state)?)
            .with_id(checkpoint_id("id", checkpoint)?)
            .with_run(optional(run, |run| id::<RunId>("run", run))?)
            .with_unnamed(UnnamedChannels::Remove);
        for (channel, value) in &values {
            new = new.with_value(text("channel", channel)?, joined("value", value)?);
        }
        for (channels, update) in [(keep, ChannelUpdate::Keep), (pending, ChannelUpdate::Pending)] {
            for channel in &channels {
                new = new.with_channel(text("channel", channel)?, update.clone());
            }
        }
        new.fork = fork;
        let work = async move {
            let metadata: Metadata = json("checkpoint.put", "metadata", &metadata)?;
            handle.put(&namespace, new.with_metadata(metadata)).await
        };
        self.shared.call(py, work, |py, _| Ok(py.None()))
    }

    fn get(
        &self,
        py: Python<'_>,
        of: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        id: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let (namespace, handle) = (namespace(of, name)?, self.handle(py)?);
        let id = optional(id, |id| checkpoint_id("id", id))?;
        let work = async move {
            let Some(found) = handle.get(&namespace, id.as_ref()).await? else { return Ok::<_, Error>(None) };
            let metadata = output::encode(&found.info.metadata)?;
            Ok(Some((found, metadata)))
        };
        self.shared.call(py, work, |py, found| {
            found.map_or_else(|| Ok(py.None()), |(found, metadata)| checkpoint(py, found, metadata))
        })
    }

    fn put_writes(
        &self,
        py: Python<'_>,
        of: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        id: &Bound<'_, PyAny>,
        writes: Vec<Write<'_>>,
    ) -> PyResult<Call> {
        let (namespace, handle) = (namespace(of, name)?, self.handle(py)?);
        let id = checkpoint_id("id", id)?;
        let writes = writes.iter().map(pending_write).collect::<PyResult<Vec<_>>>()?;
        let work = async move { handle.put_writes(&namespace, &id, writes).await };
        self.shared.call(py, work, output::none)
    }

    /// Lists the ids of the checkpoints that a filter selects, newest first, before an id.
    #[allow(clippy::too_many_arguments)]
    fn ids(
        &self,
        py: Python<'_>,
        of: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        filter: String,
        before: Option<&Bound<'_, PyAny>>,
        limit: Limit,
    ) -> PyResult<Call> {
        let (namespace, handle) = (namespace(of, name)?, self.handle(py)?);
        let before = optional(before, |before| checkpoint_id("before", before))?;
        let page = PageRequest::first(limit.0).with_after(before);
        let work = async move {
            let filter: Metadata = json("checkpoint.list", "filter", &filter)?;
            handle.list(&namespace, &CheckpointFilter::default().with_metadata(filter), page).await
        };
        self.shared.call(py, work, |py, page| {
            let ids: Vec<&str> = page.items.iter().map(|info| info.id.as_str()).collect();
            let next = page.next.as_ref().map(CheckpointId::as_str);
            Ok((ids, next).into_pyobject(py)?.into_any().unbind())
        })
    }

    fn namespaces(&self, py: Python<'_>, of: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (thread, handle) = (thread(of)?, self.handle(py)?);
        self.shared.call(py, async move { handle.namespaces(&thread).await }, |py, found| {
            let names: Vec<&str> = found.iter().map(CheckpointNamespace::as_str).collect();
            Ok(names.into_pyobject(py)?.into_any().unbind())
        })
    }

    fn threads(&self, py: Python<'_>, after: Option<&Bound<'_, PyAny>>, limit: Limit) -> PyResult<Call> {
        let (after, handle) = (optional(after, thread)?, self.handle(py)?);
        let page = PageRequest::first(limit.0).with_after(after);
        self.shared.call(py, async move { handle.threads(page).await }, |py, page| {
            let names: Vec<&str> = page.items.iter().map(CheckpointThread::as_str).collect();
            let next = page.next.as_ref().map(CheckpointThread::as_str);
            Ok((names, next).into_pyobject(py)?.into_any().unbind())
        })
    }

    /// Returns for each channel the value of the nearest ancestor that has one, and the pending writes since.
    fn history(
        &self,
        py: Python<'_>,
        of: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        id: &Bound<'_, PyAny>,
        channels: Vec<String>,
    ) -> PyResult<Call> {
        let (namespace, handle) = (namespace(of, name)?, self.handle(py)?);
        let id = checkpoint_id("id", id)?;
        let work = async move {
            let names: Vec<&str> = channels.iter().map(String::as_str).collect();
            handle.history(&namespace, &id, &names).await
        };
        self.shared.call(py, work, |py, found| {
            let histories = PyDict::new(py);
            for (name, history) in &found {
                let seed = history.seed.as_ref().and_then(|seed| seed.value.as_ref());
                let seed = seed.map(|value| divided(py, value)).transpose()?;
                histories.set_item(name, (seed, writes_of(py, &history.writes)?))?;
            }
            Ok(histories.into_any().unbind())
        })
    }

    fn delete(&self, py: Python<'_>, of: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (thread, handle) = (thread(of)?, self.handle(py)?);
        self.shared.call(py, async move { handle.delete(&thread).await }, output::count)
    }

    fn delete_runs(
        &self,
        py: Python<'_>,
        of: &Bound<'_, PyAny>,
        runs: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let (thread, handle) = (thread(of)?, self.handle(py)?);
        let runs = runs.iter().map(|run| id::<RunId>("run", run)).collect::<PyResult<Vec<_>>>()?;
        self.shared.call(py, async move { handle.delete_runs(&thread, &runs).await }, output::count)
    }

    fn prune(&self, py: Python<'_>, of: &Bound<'_, PyAny>, keep: usize) -> PyResult<Call> {
        let (thread, handle) = (thread(of)?, self.handle(py)?);
        self.shared.call(
            py,
            async move { handle.prune(&thread, Prune::KeepNewest(keep)).await },
            output::count,
        )
    }

    fn copy(&self, py: Python<'_>, source: &Bound<'_, PyAny>, target: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (source, target, handle) = (thread(source)?, thread(target)?, self.handle(py)?);
        self.shared.call(py, async move { handle.copy(&source, &target).await }, output::count)
    }
}
