//! The stream of a bucket's changes.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{StreamExt, unfold};
use larder::{BucketName, Error, ErrorKind, KeyValueEvent, KeyValueEvents, Namespace, Result, Revision};
use tokio::sync::watch::Receiver;

use crate::tables::{Tables, run};

const OPERATION: &str = "key_value.watch";

/// The position of a watch.
struct Watch {
    tables: Arc<Tables>,
    written: Receiver<()>,
    namespace: Namespace,
    bucket: BucketName,
    prefix: String,
    /// The last revision that was returned, or the one at which the watch began.
    at: Revision,
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
    let (prefix, ready) = (prefix.to_owned(), VecDeque::new());
    let watch = Watch { tables, written, namespace, bucket, prefix, at: after, ready };
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
                self.at = event.revision;
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
        let (prefix, at) = (self.prefix.clone(), self.at);
        let (events, last) = run(OPERATION, move || {
            tables.changes_after(namespace.as_str(), bucket.as_str(), &prefix, at.get())
        })
        .await?;
        // Revisions restart after an erasure, so the watcher must discard its state (KV-048).
        if !at.is_within(last) {
            return Err(Error::new(ErrorKind::Conflict, OPERATION, "the namespace was erased"));
        }
        self.ready = events.into();
        Ok(())
    }
}
