//! Faulty blob stores.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_agents::storage::InMemoryBlobStore;
use larder_conformance::{Harness, StoreSet};
use larder_kernel::{
    BlobBody, BlobCondition, BlobEntries, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead, Error,
    ErrorKind, PresignRequest, PresignedUrl, RenameMode, Result,
};

use super::frame::{assert_caught, assert_explained, pause, serve};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// Checks that the blob exists, waits, and writes.
    TwoCreators,
    /// Compares the tag, waits, and writes.
    MatchesLater,
    /// Reads the blob's metadata, waits, and reads its bytes.
    TagOfAnother,
    /// Deletes the existing blob before it writes.
    DeletesFirst,
    /// Writes the first half, waits, and writes all.
    HalfSeen,
    /// Acknowledges a deletion before it happens.
    DeletesLater,
    /// Copies the blob, waits, and deletes the original.
    RenamesInSteps,
}

fn backend(defect: Defect) -> Arc<dyn Harness> {
    serve(move |place, namespace, _| {
        let wrong = Wrong { inner: Arc::new(InMemoryBlobStore::open(place, namespace)), defect };
        StoreSet::default().with_blobs(Arc::new(wrong))
    })
}

#[derive(Debug)]
struct Wrong {
    inner: Arc<InMemoryBlobStore>,
    defect: Defect,
}

fn refused(kind: ErrorKind) -> Error {
    Error::new(kind, "blobs.put", "the condition does not hold")
}

wrong! {
    BlobStore for Wrong {
        async fn put(&self, key: &BlobKey, body: BlobBody, mut options: BlobPutOptions) -> Result<BlobInfo> {
            let there = self.inner.head(key).await.ok();
            match (self.defect, &options.condition) {
                (Defect::TwoCreators, BlobCondition::Absent) => {
                    if there.is_some() {
                        return Err(refused(ErrorKind::Conflict));
                    }
                    pause().await;
                    options.condition = BlobCondition::None;
                }
                (Defect::MatchesLater, BlobCondition::Matches(etag)) => {
                    if there.map(|there| there.etag).as_ref() != Some(etag) {
                        return Err(refused(ErrorKind::Conflict));
                    }
                    pause().await;
                    options.condition = BlobCondition::None;
                }
                (Defect::DeletesFirst, BlobCondition::None) => {
                    self.inner.delete(key).await?;
                    pause().await;
                }
                (Defect::HalfSeen, BlobCondition::None) => {
                    let pieces: Vec<Bytes> = body.into_stream().try_collect().await?;
                    let whole = Bytes::from(pieces.concat());
                    let half = whole.slice(..whole.len() / 2);
                    self.inner.put(key, BlobBody::Bytes(half), BlobPutOptions::default()).await?;
                    pause().await;
                    return self.inner.put(key, BlobBody::Bytes(whole), options).await;
                }
                _ => {}
            }
            self.inner.put(key, body, options).await
        }

        async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
            if self.defect == Defect::TagOfAnother {
                let info = self.inner.head(key).await?;
                pause().await;
                let mut read = self.inner.get(key, options).await?;
                read.info = info;
                return Ok(read);
            }
            self.inner.get(key, options).await
        }

        async fn delete(&self, key: &BlobKey) -> Result<bool> {
            if self.defect == Defect::DeletesLater {
                let there = self.inner.head(key).await.is_ok();
                let (inner, key) = (Arc::clone(&self.inner), key.clone());
                tokio::spawn(async move {
                    pause().await;
                    inner.delete(&key).await
                });
                return Ok(there);
            }
            self.inner.delete(key).await
        }

        async fn rename(&self, source: &BlobKey, target: &BlobKey, mode: RenameMode) -> Result<BlobInfo> {
            if self.defect == Defect::RenamesInSteps {
                let renamed = self.inner.rename(source, target, mode).await?;
                self.inner.copy(target, source).await?;
                pause().await;
                self.inner.delete(source).await?;
                return Ok(renamed);
            }
            self.inner.rename(source, target, mode).await
        }
    }
    head(key: &BlobKey) -> BlobInfo;
    list(prefix: &str, after: Option<&BlobKey>) -> BlobEntries;
    copy(source: &BlobKey, target: &BlobKey) -> BlobInfo;
    presign(key: &BlobKey, request: &PresignRequest) -> PresignedUrl;
}

#[test]
fn the_control_is_explained() {
    assert_explained(&backend(Defect::None));
}

#[test]
fn a_creation_that_looks_first_and_writes_later_is_caught() {
    assert_caught(&["BLOB-008", "STORE-002"], &backend(Defect::TwoCreators));
}

#[test]
fn an_update_that_compares_first_and_writes_later_is_caught() {
    assert_caught(&["BLOB-009", "BLOB-011", "STORE-002"], &backend(Defect::MatchesLater));
}

#[test]
fn bytes_under_the_tag_of_another_write_are_caught() {
    assert_caught(&["BLOB-004", "STORE-002"], &backend(Defect::TagOfAnother));
}

#[test]
fn a_blob_that_is_missing_during_its_replacement_is_caught() {
    let clauses = ["STORE-002", "BLOB-007", "BLOB-008", "BLOB-009", "BLOB-041"];
    assert_caught(&clauses, &backend(Defect::DeletesFirst));
}

#[test]
fn a_part_of_a_blob_is_caught() {
    assert_caught(&["BLOB-004", "STORE-002", "BLOB-009", "BLOB-011"], &backend(Defect::HalfSeen));
}

#[test]
fn a_deletion_that_is_acknowledged_before_it_happens_is_caught() {
    let clauses = ["STORE-002", "BLOB-007", "BLOB-008", "BLOB-009", "BLOB-011", "BLOB-040", "BLOB-041"];
    assert_caught(&clauses, &backend(Defect::DeletesLater));
}

#[test]
fn a_rename_that_copies_and_then_deletes_is_caught() {
    let clauses = [
        "STORE-002",
        "BLOB-004",
        "BLOB-007",
        "BLOB-008",
        "BLOB-009",
        "BLOB-011",
        "BLOB-015",
        "BLOB-040",
        "BLOB-041",
        "BLOB-062",
        "BLOB-064",
        "BLOB-065",
    ];
    assert_caught(&clauses, &backend(Defect::RenamesInSteps));
}
