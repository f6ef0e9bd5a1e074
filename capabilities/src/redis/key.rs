//! The names of keys and channels on the server.
//!
//! All keys of one entity (a thread, a bucket, the boards of a conversation) share one hash tag, the part in
//! braces. So a cluster keeps them in one slot, and one script may use all of them:
//!
//! ```text
//! larder:{kv:tenant-1:settings}:entries
//! ```
//!
//! The part before the tag is the prefix of the configuration. It contains no brace, so the tag of the entity
//! stays the first one and decides the slot, and no key of one prefix begins with the tags of another.
//!
//! Inside the tag, ids are escaped as in a URL, so that different ids never collide and no id can end the
//! tag.

use std::sync::Arc;

use bytes::Bytes;
use larder_kernel::{Error, Result};

/// The prefix if the URL names none.
pub(crate) const KEY_PREFIX_DEFAULT: &str = "larder:";
/// The maximum length of a prefix, which every key repeats.
pub(crate) const KEY_PREFIX_BYTES_MAX: usize = 64;

/// The beginning of every key and channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyPrefix(Arc<str>);

impl KeyPrefix {
    /// Checks a prefix. A rule of an ACL contains no space, and `SCAN` reads the signs of a pattern.
    pub(crate) fn new(operation: &'static str, text: &str) -> Result<Self> {
        const FIELD: &str = "key_prefix";
        if text.is_empty() {
            return Err(Error::under_limit(operation, FIELD, 0, 1));
        }
        if text.len() > KEY_PREFIX_BYTES_MAX {
            let (actual, limit) = (text.len(), KEY_PREFIX_BYTES_MAX);
            let size = larder_kernel::check::size;
            return Err(Error::over_limit(operation, FIELD, size(actual), size(limit)));
        }
        let forbidden = |c: char| {
            matches!(c, '{' | '}' | '*' | '?' | '[' | ']' | '\\' | '^') || c.is_control() || c.is_whitespace()
        };
        if text.contains(forbidden) {
            let message = "contains a brace, a space, a control character or one of `*?[]^\\`; use letters, \
                           digits and signs such as `:` and `-`";
            return Err(Error::invalid(operation, FIELD, message));
        }
        Ok(Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the entity with this kind and these ids. Kinds are words of this program.
    pub(crate) fn entity(&self, kind: &'static str, ids: &[&str]) -> Entity {
        let mut tag = format!("{}{{{kind}", self.0);
        for id in ids {
            tag.push(':');
            escape_into(&mut tag, id);
        }
        tag.push('}');
        Entity { tag }
    }

    /// Returns a channel without subscribers.
    pub(crate) fn channel_of_marks(&self) -> String {
        format!("{}mark", self.0)
    }

    /// Returns the beginning of every key of an entity.
    pub(crate) fn begin(&self) -> Vec<u8> {
        [self.0.as_bytes(), b"{"].concat()
    }
}

impl Default for KeyPrefix {
    fn default() -> Self {
        Self(KEY_PREFIX_DEFAULT.into())
    }
}

/// The hash tag of an entity, from which the keys of its parts are built.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Entity {
    tag: String,
}

impl Entity {
    /// Returns the key of a part of the entity. Parts are words of this program.
    pub(crate) fn part(&self, part: &'static str) -> Bytes {
        Bytes::from(format!("{}:{part}", self.tag))
    }

    /// Returns the channel on which changes of the entity are announced.
    pub(crate) fn channel(&self) -> String {
        format!("{}:wake", self.tag)
    }
}

/// Appends the id. Escapes every byte that has a meaning in a key or cannot be read in a terminal.
fn escape_into(out: &mut String, id: &str) {
    for c in id.chars() {
        if matches!(c, ':' | '%' | '{' | '}') || c.is_ascii_control() || c == ' ' {
            out.push_str(&format!("%{:02X}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::redis::engine::slot;

    /// Returns every text of up to four characters of the alphabet of keys, escapes and tags, and some of
    /// other alphabets.
    fn hostile_ids() -> Vec<String> {
        let signs = ["a", ":", "%", "{", "}", "2", "5", "3A", "%7D", "é", "\u{1}", " ", "*"];
        let mut ids: Vec<String> = vec![String::new()];
        for length in 0..3 {
            let longer: Vec<String> = ids
                .iter()
                .filter(|id| length == 0 || !id.is_empty())
                .flat_map(|id| signs.iter().map(move |sign| format!("{id}{sign}")))
                .collect();
            ids.extend(longer);
        }
        ids.sort();
        ids.dedup();
        ids.retain(|id| !id.is_empty());
        ids
    }

    #[test]
    fn different_ids_have_different_keys_in_one_slot_each() {
        let ids = hostile_ids();
        assert!(ids.len() > 1_500);
        let mut seen = HashSet::new();
        for id in &ids {
            let entity = KeyPrefix::default().entity("kv", &["n", id]);
            let key = entity.part("meta");
            assert_eq!(slot(&key), slot(&entity.part("entries")));
            assert_eq!(key.iter().filter(|byte| matches!(byte, b'{' | b'}')).count(), 2);
            assert!(seen.insert(key));
        }
    }

    #[test]
    fn the_border_between_ids_is_part_of_the_key() {
        let ids: Vec<String> = hostile_ids().into_iter().filter(|id| id.len() <= 2).collect();
        let mut seen = HashSet::new();
        for first in &ids {
            for second in &ids {
                let entity = KeyPrefix::default().entity("t", &[first, second]);
                assert!(seen.insert(entity.part("meta")));
            }
        }
    }

    #[test]
    fn a_prefix_leaves_the_slot_to_the_tag() {
        for text in ["app:", "a", "größe/1-", &"p".repeat(KEY_PREFIX_BYTES_MAX)] {
            let prefix = KeyPrefix::new("test", text).unwrap();
            let (key, usual) = (prefix.entity("kv", &["n", "b"]).part("meta"), KeyPrefix::default());
            assert!(key.starts_with(text.as_bytes()));
            assert_eq!(slot(&key), slot(&usual.entity("kv", &["n", "b"]).part("meta")));
        }
    }

    #[test]
    fn a_prefix_with_a_sign_of_tags_or_patterns_is_refused() {
        let long = "é".repeat(KEY_PREFIX_BYTES_MAX / 2 + 1);
        for text in ["", "a{", "}a", "a*", "a?", "[a", "a]", "a\\", "^", "a b", "a\0", "a\n", &long] {
            let error = KeyPrefix::new("test", text).unwrap_err();
            assert_eq!(error.field(), Some("key_prefix"), "{text}");
            assert_eq!(error.limit().is_some(), text.is_empty() || text == long, "{text}");
        }
    }
}
