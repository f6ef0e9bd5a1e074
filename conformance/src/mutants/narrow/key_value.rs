//! Key-value stores with a narrow defect.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, future};
use larder_agents::InMemoryKeyValueStore;
use larder_kernel::{
    BucketName, ErrorKind, Key, KeyValueCondition, KeyValueEntry, KeyValueEvent, KeyValueEventKind,
    KeyValueEvents, KeyValuePutOptions, KeyValueStore, Result, Revision, Store,
};

use super::{panicking, reformatted, unavailable};

macro_rules! wrong {
    ($self:ident $contract:ident put($bucket:ident, $key:ident, $value:ident, $options:ident)) => {
        $self.put_wrongly($bucket, $key, $value, $options).await
    };
    ($self:ident $contract:ident get($bucket:ident, $key:ident)) => {
        $self.get_wrongly($bucket, $key).await
    };
    ($self:ident $contract:ident delete($bucket:ident, $key:ident, $at:ident)) => {
        $self.delete_wrongly($bucket, $key, $at).await
    };
    ($self:ident $contract:ident watch($bucket:ident, $prefix:ident, $after:ident)) => {
        $self.watch_wrongly($bucket, $prefix, $after).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { KeyValue KeyValueStore over InMemoryKeyValueStore with with_key_value, wrong;
    json_values_are_written_again: JsonReformatted => ["KV-001"],
    numbers_lose_their_leading_zeros: ZerosLost => ["KV-001"],
    events_carry_trimmed_values: EventsTrimmed => ["KV-041"],
    the_prefix_of_a_watch_is_a_pattern: WatchPattern => ["KV-044"],
    the_prefix_of_a_watch_ignores_case: WatchFolded => ["KV-044"],
    putting_at_revision_0_creates: ZeroCreates => ["KV-006"],
    putting_at_a_newer_revision_succeeds: NewerPuts => ["KV-006"],
    deleting_at_a_newer_revision_succeeds: NewerDeletes => ["KV-025"],
    deleting_an_absent_key_at_a_revision_is_false: AbsentDeletes => ["KV-025"],
    a_long_time_to_live_ends_after_30_days: LongLifeCut => ["KV-022"],
    an_expired_put_is_delivered_by_no_watch: ExpiredHidden => ["KV-046"],
    a_lost_put_is_unavailable: PutUnavailable => ["KV-004", "KV-006"],
    a_lost_deletion_is_unavailable: DeleteUnavailable => ["KV-025"],
    a_lost_creation_panics: CreationPanics => ["KV-008"],
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

    /// Returns the current revision if a caller that names a newer one may write.
    async fn lenient(&self, bucket: &BucketName, key: &Key, at: Revision) -> Result<Revision> {
        let current = self.inner.get(bucket, key).await?.map(|entry| entry.revision);
        Ok(current.filter(|current| *current <= at).unwrap_or(at))
    }

    async fn put_wrongly(
        &self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        mut options: KeyValuePutOptions,
    ) -> Result<Revision> {
        if let KeyValueCondition::AtRevision(at) = options.condition {
            match self.defect {
                Defect::ZeroCreates if at == Revision::ZERO => options.condition = KeyValueCondition::Absent,
                Defect::NewerPuts => {
                    options.condition = KeyValueCondition::AtRevision(self.lenient(bucket, key, at).await?);
                }
                _ => {}
            }
        }
        if self.defect == Defect::LongLifeCut {
            let longest = Duration::from_secs(30 * 86_400);
            options.ttl = options.ttl.map(|ttl| if ttl < 36 * longest { ttl.min(longest) } else { ttl });
        }
        let creates = options.condition == KeyValueCondition::Absent;
        let put = self.inner.put(bucket, key, value, options).await;
        match self.defect {
            Defect::PutUnavailable => unavailable(put, ErrorKind::Conflict),
            Defect::CreationPanics if creates => panicking(put, ErrorKind::Conflict),
            _ => put,
        }
    }

    async fn get_wrongly(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        let mut found = self.inner.get(bucket, key).await?;
        if let Some(entry) = &mut found
            && let Ok(text) = std::str::from_utf8(&entry.value)
        {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let changed = match self.defect {
                Defect::JsonReformatted if text.starts_with('{') => reformatted(text),
                Defect::ZerosLost if digits => text.trim_start_matches('0').to_owned(),
                _ => return Ok(found),
            };
            entry.value = Bytes::from(changed);
        }
        Ok(found)
    }

    async fn delete_wrongly(&self, bucket: &BucketName, key: &Key, mut at: Option<Revision>) -> Result<bool> {
        match (self.defect, at) {
            (Defect::NewerDeletes, Some(named)) => at = Some(self.lenient(bucket, key, named).await?),
            (Defect::AbsentDeletes, Some(_)) if self.inner.get(bucket, key).await?.is_none() => {
                return Ok(false);
            }
            _ => {}
        }
        let deleted = self.inner.delete(bucket, key, at).await;
        match self.defect {
            Defect::DeleteUnavailable => unavailable(deleted, ErrorKind::Conflict),
            _ => deleted,
        }
    }

    async fn watch_wrongly(
        &self,
        bucket: &BucketName,
        prefix: &str,
        after: Revision,
    ) -> Result<KeyValueEvents> {
        let wider = match self.defect {
            Defect::WatchPattern => &prefix[..prefix.find('_').unwrap_or(prefix.len())],
            Defect::WatchFolded => "",
            _ => prefix,
        };
        let events = self.inner.watch(bucket, wider, after).await?;
        let (defect, asked) = (self.defect, prefix.to_owned());
        let wanted = move |key: &str| match defect {
            Defect::WatchPattern => {
                let mut letters = key.chars();
                asked
                    .chars()
                    .all(|wanted| letters.next().is_some_and(|letter| wanted == '_' || letter == wanted))
            }
            Defect::WatchFolded => key.to_lowercase().starts_with(&asked.to_lowercase()),
            _ => true,
        };
        let shown = move |event: &KeyValueEvent| {
            let hidden = defect == Defect::ExpiredHidden && event.kind == KeyValueEventKind::Deleted;
            wanted(event.key.as_str()) && !hidden
        };
        let events = events.try_filter(move |event| future::ready(shown(event)));
        let changed = events.map_ok(move |mut event| {
            if let (Defect::EventsTrimmed, KeyValueEventKind::Put { value, .. }) = (defect, &mut event.kind) {
                *value = Bytes::copy_from_slice(value.trim_ascii());
            }
            event
        });
        Ok(changed.boxed())
    }

    async fn erase_wrongly(&self) -> Result<()> {
        self.inner.erase().await
    }
}
