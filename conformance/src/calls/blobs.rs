//! The methods of [`BlobStore`].

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::{
    BlobBody, BlobCondition, BlobEntry, BlobGetOptions, BlobKey, BlobPutOptions, BlobStore, ByteRange,
    PresignRequest, RenameMode, Result,
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
    let own: &[&str] = if world.is_theirs() { &["a/their", "their"] } else { &[] };
    for name in ["a", "a/b", "z"].iter().chain(own) {
        store.put(&key(name)?, bytes(&format!("{name} {text}")), typed(text)).await?;
    }
    Ok(())
}

async fn read(store: &dyn BlobStore, name: &str, options: BlobGetOptions) -> Result<Value> {
    let read = store.get(&key(name)?, options).await?;
    let pieces: Vec<Bytes> = read.bytes.try_collect().await?;
    Ok(json!({ "info": read.info, "range": [read.range.start, read.range.end], "bytes": pieces.concat() }))
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
    "presign" => |store| { store.presign(&key("a")?, &PresignRequest::get(HOUR)).await }
    "presign/a_write" => |store| { store.presign(&key("a")?, &PresignRequest::put(HOUR)).await }
}
