//! Verification of a folder of blobs: every file is read, and nothing is changed.
//!
//! A file that is open is one version of its blob, so writers do not disturb the verification. A blob that is
//! removed during it is skipped.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use larder_agents::internal::hex;
use larder_kernel::{BlobKey, Error, ErrorKind, Outcome, Result};
#[cfg(feature = "sqlite")]
use larder_kernel::{BlobStore as _, Namespace};
use rustix::fs::{FileType, Mode, OFlags};
use sha2::{Digest as _, Sha256};

use super::CHUNK_BYTES;
#[cfg(feature = "sqlite")]
use super::FsBlobStore;
use super::blob::checksum;
use super::blob::footer::{Checksum, Footer};
use super::config::FsConfig;
use super::engine::{OWN, open_file, read_folder};
use super::failure::failed;
use super::format::{self, FORMAT};
use super::layout::{Entry, decode, decode_version};
#[cfg(feature = "sqlite")]
use crate::driver::OpenMode;
use crate::verify::{Fault, FaultKind, Faults, OPERATION};

/// Verifies the folder.
///
/// # Errors
/// `NotFound` if the folder does not exist; the errors of the file system.
pub(crate) async fn verify(config: &FsConfig, faults: &Faults) -> Result<()> {
    let (root, found) = (config.root.clone(), faults.clone());
    super::blocking::blocking(OPERATION, move || look(&root, &found)).await
}

/// Checks that the blobs exist which messages name.
#[cfg(feature = "sqlite")]
pub(crate) async fn check_named(config: FsConfig, faults: &Faults) -> Result<()> {
    let config = config.with_mode(OpenMode::ReadOnly);
    let blobs = FsBlobStore::open(config, Namespace::new("default")?).await?;
    for ((namespace, key), place) in faults.take_named_blobs() {
        let (Ok(namespace), Ok(key)) = (Namespace::new(namespace), BlobKey::new(key)) else { continue };
        match blobs.in_namespace(namespace).head(&key).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                faults.add(Fault::new(FaultKind::Reference, place, format!("its blob {key} does not exist")));
            }
            // A damaged blob has a fault already.
            _ => {}
        }
    }
    Ok(())
}

fn look(root: &Path, faults: &Faults) -> Result<()> {
    let io = |error| failed(OPERATION, error, Outcome::NotApplied);
    let metadata = match std::fs::metadata(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = "the folder of the blobs does not exist; check the path";
            return Err(Error::new(ErrorKind::NotFound, OPERATION, message).with_field("root"));
        }
        found => found.map_err(io)?,
    };
    if !metadata.is_dir() {
        let place = root.display().to_string();
        faults.add(Fault::new(FaultKind::Foreign, place, "it is a file, and the store needs a folder"));
        return Ok(());
    }
    check_format(root, faults)?;
    let mut folders = vec![Folder { path: root.to_owned(), begin: Vec::new(), namespace: true }];
    while let Some(folder) = folders.pop() {
        folder.look(faults, &mut folders)?;
    }
    Ok(())
}

fn check_format(root: &Path, faults: &Faults) -> Result<()> {
    let place = root.join(OWN).join("format").display().to_string();
    match format::number(root).map_err(|error| failed(OPERATION, error, Outcome::NotApplied))? {
        Some(Ok(found)) => format::formats(FORMAT).check(OPERATION, found),
        Some(Err(error)) => {
            faults.add(Fault::new(FaultKind::Format, place, error.message()));
            Ok(())
        }
        None => Ok(()),
    }
}

/// A folder to read.
struct Folder {
    path: PathBuf,
    /// The bytes with which its keys begin, or its namespaces.
    begin: Vec<u8>,
    /// True if the names in the folder are those of namespaces.
    namespace: bool,
}

impl Folder {
    fn look(&self, faults: &Faults, folders: &mut Vec<Self>) -> Result<()> {
        let opened = rustix::fs::open(
            &self.path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let listed = opened.map_err(io::Error::from).and_then(|folder| {
            let names = read_folder(folder.as_fd())?;
            Ok((folder, names))
        });
        let (folder, mut names) = match listed {
            Ok(listed) => listed,
            // It became empty and was removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                let seen = format!("the folder cannot be read: {error}");
                faults.add(Fault::new(FaultKind::Record, self.path.display().to_string(), seen));
                return Ok(());
            }
        };
        names.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (name, kind) in names {
            if self.namespace && self.begin.is_empty() && name.to_bytes() == OWN.as_bytes() {
                continue;
            }
            let path = self.path.join(OsStr::from_bytes(name.to_bytes()));
            let place = path.display().to_string();
            let entry = name.to_str().ok().and_then(decode);
            let (Some(entry), Ok(text)) = (entry, name.to_str()) else {
                faults.add(Fault::new(FaultKind::Foreign, place, "the name is not one of this store"));
                continue;
            };
            let full = [self.begin.as_slice(), &entry.key_bytes()].concat();
            match (entry, kind) {
                (Entry::Blob(_), FileType::RegularFile) if !self.namespace => {
                    if let Ok(file) = open_file(folder.as_fd(), text) {
                        faults.read(1);
                        blob(&file, &place, &full, faults);
                    }
                }
                (Entry::Folder(_), FileType::Directory) => {
                    let begin = if self.namespace { Vec::new() } else { full };
                    folders.push(Self { path, begin, namespace: false });
                }
                (Entry::Versions(_), FileType::Directory) if !self.namespace => {
                    versions(&path, &full, faults);
                }
                (Entry::More(_), FileType::Directory) => {
                    folders.push(Self { path, begin: full, namespace: self.namespace });
                }
                _ => {
                    let seen = "it is not of the type that its name says, such as a link";
                    faults.add(Fault::new(FaultKind::Foreign, place, seen));
                }
            }
        }
        Ok(())
    }
}

/// Verifies the earlier versions of a blob.
fn versions(path: &Path, full: &[u8], faults: &Faults) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
    let listed = opened.and_then(|folder| Ok((read_folder(folder.as_fd())?, folder)));
    let (mut names, folder) = match listed {
        Ok(listed) => listed,
        // The last version was deleted.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            let seen = format!("the folder cannot be read: {error}");
            faults.add(Fault::new(FaultKind::Record, path.display().to_string(), seen));
            return;
        }
    };
    names.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    for (name, _) in names {
        let place = path.join(OsStr::from_bytes(name.to_bytes())).display().to_string();
        let Some(text) = name.to_str().ok().filter(|text| decode_version(text).is_some()) else {
            faults.add(Fault::new(FaultKind::Foreign, place, "the name is not one of this store"));
            continue;
        };
        match open_file(folder.as_fd(), text) {
            Ok(file) => {
                faults.read(1);
                blob(&file, &place, full, faults);
            }
            // It was deleted during the verification.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => {
                let seen = "it is not of the type that its name says, such as a link";
                faults.add(Fault::new(FaultKind::Foreign, place, seen));
            }
        }
    }
}

fn blob(file: &File, place: &str, full: &[u8], faults: &Faults) {
    let Some(key) = std::str::from_utf8(full).ok().and_then(|key| BlobKey::new(key).ok()) else {
        faults.add(Fault::new(FaultKind::Foreign, place, "the name is no valid key"));
        return;
    };
    let place = format!("{place} (key {key})");
    let footer = match Footer::read(OPERATION, file) {
        Ok(footer) => footer,
        Err(_) => {
            let seen = "it has no valid metadata at its end: it is damaged, or another program wrote it";
            faults.add(Fault::new(FaultKind::Record, &place, seen));
            return;
        }
    };
    match checksum_of(file, &footer) {
        Ok(true) => {}
        Ok(false) => {
            faults.add(Fault::new(FaultKind::Checksum, &place, "its bytes do not match their checksum"));
        }
        Err(error) => {
            faults.add(Fault::new(FaultKind::Record, &place, format!("it cannot be read: {error}")));
        }
    }
}

/// Returns true if the body matches its checksum.
fn checksum_of(file: &File, footer: &Footer) -> io::Result<bool> {
    let (mut crc, mut sha256) = (checksum::begin(), Sha256::new());
    let mut body = io::Read::take(file, footer.size);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let read = match body.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let piece = buffer.get(..read).unwrap_or_default();
        match footer.checksum {
            Checksum::Crc64Nvme(_) => crc.update(piece),
            Checksum::Sha256(_) => sha256.update(piece),
        }
    }
    Ok(match &footer.checksum {
        Checksum::Crc64Nvme(expected) => crc.finalize() == *expected,
        Checksum::Sha256(expected) => {
            let found: [u8; 32] = sha256.finalize().into();
            hex(&found) == *expected
        }
    })
}

#[cfg(test)]
mod tests;
