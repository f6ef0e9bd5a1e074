//! The methods of [`BlobStore`].

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::{
    BlobBody, BlobCondition, BlobEntry, BlobGetOptions, BlobKey, BlobPutOptions, BlobRead, BlobStore,
    BlobVersion, BlobVersionId, ByteRange, PresignRequest, RenameMode, Result,
};
use serde_json::{Value, json};

use super::{World, calls};

fn key(text: &str) -> Result<BlobKey> {
    BlobKey::new(text)
}

fn bytes(text: &str) -> BlobBody {
    BlobBody::Bytes(Bytes::from(format!("the bytes of {text}")))
}

fn typed(text: &str) -> BlobPutOptions {
    BlobPutOptions::default().with_content_type(format!("text/{text}")).with_metadata("of", text)
}

pub(super) async fn lay_out(store: &dyn BlobStore, world: World) -> Result<()> {
    let text = world.text();
    // An earlier version of a blob.
    store.put(&key("a")?, bytes(&format!("a {text} at first")), typed(text)).await?;
    let own: &[&str] = if world.is_theirs() { &["a/their", "their"] } else { &[] };
    for name in ["a", "a/b", "z"].iter().chain(own) {
        store.put(&key(name)?, bytes(&format!("{name} {text}")), typed(text)).await?;
    }
    Ok(())
}

async fn read(store: &dyn BlobStore, name: &str, options: BlobGetOptions) -> Result<Value> {
    told_read(store.get(&key(name)?, options).await?).await
}

async fn told_read(read: BlobRead) -> Result<Value> {
    let pieces: Vec<Bytes> = read.bytes.try_collect().await?;
    Ok(json!({ "info": read.info, "range": [read.range.start, read.range.end], "bytes": pieces.concat() }))
}

/// Returns the versions of a blob without their ids, which the store chooses.
async fn shown(store: &dyn BlobStore, name: &str) -> Result<Vec<(bool, u64)>> {
    let versions = store.list_versions(&key(name)?).await?;
    versions.map_ok(|version| (version.current, version.size)).try_collect().await
}

/// Returns the id of a version of a blob, counted from the newest.
async fn version(store: &dyn BlobStore, name: &str, number: usize) -> Result<BlobVersionId> {
    let versions: Vec<BlobVersion> = store.list_versions(&key(name)?).await?.try_collect().await?;
    Ok(versions.get(number).map_or(BlobVersionId::new("none")?, |version| version.id.clone()))
}

async fn listed(store: &dyn BlobStore, prefix: &str, after: Option<&BlobKey>) -> Result<Vec<BlobEntry>> {
    store.list(prefix, after).await?.try_collect().await
}

/// Returns a body of several pieces that waits between them.
fn pieces() -> BlobBody {
    let pieces = futures_util::stream::iter(0..4_u8).then(|piece| async move {
        tokio::task::yield_now().await;
        Ok(Bytes::from(vec![piece; 20_000]))
    });
    BlobBody::stream(pieces)
}

const HOUR: Duration = Duration::from_secs(3_600);

calls! { Blobs, blobs;
    "put" => |store| { store.put(&key("a")?, bytes("new"), typed("new")).await }
    "put/a_stream" => |store| { store.put(&key("a/b")?, pieces(), typed("new")).await }
    "put/where_none_is" => |store| {
        let absent = typed("new").with_condition(BlobCondition::Absent);
        store.put(&key("their")?, bytes("new"), absent).await
    }
    "put/over_a_version" => |store| {
        let etag = store.head(&key("a")?).await?.etag;
        let matching = typed("new").with_condition(BlobCondition::Matches(etag));
        store.put(&key("a")?, bytes("new"), matching).await
    }
    "get" => |store| { read(store, "a", BlobGetOptions::default()).await }
    "get/a_range" => |store| {
        read(store, "a", BlobGetOptions::default().with_range(ByteRange::From(4))).await
    }
    "get/what_is_not_there" => |store| { read(store, "their", BlobGetOptions::default()).await }
    "head" => |store| { store.head(&key("a")?).await }
    "list" => |store| { listed(store, "", None).await }
    "list/by_a_prefix" => |store| { listed(store, "a/", None).await }
    "list/after" => |store| { listed(store, "", Some(&key("a")?)).await }
    "copy" => |store| { store.copy(&key("a")?, &key("their")?).await }
    "copy/of_nothing" => |store| { store.copy(&key("their")?, &key("a")?).await }
    "rename" => |store| { store.rename(&key("a")?, &key("their")?, RenameMode::Refuse).await }
    "rename/over_a_blob" => |store| { store.rename(&key("a")?, &key("z")?, RenameMode::Replace).await }
    "rename/to_a_blob" => |store| { store.rename(&key("a")?, &key("z")?, RenameMode::Refuse).await }
    "rename/of_nothing" => |store| {
        store.rename(&key("their")?, &key("a")?, RenameMode::Replace).await
    }
    "delete" => |store| { store.delete(&key("a")?).await }
    "delete/what_is_not_there" => |store| { store.delete(&key("their")?).await }
    "list_versions" => |store| { shown(store, "a").await }
    "list_versions/of_nothing" => |store| { shown(store, "their").await }
    "get_version" => |store| {
        let id = version(store, "a", 1).await?;
        told_read(store.get_version(&key("a")?, &id, BlobGetOptions::default()).await?).await
    }
    "get_version/what_is_not_there" => |store| {
        let id = BlobVersionId::new("none")?;
        told_read(store.get_version(&key("a")?, &id, BlobGetOptions::default()).await?).await
    }
    "delete_version" => |store| {
        let id = version(store, "a", 1).await?;
        store.delete_version(&key("a")?, &id).await
    }
    "delete_version/the_current_one" => |store| {
        let id = version(store, "a", 0).await?;
        store.delete_version(&key("a")?, &id).await
    }
    "presign" => |store| { store.presign(&key("a")?, &PresignRequest::get(HOUR)).await }
    "presign/a_write" => |store| { store.presign(&key("a")?, &PresignRequest::put(HOUR)).await }
}
