//! File names: the mapping of keys and namespaces to folders and files, and back.
//!
//! ```text
//! root/.larder/{locks,tmp,trash}       internal files; no encoded name begins with `.`
//! root/.larder/format                  the format number of these names and of the files
//! root/default=/                       the namespace `default`
//! root/default=/reports=/q1.pdf        the blob `reports/q1.pdf`
//! root/default=/reports                the blob `reports`
//! root/default=/reports!/…1.TAG        an earlier version of the blob `reports`, in a folder with versions
//! ```
//!
//! The name of a segment between two `/` contains lower-case letters, digits, `.`, `_` and `-` unchanged. An
//! upper-case letter becomes `+` and its lower-case form. Every other byte, and a leading `.`, becomes `%`
//! and two hexadecimal digits. So different keys keep different names on file systems that fold case or
//! normalize Unicode. The name of a folder ends in `=`. A segment of [`PIECE_BYTES`] or more is cut after
//! every [`PIECE_BYTES`] bytes. Each such piece is a folder whose name ends in `~`. The rest of the segment
//! is in the last of these folders, and is `@` if it is empty. Cutting at a fixed number of bytes keeps all
//! keys that begin with the piece in one folder. So a listing can walk in the order of bytes.

use larder_kernel::{BlobKey, Namespace};

/// The number of bytes of a segment in one name. Three characters for each byte and the mark stay below 255.
pub(crate) const PIECE_BYTES: usize = 80;

const FOLDER_MARK: char = '=';
const MORE_MARK: char = '~';
const VERSIONS_MARK: char = '!';
const EMPTY: &str = "@";
const HEX: &[u8; 16] = b"0123456789abcdef";

/// The path of a blob: the folders from the root down, and the name of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlobPath {
    pub(crate) folders: Vec<String>,
    pub(crate) file: String,
}

/// The meaning of a name on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A blob whose segment ends with this piece.
    Blob(Vec<u8>),
    /// The folder of the keys in which a `/` follows this piece.
    Folder(Vec<u8>),
    /// The folder of the keys whose segment begins with this full piece.
    More(Vec<u8>),
    /// The folder of the earlier versions of the blob whose segment ends with this piece.
    Versions(Vec<u8>),
}

impl BlobPath {
    /// Returns the name of the folder of the blob's earlier versions, next to its file.
    pub(crate) fn versions(&self) -> String {
        format!("{}{VERSIONS_MARK}", self.file)
    }
}

/// Returns the file of an earlier version: its number among those of the blob, and its id.
pub(crate) fn version_file(number: u64, id: &str) -> String {
    format!("{number:016x}.{}", encode(id.as_bytes()))
}

/// Decodes the name of an earlier version's file; `None` for a name that this store did not write.
pub(crate) fn decode_version(name: &str) -> Option<(u64, String)> {
    let (number, id) = name.split_once('.')?;
    let number = u64::from_str_radix(number, 16).ok()?;
    let id = String::from_utf8(decode_piece(id)?).ok()?;
    (version_file(number, &id) == name).then_some((number, id))
}

impl Entry {
    /// Returns the bytes that every key in the entry has at this position. The entries of a folder sort by
    /// them.
    pub(crate) fn key_bytes(&self) -> Vec<u8> {
        match self {
            Self::Blob(piece) | Self::More(piece) | Self::Versions(piece) => piece.clone(),
            Self::Folder(piece) => [piece.as_slice(), b"/"].concat(),
        }
    }
}

/// Returns the folders of a namespace, from the root down.
pub(crate) fn namespace_folders(namespace: &Namespace) -> Vec<String> {
    let mut folders = Vec::new();
    push_folder(&mut folders, namespace.as_str().as_bytes());
    folders
}

/// Returns the path of a blob.
pub(crate) fn blob_path(namespace: &Namespace, key: &BlobKey) -> BlobPath {
    let (parents, segment) = key.as_str().rsplit_once('/').unwrap_or(("", key.as_str()));
    let mut folders = folders_of(namespace, parents);
    let last = push_pieces(&mut folders, segment.as_bytes());
    BlobPath { folders, file: encode(last) }
}

/// Returns the folder of the keys that begin with `parents` and a `/`, or of the whole namespace if `parents`
/// is empty.
pub(crate) fn folders_of(namespace: &Namespace, parents: &str) -> Vec<String> {
    let mut folders = namespace_folders(namespace);
    if !parents.is_empty() {
        parents.split('/').for_each(|segment| push_folder(&mut folders, segment.as_bytes()));
    }
    folders
}

fn push_folder(folders: &mut Vec<String>, segment: &[u8]) {
    let last = push_pieces(folders, segment);
    let mut name = encode(last);
    name.push(FOLDER_MARK);
    folders.push(name);
}

/// Adds the full pieces of a segment and returns the rest.
fn push_pieces<'a>(folders: &mut Vec<String>, segment: &'a [u8]) -> &'a [u8] {
    let pieces = segment.chunks_exact(PIECE_BYTES);
    let last = pieces.remainder();
    for piece in pieces {
        let mut name = encode(piece);
        name.push(MORE_MARK);
        folders.push(name);
    }
    last
}

fn encode(piece: &[u8]) -> String {
    if piece.is_empty() {
        return EMPTY.to_owned();
    }
    let mut name = String::with_capacity(piece.len() + 8);
    for (at, &byte) in piece.iter().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => name.push(char::from(byte)),
            b'.' if at > 0 => name.push('.'),
            b'A'..=b'Z' => {
                name.push('+');
                name.push(char::from(byte.to_ascii_lowercase()));
            }
            _ => {
                name.push('%');
                name.push(char::from(HEX[usize::from(byte >> 4)]));
                name.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
    name
}

/// Decodes a name; `None` for a name that this store did not write.
pub(crate) fn decode(name: &str) -> Option<Entry> {
    let (text, mark) = match name.char_indices().last()? {
        (at, mark @ (FOLDER_MARK | MORE_MARK | VERSIONS_MARK)) => (name.get(..at)?, Some(mark)),
        _ => (name, None),
    };
    let piece = decode_piece(text)?;
    match mark {
        Some(MORE_MARK) => (piece.len() == PIECE_BYTES).then_some(Entry::More(piece)),
        _ if piece.len() >= PIECE_BYTES => None,
        None => Some(Entry::Blob(piece)),
        Some(VERSIONS_MARK) => Some(Entry::Versions(piece)),
        Some(_) => Some(Entry::Folder(piece)),
    }
}

fn decode_piece(text: &str) -> Option<Vec<u8>> {
    if text == EMPTY {
        return Some(Vec::new());
    }
    let mut piece = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        piece.push(match byte {
            b'+' => bytes.next()?.to_ascii_uppercase(),
            b'%' => (digit(bytes.next()?)? << 4) | digit(bytes.next()?)?,
            _ => byte,
        });
    }
    // Only the spelling that `encode` produces is a name of this store; any other file is foreign.
    (encode(&piece) == text).then_some(piece)
}

fn digit(byte: u8) -> Option<u8> {
    HEX.iter().position(|&hex| hex == byte).and_then(|at| u8::try_from(at).ok())
}

/// Returns a number that is the same for the same text in every process and every version: FNV-1a.
pub(crate) fn stable_hash<'a>(parts: impl IntoIterator<Item = &'a str>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(key: &str) -> Vec<String> {
        let path = blob_path(&Namespace::new("n").unwrap(), &BlobKey::new(key).unwrap());
        path.folders.into_iter().chain([path.file]).collect()
    }

    #[test]
    fn ordinary_keys_stay_readable_and_a_key_may_be_the_folder_of_another() {
        assert_eq!(names("reports/2026/a.pdf"), ["n=", "reports=", "2026=", "a.pdf"]);
        assert_eq!(names("reports"), ["n=", "reports"]);
        assert_eq!(names("README"), ["n=", "+r+e+a+d+m+e"]);
        assert_eq!(names("a b/é"), ["n=", "a%20b=", "%c3%a9"]);
    }

    #[test]
    fn names_never_leave_the_folder_nor_meet_the_stores_own() {
        for key in ["...", ".larder", ".hidden/..x", "%2e%2e", "~", "=", "@", "+", "C:\\x", "\u{202e}"] {
            for name in names(key) {
                assert!(!name.starts_with('.') && !name.contains(['/', '\0', '\\']), "{name}");
            }
        }
        let long = "É".repeat(256);
        assert!(names(&long).iter().all(|name| name.len() <= 255));
        assert_eq!(namespace_folders(&Namespace::new("..").unwrap()), ["%2e.="]);
        let namespace = Namespace::new("/".repeat(128)).unwrap();
        assert!(namespace_folders(&namespace).iter().all(|name| name.len() <= 255));
    }

    #[test]
    fn every_segment_decodes_to_itself_from_exactly_one_spelling() {
        for length in [0, 1, 2, 79] {
            for byte in 0..=255_u8 {
                let piece = vec![byte; length];
                assert_eq!(decode(&encode(&piece)), Some(Entry::Blob(piece.clone())));
                assert_eq!(decode(&format!("{}!", encode(&piece))), Some(Entry::Versions(piece.clone())));
                assert_eq!(decode(&format!("{}=", encode(&piece))), Some(Entry::Folder(piece)));
            }
        }
        for id in ["00ff-18f-2a-7", "\"x/y\"", "A"] {
            assert_eq!(decode_version(&version_file(10, id)), Some((10, id.to_owned())));
        }
        for foreign in ["1.a", "000000000000000A.a", "000000000000000a", "000000000000000a.A", "x.a"] {
            assert_eq!(decode_version(foreign), None, "{foreign}");
        }
        assert_eq!(decode(&format!("{}~", "a".repeat(80))), Some(Entry::More(vec![b'a'; 80])));
        for foreign in
            ["", "A", ".larder", ".x", "%", "%4", "%41", "%61", "%2E", "+", "+1", "+A", "a~", "é", "a b"]
        {
            assert_eq!(decode(foreign), None, "{foreign}");
        }
    }
}
