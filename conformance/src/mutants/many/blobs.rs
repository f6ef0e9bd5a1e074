//! Blob stores that are wrong for many blobs.

use futures_util::{StreamExt, TryStreamExt, future};
use larder_agents::storage::InMemoryBlobStore;
use larder_kernel::{BlobBody, BlobEntries, BlobKey, BlobPutOptions, BlobStore, Result, Store};

use super::{ITEMS_MAX, ROWS_MAX};

macro_rules! wrong {
    ($self:ident $contract:ident list($prefix:ident, $after:ident)) => {
        $self.list_wrongly($prefix, $after).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { Blobs BlobStore over InMemoryBlobStore with with_blobs, wrong;
    a_listing_ends_after_10000_blobs: ListCut => ["BLOB-033"],
    a_prefix_ends_after_5000_blobs: PrefixCut => ["BLOB-030"],
    a_listing_after_a_key_ends_after_5000_blobs: AfterCut => ["BLOB-032"],
    an_erasure_takes_10000_blobs: EraseCut => ["STORE-006"],
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryBlobStore,
    defect: Defect,
}

impl Wrong {
    fn new(inner: InMemoryBlobStore, defect: Defect) -> Self {
        Self { inner, defect }
    }

    async fn list_wrongly(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        let entries = self.inner.list(prefix, after).await?;
        Ok(match self.defect {
            Defect::ListCut if prefix.is_empty() && after.is_none() => entries.take(ITEMS_MAX).boxed(),
            Defect::PrefixCut if !prefix.is_empty() => entries.take(ROWS_MAX).boxed(),
            Defect::AfterCut if after.is_some() => entries.take(ROWS_MAX).boxed(),
            _ => entries,
        })
    }

    async fn erase_wrongly(&self) -> Result<()> {
        let mut left: Vec<BlobKey> = Vec::new();
        if self.defect == Defect::EraseCut {
            let rest = self.inner.list("", None).await?.skip(ITEMS_MAX);
            left = rest.and_then(|entry| future::ready(Ok(entry.key))).try_collect().await?;
        }
        self.inner.erase().await?;
        for key in left {
            self.inner.put(&key, BlobBody::from("left"), BlobPutOptions::default()).await?;
        }
        Ok(())
    }
}
