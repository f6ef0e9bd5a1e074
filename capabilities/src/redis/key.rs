//! The names of things inside the server.
//!
//! Everything that belongs to one entity (a thread, a bucket, a board) shares one hash tag, the part in braces, so
//! that a cluster keeps it in one slot and one script may use all of it:
//!
//! ```text
//! larder:{kv:tenant-1:settings}:entries
//! ```
//!
//! Inside the tag, ids are escaped like in a URL, so that different ids never meet and no id can end the tag.

use bytes::Bytes;

/// One entity's place, from which the keys of its parts are named.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Entity {
    tag: String,
}

impl Entity {
    /// The entity of a kind that the ids name together. Kinds are words of this program.
    pub(crate) fn new(kind: &'static str, ids: &[&str]) -> Self {
        let mut tag = format!("larder:{{{kind}");
        for id in ids {
            tag.push(':');
            escape_into(&mut tag, id);
        }
        tag.push('}');
        Self { tag }
    }

    /// The key of a part of the entity. Parts are words of this program.
    pub(crate) fn part(&self, part: &'static str) -> Bytes {
        Bytes::from(format!("{}:{part}", self.tag))
    }

    /// The channel on which changes of the entity are announced.
    pub(crate) fn channel(&self) -> String {
        format!("{}:wake", self.tag)
    }
}

/// Appends the id with every byte escaped that has a meaning in a key or cannot be read in a terminal.
fn escape_into(out: &mut String, id: &str) {
    for c in id.chars() {
        if matches!(c, ':' | '%' | '{' | '}') || c.is_ascii_control() || c == ' ' {
            out.push_str(&format!("%{:02X}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
}

/// The slot of a cluster in which a key lives: that of its hash tag.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let tagged = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let inner = key.get(open + 1..)?;
        let close = inner.iter().position(|byte| *byte == b'}')?;
        inner.get(..close).filter(|tag| !tag.is_empty())
    });
    crc16(tagged.unwrap_or(key)) % 16_384
}

/// CRC-16/XMODEM, which is what clusters hash with.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"a{foo}b"), slot(b"foo"));
        assert_ne!(slot(b"a{}foo"), slot(b"foo"));
    }

    /// Every text of up to four signs that keys, escapes and tags are made of, and some of other alphabets.
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
