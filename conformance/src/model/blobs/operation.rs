//! The operations on blobs: their random generation, and their Rust form.

use bytes::Bytes;
use larder_kernel::{
    BlobBody, BlobCondition, BlobKey, BlobPutOptions, ByteRange, ETag, Error, ErrorKind, RenameMode, Result,
};

use super::tag_name;
use crate::model::recorder::{Recorder, bytes, quoted, with};
use crate::model::rng::{Rng, valid};

/// The error of a body that fails.
pub(super) const STREAM_FAILURE: ErrorKind = ErrorKind::Corrupt;

/// The version that a write names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Tag {
    /// The current version of the key.
    Current,
    /// The first version of the key.
    First,
    /// The version before the last.
    Before,
    /// A tag that no blob has.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Condition {
    None,
    Absent,
    Matches(Tag),
}

impl Condition {
    pub(super) fn blob(self, tag: impl FnOnce(Tag) -> ETag) -> BlobCondition {
        match self {
            Self::None => BlobCondition::None,
            Self::Absent => BlobCondition::Absent,
            Self::Matches(at) => BlobCondition::Matches(tag(at)),
        }
    }
}

#[derive(Debug, Clone)]
pub(in crate::model) struct Put {
    pub(super) key: BlobKey,
    /// A single piece is passed as bytes.
    pieces: Vec<Bytes>,
    /// True if the body ends in an error.
    pub(super) fails: bool,
    pub(super) condition: Condition,
    /// The options without the condition.
    pub(super) options: BlobPutOptions,
}

/// The call that follows a listing of versions, for the version at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum OnVersion {
    List,
    Read(usize),
    Delete(usize),
}

#[derive(Debug, Clone)]
pub(in crate::model) enum Operation {
    Put(Put),
    Get { key: BlobKey, range: Option<ByteRange> },
    Head { key: BlobKey },
    List { prefix: String, after: Option<BlobKey> },
    Copy { source: BlobKey, target: BlobKey },
    Rename { source: BlobKey, target: BlobKey, mode: RenameMode },
    Delete { key: BlobKey },
    Versions { key: BlobKey, on: OnVersion },
    Erase,
}

pub(super) fn draw(rng: &mut Rng<'_>) -> Operation {
    match rng.weighted(&[12, 6, 3, 5, 4, 4, 1, 4, 3]) {
        1 => Operation::Get { key: key(rng), range: range(rng) },
        2 => Operation::Head { key: key(rng) },
        3 => Operation::List { prefix: prefix(rng), after: (rng.below(2) == 1).then(|| key(rng)) },
        4 => Operation::Copy { source: key(rng), target: key(rng) },
        5 => Operation::Delete { key: key(rng) },
        6 if rng.one_in(4) => Operation::Erase,
        7 => Operation::Rename {
            source: key(rng),
            target: key(rng),
            mode: rng.of(&[RenameMode::Refuse, RenameMode::Replace]),
        },
        8 => {
            let (key, at) = (key(rng), rng.below(4));
            let on = rng.of(&[OnVersion::List, OnVersion::Read(at), OnVersion::Delete(at)]);
            Operation::Versions { key, on }
        }
        _ => put(rng),
    }
}

fn key(rng: &mut Rng<'_>) -> BlobKey {
    valid(BlobKey::new(rng.id()))
}

const BYTES: [&[u8]; 6] = [b"1", b"2", b"", b"\0\xff\xfe\n", b"0123456789", b"11"];

fn put(rng: &mut Rng<'_>) -> Operation {
    let key = key(rng);
    let one = match rng.below(200) {
        199 => Bytes::from(vec![b'v'; 70_000]),
        small => Bytes::from_static(BYTES[small % BYTES.len()]),
    };
    let tags = [Tag::Current, Tag::Current, Tag::First, Tag::Before, Tag::None];
    let condition = match rng.below(8) {
        0..5 => Condition::None,
        5 => Condition::Absent,
        _ => Condition::Matches(rng.of(&tags)),
    };
    let pieces = match rng.below(6) {
        0..4 => vec![one],
        4 => vec![Bytes::new(), one.clone(), Bytes::new(), one],
        _ => Vec::new(),
    };
    // If a condition fails as well, either error may be returned.
    let fails = condition == Condition::None && rng.one_in(12);
    Operation::Put(Put { key, pieces, fails, condition, options: options(rng) })
}

fn options(rng: &mut Rng<'_>) -> BlobPutOptions {
    let plain = BlobPutOptions::default();
    match rng.below(16) {
        8 | 9 => plain.with_content_type("text/plain; charset=utf-8"),
        10 => plain.with_content_type("x").with_metadata("a", "1").with_metadata("b-_9", "A, b=\"c\" %41"),
        11 => plain.with_metadata("a", ""),
        12 => plain.with_metadata("a", "2"),
        13 => plain.with_metadata("A", "1"),
        14 => plain.with_content_type("é"),
        15 => plain.with_metadata("a", " 1"),
        _ => plain,
    }
}

fn range(rng: &mut Rng<'_>) -> Option<ByteRange> {
    let bounded = |start, end| Some(ByteRange::Bounded { start, end });
    rng.of(&[
        None,
        None,
        bounded(0, 1),
        bounded(1, 3),
        bounded(0, u64::MAX),
        bounded(2, 2),
        Some(ByteRange::From(0)),
        Some(ByteRange::From(1)),
        Some(ByteRange::From(10)),
        Some(ByteRange::From(u64::MAX)),
        Some(ByteRange::Suffix(1)),
        Some(ByteRange::Suffix(3)),
        Some(ByteRange::Suffix(u64::MAX)),
        Some(ByteRange::Suffix(0)),
    ])
}

fn prefix(rng: &mut Rng<'_>) -> String {
    match rng.below(13) {
        0..5 => String::new(),
        5..9 => rng.id().to_string(),
        9 => rng.id().chars().take(1).collect(),
        10 => format!("{}/", rng.id()),
        11 => "x".repeat(513),
        _ => "a\0".to_owned(),
    }
}

impl Put {
    pub(super) fn bytes(&self) -> Bytes {
        self.pieces.concat().into()
    }

    pub(super) fn body(&self) -> BlobBody {
        match self.pieces.as_slice() {
            [one] if !self.fails => BlobBody::Bytes(one.clone()),
            pieces => {
                let failure = self.fails.then(|| Err(Error::new(STREAM_FAILURE, "body", "the body fails")));
                let pieces: Vec<Result<Bytes>> = pieces.iter().cloned().map(Ok).chain(failure).collect();
                BlobBody::stream(futures_util::stream::iter(pieces))
            }
        }
    }

    pub(super) fn body_text(&self) -> String {
        match self.pieces.as_slice() {
            [one] if !self.fails => format!("BlobBody::Bytes({})", bytes(one)),
            pieces => {
                let failure = "Err(Error::new(ErrorKind::Corrupt, \"body\", \"the body fails\"))".to_owned();
                let pieces = pieces.iter().map(|piece| format!("Ok({})", bytes(piece)));
                let pieces: Vec<String> = pieces.chain(self.fails.then_some(failure)).collect();
                format!("BlobBody::stream(futures_util::stream::iter(vec![{}]))", pieces.join(", "))
            }
        }
    }
}

/// Returns options as an expression.
pub(super) fn options_text(options: &BlobPutOptions, recorder: &Recorder) -> String {
    let condition = match &options.condition {
        BlobCondition::None => "BlobCondition::None".to_owned(),
        BlobCondition::Absent => "BlobCondition::Absent".to_owned(),
        BlobCondition::Matches(tag) => {
            let given = || format!("ETag::new({}).unwrap()", quoted(tag.as_str()));
            format!("BlobCondition::Matches({})", recorder.named(&tag_name(tag), given))
        }
        _ => unreachable!("the model draws no other condition"),
    };
    let content_type = with("content_type", options.content_type.as_deref(), |text| format!("{text:?}"));
    let pairs =
        options.metadata.iter().map(|(name, value)| format!("({name:?}.to_owned(), {value:?}.to_owned())"));
    let metadata = pairs.collect::<Vec<_>>().join(", ");
    format!(
        "BlobPutOptions::default().with_condition({condition}){content_type}\
         .with_all_metadata(UserMetadata::from([{metadata}]))"
    )
}

/// Returns a range as an expression.
pub(super) fn range_text(range: ByteRange) -> String {
    match range {
        ByteRange::Bounded { start, end } => format!("ByteRange::Bounded {{ start: {start}, end: {end} }}"),
        ByteRange::From(start) => format!("ByteRange::From({start})"),
        ByteRange::Suffix(count) => format!("ByteRange::Suffix({count})"),
    }
}
