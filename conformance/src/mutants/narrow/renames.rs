//! Blob stores whose renames take several steps.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use larder_agents::storage::InMemoryBlobStore;
use larder_kernel::{
    BlobEntries, BlobEntry, BlobGetOptions, BlobInfo, BlobKey, BlobRead, BlobStore, Error, ErrorKind,
    RenameMode, Result, Store,
};

macro_rules! wrong {
    ($self:ident $contract:ident rename($source:ident, $target:ident, $mode:ident)) => {
        $self.rename_wrongly($source, $target, $mode).await
    };
    ($self:ident $contract:ident get($key:ident, $options:ident)) => {
        $self.get_wrongly($key, $options).await
    };
    ($self:ident $contract:ident list($prefix:ident, $after:ident)) => {
        $self.list_wrongly($prefix, $after).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { Blobs BlobStore over InMemoryBlobStore with with_blobs, wrong;
    a_rename_copies_and_then_deletes: CopiesFirst => ["BLOB-065", "BLOB-066"],
    a_rename_deletes_and_then_writes: DeletesFirst => ["BLOB-065"],
    a_rename_deletes_the_target_first: TargetFirst => ["BLOB-065"],
    two_renames_to_a_key_succeed: TwoTargets => ["BLOB-067"],
    a_listing_during_a_rename_misses_a_blob: ListMisses => ["BLOB-069"],
    a_listing_during_a_rename_repeats_a_blob: ListRepeats => ["BLOB-069"],
    a_read_ends_with_a_rename: ReadEnds => ["BLOB-025"],
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryBlobStore,
    defect: Defect,
    /// The renames that run now, or that were made.
    running: &'static AtomicUsize,
}

/// About the time of a step on a disk.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

impl Wrong {
    fn new(inner: InMemoryBlobStore, defect: Defect) -> Self {
        // All handles share the counter of their defect.
        static RUNNING: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
        let counter = match defect {
            Defect::ListMisses => 0,
            Defect::ListRepeats => 1,
            _ => 2,
        };
        Self { inner, defect, running: &RUNNING[counter] }
    }

    async fn rename_wrongly(&self, source: &BlobKey, target: &BlobKey, mode: RenameMode) -> Result<BlobInfo> {
        let store = &self.inner;
        if source == target {
            return store.rename(source, target, mode).await;
        }
        let replaces = mode == RenameMode::Replace;
        match self.defect {
            Defect::CopiesFirst => {
                self.check(source, target, replaces).await?;
                let copied = store.copy(source, target).await?;
                pause().await;
                store.delete(source).await?;
                Ok(copied)
            }
            Defect::DeletesFirst => {
                self.check(source, target, replaces).await?;
                // No other caller finds this key.
                let hidden = BlobKey::new("~")?;
                store.rename(source, &hidden, RenameMode::Replace).await?;
                pause().await;
                store.rename(&hidden, target, mode).await
            }
            Defect::TargetFirst => {
                self.check(source, target, replaces).await?;
                store.delete(target).await?;
                pause().await;
                store.rename(source, target, mode).await
            }
            Defect::TwoTargets => {
                self.check(source, target, replaces).await?;
                pause().await;
                store.rename(source, target, RenameMode::Replace).await
            }
            Defect::ListMisses | Defect::ListRepeats => {
                self.running.fetch_add(1, Ordering::SeqCst);
                pause().await;
                let renamed = store.rename(source, target, mode).await;
                self.running.fetch_sub(1, Ordering::SeqCst);
                renamed
            }
            Defect::ReadEnds => {
                self.running.fetch_add(1, Ordering::SeqCst);
                store.rename(source, target, mode).await
            }
        }
    }

    /// Fails as a rename does, but in a separate step.
    async fn check(&self, source: &BlobKey, target: &BlobKey, replaces: bool) -> Result<()> {
        let refused = |kind| Err(Error::new(kind, "blobs.rename", "the keys do not allow the rename"));
        if self.inner.head(source).await.is_err() {
            return refused(ErrorKind::NotFound);
        }
        if !replaces && self.inner.head(target).await.is_ok() {
            return refused(ErrorKind::Conflict);
        }
        Ok(())
    }

    async fn get_wrongly(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        let mut read = self.inner.get(key, options).await?;
        if self.defect == Defect::ReadEnds {
            let (running, before) = (self.running, self.running.load(Ordering::SeqCst));
            let end = stream::once(async move {
                let lost = || Error::new(ErrorKind::Unavailable, "blobs.get", "the connection was lost");
                if running.load(Ordering::SeqCst) == before { Ok(Bytes::new()) } else { Err(lost()) }
            });
            read.bytes = read.bytes.chain(end).boxed();
        }
        Ok(read)
    }

    async fn list_wrongly(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        let entries = self.inner.list(prefix, after).await?;
        if self.running.load(Ordering::SeqCst) == 0 || self.defect == Defect::ReadEnds {
            return Ok(entries);
        }
        let mut all: Vec<BlobEntry> = entries.try_collect().await?;
        match self.defect {
            Defect::ListMisses => drop(all.drain(..all.len().min(2))),
            Defect::ListRepeats => all.extend(all.last().cloned()),
            _ => {}
        }
        Ok(stream::iter(all.into_iter().map(Ok)).boxed())
    }

    async fn erase_wrongly(&self) -> Result<()> {
        self.inner.erase().await
    }
}
