//! Blob stores that are wrong about earlier versions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_agents::storage::InMemoryBlobStore;
use larder_kernel::{
    BlobBody, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead, BlobStore, BlobVersion,
    BlobVersionId, BlobVersions, ETag, Error, ErrorKind, RenameMode, Result, Store,
};

macro_rules! wrong {
    ($self:ident $contract:ident put($key:ident, $body:ident, $options:ident)) => {
        $self.put_wrongly($key, $body, $options).await
    };
    ($self:ident $contract:ident rename($source:ident, $target:ident, $mode:ident)) => {
        $self.rename_wrongly($source, $target, $mode).await
    };
    ($self:ident $contract:ident delete($key:ident)) => {
        $self.delete_wrongly($key).await
    };
    ($self:ident $contract:ident list_versions($key:ident)) => {
        $self.list_wrongly($key).await
    };
    ($self:ident $contract:ident get_version($key:ident, $version:ident, $options:ident)) => {
        $self.get_wrongly($key, $version, $options).await
    };
    ($self:ident $contract:ident delete_version($key:ident, $version:ident)) => {
        $self.remove_wrongly($key, $version).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { Blobs BlobStore over InMemoryBlobStore with with_blobs, wrong;
    an_overwritten_blob_leaves_no_version: OverwritesForget => ["BLOB-070", "BLOB-080"],
    a_deleted_blob_leaves_no_version: DeletionsForget => ["BLOB-070"],
    versions_are_listed_oldest_first: OldestFirst => ["BLOB-071"],
    every_version_is_current: AllCurrent => ["BLOB-071"],
    an_earlier_version_has_another_etag: EarlierTagged => ["BLOB-072"],
    versions_of_longer_keys_are_listed_too: LongerKeys => ["BLOB-073"],
    a_refused_write_adds_a_version: RefusalsAdd => ["BLOB-074"],
    concurrent_writes_share_a_version: ConcurrentShare => ["BLOB-075"],
    a_rename_deletes_the_versions_of_the_source: RenameDeletes => ["BLOB-076"],
    a_rename_leaves_a_version_at_the_source: RenameLeaves => ["BLOB-076"],
    a_version_reads_as_the_current_blob: ReadsCurrent => ["BLOB-080"],
    a_version_has_no_metadata: MetadataLost => ["BLOB-080"],
    the_range_of_a_version_is_ignored: RangeIgnored => ["BLOB-081"],
    a_missing_version_reads_as_the_current_blob: MissingReads => ["BLOB-082", "BLOB-085"],
    deleting_a_version_deletes_all_earlier_ones: DeletesAll => ["BLOB-085"],
    deleting_a_version_does_nothing: DeletesNone => ["BLOB-085"],
    deleting_a_missing_version_is_not_found: MissingFails => ["BLOB-086"],
    the_current_version_is_deleted: DeletesCurrent => ["BLOB-087"],
    an_erasure_leaves_versions: EraseLeaves => ["BLOB-088"],
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryBlobStore,
    defect: Defect,
}

/// The writes that run now, of the defect that looks at them.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

impl Wrong {
    fn new(inner: InMemoryBlobStore, defect: Defect) -> Self {
        Self { inner, defect }
    }

    async fn versions(&self, key: &BlobKey) -> Result<Vec<BlobVersion>> {
        self.inner.list_versions(key).await?.try_collect().await
    }

    /// Deletes the earlier versions of a key, the newest first, at most this number.
    async fn forget(&self, key: &BlobKey, count: usize) -> Result<()> {
        let earlier = self.versions(key).await?.into_iter().filter(|version| !version.current);
        for version in earlier.take(count) {
            self.inner.delete_version(key, &version.id).await?;
        }
        Ok(())
    }

    async fn put_wrongly(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        if self.defect == Defect::ConcurrentShare {
            RUNNING.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let put = self.inner.put(key, body, options).await;
        match self.defect {
            Defect::OverwritesForget if put.is_ok() => self.forget(key, usize::MAX).await?,
            Defect::RefusalsAdd if put.is_err() && self.inner.head(key).await.is_ok() => {
                let read = self.inner.get(key, BlobGetOptions::default()).await?;
                self.inner.put(key, BlobBody::Stream(read.bytes), BlobPutOptions::default()).await?;
            }
            Defect::ConcurrentShare => {
                let alone = RUNNING.fetch_sub(1, Ordering::SeqCst) == 1;
                if !alone {
                    self.forget(key, 1).await?;
                }
            }
            _ => {}
        }
        put
    }

    async fn rename_wrongly(&self, source: &BlobKey, target: &BlobKey, mode: RenameMode) -> Result<BlobInfo> {
        if self.defect == Defect::RenameLeaves && source != target {
            let read = self.inner.get(source, BlobGetOptions::default()).await;
            let renamed = self.inner.rename(source, target, mode).await?;
            self.inner.put(source, BlobBody::Stream(read?.bytes), BlobPutOptions::default()).await?;
            self.inner.delete(source).await?;
            return Ok(renamed);
        }
        let renamed = self.inner.rename(source, target, mode).await?;
        if self.defect == Defect::RenameDeletes {
            self.forget(source, usize::MAX).await?;
        }
        Ok(renamed)
    }

    async fn delete_wrongly(&self, key: &BlobKey) -> Result<bool> {
        let existed = self.inner.delete(key).await?;
        if self.defect == Defect::DeletionsForget {
            self.forget(key, 1).await?;
        }
        Ok(existed)
    }

    async fn list_wrongly(&self, key: &BlobKey) -> Result<BlobVersions> {
        let mut versions = self.versions(key).await?;
        match self.defect {
            Defect::OldestFirst => versions.reverse(),
            Defect::AllCurrent => versions.iter_mut().for_each(|version| version.current = true),
            Defect::EarlierTagged => {
                for version in versions.iter_mut().filter(|version| !version.current) {
                    version.etag = ETag::new(format!("W/{}", version.etag))?;
                }
            }
            Defect::LongerKeys => {
                let longer: Vec<_> = self.inner.list(key.as_str(), None).await?.try_collect().await?;
                for entry in longer.iter().filter(|entry| entry.key != *key) {
                    versions.extend(self.versions(&entry.key).await?);
                }
            }
            _ => {}
        }
        Ok(stream::iter(versions.into_iter().map(Ok)).boxed())
    }

    async fn get_wrongly(
        &self,
        key: &BlobKey,
        version: &BlobVersionId,
        mut options: BlobGetOptions,
    ) -> Result<BlobRead> {
        if self.defect == Defect::RangeIgnored {
            options.range = None;
        }
        let read = self.inner.get_version(key, version, options).await;
        let missing = read.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        match self.defect {
            Defect::ReadsCurrent if !missing && self.inner.head(key).await.is_ok() => {
                self.inner.get(key, options).await
            }
            Defect::MissingReads if missing => self.inner.get(key, options).await,
            Defect::MetadataLost => {
                let mut read = read?;
                read.info.metadata.clear();
                Ok(read)
            }
            _ => read,
        }
    }

    async fn remove_wrongly(&self, key: &BlobKey, version: &BlobVersionId) -> Result<bool> {
        let listed = self.versions(key).await?;
        let found = listed.iter().find(|listed| listed.id == *version);
        match (self.defect, found) {
            (Defect::DeletesAll, Some(found)) if !found.current => {
                self.forget(key, usize::MAX).await?;
                Ok(true)
            }
            (Defect::DeletesNone, Some(found)) if !found.current => Ok(true),
            (Defect::MissingFails, None) => {
                Err(Error::new(ErrorKind::NotFound, "blobs.delete_version", "the version does not exist"))
            }
            (Defect::DeletesCurrent, Some(found)) if found.current => {
                self.inner.delete(key).await?;
                self.inner.delete_version(key, version).await
            }
            _ => self.inner.delete_version(key, version).await,
        }
    }

    async fn erase_wrongly(&self) -> Result<()> {
        let listed: Vec<_> = self.inner.list("", None).await?.try_collect().await?;
        self.inner.erase().await?;
        if self.defect == Defect::EraseLeaves {
            for entry in listed {
                self.inner.put(&entry.key, BlobBody::from("left"), BlobPutOptions::default()).await?;
                self.inner.delete(&entry.key).await?;
            }
        }
        Ok(())
    }
}
