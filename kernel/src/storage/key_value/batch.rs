//! Argument and result types of the calls that concern several keys.

use std::ops::Bound;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::types::{KeyValueEntry, KeyValuePutOptions};
use crate::error::{Error, ErrorKind};
use crate::id::Key;
use crate::page::{Page, PageRequest};
use crate::position::Revision;
use crate::storage::options::{OptionSet, RequestOption};
use crate::timestamp::Timestamp;

/// One put or deletion of a [`write`](super::KeyValueStore::write).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyValueWrite {
    /// The key.
    pub key: Key,
    /// The change of the key.
    pub kind: KeyValueWriteKind,
}

/// The change that a [`KeyValueWrite`] makes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyValueWriteKind {
    /// Writes a value, as [`put`](super::KeyValueStore::put) does.
    Put {
        /// The bytes of the value.
        value: Bytes,
        /// The condition and the time to live.
        options: KeyValuePutOptions,
    },
    /// Deletes the key, as [`delete`](super::KeyValueStore::delete) does.
    Delete {
        /// The revision that the key must have; `None` deletes it unconditionally.
        at: Option<Revision>,
    },
}

impl KeyValueWrite {
    /// Writes a value.
    #[must_use]
    pub fn put(key: Key, value: impl Into<Bytes>, options: KeyValuePutOptions) -> Self {
        Self { key, kind: KeyValueWriteKind::Put { value: value.into(), options } }
    }

    /// Deletes a key, optionally only at a given revision.
    #[must_use]
    pub fn delete(key: Key, at: Option<Revision>) -> Self {
        Self { key, kind: KeyValueWriteKind::Delete { at } }
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        match &self.kind {
            KeyValueWriteKind::Put { options, .. } => options.options(),
            KeyValueWriteKind::Delete { .. } => OptionSet::NONE,
        }
    }

    /// Returns the size that counts toward the limit of a `write`: that of the key and the value.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let value_bytes = match &self.kind {
            KeyValueWriteKind::Put { value, .. } => value.len(),
            KeyValueWriteKind::Delete { .. } => 0,
        };
        self.key.as_str().len() + value_bytes
    }

    /// Returns the error for a `write` whose write number `index` has a condition that does not hold. Its
    /// context names the index as `write`.
    #[must_use]
    pub fn conflict(index: usize) -> Error {
        let message = "a condition of the write does not hold; read its key and try again";
        Error::new(ErrorKind::Conflict, super::WRITE, message)
            .with_context("write", crate::check::size(index))
    }
}

/// The order of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KeyOrder {
    /// In byte order.
    #[default]
    Ascending,
    /// In reverse byte order.
    Descending,
}

/// The entries that [`list_entries`](super::KeyValueStore::list_entries) lists.
///
/// ```
/// use larder_kernel::{Key, KeyOrder, KeyValueQuery};
///
/// let query = KeyValueQuery::prefix("turn/").with_to(Key::new("turn/100")?).descending().with_values();
/// assert_eq!((query.order, query.values), (KeyOrder::Descending, true));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeyValueQuery {
    /// The beginning of every listed key; `""` lists all.
    pub prefix: String,
    /// The smallest key to list. It need not exist.
    pub from: Option<Key>,
    /// The key below which all listed keys are. It need not exist.
    pub to: Option<Key>,
    /// The order of the listing.
    pub order: KeyOrder,
    /// `true` if the values are returned, too.
    pub values: bool,
}

impl KeyValueQuery {
    /// Lists the keys that begin with a prefix, in byte order, without their values.
    #[must_use]
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..Self::default() }
    }

    /// Sets the smallest key to list.
    #[must_use]
    pub fn with_from(mut self, from: impl Into<Option<Key>>) -> Self {
        self.from = from.into();
        self
    }

    /// Sets the key below which all listed keys are.
    #[must_use]
    pub fn with_to(mut self, to: impl Into<Option<Key>>) -> Self {
        self.to = to.into();
        self
    }

    /// Lists in reverse byte order.
    #[must_use]
    pub fn descending(mut self) -> Self {
        self.order = KeyOrder::Descending;
        self
    }

    /// Returns the values, too.
    #[must_use]
    pub fn with_values(mut self) -> Self {
        self.values = true;
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here. The prefix is no option.
        let Self { prefix: _, from, to, order, values } = self;
        OptionSet::NONE
            .with_if(from.is_some(), RequestOption::EntriesFrom)
            .with_if(to.is_some(), RequestOption::EntriesTo)
            .with_if(*order != KeyOrder::Ascending, RequestOption::EntriesOrder)
            .with_if(*values, RequestOption::EntriesValues)
    }

    /// Returns the bounds of a page: all its keys are between them, and every key between them is listed.
    #[must_use]
    pub fn bounds(&self, page: &PageRequest<Key>) -> (Bound<String>, Bound<String>) {
        let owned = |key: &Option<Key>| key.as_ref().map(|key| key.as_str().to_owned());
        let from =
            owned(&self.from).map_or_else(|| self.prefix.clone(), |from| from.max(self.prefix.clone()));
        let end = [owned(&self.to), prefix_end(&self.prefix)].into_iter().flatten().min();
        match (self.order, owned(&page.after)) {
            (KeyOrder::Ascending, Some(after)) if after >= from => {
                (Bound::Excluded(after), end.map_or(Bound::Unbounded, Bound::Excluded))
            }
            (KeyOrder::Descending, Some(after)) if end.as_ref().is_none_or(|end| after < *end) => {
                (Bound::Included(from), Bound::Excluded(after))
            }
            _ => (Bound::Included(from), end.map_or(Bound::Unbounded, Bound::Excluded)),
        }
    }

    /// Returns `true` if the query lists this key.
    #[must_use]
    pub fn selects(&self, key: &Key) -> bool {
        key.as_str().starts_with(&self.prefix)
            && self.from.as_ref().is_none_or(|from| key >= from)
            && self.to.as_ref().is_none_or(|to| key < to)
    }
}

/// An entry in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeyValueItem {
    /// The key.
    pub key: Key,
    /// The revision of its value.
    pub revision: Revision,
    /// The time from which the key reads as absent.
    pub expires_at: Option<Timestamp>,
    /// The bytes of the value, if the query asked for values.
    pub value: Option<Bytes>,
}

impl KeyValueItem {
    /// Creates an item without a value, for a key that does not expire.
    #[must_use]
    pub fn new(key: Key, revision: Revision) -> Self {
        Self { key, revision, expires_at: None, value: None }
    }

    /// Sets the time from which the key reads as absent.
    #[must_use]
    pub fn with_expires_at(mut self, expires_at: impl Into<Option<Timestamp>>) -> Self {
        self.expires_at = expires_at.into();
        self
    }

    /// Sets the value.
    #[must_use]
    pub fn with_value(mut self, value: impl Into<Option<Bytes>>) -> Self {
        self.value = value.into();
        self
    }
}

/// The result of a [`delete_prefix`](super::KeyValueStore::delete_prefix).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PrefixDeletion {
    /// The number of deleted keys.
    pub deleted: u64,
    /// `true` if more keys with the prefix existed at the time of the call.
    pub more: bool,
}

impl PrefixDeletion {
    /// Creates a result.
    #[must_use]
    pub fn new(deleted: u64, more: bool) -> Self {
        Self { deleted, more }
    }
}

/// Returns the smallest text that sorts after every text with the prefix; `None` if none exists. The texts
/// from the prefix up to it are exactly those with the prefix.
#[must_use]
pub fn prefix_end(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // UTF-8 sorts by code point, and code points skip the surrogates.
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            last => u32::from(last).checked_add(1).and_then(char::from_u32),
        };
        if let Some(next) = next {
            end.push(next);
            return Some(end);
        }
    }
    None
}

/// Returns the number of items at the start of a page of `limit` whose values fit into the limit for one
/// answer. At least one item fits. A store uses it to end a page.
#[must_use]
pub fn fitting(sizes: impl IntoIterator<Item = usize>, limit: usize) -> usize {
    let (mut count, mut bytes) = (0, 0_usize);
    for size in sizes.into_iter().take(limit) {
        bytes = bytes.saturating_add(size);
        if bytes > crate::limits::BATCH_VALUES_BYTES_MAX && count > 0 {
            break;
        }
        count += 1;
    }
    count
}

/// Creates a page of [`list_entries`](super::KeyValueStore::list_entries) from up to `limit + 1` items. The
/// page ends before its values exceed the limit for one answer, and, if `values` are wanted, before the first
/// item without one.
#[must_use]
pub fn entries_page(items: Vec<KeyValueItem>, values: bool, limit: usize) -> Page<KeyValueItem, Key> {
    let complete = items.iter().take_while(|item| !values || item.value.is_some());
    let kept = fitting(complete.map(|item| item.value.as_ref().map_or(0, Bytes::len)), limit);
    Page::from_surplus(items, kept, |item| item.key.clone())
}

/// Creates a result of [`get_many`](super::KeyValueStore::get_many) for `keys` keys from the entries of the
/// first ones. It ends before its values exceed the limit for one answer.
#[must_use]
pub fn many_page(mut entries: Vec<Option<KeyValueEntry>>, keys: usize) -> Page<Option<KeyValueEntry>, usize> {
    let sizes = entries.iter().map(|entry| entry.as_ref().map_or(0, |entry| entry.value.len()));
    let kept = fitting(sizes, keys);
    entries.truncate(kept);
    Page::new(entries, (kept < keys).then_some(kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{BATCH_VALUES_BYTES_MAX, VALUE_BYTES_MAX};

    #[test]
    fn a_page_ends_before_its_values_exceed_the_limit_and_has_one() {
        let largest = VALUE_BYTES_MAX;
        assert_eq!(fitting([largest; 10], 10), BATCH_VALUES_BYTES_MAX / largest);
        assert_eq!(fitting([largest; 10], 3), 3);
        assert_eq!(fitting([BATCH_VALUES_BYTES_MAX + 1, 0], 10), 1);
        assert_eq!(fitting([BATCH_VALUES_BYTES_MAX, 0, 1, 0], 10), 2);
        assert_eq!((fitting([1, 2], 0), fitting([], 5)), (0, 0));
    }

    #[test]
    fn the_bounds_of_a_page_are_the_narrowest() {
        use Bound::{Excluded, Included, Unbounded};
        let key = |text: &str| Key::new(text).unwrap();
        let page = |after: &str| PageRequest::after(key(after), 1);
        let text = |text: &str| text.to_owned();
        let query = KeyValueQuery::prefix("b").with_from(key("b5")).with_to(key("b9"));
        let whole = (Included(text("b5")), Excluded(text("b9")));
        assert_eq!(query.bounds(&PageRequest::first(1)), whole);
        assert_eq!(query.bounds(&page("b7")), (Excluded(text("b7")), Excluded(text("b9"))));
        assert_eq!(query.bounds(&page("b1")), whole);
        let reversed = query.descending();
        assert_eq!(reversed.bounds(&page("b7")), (Included(text("b5")), Excluded(text("b7"))));
        assert_eq!(reversed.bounds(&page("c")), whole);
        let wide = KeyValueQuery::prefix("b").with_from(key("a")).with_to(key("z"));
        assert_eq!(wide.bounds(&PageRequest::first(1)), (Included(text("b")), Excluded(text("c"))));
        let all = KeyValueQuery::prefix("");
        assert_eq!(all.bounds(&PageRequest::first(1)), (Included(text("")), Unbounded));
    }

    #[test]
    fn the_end_of_a_prefix_is_the_next_text_without_it() {
        for (prefix, end) in [
            ("", None),
            ("a", Some("b")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}", None),
            ("\u{d7ff}", Some("\u{e000}")),
        ] {
            assert_eq!(prefix_end(prefix).as_deref(), end);
        }
    }
}
