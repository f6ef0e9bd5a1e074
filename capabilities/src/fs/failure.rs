//! Errors of the file system, and their translation to the caller's error.

use std::io;

use larder_kernel::{Error, ErrorKind, Outcome};
use rustix::io::Errno;

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
