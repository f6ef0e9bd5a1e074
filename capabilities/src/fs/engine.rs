//! The root folder: access below it without leaving it, temporary files and the trash.
//!
//! Every step is relative to an open folder and rejects symbolic links. So no name and no link planted in the
//! folder can lead out of it. All functions block; callers run them on the blocking pool.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_kernel::{Durability, Error, ErrorKind, Outcome};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::buffer_pool::BufferPool;
use super::config::FsConfig;
use super::create::{FOLDER_FLAGS, create_file, make_folder, make_root};
use super::format;
use super::layout::{Entry, decode};
use super::locks::Locks;
use crate::files::{FilePermissions, Identity, identity, is_volatile};

/// The store's own folder in the root.
pub(crate) const OWN: &str = ".larder";
/// The age from which an unlocked temporary file counts as the leftover of an ended process.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);

/// The open root and the store's internal folders in it.
pub(crate) struct Engine {
    root: OwnedFd,
    locks: Arc<Locks>,
    temporary: OwnedFd,
    trash: OwnedFd,
    permissions: FilePermissions,
    durability: Durability,
    keeps_versions: bool,
    /// The paths that must lead to the open folders, and the identities of these.
    place: [(PathBuf, Option<Identity>); 2],
    buffers: Arc<BufferPool>,
}

impl Engine {
    /// Opens the root, creates it if it is missing, and removes the leftovers of ended processes. Rejects a
    /// folder of another format before any change.
    pub(crate) fn open(config: &FsConfig, format: i64) -> io::Result<Result<Self, Error>> {
        let permissions = config.permissions;
        make_root(&config.root, permissions)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&config.root, flags, Mode::empty())?;
        let own = make_folder(root.as_fd(), OWN, permissions)?;
        let found = match format::check(own.as_fd(), format)? {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let mut engine = Self {
            locks: Arc::new(Locks::new(make_folder(own.as_fd(), "locks", permissions)?, config)),
            permissions,
            durability: if is_volatile(&config.root) { Durability::Process } else { Durability::Power },
            keeps_versions: found.is_some_and(format::has_versions),
            place: place(&config.root)?,
            temporary: make_folder(own.as_fd(), "tmp", permissions)?,
            trash: make_folder(own.as_fd(), "trash", permissions)?,
            root,
            buffers: Arc::default(),
        };
        if found.is_none() {
            // Blobs of a folder without a number were written by a program without versions.
            let versions = config.blob_versions && !engine.has_namespaces()?;
            let number = format::of_new(format, versions);
            let (file, temporary) = (engine.temporary()?, engine.temporary.as_fd());
            engine.keeps_versions = match format::create(file, temporary, own.as_fd(), format, number)? {
                Ok(number) => format::has_versions(number),
                Err(error) => return Ok(Err(error)),
            };
        }
        if config.blob_versions && !engine.keeps_versions {
            return Ok(Err(format::without_versions()));
        }
        flush(own.as_fd())?;
        flush(engine.root.as_fd())?;
        engine.remove_leftovers()?;
        engine.empty_trash()?;
        Ok(Ok(engine))
    }

    /// Opens an existing root for reading, and changes nothing in it.
    pub(crate) fn open_reading(config: &FsConfig, format: i64) -> io::Result<Result<Self, Error>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&config.root, flags, Mode::empty())?;
        let inside = |parent: &OwnedFd, name| rustix::fs::openat(parent, name, FOLDER_FLAGS, Mode::empty());
        let own = inside(&root, OWN)?;
        let found = match format::check(own.as_fd(), format)? {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let keeps_versions = found.is_some_and(format::has_versions);
        if config.blob_versions && !keeps_versions {
            return Ok(Err(format::without_versions()));
        }
        Ok(Ok(Self {
            keeps_versions,
            locks: Arc::new(Locks::new(inside(&own, "locks")?, config)),
            permissions: config.permissions,
            durability: if is_volatile(&config.root) { Durability::Process } else { Durability::Power },
            place: place(&config.root)?,
            temporary: inside(&own, "tmp")?,
            trash: inside(&own, "trash")?,
            root,
            buffers: Arc::default(),
        }))
    }

    /// Returns the locks of namespaces and folders.
    pub(crate) fn locks(&self) -> &Arc<Locks> {
        &self.locks
    }

    /// Returns the buffers for reads of blobs.
    pub(crate) fn buffers(&self) -> &Arc<BufferPool> {
        &self.buffers
    }

    /// Returns which failures a flushed write survives on this file system.
    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// Returns `true` if the folder keeps earlier versions of blobs.
    pub(crate) fn keeps_versions(&self) -> bool {
        self.keeps_versions
    }

    /// Returns `true` if the folder has a namespace.
    fn has_namespaces(&self) -> io::Result<bool> {
        let names = read_folder(self.root.as_fd())?;
        let entries = names.iter().filter_map(|(name, _)| decode(name.to_str().ok()?));
        // A long namespace begins with a full piece.
        Ok(entries.into_iter().any(|entry| matches!(entry, Entry::Folder(_) | Entry::More(_))))
    }

    /// Rejects a write if the path of the root no longer leads to the folder that was opened, or the path of
    /// the locks to other locks than those of this process.
    pub(crate) fn check_place(&self, operation: &'static str, outcome: Outcome) -> Result<(), Error> {
        if self.place.iter().all(|(path, opened)| identity(path) == *opened) {
            return Ok(());
        }
        let message =
            "the folder was moved, replaced or removed while it was open; put it back, or open it again";
        Err(Error::new(ErrorKind::Unavailable, operation, message).with_outcome(outcome))
    }

    /// Opens a folder below the root.
    pub(crate) fn folder(&self, names: &[String]) -> io::Result<OwnedFd> {
        let mut folder = self.root.try_clone()?;
        for name in names {
            folder = rustix::fs::openat(&folder, name.as_str(), FOLDER_FLAGS, Mode::empty())?;
        }
        Ok(folder)
    }

    /// Opens a folder below the root and creates the missing ones.
    pub(crate) fn make_folders(&self, names: &[String]) -> io::Result<OwnedFd> {
        let mut folder = self.root.try_clone()?;
        for name in names {
            folder = make_folder(folder.as_fd(), name, self.permissions)?;
        }
        Ok(folder)
    }

    /// Flushes the folders from the deepest existing one of `names` up to the root.
    pub(crate) fn sync_folders(&self, names: &[String]) -> io::Result<()> {
        flush(self.root.as_fd())?;
        let mut folder = self.root.try_clone()?;
        for name in names {
            folder = match rustix::fs::openat(&folder, name.as_str(), FOLDER_FLAGS, Mode::empty()) {
                Ok(folder) => folder,
                // A process that removed the folder concurrently also removed its contents.
                Err(Errno::NOENT) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            flush(folder.as_fd())?;
        }
        Ok(())
    }

    /// Removes the empty folders from the deepest of `names` upwards, but keeps the first `keep`.
    pub(crate) fn prune(&self, names: &[String], keep: usize) {
        for end in (keep..names.len()).rev() {
            let (Some(parents), Some(name)) = (names.get(..end), names.get(end)) else { return };
            let Ok(parent) = self.folder(parents) else { return };
            if rustix::fs::unlinkat(&parent, name.as_str(), AtFlags::REMOVEDIR).is_err() {
                return;
            }
        }
    }

    /// Creates a temporary file and locks it, so that no process removes it as a leftover.
    pub(crate) fn temporary(&self) -> io::Result<(File, String)> {
        loop {
            let name = unique();
            match create_file(self.temporary.as_fd(), &name, self.permissions) {
                Ok(file) => {
                    file.try_lock().map_err(io::Error::from)?;
                    return Ok((file, name));
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Removes a temporary file.
    pub(crate) fn remove_temporary(&self, name: &str) {
        // If the file cannot be removed now, it is removed as a leftover later.
        let _ = rustix::fs::unlinkat(&self.temporary, name, AtFlags::empty());
    }

    /// Renames a temporary file to its final path in one step.
    pub(crate) fn place(&self, temporary: &str, folder: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.temporary, temporary, folder, name)?)
    }

    /// Opens a folder next to a blob's file, and creates it if it is missing.
    pub(crate) fn make_folder(&self, parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
        make_folder(parent, name, self.permissions)
    }

    /// Gives a blob's file a second name.
    pub(crate) fn link(
        &self,
        (from, source): (BorrowedFd<'_>, &str),
        (to, target): (BorrowedFd<'_>, &str),
    ) -> io::Result<()> {
        Ok(rustix::fs::linkat(from, source, to, target, AtFlags::empty())?)
    }

    /// Renames a blob's file in one step.
    pub(crate) fn rename(
        &self,
        (from, source): (BorrowedFd<'_>, &str),
        (to, target): (BorrowedFd<'_>, &str),
    ) -> io::Result<()> {
        Ok(rustix::fs::renameat(from, source, to, target)?)
    }

    /// Removes a blob's file and returns true if it existed. Rejects anything but a regular file.
    pub(crate) fn remove(&self, folder: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
        match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(error.into()),
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return Err(Errno::NOTDIR.into());
            }
            Ok(_) => {}
        }
        rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
        Ok(true)
    }

    /// Moves a folder to the trash in one step, and returns true if it existed.
    pub(crate) fn discard(&self, names: &[String]) -> io::Result<bool> {
        let Some((name, parents)) = names.split_last() else { return Ok(false) };
        let moved = self
            .folder(parents)
            .and_then(|parent| Ok(rustix::fs::renameat(&parent, name.as_str(), &self.trash, unique())?));
        match moved {
            Ok(()) => self.sync_folders(parents).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the contents of the trash. A nested folder is first moved to the top, so that no depth needs
    /// many open folders.
    pub(crate) fn empty_trash(&self) -> io::Result<()> {
        loop {
            let discarded = read_folder(self.trash.as_fd())?;
            if discarded.is_empty() {
                return Ok(());
            }
            for (name, _) in discarded {
                ignore_missing(self.empty_discarded(&name))?;
            }
        }
    }

    fn empty_discarded(&self, name: &CStr) -> io::Result<()> {
        let folder = match rustix::fs::openat(&self.trash, name, FOLDER_FLAGS, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Ok(rustix::fs::unlinkat(&self.trash, name, AtFlags::empty())?);
            }
            Err(error) => return Err(error.into()),
        };
        for (inner, kind) in read_folder(folder.as_fd())? {
            let moved = if kind == FileType::Directory {
                rustix::fs::renameat(&folder, &*inner, &self.trash, unique())
            } else {
                rustix::fs::unlinkat(&folder, &*inner, AtFlags::empty())
            };
            ignore_missing(moved.map_err(io::Error::from))?;
        }
        Ok(rustix::fs::unlinkat(&self.trash, name, AtFlags::REMOVEDIR)?)
    }

    fn remove_leftovers(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        for (name, _) in read_folder(self.temporary.as_fd())? {
            let Ok(file) = rustix::fs::openat(&self.temporary, &*name, flags, Mode::empty()) else {
                continue;
            };
            let file = File::from(file);
            let age = file.metadata()?.modified()?.elapsed().unwrap_or_default();
            if age >= LEFTOVER_AGE && file.try_lock().is_ok() {
                let removed = rustix::fs::unlinkat(&self.temporary, &*name, AtFlags::empty());
                ignore_missing(removed.map_err(io::Error::from))?;
            }
        }
        Ok(())
    }
}

/// Returns the paths of the root and of the locks, with their identities.
fn place(root: &Path) -> io::Result<[(PathBuf, Option<Identity>); 2]> {
    let root = std::path::absolute(root)?;
    Ok([root.join(".larder/locks"), root].map(|path| {
        let opened = identity(&path);
        (path, opened)
    }))
}

/// Opens the file of a blob for reading. Rejects anything but a regular file.
pub(crate) fn open_file(folder: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    // Without NONBLOCK, a named pipe planted in the folder would block the call forever.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(folder, name, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::NOTDIR.into()) }
}

/// Returns the names in a folder with their types.
pub(crate) fn read_folder(folder: BorrowedFd<'_>) -> io::Result<Vec<(Box<CStr>, FileType)>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            },
            known => known,
        };
        names.push((name.into(), kind));
    }
    Ok(names)
}

/// Returns a name that no other process and no other call uses.
pub(crate) fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{nanos:x}-{:x}-{count:x}", std::process::id())
}

/// Flushes a folder to stable storage.
pub(crate) fn flush(folder: BorrowedFd<'_>) -> io::Result<()> {
    // On macOS a plain flush ends in the drive's cache.
    #[cfg(target_vendor = "apple")]
    if rustix::fs::fcntl_fullfsync(folder).is_ok() {
        return Ok(());
    }
    Ok(rustix::fs::fsync(folder)?)
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {
            Ok(())
        }
        other => other,
    }
}
