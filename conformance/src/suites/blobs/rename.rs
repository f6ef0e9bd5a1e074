//! Renames.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{
    BlobEntry, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobStore, BlobStoreExt, Capability,
    Contract, Error, ErrorKind, RenameMode,
};
use tokio::task::JoinSet;

use super::{dump::dump, key, noise};
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::background::BackgroundTask;

pub(super) fn cases() -> Vec<Case> {
    let cases = vec![
        case!(Blobs, "BLOB-025", a_read_survives_a_rename),
        case!(Blobs, "BLOB-060", a_rename_moves_everything),
        case!(Blobs, "BLOB-061", a_renamed_blob_keeps_its_etag_and_its_time),
        case!(Blobs, "BLOB-062", refuse_keeps_the_blob_of_the_target),
        case!(Blobs, "BLOB-063", replace_replaces_the_target_completely),
        case!(Blobs, "BLOB-063", renaming_onto_itself_changes_nothing),
        case!(Blobs, "BLOB-064", renaming_a_missing_blob_is_not_found),
        case!(Blobs, "BLOB-065", a_moving_blob_has_exactly_one_key),
        case!(Blobs, "BLOB-065", a_replaced_target_is_never_missing),
        case!(Blobs, "BLOB-066", one_of_concurrent_renames_of_a_blob_succeeds),
        case!(Blobs, "BLOB-067", one_of_concurrent_renames_to_a_key_succeeds),
        case!(Blobs, "BLOB-069", a_listing_during_renames_misses_no_other_blob),
    ];
    let mut cases: Vec<Case> = cases.into_iter().map(|case| case.needing(Capability::BlobRename)).collect();
    cases.push(case!(Blobs, "BLOB-068", an_undeclared_rename_is_unsupported));
    cases
}

fn described() -> BlobPutOptions {
    BlobPutOptions::default().with_content_type("image/png").with_metadata("origin", "camera")
}

/// Checks that a blob has exactly these properties and bytes.
async fn holds(store: &dyn BlobStore, key: &BlobKey, info: &BlobInfo, bytes: &Bytes) -> CaseResult {
    let mut expected = info.clone();
    expected.key = key.clone();
    expect::equal("the properties", &store.head(key).await?, &expected)?;
    expect::that(store.get_bytes(key).await? == *bytes, "the bytes of the blob", "others")
}

async fn a_rename_moves_everything(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    // To a longer key, into another folder, to a prefix of the key, and back.
    let names = ["draft", "reports/2026/final", "reports/2026", "reports", "R", "draft"];
    let bytes = Bytes::from(noise(600_000, context.random(0)));
    a.put(&key(names[0])?, bytes.clone().into(), described()).await?;
    a.put_bytes(&key("draft/other")?, Bytes::from_static(b"stays")).await?;
    for pair in names.windows(2) {
        let (source, target) = (key(pair[0])?, key(pair[1])?);
        a.rename(&source, &target, RenameMode::Refuse).await?;
        let head = b.head(&target).await?;
        expect::equal("content type", &head.content_type.as_deref(), &Some("image/png"))?;
        expect::equal("user metadata", &head.metadata, &described().metadata)?;
        expect::that(b.get_bytes(&target).await? == bytes, "the source's bytes", "others")?;
        expect::error("the old key", b.head(&source).await, ErrorKind::NotFound)?;
        expect::error("a read of the old key", b.get_bytes(&source).await, ErrorKind::NotFound)?;
        let listed: Vec<_> = b.list("", None).await?.map_ok(|entry| entry.key).try_collect().await?;
        let mut expected = vec![target, key("draft/other")?];
        expected.sort_unstable();
        expect::equal("the listed keys", &listed, &expected)?;
    }
    expect::equal("another blob", &b.get_bytes(&key("draft/other")?).await?, &Bytes::from_static(b"stays"))
}

async fn a_renamed_blob_keeps_its_etag_and_its_time(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (source, target) = (key("source")?, key("folder/target")?);
    a.put(&source, "bytes".into(), described()).await?;
    let before = b.head(&source).await?;
    // A store that writes the blob again could give it the same second.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let answer = a.rename(&source, &target, RenameMode::Refuse).await?;
    expect::equal("the key answered", &answer.key, &target)?;
    expect::equal("head", &b.head(&target).await?, &answer)?;
    holds(&*b, &target, &before, &Bytes::from_static(b"bytes")).await
}

async fn refuse_keeps_the_blob_of_the_target(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    for (name, text) in [("source", "1"), ("full", "2"), ("empty", ""), ("in/a/folder", "3")] {
        a.put_bytes(&key(name)?, Bytes::from(text)).await?;
    }
    let before = dump(&*b).await?;
    for target in ["full", "empty", "in/a/folder", "source"] {
        let refused = a.rename(&key("source")?, &key(target)?, RenameMode::Refuse).await;
        expect::error(&format!("a rename to {target}"), refused, ErrorKind::Conflict)?;
        expect::equal("everything stored", &dump(&*b).await?, &before)?;
    }
    a.delete(&key("full")?).await?;
    a.rename(&key("source")?, &key("full")?, RenameMode::Refuse).await?;
    expect::equal("after a deletion", &b.get_bytes(&key("full")?).await?, &Bytes::from_static(b"1"))
}

async fn replace_replaces_the_target_completely(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (source, target) = (key("source")?, key("a/target")?);
    a.put(&target, noise(90_000, 7).into(), described()).await?;
    a.put_bytes(&source, Bytes::from_static(b"new")).await?;
    let before = a.head(&source).await?;
    a.rename(&source, &target, RenameMode::Replace).await?;
    holds(&*b, &target, &before, &Bytes::from_static(b"new")).await?;
    expect::error("the old key", b.head(&source).await, ErrorKind::NotFound)?;
    // Without a blob at the target, it is an ordinary rename.
    a.rename(&target, &source, RenameMode::Replace).await?;
    holds(&*b, &source, &before, &Bytes::from_static(b"new")).await
}

async fn renaming_onto_itself_changes_nothing(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("self/same")?;
    a.put(&key, "bytes".into(), described()).await?;
    let before = b.head(&key).await?;
    let answer = a.rename(&key, &key, RenameMode::Replace).await?;
    expect::equal("the result", &answer, &before)?;
    holds(&*b, &key, &before, &Bytes::from_static(b"bytes")).await
}

async fn renaming_a_missing_blob_is_not_found(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    a.put_bytes(&key("target")?, Bytes::from_static(b"kept")).await?;
    a.put_bytes(&key("there/below")?, Bytes::from_static(b"kept")).await?;
    let before = dump(&*b).await?;
    for source in ["absent", "there", "there/below/more", "Target"] {
        for target in ["target", "new", "new/folder", source] {
            for mode in [RenameMode::Refuse, RenameMode::Replace] {
                let renamed = a.rename(&key(source)?, &key(target)?, mode).await;
                let what = format!("renaming the missing {source} to {target} with {mode:?}");
                expect::error(&what, renamed, ErrorKind::NotFound)?;
            }
        }
    }
    expect::equal("everything stored", &dump(&*b).await?, &before)
}

/// The number of keys through which a blob moves.
const STATIONS: usize = 40;

fn station(number: usize) -> CaseResult<BlobKey> {
    // Every second one in a folder.
    key(&if number.is_multiple_of(2) { format!("s{number:02}") } else { format!("s/{number:02}") })
}

async fn exists(store: &dyn BlobStore, key: &BlobKey) -> CaseResult<bool> {
    match store.head(key).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Follows a blob that only moves forward. If it was once at a key or after it, then it is at one of the
/// following keys, and a key that it left has no blob.
async fn a_moving_blob_has_exactly_one_key(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let stations = (0..STATIONS).map(station).collect::<CaseResult<Vec<_>>>()?;
    a.put_bytes(&stations[0], Bytes::from_static(b"moving")).await?;
    let moved = stations.clone();
    let mover = BackgroundTask::start(async move {
        for pair in moved.windows(2) {
            a.rename(&pair[0], &pair[1], RenameMode::Refuse).await?;
            tokio::task::yield_now().await;
        }
        Ok::<_, Error>(())
    });
    let mut at = 0;
    let mut ended = false;
    while at + 1 < STATIONS && !ended {
        ended = mover.is_finished();
        if exists(&*b, &stations[at + 1]).await? {
            let left = exists(&*b, &stations[at]).await?;
            expect::that(!left, "a blob at the next key only", "one at both keys")?;
        }
        if !exists(&*b, &stations[at]).await? {
            let mut next = None;
            for (number, key) in stations.iter().enumerate().skip(at + 1) {
                if exists(&*b, key).await? {
                    next = Some(number);
                    break;
                }
            }
            at = expect::some("the blob at a key after the one that it left", next)?;
        }
        tokio::task::yield_now().await;
    }
    mover.end().await??;
    expect::that(exists(&*b, &stations[STATIONS - 1]).await?, "the blob at the last key", "none")
}

async fn a_replaced_target_is_never_missing(context: Context) -> CaseResult {
    const LEN: usize = 100_000;
    let Handles { a, b } = context.blobs().await?;
    let target = key("current")?;
    a.put_bytes(&target, vec![0; LEN].into()).await?;
    let published = target.clone();
    let writer = BackgroundTask::start(async move {
        for round in 1..=24_u8 {
            let draft = BlobKey::new(format!("drafts/{}", round % 3))?;
            a.put_bytes(&draft, vec![round; LEN].into()).await?;
            a.rename(&draft, &published, RenameMode::Replace).await?;
            tokio::task::yield_now().await;
        }
        Ok::<_, Error>(())
    });
    let (mut last, mut ended) = (0, false);
    while !ended {
        ended = writer.is_finished();
        let bytes = b.get_bytes(&target).await?;
        let whole = bytes.len() == LEN && bytes.iter().all(|byte| *byte == bytes[0]);
        expect::that(whole, "one version, whole", format!("{} bytes of several versions", bytes.len()))?;
        expect::that(bytes[0] >= last, format!("version {last} or later"), bytes[0])?;
        last = bytes[0];
        tokio::task::yield_now().await;
    }
    writer.end().await??;
    expect::equal("the last version", &b.get_bytes(&target).await?[0], &24)
}

/// Runs eight renames concurrently: one succeeds, and the others fail with an error of `kind`.
async fn race(
    (a, b): (&std::sync::Arc<dyn BlobStore>, &std::sync::Arc<dyn BlobStore>),
    renames: Vec<(BlobKey, BlobKey)>,
    kind: ErrorKind,
) -> CaseResult<usize> {
    let mut running = JoinSet::new();
    for (number, (source, target)) in renames.into_iter().enumerate() {
        let store = if number % 2 == 0 { a.clone() } else { b.clone() };
        running.spawn(async move { (number, store.rename(&source, &target, RenameMode::Refuse).await) });
    }
    let mut winners = Vec::new();
    for (number, result) in running.join_all().await {
        match result {
            Ok(_) => winners.push(number),
            refused => {
                expect::error("a rename that lost", refused, kind)?;
            }
        }
    }
    expect::equal("number of successes", &winners.len(), &1)?;
    Ok(winners[0])
}

async fn one_of_concurrent_renames_of_a_blob_succeeds(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    for round in 0..4 {
        let source = key(&format!("source/{round}"))?;
        a.put_bytes(&source, Bytes::from_static(b"one")).await?;
        let targets: Vec<BlobKey> =
            (0..8).map(|number| key(&format!("{round}/t{number}"))).collect::<CaseResult<_>>()?;
        let renames = targets.iter().map(|target| (source.clone(), target.clone())).collect();
        let winner = race((&a, &b), renames, ErrorKind::NotFound).await?;
        let prefix = format!("{round}/");
        let listed: Vec<_> = b.list(&prefix, None).await?.map_ok(|entry| entry.key).try_collect().await?;
        expect::equal("the listed keys", &listed, &vec![targets[winner].clone()])?;
        expect::error("the old key", a.head(&source).await, ErrorKind::NotFound)?;
    }
    Ok(())
}

async fn one_of_concurrent_renames_to_a_key_succeeds(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    for round in 0..4 {
        let target = key(&format!("target/{round}"))?;
        let mut renames = Vec::new();
        for number in 0..8 {
            let source = key(&format!("{round}/s{number}"))?;
            a.put_bytes(&source, Bytes::from(format!("from {number}"))).await?;
            renames.push((source, target.clone()));
        }
        let winner = race((&a, &b), renames.clone(), ErrorKind::Conflict).await?;
        let bytes = b.get_bytes(&target).await?;
        expect::equal("the winner's bytes", &bytes, &Bytes::from(format!("from {winner}")))?;
        for (number, (source, _)) in renames.iter().enumerate() {
            let kept = exists(&*b, source).await?;
            expect::equal(&format!("the source {number} is kept"), &kept, &(number != winner))?;
        }
    }
    Ok(())
}

async fn a_listing_during_renames_misses_no_other_blob(context: Context) -> CaseResult {
    const STAY: usize = 40;
    let Handles { a, b } = context.blobs().await?;
    for index in 0..STAY {
        a.put_bytes(&key(&format!("stay/{index:02}"))?, Bytes::from_static(b"1")).await?;
    }
    a.put_bytes(&key("stay/00-moving")?, Bytes::from_static(b"2")).await?;
    let renames = BackgroundTask::start(async move {
        let end = format!("stay/{STAY}-moving");
        let keys = [BlobKey::new("stay/00-moving")?, BlobKey::new("away")?, BlobKey::new(end)?];
        for round in 0..60 {
            a.rename(&keys[round % 3], &keys[(round + 1) % 3], RenameMode::Replace).await?;
            tokio::task::yield_now().await;
        }
        Ok::<_, Error>(())
    });
    let mut rounds = 0;
    while rounds == 0 || !renames.is_finished() {
        let listed: Vec<BlobEntry> = b.list("", None).await?.try_collect().await?;
        let ascending = listed.windows(2).all(|pair| pair[0].key < pair[1].key);
        expect::that(ascending, "each key once", &listed)?;
        let is_staying = |entry: &&BlobEntry| entry.key.as_str().len() == "stay/00".len();
        let kept = listed.iter().filter(is_staying).count();
        expect::equal("blobs that stay, in a listing during renames", &kept, &STAY)?;
        rounds += 1;
        // Otherwise a store that never waits would block the concurrent renames.
        tokio::task::yield_now().await;
    }
    renames.end().await??;
    Ok(())
}

async fn a_read_survives_a_rename(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (read_key, other) = (key("read")?, key("other")?);
    // The blob that is read is moved away, and then it is replaced.
    for (source, target) in [(&read_key, &other), (&other, &read_key)] {
        let old = noise(4 << 20, context.random(2));
        a.put_bytes(&read_key, old.clone().into()).await?;
        if source == &other {
            a.put_bytes(&other, noise(4 << 20, context.random(3)).into()).await?;
        }
        let mut read = b.get(&read_key, BlobGetOptions::default()).await?;
        let mut got = read.bytes.try_next().await?.unwrap_or_default().to_vec();
        a.rename(source, target, RenameMode::Replace).await?;
        let rest = async {
            while let Some(piece) = read.bytes.try_next().await? {
                got.extend_from_slice(&piece);
            }
            Ok::<_, Error>(())
        };
        match rest.await {
            Ok(()) => {
                expect::that(got == old, "the old blob, whole", format!("{} bytes, others", got.len()))?;
            }
            // The store may be unable to deliver the rest. It may not deliver other bytes.
            refused => {
                expect::error("the rest of a moved blob", refused, ErrorKind::Conflict)?;
            }
        }
    }
    Ok(())
}

async fn an_undeclared_rename_is_unsupported(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let declared = context.open().await?.capabilities(Contract::Blobs).unwrap_or_default();
    let (source, target) = (key("source")?, key("target")?);
    a.put_bytes(&source, Bytes::from_static(b"1")).await?;
    if declared.has(Capability::BlobRename) {
        // The capability is declared, so the store must rename.
        a.rename(&source, &target, RenameMode::Refuse).await?;
        return expect::equal("the bytes", &b.get_bytes(&target).await?, &Bytes::from_static(b"1"));
    }
    a.put_bytes(&target, Bytes::from_static(b"2")).await?;
    let before = dump(&*b).await?;
    for mode in [RenameMode::Refuse, RenameMode::Replace] {
        for (from, to) in [(&source, &target), (&source, &source), (&source, &key("new")?)] {
            let renamed = a.rename(from, to, mode).await;
            expect::error("a rename that is not declared", renamed, ErrorKind::Unsupported)?;
        }
    }
    expect::equal("everything stored", &dump(&*b).await?, &before)
}
