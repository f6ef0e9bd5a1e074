//! Everything that a store holds, record by record in the contract's order, a page at a time.

mod blobs;
mod graph;
mod history;
mod key_value;
mod pages;
mod tasks;
mod vectors;

use larder_kernel::{Contract, Error, ErrorKind, Result};

use super::archive::ArchiveWalk;
use super::record::{Record, SortKey};
use super::side::Side;

/// A walk through one contract of one side.
pub(crate) enum Walk {
    History(Box<history::HistoryWalk>),
    Vectors(Box<vectors::VectorWalk>),
    Graph(Box<graph::GraphWalk>),
    Blobs(blobs::BlobWalk),
    Tasks(Box<tasks::TaskWalk>),
    KeyValue(Box<key_value::ValueWalk>),
    Archive(Box<ArchiveWalk>),
}

impl Walk {
    pub(crate) async fn open(side: &Side, contract: Contract) -> Result<Self> {
        Ok(match contract {
            Contract::History => Self::History(Box::new(history::HistoryWalk::new(side.history()?))),
            Contract::Vectors => Self::Vectors(Box::new(vectors::VectorWalk::new(side.vectors()?))),
            Contract::Graph => Self::Graph(Box::new(graph::GraphWalk::new(side.graph()?))),
            Contract::Blobs => Self::Blobs(blobs::BlobWalk::open(side.blobs()?).await?),
            Contract::Tasks => Self::Tasks(Box::new(tasks::TaskWalk::new(side.tasks()?))),
            Contract::KeyValue => Self::KeyValue(Box::new(key_value::ValueWalk::new(side.key_value()?))),
        })
    }

    async fn next(&mut self) -> Result<Option<Record>> {
        match self {
            Self::History(walk) => walk.next().await,
            Self::Vectors(walk) => walk.next().await,
            Self::Graph(walk) => walk.next().await,
            Self::Blobs(walk) => walk.next().await,
            Self::Tasks(walk) => walk.next().await,
            Self::KeyValue(walk) => walk.next().await,
            Self::Archive(walk) => walk.next(),
        }
    }
}

/// A walk that refuses to go back: the comparison of two places rests on their order.
pub(crate) struct Ordered {
    walk: Walk,
    last: Option<SortKey>,
}

impl Ordered {
    pub(crate) fn new(walk: Walk) -> Self {
        Self { walk, last: None }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Record>> {
        let Some(record) = self.walk.next().await? else { return Ok(None) };
        let key = record.sort_key();
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            let message = "a listing is not in the order of its contract";
            return Err(Error::new(ErrorKind::Corrupt, "transfer.walk", message)
                .with_context("contract", record.contract().as_str()));
        }
        self.last = Some(key);
        Ok(Some(record))
    }
}
