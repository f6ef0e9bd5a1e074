//! The keys of a thread's bucket. `NS` is the namespace, preceded by its length, so that no namespace is the
//! beginning of another one.
//!
//! - `h/NS`: the head.
//! - `i/NS/ID`: the description of a checkpoint.
//! - `k/NS/PARENT ID`: empty; shows that a checkpoint has a child.
//! - `v/NS/NUMBER/INDEX/PART`: a part of a value.
//! - `w/NS/ID INDEX PART/TASK`: a part of a pending write.
//! - `w/NS/ID INDEX blob/TASK`: empty; shows that a pending write has a blob.
//!
//! The space sorts before every character of an id, so the keys of an id's data are in the order of the ids.

use larder_kernel::{Key, Result};

use super::thread::{CheckpointId, CheckpointNamespace, CheckpointThread};

/// The number of hexadecimal digits of a pending write's index.
const INDEX_DIGITS: usize = 8;
/// The number of hexadecimal digits of the number of a part.
const PART_DIGITS: usize = 4;
/// Marks, instead of the number of a part, that a pending write has a blob.
const BLOB: &str = "blob";

/// The key of an entry of a pending write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WriteKey {
    pub(super) id: CheckpointId,
    pub(super) index: i32,
    /// The number of the part; `None` for the mark that the write has a blob.
    pub(super) part: Option<usize>,
    pub(super) task: String,
}

/// The beginning of the keys of all heads.
pub(super) const HEADS: &str = "h/";
/// The beginning of the keys of the descriptions of all namespaces.
pub(super) const INFOS: &str = "i/";
/// The beginning of the keys of the pending writes of all namespaces.
pub(super) const WRITES: &str = "w/";

fn prefix(kind: char, namespace: &CheckpointNamespace) -> String {
    let name = namespace.as_str();
    format!("{kind}/{}:{name}", name.len())
}

pub(super) fn head(namespace: &CheckpointNamespace) -> Result<Key> {
    Key::new(prefix('h', namespace))
}

/// Returns the namespace whose head has this key.
pub(super) fn read_head(thread: &CheckpointThread, key: &Key) -> Option<CheckpointNamespace> {
    let (_, name) = key.as_str().strip_prefix(HEADS)?.split_once(':')?;
    thread.namespace(name).ok()
}

/// Returns the beginnings of the keys of all data of a namespace, the descriptions first.
pub(super) fn all_data(namespace: &CheckpointNamespace) -> [String; 4] {
    [infos(namespace), children_of_all(namespace), values(namespace), all_writes(namespace)]
}

/// Returns the beginning of the keys of the descriptions.
pub(super) fn infos(namespace: &CheckpointNamespace) -> String {
    prefix('i', namespace) + "/"
}

pub(super) fn info(namespace: &CheckpointNamespace, id: &CheckpointId) -> Result<Key> {
    Key::new(infos(namespace) + id.as_str())
}

pub(super) fn read_info(namespace: &CheckpointNamespace, key: &Key) -> Option<CheckpointId> {
    key.as_str().strip_prefix(&infos(namespace))?.parse().ok()
}

fn children_of_all(namespace: &CheckpointNamespace) -> String {
    prefix('k', namespace) + "/"
}

/// Returns the beginning of the keys that name the children of a checkpoint.
pub(super) fn children(namespace: &CheckpointNamespace, parent: &CheckpointId) -> String {
    format!("{}{parent} ", children_of_all(namespace))
}

/// Returns the key that names a checkpoint as the child of its parent.
pub(super) fn child(
    namespace: &CheckpointNamespace,
    parent: &CheckpointId,
    id: &CheckpointId,
) -> Result<Key> {
    Key::new(children(namespace, parent) + id.as_str())
}

/// Returns the beginning of the keys of all values.
pub(super) fn values(namespace: &CheckpointNamespace) -> String {
    prefix('v', namespace) + "/"
}

pub(super) fn value(namespace: &CheckpointNamespace, number: u64, index: u32, part: usize) -> Result<Key> {
    Key::new(format!("{}{number:016x}/{index:04x}/{part:04x}", values(namespace)))
}

/// Returns the beginning of the keys of all pending writes.
pub(super) fn all_writes(namespace: &CheckpointNamespace) -> String {
    prefix('w', namespace) + "/"
}

/// Returns the beginning of the keys of the pending writes of a checkpoint. It sorts after those of all
/// smaller ids.
pub(super) fn writes(namespace: &CheckpointNamespace, id: &CheckpointId) -> String {
    format!("{}{id} ", all_writes(namespace))
}

/// Returns the key of the first entry of a pending write, in any namespace, if the key marks that the write
/// has a blob.
pub(super) fn first_of_marked(key: &Key) -> Option<Key> {
    let (length, rest) = key.as_str().strip_prefix(WRITES)?.split_once(':')?;
    let (_, rest) = rest.split_at_checked(length.parse().ok()?)?;
    let (_, rest) = rest.split_once(' ')?;
    let (_, rest) = rest.split_at_checked(INDEX_DIGITS)?;
    let task = rest.strip_prefix(BLOB)?;
    let before = key.as_str().strip_suffix(rest)?;
    Key::new(format!("{before}{:04x}{task}", 0)).ok()
}

impl WriteKey {
    pub(super) fn key(&self, namespace: &CheckpointNamespace) -> Result<Key> {
        let part = self.part.map_or_else(|| BLOB.to_owned(), |part| format!("{part:04x}"));
        // The sign is the first bit and inverted, so that negative indexes sort first.
        let index = self.index.cast_unsigned() ^ (1 << 31);
        Key::new(format!("{}{index:08x}{part}/{}", writes(namespace, &self.id), self.task))
    }

    pub(super) fn read(namespace: &CheckpointNamespace, key: &Key) -> Option<Self> {
        let (id, rest) = key.as_str().strip_prefix(&all_writes(namespace))?.split_once(' ')?;
        let (index, rest) = rest.split_at_checked(INDEX_DIGITS)?;
        let (part, task) = rest.split_at_checked(PART_DIGITS)?;
        let index = (u32::from_str_radix(index, 16).ok()? ^ (1 << 31)).cast_signed();
        let part = if part == BLOB { None } else { Some(usize::from_str_radix(part, 16).ok()?) };
        let task = task.strip_prefix('/')?.to_owned();
        Some(Self { id: id.parse().ok()?, index, part, task })
    }
}
