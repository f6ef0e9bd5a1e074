//! Writes of missing records to a target, in batches.

mod blobs;
mod graph;
mod history;
mod key_value;
mod steps;
mod tasks;
pub(super) mod vectors;

use std::mem;

use larder_kernel::{Contract, Result, StoreSet};

use super::diff::is_placeholder;
use super::record::Record;
use super::source::Source;

/// The largest number of records and of bytes in one batch. Both are below every limit of a call. A single
/// record may exceed the second.
const RECORDS: usize = 500;
const BYTES: u64 = 8 * 1024 * 1024;

/// The change that a record requires in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The target has no such item.
    New,
    /// The target has the task in a state from which steps lead to this one.
    Advance,
    /// The target has another item there, which is removed.
    Replace,
}

/// Records to be written to the target.
pub(crate) struct Writer<'a> {
    source: &'a Source,
    target: &'a StoreSet,
    waiting: Vec<(Change, Record)>,
    bytes: u64,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(source: &'a Source, target: &'a StoreSet) -> Self {
        Self { source, target, waiting: Vec::new(), bytes: 0 }
    }

    /// Adds a record. It is written together with the next ones of its kind.
    pub(crate) async fn put(&mut self, change: Change, record: Record) -> Result<()> {
        // The bytes of a blob are read while it is written, and are never buffered.
        let bytes = if matches!(record, Record::Blob(_)) { 0 } else { record.bytes() };
        let apart = self.waiting.last().is_some_and(|(_, last)| !last.goes_with(&record));
        if apart || self.waiting.len() >= RECORDS || (self.bytes + bytes > BYTES && !self.waiting.is_empty())
        {
            self.flush().await?;
        }
        self.bytes += bytes;
        self.waiting.push((change, record));
        Ok(())
    }

    /// Writes the buffered records.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        let batch = mem::take(&mut self.waiting);
        let Some((_, first)) = batch.first() else { return Ok(()) };
        match first.contract() {
            Contract::History => history::write(&self.target.history()?, batch).await,
            Contract::Vectors => vectors::write(&self.target.vectors()?, batch).await,
            Contract::Graph => graph::write(&self.target.graph()?, batch).await,
            Contract::Blobs => blobs::write(self.source, &self.target.blobs()?, batch).await,
            Contract::Tasks => tasks::write(&self.target.tasks()?, batch).await,
            Contract::KeyValue => key_value::write(&self.target.key_value()?, batch).await,
        }
    }

    /// Removes the placeholder that an interrupted copy left in the target.
    pub(crate) async fn remove_if_placeholder(&self, record: &Record) -> Result<()> {
        match record {
            Record::Document(document) if is_placeholder(record) => {
                let ids = std::slice::from_ref(&document.id);
                self.target.vectors()?.delete(&document.collection, ids).await.map(drop)
            }
            _ => Ok(()),
        }
    }
}

/// Removes the thread, board or collection of the record.
pub(crate) async fn clear(target: &StoreSet, record: &Record) -> Result<()> {
    match record {
        Record::Message(message) => target.history()?.clear(&message.thread, None).await.map(drop),
        Record::Collection(collection) => {
            target.vectors()?.drop_collection(&collection.collection).await.map(drop)
        }
        Record::Board(board) => target.tasks()?.delete_board(&board.board).await.map(drop),
        Record::Task(task) => target.tasks()?.delete_board(&task.board).await.map(drop),
        _ => Ok(()),
    }
}
