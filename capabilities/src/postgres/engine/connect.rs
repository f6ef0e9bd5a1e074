//! Connecting on a blocking thread, so that a busy runtime does not delay the handshake.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The number of attempts to connect within the time that a call may wait for a connection.
const ATTEMPTS: u32 = 3;

/// True if the caller gave up on the connection. Each step of the handshake runs under the lock.
#[derive(Default)]
struct Cancelled(Mutex<bool>);

impl Cancelled {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cancels the handshake when it is dropped. After the drop no step runs or starts.
///
/// A runtime drops its tasks before its timers and sockets, and a later use of those panics. So no step may
/// run on the blocking thread while the runtime ends.
struct CancelOnDrop(Arc<Cancelled>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        *self.0.lock() = true;
    }
}

/// Connects within `limit`; returns `None` if the server does not reply in that time.
///
/// An attempt gets no reply if its first packet is lost, or if the server still holds an earlier connection
/// between the same ports. So several attempts run, each from another port and with twice the time of the
/// one before.
///
/// The driver computes the password proof in some 800 steps and yields after each. On a busy runtime that is
/// 800 rounds of all ready tasks, which takes seconds. So the handshake runs on a blocking thread. If this
/// future is dropped, the drop waits for the current step, and then the handshake ends.
pub(super) async fn connect<T, F>(limit: Duration, open: impl Fn() -> F + Send + 'static) -> Option<T>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let cancelled = Arc::new(Cancelled::default());
    let (mut reply, connected) = oneshot::channel();
    // Dropped after `connected`, whose drop wakes the blocking thread. Otherwise the thread would retake the
    // lock so quickly that the cancellation could hardly get it.
    let _cancel = CancelOnDrop(Arc::clone(&cancelled));
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let attempted = runtime.block_on(async {
            let mut attempts = pin!(attempts(limit, open));
            let steps = poll_fn(|context| {
                let cancelled = cancelled.lock();
                if *cancelled { Poll::Ready(None) } else { attempts.as_mut().poll(context) }
            });
            match select(pin!(reply.closed()), steps).await {
                Either::Left(_) => None,
                Either::Right((connected, _)) => connected,
            }
        });
        let _ = reply.send(attempted);
    });
    connected.await.ok().flatten()
}

async fn attempts<T, F: Future<Output = T>>(limit: Duration, open: impl Fn() -> F) -> Option<T> {
    let unit = limit / ((1 << ATTEMPTS) - 1);
    for attempt in 0..ATTEMPTS {
        if let Ok(connected) = tokio::time::timeout(unit * (1 << attempt), open()).await {
            return Some(connected);
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use tokio::runtime::Builder;

    use super::*;

    /// Records that a panic dropped it.
    struct Witness(Arc<AtomicBool>);

    impl Drop for Witness {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Regression test: the handshake continued while its runtime ended, and used a dropped timer.
    #[test]
    fn connecting_stops_when_its_runtime_shuts_down() {
        for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
            let runtime = builder.enable_all().build().unwrap();
            let panicked = Arc::new(AtomicBool::new(false));
            let (stepping, begun) = mpsc::channel();
            let witness = Arc::clone(&panicked);
            let connecting = connect(Duration::from_secs(60), move || {
                let (stepping, witness) = (stepping.clone(), Witness(Arc::clone(&witness)));
                async move {
                    let _witness = witness;
                    stepping.send(()).unwrap();
                    // One step, in which the runtime begins to end.
                    std::thread::sleep(Duration::from_millis(200));
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    std::future::pending::<()>().await;
                }
            });
            runtime.spawn(connecting);
            runtime.block_on(async {
                tokio::task::yield_now().await;
                tokio::task::spawn_blocking(move || begun.recv().unwrap()).await.unwrap();
            });
            drop(runtime);
            assert!(!panicked.load(Ordering::SeqCst));
        }
    }
}
