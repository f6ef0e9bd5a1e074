//! Object names: the mapping of namespaces and keys to names of S3 objects, and back.
//!
//! ```text
//! prefix/n=default/k/reports/q1.pdf!     the blob `reports/q1.pdf` of the namespace `default`
//! prefix/n=default/k/reports!            the blob `reports`
//! prefix/n=default/x/RKVgR5Q-!           a blob whose key holds other than plain characters
//! prefix/x=RKVg/k/a!                     the blob `a` of a namespace with such a name
//! prefix/probe/…                         the temporary objects of the probe
//! prefix/format=1                        the format number of these names and of the objects
//! ```
//!
//! **Names that differ from keys.** S3 accepts any UTF-8 as a name, but compatible servers do not. A listing
//! is XML, which cannot represent most control characters. Proxies and servers decode escapes once too often
//! (`%2F`, `+`) or normalize paths (`\`, a space at the end). A server that stores objects as files can hold
//! neither both `a` and `a/b` nor a segment over 255 bytes. So names consist of a few characters that no
//! server is known to change.
//!
//! **Two trees.** The server's listing must return the order of the keys' bytes, so the names must keep that
//! order. An encoding that keeps the order and leaves ordinary keys readable can double the worst keys. But
//! 512 bytes of key with 128 of namespace must fit the 1,024 that S3 allows. So keys of plain characters are
//! unchanged under `k/`. All other keys are under `x/` in groups of six bits, whose digits are in the order
//! of ASCII: 683 characters at most. Both trees are in the order of the keys, and a listing merges them.
//!
//! **The end mark.** A `!` ends each name and sorts before every character that a name may contain, including
//! `/`. So `a!` comes before `a/b!` and `a-b!`, as `a` does before `a/b` and `a-b`, and no object is the
//! folder of another. Under `x/` a `/` after every 128 digits keeps the segments short. It is always at the
//! same positions, so it does not change the order.
//!
//! **Names too long for the server.** Some servers store only shorter names than S3 does. For example, a
//! server that encodes a name in base64 as the name of one file allows some 130 bytes.
//! `blob/key_limit_probe.rs` finds the limit, and a key with a longer name is rejected before a request is
//! sent.

use larder_kernel::limits::{
    BLOB_SHORT_KEY_BYTES_MAX, BLOB_SHORT_NAMESPACE_BYTES_MAX, ID_BYTES_MAX, NAMESPACE_BYTES_MAX,
};
use larder_kernel::{BlobKey, Namespace};

/// The maximum length of a prefix in a bucket: with it the longest name stays under 1,024 bytes.
pub(crate) const PREFIX_BYTES_MAX: usize = 128;

/// The end mark of every name; it sorts before all other characters of a name.
const END: char = '!';
/// The maximum length of a segment of a plain key, with its end mark: file systems allow 255.
pub(crate) const SEGMENT_BYTES_MAX: usize = 200;
/// The number of digits in one segment under `x/`: 96 bytes of key.
const PIECE_DIGITS: usize = 128;
/// The digits of six bits each, in the order of ASCII.
const DIGITS: &[u8; 64] = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

/// Returns true if a character is unchanged in a name. All such characters sort after [`END`].
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-./=@_~".contains(&byte)
}

/// Returns true if the whole key is unchanged in its name.
fn is_plain_key(key: &str) -> bool {
    key.bytes().all(is_plain) && key.split('/').all(|segment| segment.len() <= SEGMENT_BYTES_MAX)
}

/// The two trees of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tree {
    Plain,
    Packed,
}

/// The start and the prefix of a listing of one tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scan {
    pub(crate) tree: Tree,
    /// The prefix of all relevant names.
    pub(crate) prefix: String,
    /// The greatest name before the relevant ones.
    pub(crate) after: Option<String>,
}

/// Returns the length of the longest possible name under a prefix.
pub(crate) const fn longest_name(prefix: &str) -> usize {
    name_bytes(prefix, NAMESPACE_BYTES_MAX, ID_BYTES_MAX)
}

/// Returns the length of the longest name of a key that every store supports.
pub(crate) const fn longest_short_name(prefix: &str) -> usize {
    name_bytes(prefix, BLOB_SHORT_NAMESPACE_BYTES_MAX, BLOB_SHORT_KEY_BYTES_MAX)
}

/// Returns the length of the longest name for a namespace and a key of these lengths: both packed, which is
/// longer than plain.
const fn name_bytes(prefix: &str, namespace: usize, key: usize) -> usize {
    let (namespace, key) = ((namespace * 8).div_ceil(6), (key * 8).div_ceil(6));
    prefix.len() + "x=/".len() + namespace + "x/!".len() + key + key / PIECE_DIGITS
}

/// The names of one namespace.
#[derive(Clone)]
pub(crate) struct Layout {
    root: String,
    /// The maximum length of a name that the server stores.
    name_bytes_max: usize,
}

impl Layout {
    /// Creates the names of a namespace under the prefix of the URL, which is empty or ends in `/`.
    pub(crate) fn new(prefix: &str, namespace: &Namespace, name_bytes_max: usize) -> Self {
        let text = namespace.as_str();
        let plain = text.bytes().all(|byte| is_plain(byte) && byte != b'/');
        let segment = if plain { format!("n={text}") } else { format!("x={}", pack(text.as_bytes())) };
        Self { root: format!("{prefix}{segment}/"), name_bytes_max }
    }

    /// Returns true if the server can store the name of the blob's object.
    pub(crate) fn fits(&self, key: &BlobKey) -> bool {
        self.object(key).len() <= self.name_bytes_max
    }

    /// Returns the prefix of all names of the namespace, and of no others.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    fn tree(&self, tree: Tree) -> String {
        let folder = match tree {
            Tree::Plain => "k/",
            Tree::Packed => "x/",
        };
        format!("{}{folder}", self.root)
    }

    /// Returns the name of the object that holds the blob.
    pub(crate) fn object(&self, key: &BlobKey) -> String {
        let key = key.as_str();
        if is_plain_key(key) {
            format!("{}{key}{END}", self.tree(Tree::Plain))
        } else {
            format!("{}{}{END}", self.tree(Tree::Packed), cut(&pack(key.as_bytes())))
        }
    }

    /// Returns the key of the blob that an object of the tree holds; `None` for an object that this store did
    /// not write.
    pub(crate) fn key(&self, tree: Tree, object: &str) -> Option<BlobKey> {
        let name = object.strip_prefix(&self.tree(tree))?.strip_suffix(END)?;
        let key = match tree {
            Tree::Plain => BlobKey::new(name).ok()?,
            Tree::Packed => BlobKey::new(String::from_utf8(unpack(&name.replace('/', ""))?).ok()?).ok()?,
        };
        // Only the spelling that `object` produces is a name of this store.
        (self.object(&key) == object).then_some(key)
    }

    /// Returns the scans of the trees for the keys that begin with `prefix` and come after `after`. A scan
    /// may return a few extra keys, which the caller drops, but it never misses one.
    pub(crate) fn scans(&self, prefix: &str, after: Option<&BlobKey>) -> Vec<Scan> {
        let after = after.map(BlobKey::as_str).filter(|after| *after >= prefix);
        let plain = prefix.bytes().all(is_plain).then(|| self.scan_plain(prefix, after));
        plain.into_iter().chain([self.scan_packed(prefix, after)]).collect()
    }

    fn scan_plain(&self, prefix: &str, after: Option<&str>) -> Scan {
        let tree = self.tree(Tree::Plain);
        let after = after.map(|after| {
            let plain = after.bytes().position(|byte| !is_plain(byte)).unwrap_or(after.len());
            // Up to the first character that no name contains; from there on the caller filters.
            let end = if plain == after.len() { "!" } else { "" };
            format!("{tree}{}{end}", after.get(..plain).unwrap_or_default())
        });
        Scan { tree: Tree::Plain, prefix: format!("{tree}{prefix}"), after }
    }

    fn scan_packed(&self, prefix: &str, after: Option<&str>) -> Scan {
        let tree = self.tree(Tree::Packed);
        let digits = pack(prefix.as_bytes());
        // The last digit may hold fewer than six bits of the prefix; the digits before it are the same in all
        // keys that begin with the prefix.
        let whole = cut(digits.get(..prefix.len() * 8 / 6).unwrap_or_default());
        let after = match after {
            Some(after) => Some(format!("{tree}{}{END}", cut(&pack(after.as_bytes())))),
            None if prefix.is_empty() => None,
            // Without its end mark, the prefix sorts directly before the name of the key that equals it.
            None => Some(format!("{tree}{}", cut(&digits))),
        };
        Scan { tree: Tree::Packed, prefix: format!("{tree}{whole}"), after }
    }
}

/// Encodes six bits in each digit, the last filled up with zeros.
fn pack(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 4 / 3 + 2);
    let (mut held, mut bits) = (0_u32, 0_u32);
    for &byte in bytes {
        held = (held << 8) | u32::from(byte);
        bits += 8;
        while bits >= 6 {
            bits -= 6;
            digits.push(digit(held >> bits));
        }
        held &= (1 << bits) - 1;
    }
    if bits > 0 {
        digits.push(digit(held << (6 - bits)));
    }
    digits
}

fn digit(value: u32) -> char {
    let at = usize::try_from(value & 63).unwrap_or_default();
    char::from(DIGITS.get(at).copied().unwrap_or(b'-'))
}

pub(crate) fn unpack(digits: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut held, mut bits) = (0_u32, 0_u32);
    for digit in digits.bytes() {
        let value = DIGITS.iter().position(|&known| known == digit)?;
        held = (held << 6) | u32::try_from(value).ok()?;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits).ok()?);
            held &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}

/// Inserts a `/` after every full piece of digits.
fn cut(digits: &str) -> String {
    let mut name = String::with_capacity(digits.len() + digits.len() / PIECE_DIGITS);
    for (at, digit) in digits.chars().enumerate() {
        name.push(digit);
        if (at + 1) % PIECE_DIGITS == 0 {
            name.push('/');
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::new("", &Namespace::new("n").unwrap(), usize::MAX)
    }

    /// Returns keys of all kinds: short and long, plain and not, with bytes at both ends of the range.
    fn keys() -> Vec<String> {
        let alphabet =
            ["a", "b", "A", "0", "-", ".", "/", "_", "~", "!", " ", "\u{1}", "é", "\u{10ffff}", "%", "z"];
        let mut keys: Vec<String> = alphabet.iter().map(|text| (*text).to_owned()).collect();
        let mut state = 7_u64;
        for round in 0..4_000_usize {
            let mut key = String::new();
            let length = [2, 3, 5, 17, 95, 96, 97, 130, 300][round % 9];
            // Keys with a common prefix, so that every difference in the order is tested.
            if round % 3 == 0 {
                key.push_str(keys.get(round % keys.len()).map_or("", String::as_str));
            }
            for _ in 0..length {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let few = if round % 2 == 0 { 5 } else { 16 };
                key.push_str(alphabet[usize::try_from(state % few).unwrap()]);
            }
            keys.push(key);
        }
        keys.extend([
            "x".repeat(511),
            "x".repeat(512),
            "x".repeat(200),
            "x".repeat(201),
            "\u{1}".repeat(512),
        ]);
        keys.retain(|key| BlobKey::new(key).is_ok());
        keys.sort_unstable();
        keys.dedup();
        assert!(keys.len() > 1_000);
        keys
    }

    #[test]
    fn ordinary_keys_stay_readable() {
        let layout = Layout::new("app/", &Namespace::new("default").unwrap(), usize::MAX);
        let object = |key: &str| layout.object(&BlobKey::new(key).unwrap());
        assert_eq!(object("reports/2026/a.pdf"), "app/n=default/k/reports/2026/a.pdf!");
        assert_eq!(object("A b"), "app/n=default/x/FH0X!");
        assert_eq!(Layout::new("", &Namespace::new("a/b").unwrap(), usize::MAX).root(), "x=NHxX/");
    }

    #[test]
    fn every_key_reads_back_and_each_tree_keeps_the_order() {
        let layout = layout();
        let mut last: [Option<String>; 2] = [None, None];
        for key in keys().iter().map(|key| BlobKey::new(key).unwrap()) {
            let object = layout.object(&key);
            assert!(object.len() <= 1_024);
            assert!(object.split('/').all(|segment| !segment.is_empty() && segment.len() <= 255));
            let at = usize::from(object.starts_with("n=n/x/"));
            let (tree, other) =
                if at == 0 { (Tree::Plain, Tree::Packed) } else { (Tree::Packed, Tree::Plain) };
            assert_eq!(layout.key(tree, &object), Some(key.clone()));
            assert_eq!(layout.key(other, &object), None);
            assert!(last[at].as_ref().is_none_or(|last| *last < object), "{key:?}");
            last[at] = Some(object);
        }
    }

    #[test]
    fn no_object_is_the_folder_of_another() {
        let layout = layout();
        let objects: std::collections::BTreeSet<String> =
            keys().iter().map(|key| layout.object(&BlobKey::new(key).unwrap())).collect();
        for object in &objects {
            for (at, _) in object.match_indices('/') {
                assert!(!objects.contains(&object[..at]));
            }
        }
    }

    #[test]
    fn the_longest_names_fit_and_have_the_computed_length() {
        let named = |prefix: &str, namespace: &str, key: &str| {
            let namespace = Namespace::new(namespace).unwrap();
            Layout::new(prefix, &namespace, usize::MAX).object(&BlobKey::new(key).unwrap()).len()
        };
        let prefix = format!("{}/", "p".repeat(PREFIX_BYTES_MAX));
        assert!(longest_name(&prefix) <= 1_024);
        for text in ["\u{1}", "a"] {
            for (prefix, exact) in [("", text == "\u{1}"), (prefix.as_str(), text == "\u{1}")] {
                let long = named(prefix, &text.repeat(128), &text.repeat(512));
                let short = named(prefix, &text.repeat(32), &text.repeat(48));
                assert!(long <= longest_name(prefix) && short <= longest_short_name(prefix));
                assert_eq!((long, short) == (longest_name(prefix), longest_short_name(prefix)), exact);
            }
        }
        assert_eq!(longest_short_name(""), 113);
    }

    #[test]
    fn a_name_is_kept_up_to_the_servers_limit() {
        let layout = Layout::new("", &Namespace::new("n").unwrap(), "n=n/k/abc!".len());
        assert!(layout.fits(&BlobKey::new("abc").unwrap()));
        assert!(!layout.fits(&BlobKey::new("abcd").unwrap()));
        // Packed names are longer.
        assert!(!layout.fits(&BlobKey::new("a c").unwrap()));
    }

    #[test]
    fn scans_find_every_requested_key() {
        let layout = layout();
        let keys: Vec<BlobKey> = keys().iter().map(|key| BlobKey::new(key).unwrap()).collect();
        let starts = keys.iter().step_by(37).map(Some).chain([None]);
        for after in starts {
            for prefix in
                ["", "a", "a/", "/", "-", "é", "ab ", "\u{1}", "xx", "a\u{10ffff}", "~.", &"x".repeat(130)]
            {
                let scans = layout.scans(prefix, after);
                for key in &keys {
                    if !key.as_str().starts_with(prefix) || after.is_some_and(|after| key <= after) {
                        continue;
                    }
                    let object = layout.object(key);
                    let found = scans.iter().filter(|scan| {
                        object.starts_with(&scan.prefix)
                            && scan.after.as_ref().is_none_or(|after| object > *after)
                    });
                    assert_eq!(found.count(), 1, "{key:?} under {prefix:?} after {after:?}");
                }
            }
        }
    }

    #[test]
    fn names_of_other_programs_are_not_keys() {
        let layout = layout();
        for name in [
            "n=n/k/a",
            "n=n/k/a b!",
            "n=n/k//a!",
            "n=n/k/../a!",
            "n=m/k/a!",
            "n=n/x/!",
            "n=n/x/a!",
            "n=n/x/M3!",
        ] {
            assert_eq!(layout.key(Tree::Plain, name).or(layout.key(Tree::Packed, name)), None, "{name}");
        }
    }
}
