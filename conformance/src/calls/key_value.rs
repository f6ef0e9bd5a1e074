//! The methods of [`KeyValueStore`].

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::{
    BucketName, Error, ErrorKind, Key, KeyValueEvent, KeyValuePutOptions, KeyValueQuery, KeyValueStore,
    KeyValueStoreExt, KeyValueWrite, PageRequest, Result, Revision,
};

use super::{World, calls};
use crate::case::{CaseResult, implemented};

fn bucket() -> Result<BucketName> {
    BucketName::new("bucket")
}

fn key(text: &str) -> Result<Key> {
    Key::new(text)
}

fn value(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(super) async fn lay_out(store: &dyn KeyValueStore, world: World) -> CaseResult {
    let text = world.text();
    if world.is_theirs() {
        // Expires the key that stays alive in the other data set, and makes the revisions of this namespace
        // larger.
        let moment = KeyValuePutOptions::default().with_ttl(Duration::from_millis(1));
        store.put(&bucket()?, &key("brief")?, value(text), moment).await?;
        for name in ["k/their", "their", "gone"] {
            store.set(&bucket()?, &key(name)?, value(text)).await?;
        }
        implemented(store.delete(&bucket()?, &key("gone")?, None).await)?;
        store.set(&BucketName::new("their")?, &key("k")?, value(text)).await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    } else {
        store.set(&bucket()?, &key("brief")?, value(text)).await?;
    }
    for name in ["k", "k/1", "z"] {
        store.set(&bucket()?, &key(name)?, value(&format!("{name} {text}"))).await?;
    }
    store.set(&BucketName::new("other")?, &key("k")?, value(text)).await?;
    Ok(())
}

/// Returns the revision of a key.
async fn at(store: &dyn KeyValueStore, name: &str) -> Result<Revision> {
    let entry = store.get(&bucket()?, &key(name)?).await?;
    let absent = || Error::new(ErrorKind::NotFound, "key_value.get", "a key that was laid out");
    entry.map(|entry| entry.revision).ok_or_else(absent)
}

/// Returns the changes of `Theirs` that a resumed watcher receives, a deletion among them.
pub(super) async fn witness(store: &dyn KeyValueStore) -> Result<Vec<KeyValueEvent>> {
    let after = at(store, "their").await?;
    store.watch(&bucket()?, "", after).await?.take(4).try_collect().await
}

async fn changes(store: &dyn KeyValueStore, prefix: &str, count: usize) -> Result<Vec<KeyValueEvent>> {
    store.watch(&bucket()?, prefix, Revision::ZERO).await?.take(count).try_collect().await
}

/// Returns the put of a value without a condition.
fn put(name: &str, text: &str) -> Result<KeyValueWrite> {
    Ok(KeyValueWrite::put(key(name)?, value(text), KeyValuePutOptions::default()))
}

calls! { KeyValue, key_value;
    "put" => |store| {
        let hour = KeyValuePutOptions::default().with_ttl(Duration::from_secs(3_600));
        store.put(&bucket()?, &key("k")?, value("new"), hour).await
    }
    "put/where_none_is" => |store| { store.create(&bucket()?, &key("their")?, value("new")).await }
    "put/over_a_revision" => |store| {
        let at = at(store, "k").await?;
        store.put_at(&bucket()?, &key("k")?, value("new"), at).await
    }
    "put/of_what_was_deleted_elsewhere" => |store| {
        store.set(&bucket()?, &key("gone")?, value("new")).await
    }
    "put/into_a_new_bucket" => |store| {
        store.set(&BucketName::new("their")?, &key("k")?, value("new")).await
    }
    "get" => |store| { store.get(&bucket()?, &key("k")?).await }
    "get/what_is_not_there" => |store| { store.get(&bucket()?, &key("their")?).await }
    "get_many" => |store| {
        store.get_many(&bucket()?, &[key("z")?, key("their")?, key("k")?]).await
    }
    "write" => |store| {
        let at = at(store, "k/1").await?;
        let delete = KeyValueWrite::delete(key("k/1")?, Some(at));
        store.write(&bucket()?, vec![put("k", "new")?, delete, put("their", "new")?]).await
    }
    "write/with_a_condition_that_does_not_hold" => |store| {
        let delete = KeyValueWrite::delete(key("z")?, Some(Revision::ZERO));
        store.write(&bucket()?, vec![put("k", "new")?, delete]).await
    }
    "write/of_missing_keys" => |store| {
        store.write(&bucket()?, vec![KeyValueWrite::delete(key("their")?, None)]).await
    }
    "write/into_a_new_bucket" => |store| {
        store.write(&BucketName::new("their")?, vec![put("k", "new")?]).await
    }
    "delete_prefix" => |store| { store.delete_prefix(&bucket()?, "k").await }
    "delete_prefix/of_all" => |store| { store.delete_prefix(&bucket()?, "").await }
    "delete_prefix/of_missing_keys" => |store| { store.delete_prefix(&bucket()?, "their").await }
    "delete" => |store| { store.delete(&bucket()?, &key("k")?, None).await }
    "delete/what_is_not_there" => |store| { store.delete(&bucket()?, &key("their")?, None).await }
    "delete/at_a_revision" => |store| {
        let at = at(store, "k/1").await?;
        store.delete(&bucket()?, &key("k/1")?, Some(at)).await
    }
    "list_entries" => |store| {
        let query = KeyValueQuery::prefix("").descending().with_values();
        store.list_entries(&bucket()?, &query, PageRequest::default()).await
    }
    "list_entries/between_two_keys" => |store| {
        let query = KeyValueQuery::prefix("").with_from(key("k")?).with_to(key("z")?);
        store.list_entries(&bucket()?, &query, PageRequest::default()).await
    }
    "list" => |store| { store.list(&bucket()?, "", PageRequest::default()).await }
    "list/by_a_prefix" => |store| { store.list(&bucket()?, "k/", PageRequest::default()).await }
    "list/after" => |store| { store.list(&bucket()?, "", PageRequest::after(key("k")?, 10)).await }
    "list_buckets" => |store| { store.list_buckets(PageRequest::default()).await }
    "watch" => |store| { changes(store, "", 4).await }
    "watch/a_prefix" => |store| { changes(store, "k", 2).await }
    "watch/live" => |store| {
        let mut events = store.watch(&bucket()?, "", at(store, "z").await?).await?;
        store.set(&bucket()?, &key("live")?, value("new")).await?;
        store.set(&bucket()?, &key("more")?, value("new")).await?;
        Ok((events.next().await.transpose()?, events.next().await.transpose()?))
    }
}
