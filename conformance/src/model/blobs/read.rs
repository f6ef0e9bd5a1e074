//! Reading and listing of blobs.

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use larder_kernel::storage::blob::{check_get, check_prefix};
use larder_kernel::{
    BlobEntry, BlobGetOptions, BlobInfo, BlobKey, BlobRead, BlobStore, ByteRange, Error, ErrorKind, Result,
};

use super::operation::range_text;
use super::{Blobs, Held, check_instant};
use crate::model::compare::{Checked, Expected, Refusal, same};
use crate::model::recorder::{Recorder, id, optional, quoted, with};

/// The part of a script that reads a blob.
pub(super) const READ: &str = "async |read: BlobRead| Ok((read.info.size, read.range.clone(), \
                               read.bytes.try_collect::<Vec<Bytes>>().await?.concat()))";

impl Blobs {
    pub(super) async fn get(
        &mut self,
        store: &dyn BlobStore,
        (key, range): (&BlobKey, Option<ByteRange>),
        recorder: &mut Recorder,
    ) -> Checked {
        let options = BlobGetOptions::default().with_range(range);
        let held = self.blobs.get(key);
        let clause = match (held, range) {
            (None, _) => "BLOB-020",
            (Some(_), Some(_)) => "BLOB-021",
            (Some(_), None) => "BLOB-001",
        };
        recorder.statement(clause, |_| {
            let options = format!("BlobGetOptions::default(){}", with("range", range, range_text));
            let call = format!("§a.get({}, {options}).await", id(key));
            format!(
                "let {{s}} = match {call} {{ Ok(read) => ({READ})(read).await, Err(error) => Err(error) }};"
            )
        });
        let (info, got) = whole(store.get(key, options).await).await;
        if let Some(info) = &info {
            check_instant(info, "BLOB-026")?;
            if let Some(held) = held {
                let again =
                    || format!("a.get({}, BlobGetOptions::default()).await.unwrap().info.etag", id(key));
                held.check_tag("BLOB-026", &info.etag, again, recorder)?;
            }
            let expected = held.map(|held| held.info(key, Some(info)));
            same(recorder, "BLOB-026", &Ok(Some(info.clone())), &Ok(expected))?;
        }
        same(recorder, clause, &got, &reading(held, options))
    }

    pub(super) async fn head(
        &mut self,
        store: &dyn BlobStore,
        key: &BlobKey,
        recorder: &mut Recorder,
    ) -> Checked {
        let held = self.blobs.get(key);
        let clause = if held.is_some() { "BLOB-026" } else { "BLOB-027" };
        recorder.call(clause, |_| format!("head({})", id(key)));
        let got = store.head(key).await;
        if let Ok(info) = &got {
            check_instant(info, clause)?;
            if let Some(held) = held {
                let tag = || format!("{}.as_ref().unwrap().etag", recorder.answer());
                held.check_tag("BLOB-026", &info.etag, tag, recorder)?;
            }
        }
        let expected = held.map(|held| held.info(key, got.as_ref().ok()));
        same(recorder, clause, &got, &expected.ok_or(ErrorKind::NotFound.into()))
    }

    pub(super) async fn list(
        &mut self,
        store: &dyn BlobStore,
        (prefix, after): (&str, Option<&BlobKey>),
        recorder: &mut Recorder,
    ) -> Checked {
        let clause = if after.is_some() { "BLOB-032" } else { "BLOB-030" };
        recorder.statement(clause, |_| {
            let call = format!("§a.list({}, {}).await", quoted(prefix), optional(after, id));
            format!(
                "let {{s}} = match {call} {{ Ok(all) => all.try_collect::<Vec<_>>().await, \
                 Err(error) => Err(error) }};"
            )
        });
        let got: Result<Vec<BlobEntry>> = match store.list(prefix, after).await {
            Ok(entries) => entries.try_collect().await,
            Err(error) => Err(error),
        };
        let wanted =
            |key: &BlobKey| key.as_str().starts_with(prefix) && after.is_none_or(|after| key > after);
        let listed = got.as_ref().map(Vec::as_slice).unwrap_or_default();
        for (at, entry) in listed.iter().enumerate() {
            if let Some(held) = self.blobs.get(&entry.key) {
                let tag = || format!("{}.as_ref().unwrap()[{at}].etag", recorder.answer());
                held.check_tag("BLOB-026", &entry.etag, tag, recorder)?;
            }
        }
        let entries = self.blobs.iter().filter(|(key, _)| wanted(key)).map(|(key, held)| {
            // The store chooses the instant.
            let told = listed.iter().find(|entry| entry.key == *key);
            let info = held.info(key, None);
            BlobEntry::new(
                info.key,
                info.size,
                info.etag,
                told.map(|told| told.modified_at).unwrap_or_default(),
            )
        });
        let expected = check_prefix(prefix).map(|()| entries.collect()).map_err(Into::into);
        same(recorder, clause, &got, &expected)
    }
}

pub(super) type Part = (u64, std::ops::Range<u64>, Bytes);

/// Returns the delivered bytes of a read and its blob information.
pub(super) async fn whole(read: Result<BlobRead>) -> (Option<BlobInfo>, Result<Part>) {
    let read = match read {
        Ok(read) => read,
        Err(error) => return (None, Err(error)),
    };
    let pieces: Result<Vec<Bytes>, Error> = read.bytes.try_collect().await;
    let joined = pieces.map(|pieces| {
        let mut all = BytesMut::new();
        pieces.iter().for_each(|piece| all.extend_from_slice(piece));
        (read.info.size, read.range, all.freeze())
    });
    (Some(read.info), joined)
}

/// Returns the result that a read must deliver.
pub(super) fn reading(held: Option<&Held>, options: BlobGetOptions) -> Expected<Part> {
    check_get(&options)?;
    let held = held.ok_or(Refusal::from(ErrorKind::NotFound))?;
    let size = larder_kernel::check::size(held.bytes.len());
    let range = match options.range {
        None => 0..size,
        Some(range) => range.resolve(size)?,
    };
    let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    let bytes = held.bytes.slice(place(range.start)..place(range.end));
    Ok((size, range, bytes))
}
