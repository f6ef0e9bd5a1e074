//! Earlier versions of blobs.

use futures_util::TryStreamExt;
use larder_kernel::check::size;
use larder_kernel::storage::blob::check_versions;
use larder_kernel::{BlobGetOptions, BlobKey, BlobStore, BlobVersion, BlobVersionId, ErrorKind, Result};

use super::operation::OnVersion;
use super::read::{READ, reading, whole};
use super::{Blobs, Held};
use crate::model::compare::{Checked, Expected, same};
use crate::model::recorder::{Recorder, id};
use crate::model::rng::valid;

/// An id that no store assigns.
const NO_VERSION: &str = "none";

impl Blobs {
    /// Lists the versions of a key, then reads or deletes one.
    pub(super) async fn versions(
        &mut self,
        store: &dyn BlobStore,
        (key, on): (&BlobKey, OnVersion),
        recorder: &mut Recorder,
    ) -> Checked {
        let listed = self.list_versions(store, key, recorder).await?;
        let at = |at: usize| listed.get(at % listed.len().max(1)).map(|version| version.id.clone());
        let none = || valid(BlobVersionId::new(NO_VERSION));
        match on {
            OnVersion::List => Ok(()),
            OnVersion::Read(number) => {
                let version = at(number).unwrap_or_else(none);
                self.read_version(store, (key, &version), number % listed.len().max(1), recorder).await
            }
            OnVersion::Delete(number) => {
                let version = at(number).unwrap_or_else(none);
                self.delete_version(store, (key, &version), number % listed.len().max(1), recorder).await
            }
        }
    }

    /// Returns the blobs of a key, the newest first, and whether the first is current.
    fn held(&self, key: &BlobKey) -> (Vec<&Held>, bool) {
        let current = self.blobs.get(key);
        let earlier = self.earlier.get(key).into_iter().flatten().rev();
        (current.into_iter().chain(earlier).collect(), current.is_some())
    }

    async fn list_versions(
        &self,
        store: &dyn BlobStore,
        key: &BlobKey,
        recorder: &mut Recorder,
    ) -> Checked<Vec<BlobVersion>> {
        let refused = check_versions("blobs.list_versions", &self.declared).err();
        let clause = if refused.is_some() { "BLOB-077" } else { "BLOB-071" };
        recorder.statement(clause, |_| {
            let call = format!("§a.list_versions({}).await", id(key));
            format!(
                "let {{s}}v = match {call} {{ Ok(all) => all.try_collect::<Vec<_>>().await, \
                 Err(error) => Err(error) }};\n    let {{s}} = match &{{s}}v {{ Ok(all) => Ok(all.iter()\
                 .map(|it| (it.current, it.size)).collect::<Vec<_>>()), \
                 Err(error) => Err(Error::new(error.kind(), error.operation(), \"refused\")) }};"
            )
        });
        let got: Result<Vec<BlobVersion>> = match store.list_versions(key).await {
            Ok(versions) => versions.try_collect().await,
            Err(error) => Err(error),
        };
        let (held, current) = self.held(key);
        let expected: Expected<Vec<(bool, u64)>> = match refused {
            Some(refusal) => Err(refusal.into()),
            None => {
                let sizes = held.iter().map(|held| size(held.bytes.len())).enumerate();
                Ok(sizes.map(|(at, size)| (current && at == 0, size)).collect())
            }
        };
        let (seen, listed) = match got {
            Ok(listed) => (Ok(listed.iter().map(|it| (it.current, it.size)).collect()), listed),
            Err(error) => (Err(error), Vec::new()),
        };
        same(recorder, clause, &seen, &expected)?;
        for (at, (version, held)) in listed.iter().zip(held).enumerate() {
            let tag = || format!("{}v.as_ref().unwrap()[{at}].etag", recorder.answer());
            held.check_tag("BLOB-072", &version.etag, tag, recorder)?;
        }
        for (at, version) in listed.iter().enumerate() {
            recorder.name(|| name(key, &version.id), &format!("{{s}}v.as_ref().unwrap()[{at}].id.clone()"));
        }
        Ok(listed)
    }

    async fn read_version(
        &self,
        store: &dyn BlobStore,
        (key, version): (&BlobKey, &BlobVersionId),
        at: usize,
        recorder: &mut Recorder,
    ) -> Checked {
        let (held, _) = self.held(key);
        let held = held.get(at).copied();
        let refused = check_versions("blobs.get_version", &self.declared).err();
        let clause = match (&refused, held) {
            (Some(_), _) => "BLOB-077",
            (None, None) => "BLOB-082",
            (None, Some(_)) => "BLOB-080",
        };
        recorder.statement(clause, |recorder| {
            let version = text(recorder, key, version);
            let call = format!("§a.get_version({}, &{version}, BlobGetOptions::default()).await", id(key));
            format!(
                "let {{s}} = match {call} {{ Ok(read) => ({READ})(read).await, Err(error) => Err(error) }};"
            )
        });
        let options = BlobGetOptions::default();
        let (info, got) = whole(store.get_version(key, version, options).await).await;
        if let Some(info) = &info {
            let expected = held.map(|held| held.info(key, Some(info)));
            same(recorder, clause, &Ok(Some(info.clone())), &Ok(expected))?;
        }
        let expected = refused.map_or_else(|| reading(held, options), |refusal| Err(refusal.into()));
        same(recorder, clause, &got, &expected)
    }

    async fn delete_version(
        &mut self,
        store: &dyn BlobStore,
        (key, version): (&BlobKey, &BlobVersionId),
        at: usize,
        recorder: &mut Recorder,
    ) -> Checked {
        let (held, current) = self.held(key);
        let count = held.len();
        let (clause, expected): (_, Expected<bool>) =
            match check_versions("blobs.delete_version", &self.declared) {
                Err(refusal) => ("BLOB-077", Err(refusal.into())),
                Ok(()) if current && at == 0 => ("BLOB-087", Err(ErrorKind::Conflict.into())),
                Ok(()) if at < count => ("BLOB-085", Ok(true)),
                Ok(()) => ("BLOB-086", Ok(false)),
            };
        recorder.call(clause, |recorder| {
            format!("delete_version({}, &{})", id(key), text(recorder, key, version))
        });
        same(recorder, clause, &store.delete_version(key, version).await, &expected)?;
        if expected == Ok(true) {
            let earlier = self.earlier.entry(key.clone()).or_default();
            // The newest is the last.
            earlier.remove(count - 1 - at);
        }
        Ok(())
    }
}

/// Returns the name of an id in a recorded script.
fn name(key: &BlobKey, version: &BlobVersionId) -> String {
    format!("version {version} of {key}")
}

/// Returns an id as an expression.
fn text(recorder: &Recorder, key: &BlobKey, version: &BlobVersionId) -> String {
    let given = || format!("BlobVersionId::new({:?}).unwrap()", version.as_str());
    recorder.named(&name(key, version), given)
}
