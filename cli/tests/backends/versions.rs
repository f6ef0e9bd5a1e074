//! Backends that keep earlier versions of blobs pass the cases of blobs, also behind layers.
//!
//! The columns of `larder check` have no versions, because they are a setting of the place. Moto is the test
//! server with versioning. Without it, its test is ignored; with `LARDER_SERVICES=required` it fails.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::process::Command;

use libtest_mimic::{Arguments, Trial};
use serde_json::Value;

/// The clauses about versions.
const CLAUSES: [&str; 15] = [
    "BLOB-070", "BLOB-071", "BLOB-072", "BLOB-073", "BLOB-074", "BLOB-075", "BLOB-076", "BLOB-077",
    "BLOB-080", "BLOB-081", "BLOB-082", "BLOB-085", "BLOB-086", "BLOB-087", "BLOB-088",
];

pub(crate) fn group(arguments: &Arguments) -> bool {
    let mut trials = vec![
        // The slowest test begins first.
        Trial::test("layers_over_versions_pass", || {
            layered();
            Ok(())
        }),
        Trial::test("embedded_backends_that_keep_versions_pass", || {
            embedded();
            Ok(())
        }),
        Trial::test("copies_and_archives_have_the_current_blobs_only", || {
            moved();
            Ok(())
        }),
    ];
    trials.extend(served());
    crate::groups::run("versions", arguments, trials)
}

/// Runs the cases of blobs on a URL, and checks that those of versions pass except for `absent`.
fn passes(name: &str, url: &str, filter: &str, absent: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_larder"))
        .args(["check", &format!("{name}={url}"), "--format", "json", "--filter", filter, "--timeout", "300"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{name}: {said}"));
    assert_eq!(output.status.code(), Some(0), "{name}: {said}\n{report:#}");
    let cases = report["cases"].as_array().unwrap();
    for clause in CLAUSES.iter().filter(|clause| clause.starts_with(filter)) {
        let expected = if absent.contains(clause) { "unsupported" } else { "passed" };
        let found: Vec<&Value> = cases.iter().filter(|case| case["clause"] == **clause).collect();
        assert!(
            !found.is_empty() && found.iter().all(|case| case["outcome"] == expected),
            "{name}: {clause} is not {expected}: {found:?}"
        );
    }
}

fn embedded() {
    let folder = tempfile::tempdir().unwrap();
    passes("memory", "memory:?blob_versions=true", "BLOB-", &[]);
    let files = format!("file:{}?blob_versions=true", folder.path().join("blobs").display());
    passes("fs", &files, "BLOB-", &[]);
    let beside = format!("sqlite:{}?blob_versions=true", folder.path().join("larder.db").display());
    passes("sqlite", &beside, "BLOB-", &[]);
}

fn layered() {
    for layer in ["retry", "cache", "tenant"] {
        passes(layer, &format!("{layer}+memory:?blob_versions=true"), "BLOB-", &[]);
    }
    // The encryption layer declares no rename.
    for layer in ["encryption", "stack"] {
        passes(layer, &format!("{layer}+memory:?blob_versions=true"), "BLOB-", &["BLOB-076"]);
    }
}

/// Copies a namespace with versions to folders that keep versions too.
fn moved() {
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("file:{}?blob_versions=true", folder.path().join(name).display());
    let archive = folder.path().join("archive").display().to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let blobs = larder::open(&url("source")).await.unwrap().blobs().unwrap();
        for (key, text) in [("kept", "1"), ("kept", "2"), ("gone", "3")] {
            blobs.put(key, text).await.unwrap();
        }
        blobs.delete("gone").await.unwrap();
    });
    for arguments in [
        ["copy", &url("source"), &url("copy")],
        ["dump", &url("source"), &archive],
        ["load", &archive, &url("load")],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_larder")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    runtime.block_on(async {
        for target in ["copy", "load"] {
            let blobs = larder::open(&url(target)).await.unwrap().blobs().unwrap();
            assert_eq!(blobs.get("kept").await.unwrap(), "2");
            assert_eq!(blobs.versions("kept").await.unwrap().len(), 1, "{target}");
            assert!(blobs.versions("gone").await.unwrap().is_empty(), "{target}");
        }
    });
}

#[cfg(not(feature = "full"))]
fn served() -> Option<Trial> {
    None
}

#[cfg(feature = "full")]
fn served() -> Option<Trial> {
    use libtest_mimic::Failed;

    const VARIABLE: &str = "LARDER_S3_MOTO_URL";
    let required = std::env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let url = std::env::var(VARIABLE);
    let ignored = url.is_err() && !required;
    let run = move || {
        let url =
            url.map_err(|_| Failed::from(format!("{VARIABLE} is not set, and services are required")))?;
        let server = url.split_once("endpoint=http://").unwrap().1.split('&').next().unwrap();
        request(server, "/larder-versions", "");
        let enabled = "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                       <Status>Enabled</Status></VersioningConfiguration>";
        request(server, "/larder-versions?versioning", enabled);
        let url = url.replace("@larder?", "@larder-versions?");
        for filter in ["BLOB-04", "BLOB-07", "BLOB-08", "STORE-006", "STORE-009"] {
            passes("moto", &url, filter, &["BLOB-076"]);
        }
        Ok(())
    };
    Some(Trial::test("a_bucket_with_versioning_passes", run).with_ignored_flag(ignored))
}

/// Sends a PUT request, which the server accepts without a signature.
#[cfg(feature = "full")]
fn request(server: &str, path: &str, body: &str) {
    use std::io::{Read as _, Write as _};

    let mut stream = std::net::TcpStream::connect(server).unwrap();
    let length = body.len();
    write!(stream, "PUT {path} HTTP/1.0\r\nHost: {server}\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 "), "{path}: {answer}");
}
