//! The names of keys and channels on the server.
//!
//! All keys of one entity (a thread, a bucket, the boards of a conversation) share one hash tag, the part in
//! braces. So a cluster keeps them in one slot, and one script may use all of them:
//!
//! ```text
//! larder:{kv:tenant-1:settings}:entries
//! ```
//!
//! Inside the tag, ids are escaped as in a URL, so that different ids never collide and no id can end the
//! tag.

use bytes::Bytes;

/// The hash tag of an entity, from which the keys of its parts are built.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Entity {
    tag: String,
}

impl Entity {
    /// Creates the entity with this kind and these ids. Kinds are words of this program.
    pub(crate) fn new(kind: &'static str, ids: &[&str]) -> Self {
        let mut tag = format!("larder:{{{kind}");
        for id in ids {
            tag.push(':');
            escape_into(&mut tag, id);
        }
        tag.push('}');
        Self { tag }
    }

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
            let entity = Entity::new("kv", &["n", id]);
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
                assert!(seen.insert(Entity::new("t", &[first, second]).part("meta")));
            }
        }
    }
}
