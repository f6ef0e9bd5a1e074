//! Blob stores that are wrong.

mod parts;
mod renames;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, future, stream};
use larder_agents::storage::InMemoryBlobStore;
use larder_kernel::limits::BLOB_SHORT_KEY_BYTES_MAX;
use larder_kernel::{
    BlobBody, BlobCondition, BlobEntries, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead,
    BlobStore, BlobVersionId, BlobVersions, ByteRange, Capabilities, Capability, ETag, Error, ErrorKind,
    PresignMethod, PresignRequest, PresignedUrl, RenameMode, Result,
};

use super::serve::{SharedState, serve};
use crate::harness::{Harness, StoreSet};

defects! { Blobs;
    presign_ignores_the_method: PresignIgnoresMethod => ["BLOB-050"],
    presign_signs_for_an_hour_always: PresignIgnoresValidity => ["BLOB-050"],
    create_only_overwrites: CreateOnlyOverwrites => ["BLOB-007", "BLOB-008"],
    a_lost_creation_has_another_error: LostCreationExists => ["BLOB-007", "BLOB-008"],
    matches_replaces_any_version: MatchesAnything => ["BLOB-010", "BLOB-011"],
    a_range_ends_one_byte_late: RangeEndOffByOne => ["BLOB-021", "BLOB-024"],
    a_long_suffix_is_refused: LongSuffixRefused => ["BLOB-023"],
    a_listing_stops_at_a_slash: ListStopsAtSlash => ["BLOB-030"],
    a_listing_includes_after: AfterIsIncluded => ["BLOB-032"],
    overwriting_keeps_the_old_metadata: MetadataMerged => ["BLOB-003"],
    an_empty_piece_ends_a_stream: EmptyPieceEnds => ["BLOB-005"],
    a_failed_stream_is_stored_as_far_as_it_came: FailedStreamStored => ["BLOB-006"],
    the_etag_is_the_size: ETagIsSize => ["BLOB-012"],
    a_copy_drops_the_metadata: CopyDropsMetadata => ["BLOB-036"],
    deleting_takes_longer_keys_too: DeletesPrefix => ["BLOB-042"],
    deleting_nothing_is_not_found: DeletingNothingFails => ["BLOB-041", "BLOB-043"],
    reading_nothing_is_empty: NothingReadsEmpty => ["BLOB-020"],
    a_failed_stream_leaves_its_parts: PartsLeft => ["BLOB-006"],
    parts_are_listed_while_a_stream_runs: PartsListed => ["BLOB-034"],
    parts_outlive_their_stream: PartsKept => ["BLOB-034"],
    conditions_are_undeclared_but_obeyed: ConditionsUndeclared => ["BLOB-013"],
    signed_writes_are_undeclared_but_given: SignedWritesUndeclared => ["BLOB-051"],
    signed_reads_are_declared_but_unsupported: SignedReadsMissing => ["BLOB-050", "BLOB-052"],
    a_locator_names_another_key: LocatorWrong => ["BLOB-052"],
    a_blob_is_written_piece_by_piece: PieceByPiece => ["BLOB-004"],
    bytes_over_64_kib_are_dropped: LargeBytesDropped => ["BLOB-001"],
    a_listing_is_out_of_order: ListedBackwards => ["BLOB-031"],
    long_keys_are_undeclared_but_kept: LongKeysKept => ["BLOB-018"],
    long_keys_are_refused_once_they_are_written: LongKeysRefusedLate => ["BLOB-018"],
    reading_a_long_key_is_unsupported: LongKeysUnreadable => ["BLOB-028"],
    long_keys_are_declared_but_refused: LongKeysRefused => ["BLOB-017", "BLOB-018"],
    short_keys_are_refused_too: ShortKeysRefused => ["BLOB-016"],
    renames_are_undeclared_but_made: RenamesUndeclared => ["BLOB-068"],
    versions_are_undeclared_but_kept: VersionsUndeclared => ["BLOB-077"],
    versions_are_declared_but_unsupported: VersionsMissing => ["BLOB-070", "BLOB-077"],
    renames_are_declared_but_unsupported: RenamesMissing => ["BLOB-060", "BLOB-068"],
    a_rename_drops_the_metadata: RenameDropsMetadata => ["BLOB-060"],
    a_rename_leaves_the_source: RenameLeavesSource => ["BLOB-060"],
    a_renamed_blob_has_another_etag: RenameTagsAgain => ["BLOB-061"],
    a_rename_always_replaces: RenameReplaces => ["BLOB-062", "BLOB-067"],
    a_rename_never_replaces: RenameRefuses => ["BLOB-063", "BLOB-065"],
    renaming_onto_itself_deletes_the_blob: RenameOntoItselfDeletes => ["BLOB-063"],
    renaming_nothing_deletes_the_target: RenameOfNothingDeletes => ["BLOB-064"],
}

fn backend(defect: Defect) -> Arc<dyn Harness> {
    serve(defect.opening(), move |shared, namespace, _| {
        let inner = InMemoryBlobStore::open(&shared.place, namespace);
        StoreSet::default().with_blobs(Arc::new(Wrong { inner, defect, shared }))
    })
}

struct Wrong {
    inner: InMemoryBlobStore,
    defect: Defect,
    shared: SharedState,
}

forward_store!(Wrong, InMemoryBlobStore, |store: &Wrong, mut declared: Capabilities| {
    if store.refuses_long_keys() || store.defect == Defect::LongKeysKept {
        declared.optional.remove(&Capability::BlobLongKeys);
    }
    match store.defect {
        Defect::ConditionsUndeclared => {
            declared.optional.remove(&Capability::BlobCreateOnly);
            declared.optional.remove(&Capability::BlobIfMatch);
        }
        Defect::SignedWritesUndeclared => {
            declared.optional.remove(&Capability::BlobPresignPut);
        }
        Defect::RenamesUndeclared => {
            declared.optional.remove(&Capability::BlobRename);
        }
        Defect::VersionsUndeclared => {
            declared.optional.remove(&Capability::BlobVersions);
        }
        _ => {}
    }
    declared
});

impl Wrong {
    /// Returns `true` if the defect belongs to a store that keeps no long keys and declares that.
    fn refuses_long_keys(&self) -> bool {
        matches!(
            self.defect,
            Defect::LongKeysRefusedLate | Defect::LongKeysUnreadable | Defect::ShortKeysRefused
        )
    }

    /// Rejects keys that such a store does not keep.
    fn check_kept(&self, operation: &'static str, key: &BlobKey) -> Result<()> {
        let limit = match self.defect {
            Defect::LongKeysRefusedLate | Defect::LongKeysUnreadable | Defect::LongKeysRefused => {
                BLOB_SHORT_KEY_BYTES_MAX
            }
            Defect::ShortKeysRefused => BLOB_SHORT_KEY_BYTES_MAX - 1,
            _ => return Ok(()),
        };
        if key.as_str().len() <= limit {
            return Ok(());
        }
        Err(Error::unsupported(operation, Capability::BlobLongKeys).with_field("key"))
    }

    async fn holds_nothing(&self) -> Result<bool> {
        Ok(self.inner.list("", None).await?.next().await.is_none())
    }

    /// Returns the key that the store keeps, which is still a valid key.
    fn key(&self, key: &BlobKey) -> Result<BlobKey> {
        let kept = self.kept(key.as_str());
        if kept == key.as_str() {
            return Ok(key.clone());
        }
        let whole =
            |part: &str| if matches!(part, "" | "." | "..") { "_".to_owned() } else { part.to_owned() };
        BlobKey::new(kept.split('/').map(whole).collect::<Vec<_>>().join("/"))
    }

    fn info(&self, mut info: BlobInfo) -> Result<BlobInfo> {
        if self.defect == Defect::ETagIsSize {
            info.etag = ETag::new(info.size.to_string())?;
        }
        Ok(info)
    }

    fn body(&self, body: BlobBody) -> BlobBody {
        match (self.defect, body) {
            (Defect::EmptyPieceEnds, BlobBody::Stream(pieces)) => BlobBody::stream(
                pieces.take_while(|piece| future::ready(!piece.as_ref().is_ok_and(Bytes::is_empty))),
            ),
            (Defect::FailedStreamStored, BlobBody::Stream(pieces)) => {
                BlobBody::stream(pieces.take_while(|piece| future::ready(piece.is_ok())))
            }
            (_, body) => body,
        }
    }

    async fn write_options(&self, key: &BlobKey, mut options: BlobPutOptions) -> BlobPutOptions {
        match (self.defect, &options.condition) {
            (Defect::CreateOnlyOverwrites, BlobCondition::Absent)
            | (Defect::MatchesAnything, BlobCondition::Matches(_)) => options.condition = BlobCondition::None,
            // The inner store has no size as a version: the condition holds if the sizes are equal.
            (Defect::ETagIsSize, BlobCondition::Matches(etag)) => {
                if let Ok(there) = self.inner.head(key).await
                    && there.size.to_string() == etag.as_str()
                {
                    options.condition = BlobCondition::Matches(there.etag);
                }
            }
            (Defect::MetadataMerged, _) => {
                if let Ok(there) = self.inner.head(key).await {
                    options.metadata = there.metadata.into_iter().chain(options.metadata).collect();
                }
            }
            _ => {}
        }
        options
    }
}

impl Wrong {
    async fn put_whole(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        let creates = options.condition == BlobCondition::Absent;
        let put = self.inner.put(key, self.body(body), options).await;
        if self.defect == Defect::LostCreationExists
            && creates
            && put.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict)
        {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "blobs.put",
                "a blob with this key already exists; use another key or write without the condition",
            ));
        }
        if self.defect == Defect::RefusalLeavesTrace
            && put.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidInput)
        {
            self.inner.delete(key).await?;
        }
        put
    }
}

#[async_trait]
impl BlobStore for Wrong {
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        let key = self.key(key)?;
        let options = self.write_options(&key, options).await;
        if self.defect != Defect::LongKeysRefusedLate {
            self.check_kept("blobs.put", &key)?;
        }
        let info = match self.defect {
            Defect::PartsLeft
            | Defect::PartsListed
            | Defect::PartsKept
            | Defect::PieceByPiece
            | Defect::WrittenInPart => self.put_parts(&key, body, options).await?,
            Defect::LargeBytesDropped => {
                let bytes = parts::gather(body).await?;
                let kept = if bytes.len() > 64 << 10 { Bytes::new() } else { bytes };
                self.inner.put(&key, BlobBody::Bytes(kept), options).await?
            }
            _ => self.put_whole(&key, body, options).await?,
        };
        self.check_kept("blobs.put", &key)?;
        self.info(info)
    }

    async fn get(&self, key: &BlobKey, mut options: BlobGetOptions) -> Result<BlobRead> {
        let key = self.key(key)?;
        if self.defect == Defect::LongKeysUnreadable {
            self.check_kept("blobs.get", &key)?;
        }
        match (self.defect, &mut options.range) {
            (Defect::RangeEndOffByOne, Some(ByteRange::Bounded { end, .. })) => *end = end.saturating_add(1),
            (Defect::LongSuffixRefused, Some(ByteRange::Suffix(count))) => {
                let size = self.inner.head(&key).await?.size;
                ByteRange::From(size.checked_sub(*count).unwrap_or(size)).resolve(size)?;
            }
            _ => {}
        }
        let mut read = match self.inner.get(&key, options).await {
            Err(error) if self.defect == Defect::NothingReadsEmpty && error.kind() == ErrorKind::NotFound => {
                self.inner.put(&key, BlobBody::from(""), BlobPutOptions::default()).await?;
                let read = self.inner.get(&key, BlobGetOptions::default()).await;
                self.inner.delete(&key).await?;
                read?
            }
            answer => answer?,
        };
        read.info = self.info(read.info)?;
        Ok(read)
    }

    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        let head = self.inner.head(&self.key(key)?).await;
        self.info(self.quoting(head, key.as_str())?)
    }

    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        let entries = self.inner.list(prefix, after).await?;
        Ok(match self.defect {
            Defect::ListStopsAtSlash => {
                let len = prefix.len();
                entries
                    .try_filter(move |entry| future::ready(!entry.key.as_str()[len..].contains('/')))
                    .boxed()
            }
            Defect::ListedBackwards => {
                let mut all: Vec<_> = entries.try_collect().await?;
                all.reverse();
                stream::iter(all.into_iter().map(Ok)).boxed()
            }
            Defect::AfterIsIncluded => {
                let Some(after) = after.filter(|after| after.as_str().starts_with(prefix)) else {
                    return Ok(entries);
                };
                let all = self.inner.list(prefix, None).await?;
                let after = after.clone();
                all.try_filter(move |entry| future::ready(entry.key >= after)).boxed()
            }
            Defect::ETagIsSize => entries
                .map(|entry| {
                    let mut entry = entry?;
                    entry.etag = ETag::new(entry.size.to_string())?;
                    Ok(entry)
                })
                .boxed(),
            _ => entries,
        })
    }

    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        let (source, target) = (self.key(source)?, self.key(target)?);
        self.check_kept("blobs.copy", &target)?;
        if self.defect == Defect::CopyDropsMetadata && source != target {
            let read = self.inner.get(&source, BlobGetOptions::default()).await?;
            return self.inner.put(&target, BlobBody::Stream(read.bytes), BlobPutOptions::default()).await;
        }
        self.info(self.inner.copy(&source, &target).await?)
    }

    async fn rename(&self, source: &BlobKey, target: &BlobKey, mode: RenameMode) -> Result<BlobInfo> {
        let (source, target) = (self.key(source)?, self.key(target)?);
        self.check_kept("blobs.rename", &target)?;
        self.info(self.rename_wrongly(&source, &target, mode).await?)
    }

    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        let key = self.key(key)?;
        match self.defect {
            Defect::DeletesPrefix => {
                let there = self.inner.delete(&key).await?;
                let longer: Vec<_> = self.inner.list(key.as_str(), None).await?.try_collect().await?;
                for entry in longer {
                    self.inner.delete(&entry.key).await?;
                }
                Ok(there)
            }
            Defect::DeletingNothingFails => {
                self.inner.head(&key).await?;
                self.inner.delete(&key).await
            }
            _ => self.inner.delete(&key).await,
        }
    }

    async fn list_versions(&self, key: &BlobKey) -> Result<BlobVersions> {
        if self.defect == Defect::VersionsMissing {
            return Err(Error::unsupported("blobs.list_versions", Capability::BlobVersions));
        }
        self.inner.list_versions(&self.key(key)?).await
    }

    async fn get_version(
        &self,
        key: &BlobKey,
        version: &BlobVersionId,
        options: BlobGetOptions,
    ) -> Result<BlobRead> {
        self.inner.get_version(&self.key(key)?, version, options).await
    }

    async fn delete_version(&self, key: &BlobKey, version: &BlobVersionId) -> Result<bool> {
        self.inner.delete_version(&self.key(key)?, version).await
    }

    async fn presign(&self, key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        self.check_kept("blobs.presign", key)?;
        if self.defect == Defect::SignedReadsMissing && request.method == PresignMethod::Get {
            return Err(Error::unsupported("blobs.presign", Capability::BlobPresignGet));
        }
        let mut url = self.inner.presign(&self.key(key)?, request).await?;
        match self.defect {
            Defect::LocatorWrong => url.url.push('x'),
            Defect::PresignIgnoresMethod => url.method = PresignMethod::Get,
            Defect::PresignIgnoresValidity => {
                let mut hour = request.clone();
                hour.valid_for = HOUR;
                url = self.inner.presign(&self.key(key)?, &hour).await?;
            }
            _ => {}
        }
        Ok(url)
    }
}

const HOUR: std::time::Duration = std::time::Duration::from_secs(3_600);
