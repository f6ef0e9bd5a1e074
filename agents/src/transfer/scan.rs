//! All data of a store, record by record in the contract's order, one page at a time.

mod blobs;
mod graph;
mod history;
mod key_value;
mod pages;
mod tasks;
mod vectors;

use larder_kernel::{Contract, Error, ErrorKind, Result, StoreSet};

use super::archive::ArchiveScan;
use super::missing::Skips;
use super::record::{Record, SortKey};

/// A scan of one contract on one side.
pub(crate) enum Scan {
    History(Box<history::HistoryScan>),
    Vectors(Box<vectors::VectorScan>),
    Graph(Box<graph::GraphScan>),
    Blobs(blobs::BlobScan),
    Tasks(Box<tasks::TaskScan>),
    KeyValue(Box<key_value::ValueScan>),
    Archive(Box<ArchiveScan>),
}

impl Scan {
    pub(crate) async fn open(side: &StoreSet, contract: Contract, skips: &Skips) -> Result<Self> {
        Ok(match contract {
            Contract::History => Self::History(Box::new(history::HistoryScan::new(&side.history()?, skips))),
            Contract::Vectors => Self::Vectors(Box::new(vectors::VectorScan::new(&side.vectors()?, skips))),
            Contract::Graph => Self::Graph(Box::new(graph::GraphScan::new(&side.graph()?, skips))),
            Contract::Blobs => Self::Blobs(blobs::BlobScan::open(&side.blobs()?, skips).await?),
            Contract::Tasks => Self::Tasks(Box::new(tasks::TaskScan::new(&side.tasks()?, skips))),
            Contract::KeyValue => {
                Self::KeyValue(Box::new(key_value::ValueScan::new(&side.key_value()?, skips)))
            }
        })
    }

    async fn next(&mut self) -> Result<Option<Record>> {
        match self {
            Self::History(scan) => scan.next().await,
            Self::Vectors(scan) => scan.next().await,
            Self::Graph(scan) => scan.next().await,
            Self::Blobs(scan) => scan.next().await,
            Self::Tasks(scan) => scan.next().await,
            Self::KeyValue(scan) => scan.next().await,
            Self::Archive(scan) => scan.next(),
        }
    }
}

/// A scan that fails if it goes backwards, because the comparison of two backends relies on their order.
pub(crate) struct Ordered {
    scan: Scan,
    last: Option<SortKey>,
}

impl Ordered {
    pub(crate) fn new(scan: Scan) -> Self {
        Self { scan, last: None }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Record>> {
        let Some(record) = self.scan.next().await? else { return Ok(None) };
        let key = record.sort_key();
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            let message = "a listing violates the order of its contract; run the conformance suite on the \
                           backend";
            return Err(Error::new(ErrorKind::Corrupt, "transfer.walk", message)
                .with_context("contract", record.contract().as_str()));
        }
        self.last = Some(key);
        Ok(Some(record))
    }
}
