//! The model of [`BlobStore`].

mod operation;
mod read;
mod versions;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::check::size;
use larder_kernel::storage::blob::{check_put, check_rename};
use larder_kernel::{
    BlobCondition, BlobInfo, BlobKey, BlobStore, Capabilities, Capability, Contract, ETag, ErrorKind,
    RenameMode, UserMetadata,
};

use self::operation::{OnVersion, Operation, Put, Tag, options_text};
use super::compare::{Checked, Expected, answered, holds, same};
use super::recorder::{Recorder, id};
use super::rng::Rng;
use super::shared::is_now;
use super::subject::Subject;
use crate::harness::StoreSet;

/// The state that the clauses require of blobs.
#[derive(Debug)]
pub(super) struct Blobs {
    declared: Capabilities,
    blobs: BTreeMap<BlobKey, Held>,
    /// The tags of each key, the newest last.
    tags: BTreeMap<BlobKey, Vec<ETag>>,
    /// The earlier versions of each key, the newest last.
    earlier: BTreeMap<BlobKey, Vec<Held>>,
}

#[derive(Debug, Clone)]
struct Held {
    bytes: Bytes,
    content_type: Option<String>,
    metadata: UserMetadata,
    etag: ETag,
}

impl Held {
    /// Returns the model's information about the blob; the instant is the store's choice.
    fn info(&self, key: &BlobKey, got: Option<&BlobInfo>) -> BlobInfo {
        BlobInfo::new(
            key.clone(),
            size(self.bytes.len()),
            self.etag.clone(),
            got.map(|got| got.modified_at).unwrap_or_default(),
        )
        .with_content_type(self.content_type.clone())
        .with_metadata(self.metadata.clone())
    }

    /// Checks the tag that a read returned, with a statement that names the tag of the write.
    fn check_tag(
        &self,
        clause: &'static str,
        got: &ETag,
        shown: impl FnOnce() -> String,
        recorder: &Recorder,
    ) -> Checked {
        let differs = || {
            let written = recorder.named(&tag_name(&self.etag), || format!("{:?}", self.etag.as_str()));
            format!("assert_eq!({}, {written});", shown())
        };
        holds(clause, *got == self.etag, || self.etag.to_string(), got, differs)
    }
}

/// Checks that the instant of a write is now.
fn check_instant(info: &BlobInfo, clause: &'static str) -> Checked {
    let assertion = || "panic!(\"modified_at is not when the blob was written\");".to_owned();
    holds(clause, is_now(info.modified_at), || "written just now".to_owned(), &info.modified_at, assertion)
}

impl Blobs {
    /// Returns the tag that a write names.
    fn tag(&self, key: &BlobKey, tag: Tag) -> ETag {
        let none = || super::rng::valid(ETag::new("\"none\""));
        let had = self.tags.get(key).map(Vec::as_slice).unwrap_or_default();
        match tag {
            Tag::Current => self.blobs.get(key).map_or_else(none, |held| held.etag.clone()),
            Tag::First => had.first().cloned().unwrap_or_else(none),
            Tag::Before => had.iter().rev().nth(1).cloned().unwrap_or_else(none),
            Tag::None => none(),
        }
    }

    /// Records a blob with the tag that the store assigned, if the tag differs for different bytes.
    fn take(&mut self, key: &BlobKey, held: Held, recorder: &mut Recorder) -> Checked {
        if let Some(old) = self.blobs.get(key).filter(|old| old.bytes != held.bytes) {
            let changes = || {
                let before = recorder.named(&tag_name(&old.etag), || format!("{:?}", old.etag.as_str()));
                format!("assert_ne!({}.as_ref().unwrap().etag, {before});", recorder.answer())
            };
            let expected = || format!("another ETag than {}", old.etag);
            holds("BLOB-012", old.etag != held.etag, expected, &held.etag, changes)?;
        }
        recorder.name(|| tag_name(&held.etag), "{s}.as_ref().unwrap().etag.clone()");
        self.tags.entry(key.clone()).or_default().push(held.etag.clone());
        let old = self.blobs.insert(key.clone(), held);
        self.earlier.entry(key.clone()).or_default().extend(old);
        Ok(())
    }

    async fn put(&mut self, store: &dyn BlobStore, put: &Put, recorder: &mut Recorder) -> Checked {
        let key = &put.key;
        let condition = put.condition.blob(|tag| self.tag(key, tag));
        let options = put.options.clone().with_condition(condition);
        let there = self.blobs.get(key).map(|held| &held.etag);
        let (clause, expected): (_, Expected<()>) =
            match (check_put(&options, &self.declared), &options.condition, there) {
                (Err(refusal), ..) if refusal.kind() == ErrorKind::Unsupported => {
                    ("BLOB-013", Err(refusal.into()))
                }
                (Err(refusal), ..) => ("STORE-010", Err(refusal.into())),
                (Ok(()), BlobCondition::Absent, Some(_)) => ("BLOB-007", Err(ErrorKind::Conflict.into())),
                (Ok(()), BlobCondition::Matches(tag), there) if there != Some(tag) => {
                    ("BLOB-010", Err(ErrorKind::Conflict.into()))
                }
                (Ok(()), BlobCondition::None, _) if put.fails => {
                    ("BLOB-006", Err(operation::STREAM_FAILURE.into()))
                }
                (Ok(()), BlobCondition::Matches(_), _) => ("BLOB-009", Ok(())),
                (Ok(()), ..) => ("BLOB-003", Ok(())),
            };
        recorder.call(clause, |recorder| {
            format!("put({}, {}, {})", id(key), put.body_text(), options_text(&options, recorder))
        });
        let got = store.put(key, put.body(), options).await;
        let Some(info) = answered(recorder, clause, got, &expected)? else { return Ok(()) };
        check_instant(&info, "BLOB-026")?;
        let held = Held {
            bytes: put.bytes(),
            content_type: put.options.content_type.clone(),
            metadata: put.options.metadata.clone(),
            etag: info.etag.clone(),
        };
        same(recorder, "BLOB-026", &Ok(info.clone()), &Ok(held.info(key, Some(&info))))?;
        self.take(key, held, recorder)
    }

    async fn copy(
        &mut self,
        store: &dyn BlobStore,
        (source, target): (&BlobKey, &BlobKey),
        recorder: &mut Recorder,
    ) -> Checked {
        let from = self.blobs.get(source).cloned();
        let clause = if from.is_some() { "BLOB-036" } else { "BLOB-037" };
        recorder.call(clause, |_| format!("copy({}, {})", id(source), id(target)));
        let got = store.copy(source, target).await;
        let expected = if from.is_some() { Ok(()) } else { Err(ErrorKind::NotFound.into()) };
        let Some(info) = answered(recorder, clause, got, &expected)? else { return Ok(()) };
        let Some(from) = from else { return Ok(()) };
        let held = Held { etag: info.etag.clone(), ..from };
        check_instant(&info, clause)?;
        same(recorder, clause, &Ok(info.clone()), &Ok(held.info(target, Some(&info))))?;
        // A store may also leave the blob as it is.
        if source == target && self.blobs.get(target).is_some_and(|old| old.etag == held.etag) {
            self.blobs.remove(target);
        }
        self.take(target, held, recorder)
    }

    async fn rename(
        &mut self,
        store: &dyn BlobStore,
        (source, target, mode): (&BlobKey, &BlobKey, RenameMode),
        recorder: &mut Recorder,
    ) -> Checked {
        let from = self.blobs.get(source).cloned();
        let taken = mode == RenameMode::Refuse && self.blobs.contains_key(target);
        let (clause, expected): (_, Expected<()>) = match (check_rename(&self.declared), &from) {
            (Err(refusal), _) => ("BLOB-068", Err(refusal.into())),
            (Ok(()), None) => ("BLOB-064", Err(ErrorKind::NotFound.into())),
            (Ok(()), Some(_)) if taken => ("BLOB-062", Err(ErrorKind::Conflict.into())),
            (Ok(()), Some(_)) if self.blobs.contains_key(target) => ("BLOB-063", Ok(())),
            (Ok(()), Some(_)) => ("BLOB-060", Ok(())),
        };
        recorder.call(clause, |_| format!("rename({}, {}, RenameMode::{mode:?})", id(source), id(target)));
        let got = store.rename(source, target, mode).await;
        let Some(info) = answered(recorder, clause, got, &expected)? else { return Ok(()) };
        let Some(held) = from else { return Ok(()) };
        same(recorder, "BLOB-061", &Ok(info.clone()), &Ok(held.info(target, Some(&info))))?;
        self.blobs.remove(source);
        self.take(target, held, recorder)
    }

    async fn delete(&mut self, store: &dyn BlobStore, key: &BlobKey, recorder: &mut Recorder) -> Checked {
        let gone = self.blobs.remove(key);
        let there = gone.is_some();
        self.earlier.entry(key.clone()).or_default().extend(gone);
        let clause = if there { "BLOB-040" } else { "BLOB-041" };
        recorder.call(clause, |_| format!("delete({})", id(key)));
        same(recorder, clause, &store.delete(key).await, &Ok(there))
    }

    async fn erase(&mut self, store: &dyn BlobStore, recorder: &mut Recorder) -> Checked {
        recorder.call("STORE-006", |_| "erase()".to_owned());
        same(recorder, "STORE-006", &store.erase().await, &Ok(()))?;
        self.blobs.clear();
        self.tags.clear();
        self.earlier.clear();
        Ok(())
    }
}

/// Returns the name of a tag in a recorded script.
fn tag_name(tag: &ETag) -> String {
    format!("tag {tag}")
}

#[async_trait]
impl Subject for Blobs {
    const CONTRACT: Contract = Contract::Blobs;
    const FIELD: &'static str = "blobs";
    type Store = dyn BlobStore;
    type Operation = Operation;

    fn new(declared: &Capabilities) -> Self {
        Self {
            declared: declared.clone(),
            blobs: BTreeMap::new(),
            tags: BTreeMap::new(),
            earlier: BTreeMap::new(),
        }
    }

    fn store(stores: &StoreSet) -> larder_kernel::Result<Arc<Self::Store>> {
        stores.blobs()
    }

    /// Returns `true` for keys that every store keeps, and for all keys if the store declares long keys.
    fn allows(declared: &Capabilities, id: &str) -> bool {
        let kept = larder_kernel::limits::BLOB_SHORT_KEY_BYTES_MAX;
        BlobKey::new(id).is_ok() && (id.len() <= kept || declared.has(Capability::BlobLongKeys))
    }

    fn draw(rng: &mut Rng<'_>) -> Operation {
        operation::draw(rng)
    }

    async fn step(&mut self, store: &Self::Store, operation: &Operation, recorder: &mut Recorder) -> Checked {
        match operation {
            Operation::Put(put) => self.put(store, put, recorder).await,
            Operation::Get { key, range } => self.get(store, (key, *range), recorder).await,
            Operation::Head { key } => self.head(store, key, recorder).await,
            Operation::List { prefix, after } => self.list(store, (prefix, after.as_ref()), recorder).await,
            Operation::Copy { source, target } => self.copy(store, (source, target), recorder).await,
            Operation::Rename { source, target, mode } => {
                self.rename(store, (source, target, *mode), recorder).await
            }
            Operation::Versions { key, on } => self.versions(store, (key, *on), recorder).await,
            Operation::Delete { key } => self.delete(store, key, recorder).await,
            Operation::Erase => self.erase(store, recorder).await,
        }
    }

    async fn dump(&mut self, store: &Self::Store, recorder: &mut Recorder) -> Checked {
        self.list(store, ("", None), recorder).await?;
        let keys: Vec<BlobKey> = self.blobs.keys().cloned().collect();
        for key in keys {
            self.get(store, (&key, None), recorder).await?;
            self.head(store, &key, recorder).await?;
        }
        if self.declared.has(Capability::BlobVersions) {
            let keys: Vec<BlobKey> = self.tags.keys().cloned().collect();
            for key in keys {
                self.versions(store, (&key, OnVersion::List), recorder).await?;
            }
        }
        Ok(())
    }
}
