//! A dump of all readable data, and sample data.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{
    BlobBody, BlobEntry, BlobInfo, BlobKey, BlobPutOptions, BlobStore, BlobStoreExt, Error, ErrorKind,
};
use serde_json::{Value, json};

use super::key;
use crate::case::{CaseResult, implemented};
use crate::suites::known;

/// Reads all data of the namespace that the public API shows. For a blob that is deleted after it was listed,
/// only the entry.
pub(crate) async fn dump(store: &dyn BlobStore) -> CaseResult<Value> {
    let Some(entries) = implemented(store.list("", None).await)? else { return known_blobs(store).await };
    let entries: Vec<BlobEntry> = entries.try_collect().await?;
    let mut all = Vec::new();
    for entry in entries {
        all.push(match content(store, &entry.key).await? {
            Some((info, bytes)) => json!({ "entry": entry, "info": info, "bytes": bytes }),
            None => json!({ "entry": entry }),
        });
    }
    Ok(Value::Array(all))
}

/// Returns the information and the bytes of a blob that exists. The information is missing if the store does
/// not implement `head` yet.
async fn content(store: &dyn BlobStore, key: &BlobKey) -> CaseResult<Option<(Option<BlobInfo>, Vec<u8>)>> {
    let (info, bytes) = (store.head(key).await, store.get_bytes(key).await);
    let gone = |error: &Error| error.kind() == ErrorKind::NotFound;
    if info.as_ref().is_err_and(gone) || bytes.as_ref().is_err_and(gone) {
        return Ok(None);
    }
    Ok(Some((implemented(info)?, bytes?.to_vec())))
}

/// Reads the blobs that the suite writes, from a store that cannot list them yet.
async fn known_blobs(store: &dyn BlobStore) -> CaseResult<Value> {
    let mut names: Vec<String> = ["a", "a/b", "z", "a/their", "their"].map(str::to_owned).into();
    names.extend(known::marked(|marker| NAMES.map(|name| format!("{marker}/{name}"))).flatten());
    let mut all = Vec::new();
    for name in names {
        if let Some((info, bytes)) = content(store, &key(&name)?).await? {
            all.push(json!({ "key": name, "info": info, "bytes": bytes }));
        }
    }
    Ok(Value::Array(all))
}

/// The blobs of a marker.
const NAMES: [&str; 3] = ["plain", "plain/below", "other"];

/// Writes a few blobs whose keys, bytes and metadata contain the marker.
pub(crate) async fn populate(store: &dyn BlobStore, marker: &str) -> CaseResult {
    for name in NAMES {
        let body = Bytes::from(format!("bytes of {name} {marker}"));
        let options = BlobPutOptions::default()
            .with_content_type(format!("text/x-{marker}"))
            .with_metadata("marker", marker);
        store.put(&key(&format!("{marker}/{name}"))?, BlobBody::Bytes(body), options).await?;
    }
    Ok(())
}
