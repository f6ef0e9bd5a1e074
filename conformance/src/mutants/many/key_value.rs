//! Key-value stores that are wrong for many keys.

use bytes::Bytes;
use futures_util::{StreamExt, future};
use larder_agents::InMemoryKeyValueStore;
use larder_kernel::{
    BucketInfo, BucketName, Key, KeyRevision, KeyValueEvents, KeyValueItem, KeyValueQuery, KeyValueStore,
    KeyValueStoreExt, Page, PageRequest, Result, Revision, Store,
};

use super::{COUNT_MAX, ITEMS_MAX, cut};

macro_rules! wrong {
    ($self:ident $contract:ident list($bucket:ident, $prefix:ident, $page:ident)) => {
        $self.list_wrongly($bucket, $prefix, $page).await
    };
    ($self:ident $contract:ident list_entries($bucket:ident, $query:ident, $page:ident)) => {
        $self.list_entries_wrongly($bucket, $query, $page).await
    };
    ($self:ident $contract:ident list_buckets($page:ident)) => {
        $self.list_buckets_wrongly($page).await
    };
    ($self:ident $contract:ident watch($bucket:ident, $prefix:ident, $after:ident)) => {
        $self.watch_wrongly($bucket, $prefix, $after).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { KeyValue KeyValueStore over InMemoryKeyValueStore with with_key_value, wrong;
    a_page_ends_after_5000_keys: PageCut => ["KV-032"],
    a_prefix_looks_at_10000_keys: PrefixLooksAtFirst => ["KV-030"],
    a_page_of_entries_ends_after_5000_keys: EntriesCut => ["KV-069"],
    a_page_ends_after_5000_buckets: BucketsCut => ["KV-035"],
    a_bucket_counts_10000_keys: CountCut => ["KV-035"],
    a_backlog_ends_after_10000_changes: BacklogCut => ["KV-040"],
    a_lagging_watch_loses_changes: LaggingLoses => ["KV-042"],
    an_erasure_takes_10000_keys: EraseCut => ["STORE-006"],
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryKeyValueStore,
    defect: Defect,
}

impl Wrong {
    fn new(inner: InMemoryKeyValueStore, defect: Defect) -> Self {
        Self { inner, defect }
    }

    async fn list_wrongly(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        let mut listed = self.inner.list(bucket, prefix, page).await?;
        if self.defect == Defect::PrefixLooksAtFirst && !prefix.is_empty() {
            let seen = self.inner.list(bucket, "", PageRequest::first(ITEMS_MAX)).await?;
            if let Some(last) = seen.items.last() {
                listed.items.retain(|item| item.key <= last.key);
            }
        }
        Ok(if self.defect == Defect::PageCut { cut(listed) } else { listed })
    }

    async fn list_entries_wrongly(
        &self,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyValueItem, Key>> {
        let listed = self.inner.list_entries(bucket, query, page).await?;
        Ok(if self.defect == Defect::EntriesCut { cut(listed) } else { listed })
    }

    async fn list_buckets_wrongly(
        &self,
        page: PageRequest<BucketName>,
    ) -> Result<Page<BucketInfo, BucketName>> {
        let mut listed = self.inner.list_buckets(page).await?;
        if self.defect == Defect::CountCut {
            listed.items.iter_mut().for_each(|info| info.keys = info.keys.min(COUNT_MAX));
        }
        Ok(if self.defect == Defect::BucketsCut { cut(listed) } else { listed })
    }

    async fn watch_wrongly(
        &self,
        bucket: &BucketName,
        prefix: &str,
        after: Revision,
    ) -> Result<KeyValueEvents> {
        let backlog = self.inner.list(bucket, prefix, PageRequest::default()).await?.items.len();
        let events = self.inner.watch(bucket, prefix, after).await?;
        let lost = match self.defect {
            Defect::BacklogCut if backlog >= ITEMS_MAX => ITEMS_MAX..usize::MAX,
            Defect::LaggingLoses if backlog < ITEMS_MAX => ITEMS_MAX..ITEMS_MAX + 100,
            _ => return Ok(events),
        };
        let numbered = events.enumerate().filter(move |(number, _)| future::ready(!lost.contains(number)));
        Ok(numbered.map(|(_, event)| event).boxed())
    }

    async fn erase_wrongly(&self) -> Result<()> {
        let mut left = Vec::new();
        if self.defect == Defect::EraseCut {
            for info in self.inner.list_buckets(PageRequest::default()).await?.items {
                let (bucket, mut page) = (info.bucket, PageRequest::first(ITEMS_MAX));
                if let Some(after) = self.inner.list(&bucket, "", page.clone()).await?.next {
                    page.after = Some(after);
                    left.push((bucket.clone(), self.inner.list(&bucket, "", page).await?.items));
                }
            }
        }
        self.inner.erase().await?;
        for (bucket, items) in left {
            for item in items {
                self.inner.set(&bucket, &item.key, Bytes::from_static(b"left")).await?;
            }
        }
        Ok(())
    }
}
