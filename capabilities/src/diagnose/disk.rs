//! Checks of the file system that holds a folder of stores. All functions block.

#[cfg(unix)]
use std::fs::File;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Check, Findings};
use crate::files::identity;

const KIND: &str = "the stores rely on locks, flushes and renames";
const ROOM: &str = "on a full disk every write fails";
const FLUSH: &str =
    "an acknowledged write survives a power loss only if flushing works, and each write waits for a flush";
const IDENTITY: &str = "a write to a file that was moved, replaced or removed is an error, not a loss";
const RIGHTS: &str = "every account that can read the files can read the stored data, and every account that \
                      can write them can change it";
/// Free space below which a write of the usual size may fail.
const ROOM_FAIL_BYTES: u64 = 64 * 1024 * 1024;
/// Free space below which the check warns.
const ROOM_WARN_BYTES: u64 = 1024 * 1024 * 1024;
/// The share of free inodes below which the check warns: one in this many.
const FILES_WARN_PART: u64 = 50;
/// Size of the probe in bytes.
const PROBE_BYTES: usize = 4 * 1024;
/// Number of flushes of the probe.
const FLUSHES: u32 = 3;
/// The flush time above which the check warns.
const FLUSH_SLOW: Duration = Duration::from_millis(50);

/// Checks the file system of the folder: its kind and its free space.
#[cfg(unix)]
pub(crate) fn file_system(folder: &Path, findings: &Findings) {
    #[cfg(target_os = "linux")]
    findings.add(match rustix::fs::statfs(folder) {
        Ok(found) => kind(u64::try_from(found.f_type).unwrap_or(0) & 0xffff_ffff),
        Err(_) => Check::warn("file_system", "unknown kind", KIND, "check that the folder is mounted"),
    });
    if let Ok(found) = rustix::fs::statvfs(folder) {
        findings.add(room(found.f_bavail.saturating_mul(found.f_frsize)));
        if found.f_files > 0 && found.f_favail < found.f_files / FILES_WARN_PART {
            let seen = format!("inodes for {} more files", found.f_favail);
            let advice = "delete files or use another file system: this one has a fixed number of inodes";
            findings.add(Check::warn("files_left", seen, ROOM, advice));
        }
    }
}

#[cfg(not(unix))]
pub(crate) fn file_system(_folder: &Path, _findings: &Findings) {}

/// Returns the check for a file system with this magic number.
#[cfg(any(target_os = "linux", test))]
fn kind(magic: u64) -> Check {
    const NAME: &str = "file_system";
    let network = |name: &str| {
        let advice = "keep the files on a local disk, or use a server such as Postgres: locks and flushes \
                      over a network are not reliable";
        Check::fail(NAME, format!("{name}, over a network"), KIND, advice)
    };
    match magic {
        0x6969 => network("NFS"),
        0x517b | 0xfe53_4d42 | 0xff53_4d42 => network("SMB"),
        0x0102_1997 => network("9P"),
        0x00c3_6400 => network("Ceph"),
        0x5346_414f => network("AFS"),
        0x6573_5546 => {
            let advice =
                "check the storage behind the FUSE mount; if it is a network, use a local disk instead";
            Check::warn(NAME, "FUSE, which may be a network", KIND, advice)
        }
        0x0102_1994 | 0x8584_58f6 => {
            let advice = "keep the files on a disk: files in memory are lost at a restart";
            Check::warn(NAME, "memory (tmpfs)", KIND, advice)
        }
        0x794c_7630 => {
            let advice = "in a container, mount a volume here: this layer is deleted with the container";
            Check::warn(NAME, "overlayfs, as in the layer of a container", KIND, advice)
        }
        0xef53 => Check::ok(NAME, "ext4", KIND),
        0x5846_5342 => Check::ok(NAME, "XFS", KIND),
        0x9123_683e => Check::ok(NAME, "Btrfs", KIND),
        0x2fc1_2fc1 => Check::ok(NAME, "ZFS", KIND),
        0xf2f5_2010 => Check::ok(NAME, "F2FS", KIND),
        other => Check::ok(NAME, format!("local, of kind {other:#x}"), KIND),
    }
}

fn room(bytes: u64) -> Check {
    let seen = format!("{} MiB free", bytes / (1024 * 1024));
    if bytes < ROOM_FAIL_BYTES {
        Check::fail("free_space", seen, ROOM, "free space on the file system now")
    } else if bytes < ROOM_WARN_BYTES {
        Check::warn("free_space", seen, ROOM, "free space on the file system")
    } else {
        Check::ok("free_space", seen, ROOM)
    }
}

/// Checks the mode of a file or folder: the access of other users.
#[cfg(unix)]
pub(crate) fn rights(path: &Path) -> io::Result<Check> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(path)?.permissions().mode() & 0o777;
    let seen = format!("mode {mode:03o}");
    Ok(if mode & 0o002 != 0 {
        Check::fail("permissions", seen, RIGHTS, "remove the write permission of other accounts: `chmod o-w`")
    } else if mode & 0o004 != 0 {
        let advice = "remove the permissions of other accounts: `chmod o=`; new files get 0600, or what \
                      `permissions` in the URL says";
        Check::warn(
            "permissions",
            format!("{seen}: every account of this machine can read it"),
            RIGHTS,
            advice,
        )
    } else {
        Check::ok("permissions", seen, RIGHTS)
    })
}

#[cfg(not(unix))]
pub(crate) fn rights(_path: &Path) -> io::Result<Check> {
    Ok(Check::ok("permissions", "not checked on this system", RIGHTS))
}

/// Returns the check of a place where a power failure loses flushed data.
pub(crate) fn volatile(why: &'static str) -> Check {
    let advice =
        "keep the files on a disk whose flushes are on: this file system is in memory or does not flush";
    Check::warn("durability", "kill -9, not power loss: the file system is volatile", why, advice)
}

/// Checks that an open file can be found to have moved.
pub(crate) fn identities(path: &Path) -> Check {
    const NAME: &str = "identity";
    if cfg!(unix) {
        return match (identity(path), identity(path)) {
            (Some(first), Some(second)) if first == second => {
                Check::ok(NAME, "the file system numbers its files", IDENTITY)
            }
            _ => {
                let advice =
                    "keep the files on another file system, and do not move them while they are open";
                Check::warn(NAME, "the file system does not number its files", IDENTITY, advice)
            }
        };
    }
    let seen = "this system has no file numbers; it does not let a program move or remove open files";
    Check::ok(NAME, seen, IDENTITY)
}

/// Writes, flushes and removes a small file in the folder.
pub(crate) fn flushing(folder: &Path) -> Check {
    const NAME: &str = "flush";
    let probe = folder.join(format!(".larder-doctor-{}-{}", std::process::id(), unique()));
    let tried = flush(&probe, folder);
    let left = match std::fs::remove_file(&probe) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => " but could not be removed",
        _ => " and removed",
    };
    match tried {
        Ok(took) => {
            let ms = took.as_secs_f64() * 1e3;
            let seen = format!("a probe file was written, flushed in {ms:.2} ms{left}");
            if left != " and removed" {
                return Check::warn(
                    NAME,
                    seen,
                    FLUSH,
                    "remove the file whose name begins with `.larder-doctor-`",
                );
            }
            if took > FLUSH_SLOW {
                let advice = "use a disk with faster flushes: each acknowledged write waits for one";
                return Check::warn(NAME, seen, FLUSH, advice);
            }
            Check::ok(NAME, seen, FLUSH)
        }
        Err(error) => {
            let advice = "check the folder's permissions, that it is not mounted read-only, and the disk";
            Check::fail(
                NAME,
                format!("a probe file could not be written and flushed: {}", error.kind()),
                FLUSH,
                advice,
            )
        }
    }
}

/// Returns the median time of a flush.
fn flush(probe: &Path, folder: &Path) -> io::Result<Duration> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(probe)?;
    let mut took = Vec::new();
    for _ in 0..FLUSHES {
        file.write_all(&[0x4c; PROBE_BYTES])?;
        let begun = Instant::now();
        file.sync_all()?;
        took.push(begun.elapsed());
    }
    // Only Unix allows a folder to be opened and flushed.
    #[cfg(unix)]
    File::open(folder)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = folder;
    took.sort_unstable();
    Ok(took.get(took.len() / 2).copied().unwrap_or_default())
}

fn unique() -> u128 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos()
}

/// Returns true if this user may create files in the folder.
#[cfg(unix)]
pub(crate) fn may_write(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(not(unix))]
pub(crate) fn may_write(folder: &Path) -> bool {
    std::fs::metadata(folder).is_ok_and(|found| !found.permissions().readonly())
}

/// Returns true if the file is on a file system that is mounted read-only.
#[cfg(all(unix, feature = "sqlite"))]
pub(crate) fn is_read_only(file: &Path) -> bool {
    rustix::fs::statvfs(file).is_ok_and(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

#[cfg(all(not(unix), feature = "sqlite"))]
pub(crate) fn is_read_only(_file: &Path) -> bool {
    false
}

/// Returns true if this user may write the file. The file is not opened.
#[cfg(all(unix, feature = "sqlite"))]
pub(crate) fn may_write_file(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::WRITE_OK).is_ok()
}

#[cfg(all(not(unix), feature = "sqlite"))]
pub(crate) fn may_write_file(file: &Path) -> bool {
    may_write(file)
}

#[cfg(test)]
mod tests {
    use super::super::CheckStatus::{Fail, Ok, Warn};
    use super::*;

    #[test]
    fn network_and_memory_file_systems_are_not_disks() {
        for (magic, status) in
            [(0x6969, Fail), (0xff53_4d42, Fail), (0x0102_1994, Warn), (0x794c_7630, Warn), (0xef53, Ok)]
        {
            assert_eq!(kind(magic).status, status, "{magic:#x}");
        }
        for (bytes, status) in [(0, Fail), (100 * 1024 * 1024, Warn), (2 * 1024 * 1024 * 1024, Ok)] {
            assert_eq!(room(bytes).status, status, "{bytes}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_probe_is_flushed_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let check = flushing(folder.path());
        assert_ne!(check.status, Fail, "{check:?}");
        assert!(check.seen.contains("removed"), "{check:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let check = flushing(&folder.path().join("absent"));
        assert_eq!(check.status, Fail, "{check:?}");
    }

    #[cfg(unix)]
    #[test]
    fn permissions_of_other_accounts_are_reported() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        for (mode, status) in [(0o700, Ok), (0o750, Ok), (0o755, Warn), (0o777, Fail)] {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(rights(folder.path()).unwrap().status, status, "{mode:o}");
        }
    }
}
