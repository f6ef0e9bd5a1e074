//! The identity of a file: its device and its inode.
//!
//! A program with an open file continues to use it after the file was moved, replaced or removed. A program
//! that opens the path later does not find those writes.

use std::path::Path;

/// The device and the inode of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity(u64, u64);

/// Returns the identity of the file to which a path leads; `None` if the file is missing or the system has no
/// identities. On such a system an open file cannot be moved or removed.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, CWD, StatxFlags};
        // A `stat` also reads the times. The next write to the file would then have to update them, which
        // costs a quarter of a commit.
        match rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::INO) {
            Ok(found) => {
                let device = u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor);
                return Some(Identity(device, found.stx_ino));
            }
            Err(rustix::io::Errno::NOSYS) => {}
            Err(_) => return None,
        }
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let found = std::fs::metadata(path).ok()?;
        Some(Identity(found.dev(), found.ino()))
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        None
    }
}

/// Returns the path without symbolic links, also if the file does not exist yet. SQLite names the files next
/// to a database after this path.
#[cfg(feature = "sqlite")]
pub(crate) fn real_path(path: &Path) -> std::path::PathBuf {
    const LINKS_MAX: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if let Ok(real) = std::fs::canonicalize(&path) {
            return real;
        }
        // A link to a missing file.
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match (folder.unwrap_or(Path::new(".")).canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// Returns the path of a file whose name is the name of another file and a suffix.
#[cfg(feature = "sqlite")]
pub(crate) fn next_to(path: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    std::path::PathBuf::from(name)
}

#[cfg(all(test, unix, feature = "sqlite"))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_through_links_leads_to_the_real_file_even_before_it_exists() {
        let folder = tempfile::TempDir::new().unwrap();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        std::fs::create_dir(at("real")).unwrap();
        symlink(at("real"), at("folder")).unwrap();
        symlink("folder/new.db", at("link")).unwrap();
        symlink("link", at("second")).unwrap();
        for name in ["link", "second", "folder/new.db", "real/new.db"] {
            assert_eq!(real_path(&at(name)), at("real/new.db"), "{name}");
        }
        assert_eq!(identity(&at("link")), None);
        std::fs::write(at("real/new.db"), "").unwrap();
        for name in ["link", "second", "folder/new.db", "real/new.db"] {
            assert_eq!(real_path(&at(name)), at("real/new.db"), "{name}");
            assert_eq!(identity(&at(name)), identity(&at("real/new.db")), "{name}");
        }
        assert_ne!(identity(&at("link")), identity(&at("real")));
        symlink("loop", at("loop")).unwrap();
        real_path(&at("loop"));
        assert_eq!(next_to(&at("a.db"), "-wal"), at("a.db-wal"));
    }
}
