//! Invalid calls of [`BlobStore`](larder_kernel::BlobStore).

use std::time::Duration;

use bytes::Bytes;
use larder_kernel::limits::{
    BLOB_METADATA_BYTES_MAX, BLOB_METADATA_ENTRIES_MAX, CONTENT_TYPE_BYTES_MAX, ID_BYTES_MAX,
    PRESIGN_EXPIRY_MAX, VERSION_ID_BYTES_MAX,
};
use larder_kernel::{
    BlobBody, BlobCondition, BlobGetOptions, BlobKey, BlobPutOptions, BlobVersionId, ByteRange, Capability,
    ETag, PresignMethod, PresignRequest, Result,
};

use super::inputs::{Bad, Rule, at_least, at_most, ids, prefixes, rule, up_to};
use super::{Refusal, Table, table};

pub(super) fn tables() -> Vec<Table> {
    vec![
        table("key", keys()),
        table("metadata_name", metadata_names()),
        table("metadata_value", metadata_values()),
        table("metadata_that_is_too_large", sizes()),
        table("content_type_of_a_write", content_types(None)),
        table("content_type_of_a_presigned_write", content_types(Some(PresignMethod::Put))),
        table("content_type_of_a_presigned_read", presigned_reads()),
        table("presign_of_a_time", validities()),
        table("range", ranges()),
        table("prefix", listed()),
        table("etag", etags()),
        table("id_of_a_version", version_ids()),
        Table { needs: Some(Capability::BlobVersions), ..table("range_of_a_version", version_ranges()) },
    ]
}

/// The rule of metadata values and content types.
const HEADER: Rule = rule("contains characters other than visible ASCII and inner spaces; remove them");

fn kept() -> Result<BlobKey> {
    BlobKey::new("kept/plain")
}

/// Returns characters that no header can contain: control characters, and non-ASCII ones.
fn invisible() -> Vec<char> {
    let controls = (0..0x20_u8).chain([0x7f]).map(char::from);
    controls.chain(['\u{80}', 'é', '日', '🦀', '\u{feff}', '\u{a0}']).collect()
}

fn keys() -> Vec<Refusal> {
    let mut bad: Vec<(String, Rule, String)> =
        ids().iter().map(|(what, limit, text)| ((*what).to_owned(), *limit, text.clone())).collect();
    for text in [
        "/",
        "//",
        "/a",
        "a/",
        "a//b",
        "a/b/",
        "/a/b",
        "///a",
        "a///b",
        ".",
        "..",
        "./a",
        "../a",
        "a/.",
        "a/..",
        "a/./b",
        "a/../b",
        "a/../../b",
        "a/b/../../..",
        "../..",
        "./.",
        "a/.//b",
        "/..",
        "../",
        "é/..",
        "../é",
        " /../ ",
        "a/b/.",
        "./",
        "/.",
        "a\n/..",
    ] {
        let segment = rule("has a segment between `/` that is empty, `.` or `..`; remove that segment");
        bad.push((format!("{text:?}"), segment, text.to_owned()));
    }
    let row = |(what, limit, text): (String, Rule, String)| {
        Refusal::value("blob_key.new", what, "blob_key", limit, move || BlobKey::new(&text).map(drop))
    };
    bad.into_iter().map(row).collect()
}

/// Overwrites an existing blob, from bytes or from a stream.
fn put(what: String, field: &'static str, limit: Rule, options: BlobPutOptions, streamed: bool) -> Refusal {
    Refusal::new("blobs.put", what, field, limit, move |stores| {
        let options = options.clone();
        Box::pin(async move {
            let bytes = Bytes::from_static(b"lost");
            let body = match streamed {
                true => BlobBody::stream(futures_util::stream::iter([Ok(bytes)])),
                false => BlobBody::Bytes(bytes),
            };
            stores.blobs()?.put(&kept()?, body, options).await.map(drop)
        })
    })
}

/// Invalid metadata names: every visible character except small letters, digits, `-` and `_`, and others.
fn metadata_names() -> Vec<Refusal> {
    let named = |name: String| BlobPutOptions::default().with_metadata("good", "v").with_metadata(name, "v");
    let visible = (0x20..0x7f_u8).map(char::from);
    let allowed = |it: &char| it.is_ascii_lowercase() || it.is_ascii_digit() || "-_".contains(*it);
    let letters = rule("contains characters other than a-z, 0-9, `-` and `_`; rename it");
    let mut rows = Vec::new();
    for character in visible.filter(|it| !allowed(it)).chain(invisible()) {
        let what = format!("{character:?}");
        rows.push(put(what, "metadata.name", letters, named(format!("a{character}b")), false));
    }
    let most = up_to(128);
    for (what, limit, name) in [("none", at_least(1), String::new()), ("129 bytes", most, "n".repeat(129))] {
        rows.push(put(what.to_owned(), "metadata.name", limit, named(name.clone()), false));
        rows.push(put(format!("{what}, streamed"), "metadata.name", limit, named(name), true));
    }
    rows
}

/// Texts that no header can contain, each with a valid beginning.
fn header_values() -> Vec<(String, String)> {
    let mut all: Vec<_> =
        invisible().into_iter().map(|it| (format!("{it:?} within"), format!("a{it}b"))).collect();
    for it in [' ', '\t', '\n', '\r', '\0'] {
        all.push((format!("{it:?} at the beginning"), format!("{it}a")));
        all.push((format!("{it:?} at the end"), format!("a{it}")));
    }
    all.push(("an injected header".to_owned(), "a\r\nx-amz-acl: public-read".to_owned()));
    all
}

fn metadata_values() -> Vec<Refusal> {
    let with = |value: &str| BlobPutOptions::default().with_metadata("a", "good").with_metadata("b", value);
    let mut rows = Vec::new();
    for (what, value) in header_values() {
        rows.push(put(format!("{what}, streamed"), "metadata.value", HEADER, with(&value), true));
        rows.push(put(what, "metadata.value", HEADER, with(&value), false));
    }
    rows
}

fn sizes() -> Vec<Refusal> {
    let entries = |count: usize| {
        (0..count).fold(BlobPutOptions::default(), |all, n| all.with_metadata(format!("n{n}"), "v"))
    };
    let (most, bytes) = (at_most(BLOB_METADATA_ENTRIES_MAX), at_most(BLOB_METADATA_BYTES_MAX));
    let one = |value: usize| BlobPutOptions::default().with_metadata("n", "v".repeat(value));
    let many = (0..20)
        .fold(BlobPutOptions::default(), |all, n| all.with_metadata(format!("n{n:02}"), "v".repeat(100)));
    let bad = [
        ("one entry too many", "metadata", most, entries(BLOB_METADATA_ENTRIES_MAX + 1)),
        ("twice too many", "metadata", most, entries(BLOB_METADATA_ENTRIES_MAX * 2)),
        ("a byte too many", "metadata.bytes", bytes, one(BLOB_METADATA_BYTES_MAX)),
        ("far too many bytes", "metadata.bytes", bytes, one(1 << 20)),
        ("too many bytes together", "metadata.bytes", bytes, many),
    ];
    let etag = ETag::new("none").ok();
    let mut rows = Vec::new();
    for (what, field, limit, options) in bad {
        // Invalid input takes precedence over conditions, whether they hold and are declared or not.
        let conditions = [
            Some(BlobCondition::None),
            Some(BlobCondition::Absent),
            etag.clone().map(BlobCondition::Matches),
        ];
        for condition in conditions.into_iter().flatten() {
            for streamed in [false, true] {
                let what = format!("{what}, {condition:?}, streamed: {streamed}");
                rows.push(put(
                    what,
                    field,
                    limit,
                    options.clone().with_condition(condition.clone()),
                    streamed,
                ));
            }
        }
    }
    rows
}

/// Content types of a write, or of a presigned one.
fn content_types(presigned: Option<PresignMethod>) -> Vec<Refusal> {
    let most = at_most(CONTENT_TYPE_BYTES_MAX);
    let mut bad: Vec<(String, Rule, String)> = vec![
        ("none".to_owned(), at_least(1), String::new()),
        ("257 bytes".to_owned(), most, "t".repeat(CONTENT_TYPE_BYTES_MAX + 1)),
        ("a kibibyte".to_owned(), most, "t".repeat(1024)),
    ];
    bad.extend(header_values().into_iter().map(|(what, text)| (what, HEADER, text)));
    let row = |(what, limit, text): (String, Rule, String)| match presigned {
        None => put(what, "content_type", limit, BlobPutOptions::default().with_content_type(text), false),
        Some(method) => presign(what, "content_type", limit, method, Duration::from_secs(60), Some(text)),
    };
    bad.into_iter().map(row).collect()
}

fn presign(
    what: String,
    field: &'static str,
    limit: Rule,
    method: PresignMethod,
    valid_for: Duration,
    content_type: Option<String>,
) -> Refusal {
    let mut request = PresignRequest::get(valid_for);
    (request.method, request.content_type) = (method, content_type);
    Refusal::new("blobs.presign", what, field, limit, move |stores| {
        let request = request.clone();
        Box::pin(async move { stores.blobs()?.presign(&kept()?, &request).await.map(drop) })
    })
}

/// Only a write has a content type.
fn presigned_reads() -> Vec<Refusal> {
    let types = ["text/plain", "image/png", "application/octet-stream", "a", "text/plain; charset=utf-8"];
    let row = |text: &str| {
        let (get, time) = (PresignMethod::Get, Duration::from_secs(60));
        presign(
            text.to_owned(),
            "content_type",
            rule("is set for a read; set it for a write only"),
            get,
            time,
            Some(text.to_owned()),
        )
    };
    types.into_iter().map(row).collect()
}

fn validities() -> Vec<Refusal> {
    let (least, most) = (at_least(1), up_to(PRESIGN_EXPIRY_MAX.as_secs()));
    let times: [Bad<Duration>; 9] = [
        ("no time", least, Duration::ZERO),
        ("a nanosecond", least, Duration::from_nanos(1)),
        ("a millisecond", least, Duration::from_millis(1)),
        ("just under a second", least, Duration::from_nanos(999_999_999)),
        ("a nanosecond over seven days", most, PRESIGN_EXPIRY_MAX + Duration::from_nanos(1)),
        ("a second over seven days", most, PRESIGN_EXPIRY_MAX + Duration::from_secs(1)),
        ("eight days", most, Duration::from_secs(8 * 24 * 3_600)),
        ("a year", most, Duration::from_secs(365 * 24 * 3_600)),
        ("all time", most, Duration::MAX),
    ];
    let mut rows = Vec::new();
    for (what, limit, time) in times {
        for (name, method, content_type) in [
            ("a read", PresignMethod::Get, None),
            ("a write", PresignMethod::Put, None),
            ("a typed write", PresignMethod::Put, Some("text/plain".to_owned())),
        ] {
            rows.push(presign(format!("{name} for {what}"), "valid_for", limit, method, time, content_type));
        }
    }
    rows
}

/// Ranges that are empty for a blob of any size.
fn ranges() -> Vec<Refusal> {
    let bounded = |start, end| ByteRange::Bounded { start, end };
    let bad = [
        bounded(0, 0),
        bounded(1, 1),
        bounded(3, 2),
        bounded(3, 0),
        bounded(1_000_000, 1_000_000),
        bounded(1_000_000, 3),
        bounded(u64::MAX, 0),
        bounded(u64::MAX, u64::MAX),
    ];
    let read = |what: String, limit: Rule, key: &'static str, range: ByteRange| {
        Refusal::new("blobs.get", what, "range", limit, move |stores| {
            Box::pin(async move {
                let options = BlobGetOptions::default().with_range(range);
                stores.blobs()?.get(&BlobKey::new(key)?, options).await.map(drop)
            })
        })
    };
    let past = Rule {
        limit: Some(larder_kernel::check::size("bytes of plain kept".len())),
        error: "is empty or begins at or past the blob's end; begin before the end",
    };
    let mut rows =
        vec![read("a range past the end".to_owned(), past, "kept/plain", ByteRange::From(1_000_000))];
    for key in ["kept/plain", "absent"] {
        for range in bad {
            // The error of an empty range names the end.
            let ByteRange::Bounded { end, .. } = range else { continue };
            let empty = Rule { limit: Some(end), error: "is empty; request at least one byte" };
            rows.push(read(format!("{range:?} of {key}"), empty, key, range));
        }
        rows.push(read(
            format!("the last 0 bytes of {key}"),
            rule("is empty; request at least one byte"),
            key,
            ByteRange::Suffix(0),
        ));
    }
    rows
}

/// Empty ranges of an existing blob's missing version and of a missing blob's.
fn version_ranges() -> Vec<Refusal> {
    let bounded = |start, end| ByteRange::Bounded { start, end };
    let mut rows = Vec::new();
    for key in ["kept/plain", "absent"] {
        for range in [bounded(0, 0), bounded(3, 2), bounded(u64::MAX, 0), ByteRange::Suffix(0)] {
            let limit = match range {
                ByteRange::Bounded { end, .. } => Some(end),
                _ => None,
            };
            let empty = Rule { limit, error: "is empty; request at least one byte" };
            let what = format!("{range:?} of {key}");
            rows.push(Refusal::new("blobs.get_version", what, "range", empty, move |stores| {
                Box::pin(async move {
                    let options = BlobGetOptions::default().with_range(range);
                    let (key, version) = (BlobKey::new(key)?, BlobVersionId::new("none")?);
                    stores.blobs()?.get_version(&key, &version, options).await.map(drop)
                })
            }));
        }
    }
    rows
}

fn listed() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, limit, prefix) in prefixes() {
        for after in [None, Some("kept/plain"), Some("zzz")] {
            rows.push(Refusal::new(
                "blobs.list",
                format!("{what} after {after:?}"),
                "prefix",
                limit,
                move |stores| {
                    Box::pin(async move {
                        let after = after.map(BlobKey::new).transpose()?;
                        stores.blobs()?.list(prefix, after.as_ref()).await.map(drop)
                    })
                },
            ));
        }
    }
    rows
}

/// Tags that no store assigned.
fn etags() -> Vec<Refusal> {
    let visible = rule("contains characters other than visible ASCII; remove them");
    let mut bad = vec![
        ("nothing".to_owned(), at_least(1), String::new()),
        ("513 bytes".to_owned(), at_most(ID_BYTES_MAX), "e".repeat(513)),
        ("a space".to_owned(), visible, "a b".to_owned()),
    ];
    bad.extend(invisible().into_iter().map(|it| (format!("{it:?}"), visible, format!("a{it}b"))));
    let row = |(what, limit, text): (String, Rule, String)| {
        Refusal::value("etag.new", what, "etag", limit, move || ETag::new(&text).map(drop))
    };
    bad.into_iter().map(row).collect()
}

/// Ids that no store assigned.
fn version_ids() -> Vec<Refusal> {
    let visible = rule("contains characters other than visible ASCII; remove them");
    let too_long = "v".repeat(VERSION_ID_BYTES_MAX + 1);
    let mut bad = vec![
        ("nothing".to_owned(), at_least(1), String::new()),
        ("1,025 bytes".to_owned(), at_most(VERSION_ID_BYTES_MAX), too_long),
        ("a space".to_owned(), visible, "a b".to_owned()),
    ];
    bad.extend(invisible().into_iter().map(|it| (format!("{it:?}"), visible, format!("a{it}b"))));
    let row = |(what, limit, text): (String, Rule, String)| {
        Refusal::value("blob_version.new", what, "blob_version", limit, move || {
            BlobVersionId::new(&text).map(drop)
        })
    };
    bad.into_iter().map(row).collect()
}
