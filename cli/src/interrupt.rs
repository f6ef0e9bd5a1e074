//! How a command learns that it is to end.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// Ready when the process is asked to end: by Ctrl-C, or by SIGTERM as a supervisor sends it. From this call on, neither
/// ends the process by itself.
///
/// # Errors
/// A sentence where signals cannot be listened to.
pub(crate) fn stopped() -> Result<impl Future<Output = ()> + Send, String> {
    let listen = |kind| signal(kind).map_err(|error| format!("cannot listen to signals: {error}"));
    let (mut interrupted, mut terminated) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    })
}

/// Works until told to end, which drops the work.
///
/// # Errors
/// Those of the work; a sentence where it was told to end.
pub(crate) async fn unless(
    stopped: impl Future<Output = ()>,
    work: impl Future<Output = Result<ExitCode, String>>,
) -> Result<ExitCode, String> {
    tokio::select! {
        done = work => done,
        () = stopped => told(),
    }
}

/// The answer of a command that was told to end.
pub(crate) fn told() -> Result<ExitCode, String> {
    Err("interrupted".to_owned())
}
