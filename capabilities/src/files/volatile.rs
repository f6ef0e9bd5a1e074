//! File systems that lose flushed data when the power fails, because they are in memory or do not flush.

use std::path::Path;

/// Returns true if a power failure loses the data that is flushed at this place. A place that cannot be
/// examined counts as a disk.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_volatile(_place: &Path) -> bool {
    false
}

#[cfg(target_os = "linux")]
pub(crate) fn is_volatile(place: &Path) -> bool {
    linux::is_volatile(place, 0)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::path::{Path, PathBuf};

    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    const OVERLAYFS: u64 = 0x794c_7630;
    /// A file system in a file on a file system in a file.
    const DEPTH_MAX: usize = 4;

    pub(super) fn is_volatile(place: &Path, depth: usize) -> bool {
        let (Ok(kind), Ok(found)) = (rustix::fs::statfs(place), rustix::fs::stat(place)) else {
            return false;
        };
        let kind = u64::try_from(kind.f_type).unwrap_or(0) & 0xffff_ffff;
        if kind == TMPFS || kind == RAMFS {
            return true;
        }
        if depth >= DEPTH_MAX {
            return false;
        }
        let number = format!("{}:{}", rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let options = options_of(&mounts, &number).unwrap_or_default();
        if options.iter().any(|option| matches!(*option, "nobarrier" | "barrier=0")) {
            return true;
        }
        if kind == OVERLAYFS {
            let upper = options.iter().find_map(|option| option.strip_prefix("upperdir="));
            return options.contains(&"volatile")
                || upper.is_some_and(|upper| is_volatile(Path::new(upper), depth + 1));
        }
        device_is_volatile(&number, depth)
    }

    /// Returns the options of the file system with this device number, from the text of `mountinfo`.
    pub(super) fn options_of<'m>(mounts: &'m str, number: &str) -> Option<Vec<&'m str>> {
        let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(number))?;
        let (_, of_file_system) = line.split_once(" - ")?;
        Some(of_file_system.split(' ').nth(2)?.split(',').collect())
    }

    /// Returns true for a disk in memory, and for a file on a volatile file system that serves as a disk.
    fn device_is_volatile(number: &str, depth: usize) -> bool {
        let Ok(device) = std::fs::canonicalize(format!("/sys/dev/block/{number}")) else { return false };
        // The device, and the disk of a partition.
        for disk in device.ancestors().take(2) {
            let name = disk.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if is_numbered(name, "ram") || is_numbered(name, "zram") {
                return true;
            }
            if is_numbered(name, "loop") {
                let file = std::fs::read_to_string(disk.join("loop/backing_file")).unwrap_or_default();
                return is_volatile(&PathBuf::from(file.trim_end()), depth + 1);
            }
        }
        false
    }

    fn is_numbered(name: &str, prefix: &str) -> bool {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::linux::options_of;
    use super::*;

    #[test]
    fn a_file_system_in_memory_is_volatile_and_the_options_of_others_are_found() {
        assert!(is_volatile(Path::new("/dev/shm")), "/dev/shm is no tmpfs");
        assert!(!is_volatile(Path::new("/nowhere")));
        let mounts = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
                      30 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw,nobarrier\n\
                      40 1 0:50 / /c rw - overlay overlay rw,lowerdir=/l,upperdir=/dev/shm/u,volatile\n";
        assert_eq!(options_of(mounts, "8:1"), Some(vec!["rw", "nobarrier"]));
        assert!(options_of(mounts, "0:50").unwrap().contains(&"volatile"));
        assert_eq!(options_of(mounts, "8:2"), None);
    }
}
