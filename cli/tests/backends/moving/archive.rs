//! Archives: complete, or refused at the damaged line.

use std::path::{Path, PathBuf};

use larder::transfer::{Archive, Existing, Source, Watch, copy, dump};
use larder_kernel::{ContextValue, Contract, Error, ErrorKind};
use libtest_mimic::Trial;
use sha2::{Digest as _, Sha256};

use super::fill::{Dice, fill};
use super::place::{Backend, Place};
use super::read::{assert_same, everything};
use super::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("an_archive_loads_as_it_was_dumped", loads),
        trial("a_truncated_archive_is_refused_with_the_offset", truncated),
        trial("an_altered_byte_is_refused_with_the_offset", altered),
        trial("lines_removed_swapped_or_repeated_are_refused", rearranged),
        trial("an_archive_of_another_version_is_refused", other_version),
        trial("an_archive_written_from_its_documentation_loads", by_hand),
    ]
}

async fn dumped(place: &Place, contracts: &[Contract]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let side = place.stores.set().clone();
    dump(&side, &place.namespace, contracts, &mut bytes, &Watch::nobody()).await.unwrap();
    bytes
}

fn file(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join("archive");
    std::fs::write(&path, bytes).unwrap();
    path
}

async fn loads() {
    let folder = tempfile::tempdir().unwrap();
    for (seed, from, to) in [(1, Backend::Memory, Backend::Sqlite), (2, Backend::Sqlite, Backend::Memory)] {
        let (source, target) = (Place::new(from).await, Place::new(to).await);
        fill(&source.stores, seed).await;
        let bytes = dumped(&source, Contract::ALL).await;
        let archive = Archive::open(file(folder.path(), &bytes)).unwrap();
        assert_eq!(archive.namespace(), &source.namespace);
        let archive = Source::from(archive);
        for round in 0..2 {
            let side = target.stores.set().clone();
            let copied =
                copy(&archive, &side, Contract::ALL, Existing::Refuse, &Watch::nobody()).await.unwrap();
            for copied in copied {
                assert!(copied.is_equal() && (round == 0 || copied.written == 0), "{copied:?}");
            }
        }
        let held = everything(&source.stores, Contract::ALL).await;
        assert_same(held, everything(&target.stores, Contract::ALL).await);
        // The same content makes the same archive on every backend, except for expiry times.
        let without: Vec<Contract> =
            Contract::ALL.iter().copied().filter(|c| *c != Contract::KeyValue).collect();
        let digests = |bytes: &[u8]| Archive::open(file(folder.path(), bytes)).unwrap().digests().to_vec();
        assert_eq!(digests(&dumped(&source, &without).await), digests(&dumped(&target, &without).await));
    }
}

/// Returns the lines with their checksums, in the documented format.
fn chained(lines: &[String]) -> Vec<u8> {
    let mut chain: [u8; 32] = Sha256::digest(b"larder archive").into();
    let mut bytes = Vec::new();
    for json in lines {
        let mut digest = Sha256::new();
        digest.update(chain);
        digest.update(json);
        chain = digest.finalize().into();
        let text: String = chain.iter().map(|byte| format!("{byte:02x}")).collect();
        bytes.extend_from_slice(format!("{text} {json}\n").as_bytes());
    }
    bytes
}

/// Returns an archive of about 40 lines, including parts of blobs.
async fn small() -> Vec<u8> {
    let place = Place::new(Backend::Memory).await;
    fill(&place.stores, 3).await;
    let contracts = [Contract::Graph, Contract::Blobs];
    dumped(&place, &contracts).await
}

fn number(error: &Error, name: &str) -> i128 {
    let found = error.context().iter().find(|(named, _)| *named == name);
    match found {
        Some((_, ContextValue::Number(number))) => *number,
        _ => panic!("no {name} in {error}"),
    }
}

/// Returns the error of a damaged archive, and asserts that it names the line that begins at `offset`.
fn refused(folder: &Path, bytes: &[u8], offset: usize) {
    let error = Archive::open(file(folder, bytes)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(number(&error, "offset"), i128::try_from(offset).unwrap(), "{error}");
    let line = bytes[..offset].iter().filter(|byte| **byte == b'\n').count() + 1;
    assert_eq!(number(&error, "line"), i128::try_from(line).unwrap(), "{error}");
}

fn line_starts(bytes: &[u8]) -> Vec<usize> {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends).collect()
}

async fn truncated() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = small().await;
    let starts = line_starts(&bytes);
    assert!(starts.len() > 30);
    for start in &starts[..starts.len() - 1] {
        refused(folder.path(), &bytes[..*start], *start);
    }
    let mut dice = Dice::new(1);
    for _ in 0..100 {
        let end = dice.below(bytes.len());
        let start = starts.iter().rfind(|start| **start <= end).unwrap();
        refused(folder.path(), &bytes[..end], *start);
    }
    Archive::open(file(folder.path(), &bytes)).unwrap();
}

async fn altered() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = small().await;
    let starts = line_starts(&bytes);
    let mut dice = Dice::new(2);
    let first = starts[2];
    let last = starts[starts.len() - 2];
    let every = (0..first).chain(last..bytes.len()).step_by(7);
    let any: Vec<usize> = every.chain((0..200).map(|_| dice.below(bytes.len()))).collect();
    for at in any {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << dice.below(8);
        let start = starts.iter().rfind(|start| **start <= at).unwrap();
        refused(folder.path(), &bad, *start);
    }
    // A load of the damaged archive writes nothing.
    let target = Place::new(Backend::Sqlite).await;
    let mut bad = bytes.clone();
    bad[last + 80] ^= 1;
    let path = file(folder.path(), &bad);
    let output = super::command::larder(&["load", path.to_str().unwrap(), &target.url]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("offset {last}")) && said.lines().count() == 1, "{said}");
    let all = everything(&target.stores, Contract::ALL).await;
    assert_same(all, super::read::Everything::default());
}

async fn rearranged() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = small().await;
    let starts = line_starts(&bytes);
    let line = |at: usize| &bytes[starts[at]..starts[at + 1]];
    let lines: Vec<&[u8]> = (0..starts.len() - 1).map(line).collect();
    for at in (1..lines.len() - 1).step_by(3) {
        let removed: Vec<u8> = [&lines[..at], &lines[at + 1..]].concat().concat();
        refused(folder.path(), &removed, starts[at]);
        let repeated: Vec<u8> = [&lines[..=at], &lines[at..]].concat().concat();
        refused(folder.path(), &repeated, starts[at + 1]);
        let mut swapped = lines.clone();
        swapped.swap(at, at + 1);
        refused(folder.path(), &swapped.concat(), starts[at]);
    }
    let more = [&bytes[..], lines[1]].concat();
    refused(folder.path(), &more, bytes.len());
    refused(folder.path(), b"", 0);
    refused(folder.path(), b"{\"role\":\"user\"}\n", 0);
    let absent = Archive::open(folder.path().join("absent")).unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::NotFound);
}

async fn other_version() {
    let folder = tempfile::tempdir().unwrap();
    let header = r#"{"larder_archive":3,"something":"new"}"#.to_owned();
    let error = Archive::open(file(folder.path(), &chained(&[header]))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!((number(&error, "version"), number(&error, "reads")), (3, 2));
}

/// Errors that a valid checksum does not exclude: records out of order, gaps, wrong ends.
async fn by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let header = r#"{"larder_archive":1,"namespace":"n","contracts":["key_value"]}"#.to_owned();
    let value = |key: &str| format!(r#"{{"value":{{"bucket":"b","key":"{key}","value":"eA=="}}}}"#);
    let canonical = r#"{"value":{"bucket":"b","key":"k","value":"eA=="}}"#;
    let mut digest = Sha256::new();
    digest.update(u64::try_from(canonical.len()).unwrap().to_be_bytes());
    digest.update(canonical);
    let sha256: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let end = |records: u64| {
        let digest = format!(r#"["key_value",{{"records":{records},"sha256":"{sha256}"}}]"#);
        format!(r#"{{"end":{{"records":{records},"digests":[{digest}]}}}}"#)
    };
    let good = chained(&[header.clone(), value("k"), end(1)]);
    let archive = Archive::open(file(folder.path(), &good)).unwrap();
    let target = Place::new(Backend::Memory).await;
    let side = target.stores.set().clone();
    let source = Source::from(archive);
    let copied =
        copy(&source, &side, &[Contract::KeyValue], Existing::Refuse, &Watch::nobody()).await.unwrap();
    assert!(copied[0].is_equal() && copied[0].written == 1, "{copied:?}");
    let message = concat!(
        r#"{"message":{"thread":{"agent":"a","session":"s"},"index":1,"message":{"role":"user","#,
        r#""created_at":"2026-01-01T00:00:00Z"}}}"#,
    );
    let part = r#"{"part":"eA=="}"#;
    let wrong: [&[String]; 7] = [
        &[header.clone(), value("k"), end(2)],
        &[header.clone(), value("l"), end(1)],
        &[header.clone(), value("k"), value("k"), end(1)],
        &[header.clone(), value("l"), value("k"), end(1)],
        &[header.clone(), message.to_owned(), end(1)],
        &[header.clone(), part.to_owned(), value("k"), end(1)],
        &[header.clone(), value("\\u0000"), end(1)],
    ];
    for lines in wrong {
        let error = Archive::open(file(folder.path(), &chained(lines))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}
