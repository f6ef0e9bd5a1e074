//! The archives that a repair writes first.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use larder_agents::transfer::{Watch, dump_undamaged};
use larder_kernel::{Error, ErrorKind, Namespace, Outcome, Result};

use crate::driver::{Connection, StoresRequest};
use crate::verify::OPERATION;

/// Writes an archive of each namespace into a new folder in the current one, and returns the folder. The
/// archive lists data that cannot be read; a repair does not change such data.
pub(crate) async fn dump(connection: &dyn Connection, namespaces: &[Namespace]) -> Result<PathBuf> {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis());
    let folder = PathBuf::from(format!("larder-before-repair-{now_ms}"));
    make_folder(&folder)?;
    for (number, namespace) in namespaces.iter().enumerate() {
        let stores = connection.stores(&StoresRequest::new(namespace.clone())).await;
        let mut to = BufWriter::new(make_file(&folder.join(format!("{}.larder", number + 1)))?);
        dump_undamaged(&stores, namespace, &stores.contracts(), &mut to, &Watch::nobody())
            .await
            .map_err(|error| error.in_operation(OPERATION).with_outcome(Outcome::NotApplied))?;
        to.into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .map_err(failed)?;
    }
    File::open(&folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
    Ok(folder)
}

fn make_folder(path: &Path) -> Result<()> {
    let mut folder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
    folder.create(path).map_err(failed)
}

fn make_file(path: &Path) -> Result<File> {
    let mut file = OpenOptions::new();
    file.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
    file.open(path).map_err(failed)
}

fn failed(error: std::io::Error) -> Error {
    let message = "the dump of the data before the repair cannot be written; nothing was repaired \
                   (run the command in a folder with enough space)";
    Error::new(ErrorKind::Unavailable, OPERATION, message)
        .with_outcome(Outcome::NotApplied)
        .with_source(std::sync::Arc::new(error))
}
