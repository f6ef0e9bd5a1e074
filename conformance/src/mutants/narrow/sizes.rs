//! Blob stores that are wrong at the sizes of their buffers and parts.

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use larder_agents::storage::InMemoryBlobStore;
use larder_kernel::{
    BlobBody, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead, BlobStore, BlobStoreExt,
    ByteRange, Result, Store,
};

macro_rules! wrong {
    ($self:ident $contract:ident put($key:ident, $body:ident, $options:ident)) => {
        $self.put_wrongly($key, $body, $options).await
    };
    ($self:ident $contract:ident get($key:ident, $options:ident)) => {
        $self.get_wrongly($key, $options).await
    };
    ($self:ident $contract:ident copy($source:ident, $target:ident)) => {
        $self.copy_wrongly($source, $target).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { Blobs BlobStore over InMemoryBlobStore with with_blobs, wrong;
    bytes_of_64_kib_are_dropped: BufferDropped => ["BLOB-001"],
    the_last_byte_behind_a_full_part_is_lost: LastByteLost => ["BLOB-005"],
    a_stream_over_16_mib_is_cut: StreamCut => ["BLOB-005"],
    a_range_ends_at_1_mib: RangeCut => ["BLOB-021"],
    a_long_suffix_begins_a_byte_late: SuffixLate => ["BLOB-023"],
    a_copy_ends_at_16_mib: CopyCut => ["BLOB-036"],
    a_copy_onto_itself_ends_at_8_mib: OwnCopyCut => ["BLOB-039"],
}

const PART: usize = 8 << 20;

#[derive(Debug)]
struct Wrong {
    inner: InMemoryBlobStore,
    defect: Defect,
}

async fn gather(body: BlobBody) -> Result<Bytes> {
    let whole = body.into_stream().try_fold(BytesMut::new(), |mut whole, piece| async move {
        whole.extend_from_slice(&piece);
        Ok(whole)
    });
    Ok(whole.await?.freeze())
}

impl Wrong {
    fn new(inner: InMemoryBlobStore, defect: Defect) -> Self {
        Self { inner, defect }
    }

    async fn put_wrongly(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        let streamed = matches!(body, BlobBody::Stream(_));
        if !streamed && self.defect != Defect::BufferDropped {
            return self.inner.put(key, body, options).await;
        }
        let mut bytes = gather(body).await?;
        let size = bytes.len();
        match self.defect {
            Defect::BufferDropped if size == 64 << 10 => bytes.clear(),
            Defect::LastByteLost if size > PART && size % PART == 1 => bytes.truncate(size - 1),
            Defect::StreamCut => bytes.truncate(16 << 20),
            _ => {}
        }
        let mut info = self.inner.put(key, BlobBody::Bytes(bytes), options).await?;
        info.size = u64::try_from(size).unwrap_or(u64::MAX);
        Ok(info)
    }

    async fn get_wrongly(&self, key: &BlobKey, mut options: BlobGetOptions) -> Result<BlobRead> {
        const EDGE: u64 = 1 << 20;
        match (self.defect, &mut options.range) {
            (Defect::RangeCut, Some(ByteRange::Bounded { start, end })) if *start < EDGE && *end > EDGE => {
                *end = EDGE;
            }
            (Defect::SuffixLate, Some(ByteRange::Suffix(count))) if *count > EDGE => *count -= 1,
            _ => {}
        }
        self.inner.get(key, options).await
    }

    async fn copy_wrongly(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        let limit = match self.defect {
            Defect::CopyCut if source != target => 16 << 20,
            Defect::OwnCopyCut if source == target => PART,
            _ => return self.inner.copy(source, target).await,
        };
        let mut copied = self.inner.copy(source, target).await?;
        let bytes = self.inner.get_bytes(target).await?;
        if bytes.len() > limit {
            let options = BlobPutOptions::default().with_all_metadata(copied.metadata.clone());
            copied.etag = self.inner.put(target, BlobBody::Bytes(bytes.slice(..limit)), options).await?.etag;
        }
        Ok(copied)
    }

    async fn erase_wrongly(&self) -> Result<()> {
        self.inner.erase().await
    }
}
