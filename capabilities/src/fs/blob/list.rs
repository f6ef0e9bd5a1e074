//! Listing: a walk through the folders in the order of the keys' bytes, with one folder in memory for each
//! level.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::vec::IntoIter;

use futures_util::stream;
use futures_util::{StreamExt, TryStreamExt};
use larder_agents::internal::DamagedBlob;
use larder_kernel::{BlobEntries, BlobEntry, BlobKey, Namespace, Outcome, Result};
use rustix::fs::FileType;

use super::footer::Footer;
use crate::fs::blocking::blocking;
use crate::fs::engine::{Engine, open_file, read_folder};
use crate::fs::failure::failed;
use crate::fs::layout::{Entry, decode, folders_of};
use crate::fs::locks::{Attempt, Lock, LockGuard, LockMode, attempt, locked};

const OPERATION: &str = "blobs.list";
/// The number of blobs that one step on the blocking pool reads.
const STEP: usize = 128;

/// Returns the blobs under `prefix` after `after`, as a stream.
pub(crate) fn list(
    engine: Arc<Engine>,
    namespace: &Namespace,
    prefix: &str,
    after: Option<&BlobKey>,
) -> BlobEntries {
    let walk = Walk::new(engine, namespace, prefix, after);
    stream::try_unfold(walk, next).map_ok(stream::iter).try_flatten().boxed()
}

/// The next blobs of a walk and the walk after them; `None` at the end.
type Found = Option<(VecDeque<Result<BlobEntry>>, Walk)>;

/// The result of a step.
enum Step {
    Found(Found),
    /// The folder that the walk reads next is locked.
    Busy(Walk, Lock),
}

async fn next(walk: Walk) -> Result<Found> {
    let mut step = blocking(OPERATION, move || walk.step(None)).await?;
    loop {
        let (walk, lock) = match step {
            Step::Found(found) => return Ok(found),
            Step::Busy(walk, lock) => (walk, lock),
        };
        let engine = Arc::clone(&walk.engine);
        let continued = move |lock| walk.step(Some(lock));
        step = locked(OPERATION, engine.locks(), vec![lock], continued).await?;
    }
}

struct Walk {
    engine: Arc<Engine>,
    prefix: Vec<u8>,
    after: Option<Vec<u8>>,
    /// The next folder to read: its names from the root, and the bytes with which its keys begin.
    next: Option<(Vec<String>, Vec<u8>)>,
    levels: Vec<Level>,
}

/// The remaining entries of a folder that was read.
struct Level {
    folders: Vec<String>,
    begin: Vec<u8>,
    left: IntoIter<ListedName>,
}

struct ListedName {
    order: Vec<u8>,
    name: String,
    blob: bool,
}

impl Walk {
    fn new(engine: Arc<Engine>, namespace: &Namespace, prefix: &str, after: Option<&BlobKey>) -> Self {
        // The complete segments of the prefix lead directly to the only folder that can hold its keys.
        let (parents, begin) = match prefix.rfind('/') {
            Some(at) => (prefix.get(..at).unwrap_or_default(), prefix.get(..=at).unwrap_or_default()),
            None => ("", ""),
        };
        // No key begins with `/`.
        let next =
            (!prefix.starts_with('/')).then(|| (folders_of(namespace, parents), begin.as_bytes().to_vec()));
        Self {
            engine,
            prefix: prefix.as_bytes().to_vec(),
            after: after.map(|key| key.as_str().as_bytes().to_vec()),
            next,
            levels: Vec::new(),
        }
    }

    /// Returns the next blobs, or `None` at the end. An unreadable blob becomes an error item, and the
    /// listing continues. `guard` is the lock of the folder to read next.
    fn step(mut self, mut guard: Option<LockGuard>) -> Result<Step> {
        let mut found = VecDeque::new();
        while found.len() < STEP {
            if let Some((folders, begin)) = self.next.take() {
                let lock = Lock::folder(&folders, LockMode::Shared);
                let read = |(), _guard| {
                    let level = self.read(&folders, &begin);
                    level.map_err(|error| failed(OPERATION, error, Outcome::NotApplied))
                };
                let read = match guard.take() {
                    Some(guard) => Attempt::Done(read((), guard)?),
                    None => attempt(OPERATION, self.engine.locks(), &[lock], (), read)?,
                };
                match read {
                    Attempt::Done(left) => self.levels.push(Level { folders, begin, left }),
                    Attempt::Busy(()) => {
                        self.next = Some((folders, begin));
                        if found.is_empty() {
                            return Ok(Step::Busy(self, lock));
                        }
                        break;
                    }
                }
            }
            let Some(level) = self.levels.last_mut() else { break };
            let Some(listed) = level.left.next() else {
                self.levels.pop();
                continue;
            };
            let full = [level.begin.as_slice(), &listed.order].concat();
            if listed.blob {
                found.extend(self.blob(&listed.name, full).transpose());
            } else {
                let mut folders = level.folders.clone();
                folders.push(listed.name);
                self.next = Some((folders, full));
            }
        }
        Ok(Step::Found((!found.is_empty()).then_some((found, self))))
    }

    /// Reads a folder. Its lock keeps the files in position during the read. Otherwise an overwrite could
    /// hide a blob, on a file system that enters the new name at another position.
    fn read(&self, folders: &[String], begin: &[u8]) -> io::Result<IntoIter<ListedName>> {
        let names = match self.engine.folder(folders).and_then(|folder| read_folder(folder.as_fd())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let mut left = Vec::with_capacity(names.len());
        for (name, kind) in names {
            let Some((entry, name)) = name.to_str().ok().and_then(|name| Some((decode(name)?, name))) else {
                continue;
            };
            if matches!(entry, Entry::Versions(_)) {
                continue;
            }
            let blob = matches!(entry, Entry::Blob(_));
            // Other types, such as a symbolic link, do not belong to the store.
            let expected = if blob { FileType::RegularFile } else { FileType::Directory };
            let order = entry.key_bytes();
            if kind == expected && self.wanted(&[begin, &order].concat(), blob) {
                left.push(ListedName { order, name: name.to_owned(), blob });
            }
        }
        left.sort_unstable_by(|a, b| a.order.cmp(&b.order));
        Ok(left.into_iter())
    }

    /// Returns true if the blob, or some blob in the folder whose keys begin with these bytes, can be in the
    /// listing.
    fn wanted(&self, full: &[u8], blob: bool) -> bool {
        let in_prefix = full.starts_with(&self.prefix) || (!blob && self.prefix.starts_with(full));
        let is_after = self.after.as_ref().is_none_or(|after| match full.cmp(after) {
            Ordering::Greater => true,
            Ordering::Equal | Ordering::Less => !blob && after.starts_with(full),
        });
        in_prefix && is_after
    }

    fn blob(&self, name: &str, full: Vec<u8>) -> Result<Option<BlobEntry>> {
        let Some(level) = self.levels.last() else { return Ok(None) };
        let Some(key) = String::from_utf8(full).ok().and_then(|key| BlobKey::new(key).ok()) else {
            return Ok(None);
        };
        let opened = self.engine.folder(&level.folders).and_then(|folder| open_file(folder.as_fd(), name));
        match opened {
            Ok(file) => match Footer::read(OPERATION, &file) {
                Ok(footer) => Ok(Some(footer.into_entry(key))),
                Err(error) => Err(error.with_source(DamagedBlob(key.as_str().to_owned()))),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(OPERATION, error, Outcome::NotApplied)),
        }
    }
}
