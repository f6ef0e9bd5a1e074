//! Key-value stores that are wrong in a call that concerns several keys.

use std::time::Duration;

use larder_agents::InMemoryKeyValueStore;
use larder_kernel::limits::BATCH_KEYS_MAX;
use larder_kernel::{
    BucketName, Error, ErrorKind, Key, KeyOrder, KeyValueCondition, KeyValueEntry, KeyValueItem,
    KeyValuePutOptions, KeyValueQuery, KeyValueStore, KeyValueStoreExt, KeyValueWrite, KeyValueWriteKind,
    Page, PageRequest, PrefixDeletion, Result, Revision, Store,
};

macro_rules! wrong {
    ($self:ident $contract:ident get_many($bucket:ident, $keys:ident)) => {
        $self.get_many_wrongly($bucket, $keys).await
    };
    ($self:ident $contract:ident write($bucket:ident, $writes:ident)) => {
        $self.write_wrongly($bucket, $writes).await
    };
    ($self:ident $contract:ident delete_prefix($bucket:ident, $prefix:ident)) => {
        $self.delete_prefix_wrongly($bucket, $prefix).await
    };
    ($self:ident $contract:ident list_entries($bucket:ident, $query:ident, $page:ident)) => {
        $self.list_entries_wrongly($bucket, $query, $page).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { KeyValue KeyValueStore over InMemoryKeyValueStore with with_key_value, wrong;
    get_many_leaves_out_absent_keys: AbsentLeftOut => ["KV-053"],
    get_many_returns_a_key_once: RepeatedLeftOut => ["KV-053"],
    get_many_reads_one_by_one: ReadOneByOne => ["KV-054"],
    get_many_has_no_size_limit: ReadWithoutLimit => ["KV-055"],
    a_write_ignores_times_to_live: WriteIgnoresTtl => ["KV-056"],
    a_write_deletes_nothing: WriteDeletesNothing => ["KV-056", "KV-058"],
    a_write_stops_at_a_lost_condition: WriteStops => ["KV-057", "KV-059"],
    a_write_names_no_position: PositionUnnamed => ["KV-057"],
    a_write_sorts_its_keys: WriteSorts => ["KV-058", "KV-061"],
    a_write_happens_in_two_halves: WriteInHalves => ["KV-054", "KV-059", "KV-061", "KV-071"],
    a_write_reads_the_clock_for_each_key: WriteReadsClocks => ["KV-059"],
    a_write_checks_before_it_begins: WriteChecksFirst => ["KV-060"],
    a_write_forgets_keys_beyond_500: WriteCut => ["KV-062"],
    a_write_is_limited_to_8_mib: WriteOver8Mib => ["KV-062"],
    a_write_ignores_the_generation: WriteGenerationIgnored => ["KV-063"],
    deleting_a_prefix_has_no_limit: PrefixUnlimited => ["KV-064"],
    deleting_a_prefix_never_has_more: PrefixWithoutMore => ["KV-064"],
    a_prefix_is_deleted_in_reverse: PrefixReversed => ["KV-065"],
    a_deleted_prefix_ignores_case: PrefixFolded => ["KV-066"],
    a_range_includes_its_end: EndIncluded => ["KV-067"],
    entries_have_no_expiry: ExpiryLeftOut => ["KV-068"],
    entries_are_never_reversed: NeverReversed => ["KV-069"],
    a_reversed_page_begins_with_its_cursor: ReversedRepeatsCursor => ["KV-069"],
    a_page_of_entries_has_no_size_limit: PageWithoutLimit => ["KV-070"],
    entries_are_read_one_by_one: EntriesOneByOne => ["KV-071"],
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryKeyValueStore,
    defect: Defect,
}

/// Changes the times to live and conditions of the puts.
fn with_options(
    writes: Vec<KeyValueWrite>,
    change: impl Fn(KeyValuePutOptions) -> KeyValuePutOptions,
) -> Vec<KeyValueWrite> {
    let write = |mut write: KeyValueWrite| {
        if let KeyValueWriteKind::Put { options, .. } = &mut write.kind {
            *options = change(*options);
        }
        write
    };
    writes.into_iter().map(write).collect()
}

/// The times to live of the second half begin one millisecond later.
fn with_two_clocks(mut writes: Vec<KeyValueWrite>) -> Vec<KeyValueWrite> {
    let later = writes.split_off(writes.len() / 2);
    let tick = |options: KeyValuePutOptions| {
        let ttl = options.ttl.map(|ttl| ttl + Duration::from_millis(1));
        options.with_ttl(ttl)
    };
    writes.extend(with_options(later, tick));
    writes
}

impl Wrong {
    fn new(inner: InMemoryKeyValueStore, defect: Defect) -> Self {
        Self { inner, defect }
    }

    async fn get_many_wrongly(
        &self,
        bucket: &BucketName,
        keys: &[Key],
    ) -> Result<Page<Option<KeyValueEntry>, usize>> {
        let mut found = self.inner.get_many(bucket, keys).await?;
        match self.defect {
            Defect::AbsentLeftOut => found.items.retain(Option::is_some),
            Defect::RepeatedLeftOut => {
                let mut index = 0;
                found.items.retain(|_| {
                    index += 1;
                    !keys[..index - 1].contains(&keys[index - 1])
                });
            }
            Defect::ReadOneByOne => {
                found.items.clear();
                for key in keys {
                    found.items.push(self.inner.get(bucket, key).await?);
                    tokio::task::yield_now().await;
                }
                found.next = None;
            }
            Defect::ReadWithoutLimit => {
                while let Some(next) = found.next {
                    let more = self.inner.get_many(bucket, &keys[next..]).await?;
                    found.items.extend(more.items);
                    found.next = more.next.map(|more| next + more);
                }
            }
            _ => {}
        }
        Ok(found)
    }

    /// Makes the writes one by one.
    async fn one_by_one(
        &self,
        bucket: &BucketName,
        writes: Vec<KeyValueWrite>,
    ) -> Result<Vec<Option<Revision>>> {
        let mut revisions = Vec::new();
        for (index, write) in writes.into_iter().enumerate() {
            let written = self.inner.write(bucket, vec![write]).await;
            revisions.extend(written.map_err(|error| match error.kind() {
                ErrorKind::Conflict => KeyValueWrite::conflict(index),
                _ => error,
            })?);
            tokio::task::yield_now().await;
        }
        Ok(revisions)
    }

    /// Checks the conditions, and then writes without them.
    async fn checked_first(
        &self,
        bucket: &BucketName,
        writes: Vec<KeyValueWrite>,
    ) -> Result<Vec<Option<Revision>>> {
        for (index, write) in writes.iter().enumerate() {
            let there = self.inner.get(bucket, &write.key).await?.map(|entry| entry.revision);
            let is_at = |at: Revision| there.is_some_and(|there| at.names(there));
            let holds = match &write.kind {
                KeyValueWriteKind::Put { options, .. } => match options.condition {
                    KeyValueCondition::Absent => there.is_none(),
                    KeyValueCondition::AtRevision(at) => is_at(at),
                    _ => true,
                },
                KeyValueWriteKind::Delete { at } => at.is_none_or(is_at),
                _ => true,
            };
            if !holds {
                return Err(KeyValueWrite::conflict(index));
            }
        }
        tokio::task::yield_now().await;
        let free = with_options(writes, |options| options.with_condition(KeyValueCondition::None));
        self.inner.write(bucket, free).await
    }

    async fn write_wrongly(
        &self,
        bucket: &BucketName,
        mut writes: Vec<KeyValueWrite>,
    ) -> Result<Vec<Option<Revision>>> {
        // Every store refuses invalid input.
        larder_kernel::storage::key_value::check_write(&writes)?;
        let number = |at: Revision| Revision::new(at.get());
        match self.defect {
            Defect::WriteIgnoresTtl => {
                writes = with_options(writes, |options| options.with_ttl(None::<Duration>));
            }
            Defect::WriteReadsClocks => writes = with_two_clocks(writes),
            Defect::WriteDeletesNothing => {
                let count = writes.len();
                writes.retain(|write| matches!(write.kind, KeyValueWriteKind::Put { .. }));
                if writes.is_empty() {
                    return Ok(vec![None; count]);
                }
            }
            Defect::WriteStops => return self.one_by_one(bucket, writes).await,
            Defect::PositionUnnamed => {
                return self.inner.write(bucket, writes).await.map_err(|error| match error.kind() {
                    ErrorKind::Conflict => {
                        Error::new(ErrorKind::Conflict, error.operation(), "a condition does not hold")
                    }
                    _ => error,
                });
            }
            Defect::WriteSorts => writes.sort_by(|left, right| left.key.cmp(&right.key)),
            Defect::WriteInHalves if writes.len() > 1 => {
                let rest = writes.split_off(writes.len() / 2);
                let mut revisions = self.inner.write(bucket, writes).await?;
                // Long enough for a reader on a busy machine.
                tokio::time::sleep(Duration::from_millis(1)).await;
                revisions.extend(self.inner.write(bucket, rest).await?);
                return Ok(revisions);
            }
            Defect::WriteChecksFirst => return self.checked_first(bucket, writes).await,
            Defect::WriteCut if writes.len() > 500 => {
                let count = writes.len();
                writes.truncate(500);
                let mut revisions = self.inner.write(bucket, writes).await?;
                revisions.resize(count, None);
                return Ok(revisions);
            }
            Defect::WriteOver8Mib => {
                let bytes: usize = writes.iter().map(KeyValueWrite::size_bytes).sum();
                if bytes > 8 << 20 {
                    let message = "the store accepts 8 MiB";
                    return Err(Error::new(ErrorKind::ResourceExhausted, "key_value.write", message));
                }
            }
            Defect::WriteGenerationIgnored => {
                for write in &mut writes {
                    match &mut write.kind {
                        KeyValueWriteKind::Delete { at } => *at = at.map(number),
                        KeyValueWriteKind::Put { options, .. } => {
                            if let KeyValueCondition::AtRevision(at) = options.condition {
                                options.condition = KeyValueCondition::AtRevision(number(at));
                            }
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        self.inner.write(bucket, writes).await
    }

    async fn delete_prefix_wrongly(&self, bucket: &BucketName, prefix: &str) -> Result<PrefixDeletion> {
        larder_kernel::storage::key_value::check_list("key_value.delete_prefix", prefix, None)?;
        match self.defect {
            Defect::PrefixUnlimited => {
                Ok(PrefixDeletion::new(self.inner.delete_all(bucket, prefix).await?, false))
            }
            Defect::PrefixWithoutMore => {
                let deletion = self.inner.delete_prefix(bucket, prefix).await?;
                Ok(PrefixDeletion::new(deletion.deleted, false))
            }
            Defect::PrefixReversed => {
                let page = PageRequest::first(BATCH_KEYS_MAX);
                let found = self.inner.list(bucket, prefix, page).await?;
                let delete =
                    |item: &larder_kernel::KeyRevision| KeyValueWrite::delete(item.key.clone(), None);
                let writes: Vec<KeyValueWrite> = found.items.iter().rev().map(delete).collect();
                if !writes.is_empty() {
                    self.inner.write(bucket, writes).await?;
                }
                let deleted = larder_kernel::check::size(found.items.len());
                Ok(PrefixDeletion::new(deleted, found.next.is_some()))
            }
            Defect::PrefixFolded => {
                let mut deleted = PrefixDeletion::default();
                let folded = prefix.to_lowercase();
                for item in self.inner.list(bucket, "", PageRequest::default()).await?.items {
                    if item.key.as_str().to_lowercase().starts_with(&folded) {
                        self.inner.delete(bucket, &item.key, None).await?;
                        deleted.deleted += 1;
                    }
                }
                Ok(deleted)
            }
            _ => self.inner.delete_prefix(bucket, prefix).await,
        }
    }

    async fn list_entries_wrongly(
        &self,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyValueItem, Key>> {
        let (mut query, limit) = (query.clone(), page.limit);
        match (self.defect, query.to.take()) {
            (Defect::EndIncluded, Some(to)) => {
                // The next text after a key.
                query.to = Some(Key::new(format!("{to}\u{1}")).unwrap_or(to));
            }
            (_, to) => query.to = to,
        }
        if self.defect == Defect::NeverReversed {
            query.order = KeyOrder::Ascending;
        }
        let mut found = self.inner.list_entries(bucket, &query, page.clone()).await?;
        match self.defect {
            Defect::ExpiryLeftOut => found.items.iter_mut().for_each(|item| item.expires_at = None),
            Defect::ReversedRepeatsCursor if query.order == KeyOrder::Descending && limit > 1 => {
                if let Some(after) = page.after
                    && let Some(entry) = self.inner.get(bucket, &after).await?
                {
                    let value = query.values.then_some(entry.value);
                    found.items.insert(0, KeyValueItem::new(after, entry.revision).with_value(value));
                    if found.items.len() > limit {
                        found.items.pop();
                        found.next = found.items.last().map(|item| item.key.clone());
                    }
                }
            }
            Defect::PageWithoutLimit => {
                while let Some(next) = found.next.clone() {
                    if found.items.len() >= limit {
                        break;
                    }
                    let rest = PageRequest::after(next, limit - found.items.len());
                    let more = self.inner.list_entries(bucket, &query, rest).await?;
                    found.items.extend(more.items);
                    found.next = more.next;
                }
            }
            Defect::EntriesOneByOne if query.values => {
                let mut items = Vec::new();
                for item in found.items {
                    tokio::task::yield_now().await;
                    if let Some(entry) = self.inner.get(bucket, &item.key).await? {
                        let item = KeyValueItem::new(item.key, entry.revision);
                        items.push(item.with_expires_at(entry.expires_at).with_value(Some(entry.value)));
                    }
                }
                found.items = items;
            }
            _ => {}
        }
        Ok(found)
    }

    async fn erase_wrongly(&self) -> Result<()> {
        self.inner.erase().await
    }
}
