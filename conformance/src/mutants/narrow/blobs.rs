//! Blob stores with a narrow defect.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use larder_agents::storage::InMemoryBlobStore;
use larder_kernel::{
    BlobBody, BlobCondition, BlobEntries, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead,
    BlobStore, ETag, Error, ErrorKind, PresignRequest, PresignedUrl, Result, Store, Timestamp,
};

use super::{panicking, unavailable};

macro_rules! wrong {
    ($self:ident $contract:ident put($key:ident, $body:ident, $options:ident)) => {
        $self.put_wrongly($key, $body, $options).await
    };
    ($self:ident $contract:ident get($key:ident, $options:ident)) => {
        $self.get_wrongly($key, $options).await
    };
    ($self:ident $contract:ident head($key:ident)) => {
        $self.head_wrongly($key).await
    };
    ($self:ident $contract:ident list($prefix:ident, $after:ident)) => {
        $self.list_wrongly($prefix, $after).await
    };
    ($self:ident $contract:ident copy($source:ident, $target:ident)) => {
        $self.copy_wrongly($source, $target).await
    };
    ($self:ident $contract:ident presign($key:ident, $request:ident)) => {
        $self.presign_wrongly($key, $request).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { Blobs BlobStore over InMemoryBlobStore with with_blobs, wrong;
    content_types_are_lowered: ContentTypesLowered => ["BLOB-002"],
    names_of_metadata_lose_underscores: UnderscoresLost => ["BLOB-002"],
    a_head_has_another_etag: HeadTagged => ["BLOB-026"],
    a_listing_has_other_etags: ListTagged => ["BLOB-035"],
    etags_match_weakly: WeakMatch => ["BLOB-010"],
    lists_of_etags_match: ListMatch => ["BLOB-010"],
    a_star_matches_every_etag: StarMatch => ["BLOB-010"],
    modified_at_is_the_first_write: FirstWrite => ["BLOB-053"],
    modified_at_is_1970: Epoch => ["BLOB-053"],
    signed_writes_have_no_headers: HeadersMissing => ["BLOB-054"],
    signed_reads_have_a_content_type: ReadsTyped => ["BLOB-054"],
    a_prefix_hides_after: PrefixHidesAfter => ["BLOB-032"],
    matching_a_missing_blob_creates_it: MatchesCreates => ["BLOB-010"],
    creating_overwrites_empty_blobs: EmptyOverwritten => ["BLOB-007"],
    copying_a_missing_blob_onto_itself_creates_it: CopyCreates => ["BLOB-020"],
    a_read_of_a_deleted_blob_is_unavailable: ReadUnavailable => ["BLOB-025"],
    a_lost_write_is_unavailable: WriteUnavailable => ["BLOB-007", "BLOB-010"],
    a_lost_creation_panics: CreationPanics => ["BLOB-008"],
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryBlobStore,
    defect: Defect,
    /// The times of the first writes.
    first: Mutex<BTreeMap<BlobKey, Timestamp>>,
}

impl Wrong {
    fn new(inner: InMemoryBlobStore, defect: Defect) -> Self {
        Self { inner, defect, first: Mutex::default() }
    }

    fn info(&self, mut info: BlobInfo) -> BlobInfo {
        match self.defect {
            Defect::FirstWrite => {
                let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
                info.modified_at = *first.entry(info.key.clone()).or_insert(info.modified_at);
            }
            Defect::Epoch => info.modified_at = Timestamp::from_micros(0).unwrap_or(info.modified_at),
            _ => {}
        }
        info
    }

    /// Returns `true` if the store takes the tag for that of the blob.
    fn matches(&self, asked: &ETag, current: &ETag) -> bool {
        let bare = |tag: &str| tag.trim_start_matches("W/").trim_matches('"').to_owned();
        match self.defect {
            Defect::WeakMatch => bare(asked.as_str()) == bare(current.as_str()),
            Defect::ListMatch => asked.as_str().split(',').any(|tag| bare(tag) == bare(current.as_str())),
            Defect::StarMatch => asked.as_str() == "*",
            _ => false,
        }
    }

    async fn condition(&self, key: &BlobKey, condition: BlobCondition) -> Result<BlobCondition> {
        let head = self.inner.head(key).await;
        Ok(match (condition, head) {
            (BlobCondition::Matches(asked), Ok(there)) if self.matches(&asked, &there.etag) => {
                BlobCondition::Matches(there.etag)
            }
            (BlobCondition::Matches(_), Err(_)) if self.defect == Defect::MatchesCreates => {
                BlobCondition::Absent
            }
            (BlobCondition::Absent, Ok(there))
                if self.defect == Defect::EmptyOverwritten && there.size == 0 =>
            {
                BlobCondition::None
            }
            (condition, _) => condition,
        })
    }

    async fn put_wrongly(
        &self,
        key: &BlobKey,
        body: BlobBody,
        mut options: BlobPutOptions,
    ) -> Result<BlobInfo> {
        let creates = options.condition == BlobCondition::Absent;
        options.condition = self.condition(key, options.condition).await?;
        match self.defect {
            Defect::ContentTypesLowered => {
                options.content_type = options.content_type.map(|text| text.to_lowercase());
            }
            Defect::UnderscoresLost => {
                let renamed =
                    options.metadata.into_iter().map(|(name, value)| (name.replace('_', "-"), value));
                options.metadata = renamed.collect();
            }
            _ => {}
        }
        let put = self.inner.put(key, body, options).await.map(|info| self.info(info));
        match self.defect {
            Defect::WriteUnavailable => unavailable(put, ErrorKind::Conflict),
            Defect::CreationPanics if creates => panicking(put, ErrorKind::Conflict),
            _ => put,
        }
    }

    async fn get_wrongly(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        let mut read = self.inner.get(key, options).await?;
        read.info = self.info(read.info);
        if self.defect == Defect::ReadUnavailable {
            let (store, key, etag) = (self.inner.clone(), key.clone(), read.info.etag.clone());
            let end = stream::once(async move {
                let kept = store.head(&key).await.is_ok_and(|info| info.etag == etag);
                let lost = || Error::new(ErrorKind::Unavailable, "blobs.get", "the connection was lost");
                if kept { Ok(Bytes::new()) } else { Err(lost()) }
            });
            read.bytes = read.bytes.chain(end).boxed();
        }
        Ok(read)
    }

    async fn head_wrongly(&self, key: &BlobKey) -> Result<BlobInfo> {
        let mut info = self.info(self.inner.head(key).await?);
        if self.defect == Defect::HeadTagged {
            info.etag = ETag::new(format!("W/{}", info.etag))?;
        }
        Ok(info)
    }

    async fn list_wrongly(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        let after = after.filter(|_| self.defect != Defect::PrefixHidesAfter || prefix.is_empty());
        let entries = self.inner.list(prefix, after).await?;
        if self.defect != Defect::ListTagged {
            return Ok(entries);
        }
        let tagged = entries.and_then(|mut entry| async move {
            entry.etag = ETag::new(entry.etag.as_str().trim_matches('"').to_uppercase())?;
            Ok(entry)
        });
        Ok(tagged.boxed())
    }

    async fn copy_wrongly(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        if self.defect == Defect::CopyCreates && source == target && self.inner.head(source).await.is_err() {
            self.inner.put(source, BlobBody::from(""), BlobPutOptions::default()).await?;
        }
        Ok(self.info(self.inner.copy(source, target).await?))
    }

    async fn presign_wrongly(&self, key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        let mut url = self.inner.presign(key, request).await?;
        match self.defect {
            Defect::HeadersMissing => url.headers.clear(),
            Defect::ReadsTyped => {
                url.headers.insert("content-type".to_owned(), "application/octet-stream".to_owned());
            }
            _ => {}
        }
        Ok(url)
    }

    async fn erase_wrongly(&self) -> Result<()> {
        self.inner.erase().await
    }
}
