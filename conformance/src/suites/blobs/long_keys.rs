//! Long keys: the short keys that all backends keep, and the behavior for longer ones.

use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::limits::{
    BLOB_SHORT_KEY_BYTES_MAX, BLOB_SHORT_NAMESPACE_BYTES_MAX, ID_BYTES_MAX, NAMESPACE_BYTES_MAX,
};
use larder_kernel::{
    BlobEntry, BlobKey, BlobStore, BlobStoreExt, Capability, Contract, Error, ErrorKind, Namespace, Outcome,
    PresignRequest, RenameMode,
};

use super::dump::dump;
use super::hostile::are_different;
use super::{key, noise};
use crate::case::{Case, CaseResult, Failure, Level, case};
use crate::context::{Context, Handles};
use crate::expect;
use crate::harness::OpenOptions;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(Blobs, "BLOB-016", short_keys_of_all_kinds_are_kept).at_level(Level::Hostile),
        case!(Blobs, "BLOB-017", the_longest_keys_are_kept_in_the_longest_namespace)
            .at_level(Level::Hostile)
            .needing(Capability::BlobLongKeys),
        case!(Blobs, "BLOB-018", a_key_that_is_too_long_is_unsupported).at_level(Level::Hostile),
        case!(Blobs, "BLOB-028", a_key_that_is_too_long_has_no_blob).at_level(Level::Hostile),
    ]
}

/// The characters of keys whose length depends on the backend's encoding: a plain character, two that
/// encodings escape, and one of four bytes.
const FILLINGS: [&str; 4] = ["k", "\u{1}", "%", "\u{1f980}"];

/// Repeats the filling up to exactly this number of bytes.
fn filled(filling: &str, bytes: usize) -> String {
    let mut text = filling.repeat(bytes / filling.len());
    text.push_str(&"k".repeat(bytes % filling.len()));
    text
}

/// Returns two keys of each filling, of exactly this number of bytes, that differ only in the last byte.
fn keys_of(bytes: usize) -> CaseResult<Vec<BlobKey>> {
    let mut keys = Vec::new();
    for filling in FILLINGS {
        for last in ["y", "z"] {
            keys.push(BlobKey::new(format!("{}{last}", filled(filling, bytes - 1)))?);
        }
    }
    // A file system limits the length of each segment rather than of the whole key.
    keys.push(BlobKey::new(format!("{}z", filled("s/", bytes - 1)))?);
    Ok(keys)
}

/// Returns another namespace of exactly this number of bytes; the case's namespace is shorter.
fn namespace_of(context: &Context, filling: &str, bytes: usize) -> CaseResult<Namespace> {
    let missing = bytes.checked_sub(context.namespace.as_str().len()).filter(|missing| *missing > 0);
    let missing = missing.ok_or_else(|| {
        let own = context.namespace.as_str().len();
        Failure::Engine(format!("the suite's own namespace of {own} bytes leaves no room for one of {bytes}"))
    })?;
    context.sibling(&filled(filling, missing))
}

async fn open_two(context: &Context, namespace: &Namespace) -> CaseResult<Handles<dyn BlobStore>> {
    let open = async |handle| {
        let options = OpenOptions::default().with_handle(handle);
        CaseResult::Ok(context.open_with(namespace, &options).await?.blobs()?)
    };
    Ok(Handles { a: open(0).await?, b: open(1).await? })
}

async fn short_keys_of_all_kinds_are_kept(context: Context) -> CaseResult {
    let keys = keys_of(BLOB_SHORT_KEY_BYTES_MAX)?;
    for filling in FILLINGS {
        let namespace = namespace_of(&context, filling, BLOB_SHORT_NAMESPACE_BYTES_MAX)?;
        are_different(&open_two(&context, &namespace).await?, keys.clone()).await?;
    }
    Ok(())
}

async fn the_longest_keys_are_kept_in_the_longest_namespace(context: Context) -> CaseResult {
    for filling in FILLINGS {
        let namespace = namespace_of(&context, filling, NAMESPACE_BYTES_MAX)?;
        are_different(&open_two(&context, &namespace).await?, keys_of(ID_BYTES_MAX)?).await?;
    }
    let Handles { a, b } = open_two(&context, &namespace_of(&context, "\u{1}", NAMESPACE_BYTES_MAX)?).await?;
    let [source, target] = ["y", "z"].map(|last| format!("{}{last}", filled("\u{1}", ID_BYTES_MAX - 1)));
    let (source, target) = (key(&source)?, key(&target)?);
    // Large enough that some backends upload it in parts.
    let bytes = Bytes::from(noise(17 * 1024 * 1024, context.random(1)));
    a.put_bytes(&source, bytes.clone()).await?;
    b.copy(&source, &target).await?;
    let same = a.get_bytes(&target).await? == bytes;
    expect::that(same, "the copied bytes", "others")
}

/// Tries long keys in the longest of the short namespaces and in the longest possible namespace. A key that
/// the store keeps must work like any other; the store must reject every other key. If the store does not
/// keep the longest key in the longest namespace, it must not declare the capability.
async fn a_key_that_is_too_long_is_unsupported(context: Context) -> CaseResult {
    let mut refusals = 0;
    for namespace_bytes in [BLOB_SHORT_NAMESPACE_BYTES_MAX, NAMESPACE_BYTES_MAX] {
        let namespace = namespace_of(&context, "\u{1}", namespace_bytes)?;
        let store = open_two(&context, &namespace).await?;
        let marker = key("m")?;
        let marked = kept(&store, &marker).await?;
        if marked {
            store.a.put_bytes(&marker, Bytes::from_static(b"here")).await?;
        }
        let before = dump(&*store.b).await?;
        for key in longer_keys()? {
            if !kept(&store, &key).await? {
                refusals += 1;
                if marked {
                    refused("a copy to it", store.a.copy(&marker, &key).await)?;
                    if store.a.capabilities().has(Capability::BlobRename) {
                        let renamed = store.a.rename(&marker, &key, RenameMode::Replace).await;
                        refused("a rename to it", renamed)?;
                    }
                }
            }
        }
        expect::equal("everything stored", &dump(&*store.b).await?, &before)?;
        if namespace_bytes == NAMESPACE_BYTES_MAX && !declares_long_keys(&context).await? {
            expect::that(refusals > 0, "a key refused", "none, as if the capability were declared")?;
        }
    }
    Ok(())
}

/// Returns `true` if the store keeps the key. Then a blob can be written, read and deleted under it, even if
/// the capability is not declared. Otherwise both writes and presigning fail, and the capability must not be
/// declared.
async fn kept(Handles { a, b }: &Handles<dyn BlobStore>, key: &BlobKey) -> CaseResult<bool> {
    let declared = a.capabilities();
    let answer = a.put_bytes(key, Bytes::from_static(b"long")).await;
    if answer.is_ok() {
        expect::equal("bytes", &b.get_bytes(key).await?, &Bytes::from_static(b"long"))?;
        expect::equal("the reported existence", &b.delete(key).await?, &true)?;
        return Ok(true);
    }
    refused("a write", answer)?;
    expect::that(!declared.has(Capability::BlobLongKeys), "a key kept as declared", "Unsupported")?;
    for (capability, request) in [
        (Capability::BlobPresignGet, PresignRequest::get(Duration::from_secs(60))),
        (Capability::BlobPresignPut, PresignRequest::put(Duration::from_secs(60))),
    ] {
        if declared.has(capability) {
            refused("signing it", a.presign(key, &request).await)?;
        }
    }
    Ok(false)
}

/// Returns the keys to try: of lengths around powers of two and around the name limits of file systems, one
/// of each filling.
fn longer_keys() -> CaseResult<Vec<BlobKey>> {
    let mut keys = Vec::new();
    for bytes in [64, 128, 255, ID_BYTES_MAX] {
        keys.extend(keys_of(bytes)?.into_iter().step_by(2));
    }
    Ok(keys)
}

async fn declares_long_keys(context: &Context) -> CaseResult<bool> {
    let declared = context.open().await?.capabilities(Contract::Blobs).unwrap_or_default();
    Ok(declared.has(Capability::BlobLongKeys))
}

fn refused<T: std::fmt::Debug>(what: &str, result: Result<T, Error>) -> CaseResult {
    let error = expect::error(what, result, ErrorKind::Unsupported)?;
    if error.missing_method().is_some() {
        return Err(error.into());
    }
    expect::equal("the field named", &error.field(), &Some("key"))?;
    expect::equal("what became of the call", &error.outcome(), &Outcome::NotApplied)
}

async fn a_key_that_is_too_long_has_no_blob(context: Context) -> CaseResult {
    let namespace = namespace_of(&context, "\u{1}", BLOB_SHORT_NAMESPACE_BYTES_MAX)?;
    let Handles { a, b } = open_two(&context, &namespace).await?;
    let marker = key("marker")?;
    a.put_bytes(&marker, Bytes::from_static(b"here")).await?;
    let before = dump(&*b).await?;
    // No blob exists under such a key, whether the store supports it or not.
    for key in longer_keys()? {
        expect::error("a read", a.get_bytes(&key).await, ErrorKind::NotFound)?;
        expect::error("a head", a.head(&key).await, ErrorKind::NotFound)?;
        expect::error("a copy from there", a.copy(&key, &marker).await, ErrorKind::NotFound)?;
        if a.capabilities().has(Capability::BlobRename) {
            let renamed = a.rename(&key, &marker, RenameMode::Replace).await;
            expect::error("a rename from there", renamed, ErrorKind::NotFound)?;
        }
        expect::equal("the reported existence", &a.delete(&key).await?, &false)?;
        let listed: Vec<BlobEntry> = a.list(key.as_str(), None).await?.try_collect().await?;
        expect::that(listed.is_empty(), "an empty listing", &listed)?;
        let listed: Vec<BlobEntry> = a.list("", Some(&key)).await?.try_collect().await?;
        let expected = usize::from(marker > key);
        expect::equal("number of keys after it", &listed.len(), &expected)?;
    }
    expect::equal("everything stored", &dump(&*b).await?, &before)
}
