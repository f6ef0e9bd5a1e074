//! Creates the files and folders of a store with its permissions.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::files::FilePermissions;

pub(super) const FOLDER_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Creates a file with these permissions, whatever the umask.
pub(super) fn create_file(
    folder: BorrowedFd<'_>,
    name: &str,
    permissions: FilePermissions,
) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(permissions.mode());
    let file = rustix::fs::openat(folder, name, flags, mode)?;
    rustix::fs::fchmod(&file, mode)?;
    Ok(File::from(file))
}

/// Opens a folder. Creates it with these permissions, whatever the umask, if it is missing.
pub(super) fn make_folder(
    parent: BorrowedFd<'_>,
    name: &str,
    permissions: FilePermissions,
) -> io::Result<OwnedFd> {
    match rustix::fs::openat(parent, name, FOLDER_FLAGS, Mode::empty()) {
        Ok(folder) => return Ok(folder),
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let mode = Mode::from_raw_mode(permissions.folder_mode());
    match rustix::fs::mkdirat(parent, name, mode) {
        Ok(()) => rustix::fs::chmodat(parent, name, mode, AtFlags::empty())?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(rustix::fs::openat(parent, name, FOLDER_FLAGS, Mode::empty())?)
}

/// Creates the root and flushes the folders that contain a new name.
pub(super) fn make_root(root: &Path, permissions: FilePermissions) -> io::Result<()> {
    if root.is_dir() {
        return Ok(());
    }
    let root = std::path::absolute(root)?;
    let mut missing: Vec<&Path> = root.ancestors().take_while(|folder| !folder.exists()).collect();
    missing.reverse();
    for folder in &missing {
        match DirBuilder::new().mode(permissions.folder_mode()).create(folder) {
            Ok(()) => {
                let permissions = Permissions::from_mode(permissions.folder_mode());
                std::fs::set_permissions(folder, permissions)?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    for folder in missing {
        if let Some(parent) = folder.parent() {
            File::open(parent)?.sync_all()?;
        }
    }
    Ok(())
}
