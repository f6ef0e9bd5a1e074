//! Signals that end a command.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// Returns a future that completes on Ctrl-C or on SIGTERM, which a supervisor sends. After this call,
/// neither signal ends the process automatically.
///
/// # Errors
/// A message if the process cannot listen for signals.
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

/// Runs the work until a signal arrives, which drops the work.
///
/// # Errors
/// The error of the work, or a message after a signal.
pub(crate) async fn unless(
    stopped: impl Future<Output = ()>,
    work: impl Future<Output = Result<ExitCode, String>>,
) -> Result<ExitCode, String> {
    tokio::select! {
        done = work => done,
        () = stopped => told(),
    }
}

/// Returns the result of a command that was interrupted.
pub(crate) fn told() -> Result<ExitCode, String> {
    Err("interrupted".to_owned())
}
