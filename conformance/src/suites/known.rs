//! The records that the suite writes. A dump reads these from a store that cannot list yet.

/// The markers of the records that the shared cases write.
const MARKERS: [&str; 20] = [
    "after",
    "afterwards",
    "before",
    "finally",
    "first",
    "kept",
    "laid-out",
    "mine",
    "more",
    "new",
    "old",
    "one",
    "same",
    "second",
    "theirs",
    "three",
    "two",
    "used",
    "without a network",
    "without a relay",
];

/// Returns `of` for each marker.
pub(super) fn marked<T>(of: impl Fn(&'static str) -> T) -> impl Iterator<Item = T> {
    MARKERS.into_iter().map(of)
}
