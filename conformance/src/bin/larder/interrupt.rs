//! How a command learns that it is to end.

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
