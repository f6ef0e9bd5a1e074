//! The stream of a bucket's changes.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{StreamExt, unfold};
use larder::{BucketName, Error, ErrorKind, KeyValueEvent, KeyValueEvents, Namespace, Result, Revision};
use tokio::sync::watch::Receiver;

use crate::store::run;
use crate::tables::Tables;

const OPERATION: &str = "key_value.watch";

/// The position of a watch.
struct Watch {
    tables: Arc<Tables>,
    written: Receiver<()>,
    namespace: Namespace,
    bucket: BucketName,
    prefix: String,
    last: u64,
    /// The number of the namespace's erasures when the watch last returned a change.
    erasures: Option<u64>,
    ready: VecDeque<KeyValueEvent>,
}

pub(crate) fn events(
    tables: Arc<Tables>,
    namespace: Namespace,
    bucket: BucketName,
    prefix: &str,
    after: Revision,
) -> KeyValueEvents {
    let written = tables.written();
    let (prefix, last, ready) = (prefix.to_owned(), after.get(), VecDeque::new());
    let watch = Watch { tables, written, namespace, bucket, prefix, last, erasures: None, ready };
    unfold(Some(watch), |watch| async {
        let mut watch = watch?;
        match watch.next().await {
            Ok(event) => Some((Ok(event), Some(watch))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

impl Watch {
    async fn next(&mut self) -> Result<KeyValueEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.last = event.revision.get();
                return Ok(event);
            }
            // Marked before the read, so that a write during the read wakes the next round.
            self.written.mark_unchanged();
            self.read().await?;
            if self.ready.is_empty() && self.written.changed().await.is_err() {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    OPERATION,
                    "the database was closed; open it again",
                ));
            }
        }
    }

    async fn read(&mut self) -> Result<()> {
        let (tables, namespace, bucket) =
            (Arc::clone(&self.tables), self.namespace.clone(), self.bucket.clone());
        let (prefix, last) = (self.prefix.clone(), self.last);
        let (events, erasures) =
            run(OPERATION, move || tables.changes_after(namespace.as_str(), bucket.as_str(), &prefix, last))
                .await?;
        // Revisions restart after an erasure, so the watcher must discard its state (KV-048).
        if self.erasures.is_some_and(|known| known != erasures) {
            return Err(Error::new(ErrorKind::Conflict, OPERATION, "the namespace was erased"));
        }
        if !events.is_empty() {
            self.erasures = Some(erasures);
        }
        self.ready = events.into();
        Ok(())
    }
}
