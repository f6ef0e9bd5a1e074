//! `larder export`: writes a thread as a transcript.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use larder::transcript::to_lines;
use larder::{Registry, Stores, redact_url};
use larder_kernel::{Contract, HistoryProvider, Seq, Thread};
use tempfile::NamedTempFile;

use crate::opening::Access;
use crate::output;
use crate::thread::{Place, printable};

/// The number of messages per read.
const PAGE: usize = 200;

/// Arguments of `larder export`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// URL of the backend, such as `sqlite:./larder.db`.
    #[arg(long, value_name = "URL")]
    from: String,
    #[command(flatten)]
    place: Place,
    /// Write to this file instead of standard output; the file is replaced atomically. `-` is standard
    /// output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The reason why an export ended early.
enum Stop {
    /// The reader closed standard output.
    Closed,
    Trouble(String),
}

impl From<String> for Stop {
    fn from(text: String) -> Self {
        Self::Trouble(text)
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Trouble(format!("cannot write the transcript: {error}")),
        }
    }
}

/// Runs the command.
pub(crate) fn run(registry: &Registry, args: &Args) -> ExitCode {
    output::on_runtime(async {
        match export(registry, args).await {
            Ok(0) => {
                output::note(format_args!("{} has no messages", args.place.name()));
                Ok(ExitCode::SUCCESS)
            }
            Ok(_) | Err(Stop::Closed) => Ok(ExitCode::SUCCESS),
            Err(Stop::Trouble(text)) => Err(text),
        }
    })
}

async fn export(registry: &Registry, args: &Args) -> Result<u64, Stop> {
    let stores = args.place.open(registry, &args.from, &[Contract::History], Access::Read).await?;
    let exported = export_from(&stores, args).await;
    stores.close().await;
    exported
}

async fn export_from(stores: &Stores, args: &Args) -> Result<u64, Stop> {
    let history = stores.history().map_err(|error| error.to_string())?;
    let thread = &args.place.thread;
    let found = history.thread_info(thread).await.map_err(|error| error.to_string())?;
    // A thread whose messages were cleared keeps its last number, and numbers begin with 1.
    if found.last < Seq::new(1) {
        let (name, url) = (args.place.name(), redact_url(&args.from));
        let namespace = printable(args.place.namespace.as_str());
        return Err(Stop::Trouble(format!(
            "{name} does not exist in the namespace {namespace} of {url}; nothing was written \
             (`larder inspect` lists the threads)"
        )));
    }
    match &args.output {
        None => write(history.provider(), thread, std::io::stdout()).await,
        Some(path) if path.as_os_str() == "-" => write(history.provider(), thread, std::io::stdout()).await,
        // Writes to a device or a pipe directly; replaces a file.
        Some(path) if path.exists() && !path.is_file() => {
            let file = File::options().write(true).open(path);
            write(history.provider(), thread, file.map_err(|error| cannot_write(path, &error))?).await
        }
        Some(path) => {
            let mut file = beside(path).map_err(|error| cannot_write(path, &error))?;
            let messages = write(history.provider(), thread, file.as_file_mut()).await?;
            file.as_file().sync_all()?;
            file.persist(path).map_err(|error| cannot_write(path, &error.error))?;
            Ok(messages)
        }
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}", printable(&path.display().to_string()))
}

/// Creates a temporary file in the same folder. Only this account can read it, unless it replaces a file:
/// then it gets the permissions of that file.
pub(crate) fn beside(path: &Path) -> std::io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::Builder::new().prefix(".larder-").tempfile_in(folder)?;
    #[cfg(unix)]
    if let Ok(replaced) = std::fs::metadata(path) {
        file.as_file().set_permissions(replaced.permissions())?;
    }
    Ok(file)
}

/// Writes the thread page by page and returns the number of messages.
async fn write(history: &Arc<dyn HistoryProvider>, thread: &Thread, to: impl Write) -> Result<u64, Stop> {
    let mut to = BufWriter::new(to);
    let (mut after, mut messages) = (Seq::MIN, 0);
    loop {
        let page = history.page_after(thread, after, PAGE).await.map_err(|error| error.to_string())?;
        for stored in &page.messages {
            for line in to_lines(&stored.message).map_err(|error| error.to_string())? {
                writeln!(to, "{line}")?;
            }
            messages += 1;
        }
        match page.next(PAGE) {
            Some(next) => after = next,
            None => break,
        }
    }
    to.flush()?;
    Ok(messages)
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_new_file_is_private_and_a_replaced_one_keeps_its_mode() {
        let folder = tempfile::TempDir::new().unwrap();
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        std::fs::write(&old, "").unwrap();
        std::fs::set_permissions(&old, Permissions::from_mode(0o664)).unwrap();
        for (path, mode) in [(new, 0o600), (old, 0o664)] {
            beside(&path).unwrap().persist(&path).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
    }
}
