//! A dump of all readable data, and sample data.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{BlobBody, BlobEntry, BlobPutOptions, BlobStore, BlobStoreExt, Error, ErrorKind};
use serde_json::{Value, json};

use super::key;
use crate::case::CaseResult;

/// Reads all data of the namespace that the public API shows. For a blob that is deleted after it was listed,
/// only the entry.
pub(crate) async fn dump(store: &dyn BlobStore) -> CaseResult<Value> {
    let entries: Vec<BlobEntry> = store.list("", None).await?.try_collect().await?;
    let mut all = Vec::new();
    for entry in entries {
        let (info, bytes) = (store.head(&entry.key).await, store.get_bytes(&entry.key).await);
        let gone = |error: &Error| error.kind() == ErrorKind::NotFound;
        if info.as_ref().is_err_and(gone) || bytes.as_ref().is_err_and(gone) {
            all.push(json!({ "entry": entry }));
            continue;
        }
        all.push(json!({ "entry": entry, "info": info?, "bytes": bytes?.to_vec() }));
    }
    Ok(Value::Array(all))
}

/// Writes a few blobs whose keys, bytes and metadata contain the marker.
pub(crate) async fn populate(store: &dyn BlobStore, marker: &str) -> CaseResult {
    for name in ["plain", "plain/below", "other"] {
        let body = Bytes::from(format!("bytes of {name} {marker}"));
        let options = BlobPutOptions::default()
            .with_content_type(format!("text/x-{marker}"))
            .with_metadata("marker", marker);
        store.put(&key(&format!("{marker}/{name}"))?, BlobBody::Bytes(body), options).await?;
    }
    Ok(())
}
