//! The root folder: access below it without leaving it, locks, temporary files and the trash.
//!
//! Every step is relative to an open folder and rejects symbolic links. So no name and no link planted in the
//! folder can lead out of it. All functions block; callers run them on the blocking pool.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_kernel::{Durability, Error, ErrorKind, Outcome};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::buffer_pool::BufferPool;
use super::format;
use super::layout::stable_hash;

const LOCKS: u64 = 64;
/// The age from which an unlocked temporary file counts as the leftover of an ended process.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);
const FOLDER_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The open root and the store's internal folders in it.
pub(crate) struct Engine {
    root: OwnedFd,
    locks: OwnedFd,
    temporary: OwnedFd,
    trash: OwnedFd,
    buffers: Arc<BufferPool>,
}

/// The mode of a lock: shared with other holders, or exclusive.
#[derive(Clone, Copy)]
pub(crate) enum LockMode {
    Shared,
    Exclusive,
}

/// A lock that excludes other tasks and other processes until it is dropped.
pub(crate) struct LockGuard {
    _files: Vec<File>,
}

impl Engine {
    /// Opens the root, creates it if it is missing, and removes the leftovers of ended processes. Rejects a
    /// folder of another format before any change.
    pub(crate) fn open(root: &Path, format: i64) -> io::Result<Result<Self, Error>> {
        make_root(root)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        let own = make_folder(root.as_fd(), ".larder")?;
        let has_number = match format::check(own.as_fd(), format)? {
            Ok(has_number) => has_number,
            Err(error) => return Ok(Err(error)),
        };
        let engine = Self {
            locks: make_folder(own.as_fd(), "locks")?,
            temporary: make_folder(own.as_fd(), "tmp")?,
            trash: make_folder(own.as_fd(), "trash")?,
            root,
            buffers: Arc::default(),
        };
        if !has_number {
            let (file, temporary) = (engine.temporary()?, engine.temporary.as_fd());
            if let Err(error) = format::create(file, temporary, own.as_fd(), format)? {
                return Ok(Err(error));
            }
        }
        flush(own.as_fd())?;
        flush(engine.root.as_fd())?;
        engine.remove_leftovers()?;
        engine.empty_trash()?;
        Ok(Ok(engine))
    }

    /// Returns the buffers for reads of blobs.
    pub(crate) fn buffers(&self) -> &Arc<BufferPool> {
        &self.buffers
    }

    /// Returns which failures a flushed write survives on this file system.
    pub(crate) fn durability(&self) -> Durability {
        #[cfg(target_os = "linux")]
        {
            const TMPFS: u64 = 0x0102_1994;
            const RAMFS: u64 = 0x8584_58f6;
            let magic = rustix::fs::fstatfs(&self.root).map(|stat| u64::try_from(stat.f_type).unwrap_or(0));
            if matches!(magic, Ok(TMPFS | RAMFS)) {
                return Durability::Process;
            }
        }
        Durability::Power
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
            folder = make_folder(folder.as_fd(), name)?;
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

    /// Locks a namespace: shared for writes, exclusive for an erasure.
    pub(crate) fn lock_namespace(&self, namespace: &str, mode: LockMode) -> io::Result<LockGuard> {
        let name = format!("n{:02x}", stable_hash([namespace]) % LOCKS);
        Ok(LockGuard { _files: vec![self.lock(&name, mode)?] })
    }

    /// Locks a folder: exclusive for writes, shared for a listing that reads it.
    pub(crate) fn lock_folder(&self, names: &[String], mode: LockMode) -> io::Result<LockGuard> {
        let name = format!("f{:02x}", stable_hash(names.iter().map(String::as_str)) % LOCKS);
        Ok(LockGuard { _files: vec![self.lock(&name, mode)?] })
    }

    fn lock(&self, name: &str, mode: LockMode) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.locks, name, flags, file_mode())?);
        loop {
            let locked = match mode {
                LockMode::Shared => file.lock_shared(),
                LockMode::Exclusive => file.lock(),
            };
            match locked {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(file),
            }
        }
    }

    /// Creates a temporary file and locks it, so that no process removes it as a leftover.
    pub(crate) fn temporary(&self) -> io::Result<(File, String)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let name = unique();
            match rustix::fs::openat(&self.temporary, name.as_str(), flags, file_mode()) {
                Ok(file) => {
                    let file = File::from(file);
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

/// Translates an error of the file system.
pub(crate) fn failed(operation: &'static str, error: io::Error, outcome: Outcome) -> Error {
    use io::ErrorKind as Io;
    let errno = Errno::from_io_error(&error);
    let (kind, message) = match (error.kind(), errno) {
        (_, Some(Errno::LOOP | Errno::NOTDIR | Errno::ISDIR | Errno::MLINK | Errno::EXIST)) => (
            ErrorKind::Corrupt,
            "the path of a store's file or folder is something else; move it away, or name another folder",
        ),
        (_, Some(Errno::NAMETOOLONG)) => (
            ErrorKind::Unsupported,
            "the file system does not support names of 255 bytes; use another file system",
        ),
        (Io::PermissionDenied | Io::ReadOnlyFilesystem, _) => {
            (ErrorKind::PermissionDenied, "the file system denied access; check the folder's permissions")
        }
        (Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge, _) => {
            (ErrorKind::ResourceExhausted, "the file system is full or a quota is reached; free space on it")
        }
        (_, Some(Errno::MFILE | Errno::NFILE)) => {
            (ErrorKind::ResourceExhausted, "too many files are open; raise the limit of the process")
        }
        (Io::NotFound | Io::StaleNetworkFileHandle, _) | (_, Some(Errno::IO | Errno::NODEV)) => (
            ErrorKind::Unavailable,
            "the folder cannot be reached; check that it exists and that its disk is mounted",
        ),
        _ => (ErrorKind::Unexpected, "the file system failed; check the disk"),
    };
    Error::new(kind, operation, message).with_source(error).with_outcome(outcome)
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

fn file_mode() -> Mode {
    Mode::from_raw_mode(0o666)
}

fn make_folder(parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    match rustix::fs::openat(parent, name, FOLDER_FLAGS, Mode::empty()) {
        Ok(folder) => return Ok(folder),
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(rustix::fs::openat(parent, name, FOLDER_FLAGS, Mode::empty())?)
}

/// Creates the root and flushes the folders that contain a new name.
fn make_root(root: &Path) -> io::Result<()> {
    if root.is_dir() {
        return Ok(());
    }
    let root = std::path::absolute(root)?;
    let missing: Vec<&Path> = root.ancestors().take_while(|folder| !folder.exists()).collect();
    std::fs::create_dir_all(&root)?;
    for folder in missing {
        if let Some(parent) = folder.parent() {
            File::open(parent)?.sync_all()?;
        }
    }
    Ok(())
}
