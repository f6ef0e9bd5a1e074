//! Connecting aside, where the caller's runtime neither waits for it nor is waited for.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Attempts to connect within the time that a call may wait for a connection.
const ATTEMPTS: u32 = 3;

/// Whether anybody still waits for a login. Each of its steps is taken under the lock.
#[derive(Default)]
struct Abandoned(Mutex<bool>);

impl Abandoned {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever waits for a login. Dropped, no further step of it is taken, and none is under way.
///
/// A runtime drops its tasks before its timers and sockets, which panic when they are asked for after that. So a step on a
/// thread aside must not go on while the runtime ends.
struct Waiting(Arc<Abandoned>);

impl Drop for Waiting {
    fn drop(&mut self) {
        *self.0.lock() = true;
    }
}

/// Connects within `limit`; nothing where nobody answers.
///
/// An attempt whose first packet is lost, or meets what is left of an earlier connection between the same ports, gets no
/// answer: so there are several, each from another port and with twice the time of the one before.
///
/// The driver computes its proof of the password in some 800 steps and gives other tasks a turn after each. On a busy
/// runtime that is 800 rounds of all that is ready, which takes seconds; so it runs on a thread aside, where nobody else
/// waits for a turn. It ends there when this future is dropped, which waits for the step that is under way.
pub(super) async fn log_in<T, F>(limit: Duration, connect: impl Fn() -> F + Send + 'static) -> Option<T>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let abandoned = Arc::new(Abandoned::default());
    let (mut made, connected) = oneshot::channel();
    // Dropped after `connected`, whose end wakes the thread aside: a login in the midst of its steps would hardly let
    // anybody else have the lock.
    let _waiting = Waiting(Arc::clone(&abandoned));
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let attempted = runtime.block_on(async {
            let mut attempts = pin!(attempts(limit, connect));
            let steps = poll_fn(|context| {
                let abandoned = abandoned.lock();
                if *abandoned { Poll::Ready(None) } else { attempts.as_mut().poll(context) }
            });
            match select(pin!(made.closed()), steps).await {
                Either::Left(_) => None,
                Either::Right((connected, _)) => connected,
            }
        });
        let _ = made.send(attempted);
    });
    connected.await.ok().flatten()
}

async fn attempts<T, F: Future<Output = T>>(limit: Duration, connect: impl Fn() -> F) -> Option<T> {
    let unit = limit / ((1 << ATTEMPTS) - 1);
    for attempt in 0..ATTEMPTS {
        if let Ok(connected) = tokio::time::timeout(unit * (1 << attempt), connect()).await {
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

    /// Notes whether it is dropped by a panic.
    struct Witness(Arc<AtomicBool>);

    impl Drop for Witness {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Once a login went on while its runtime ended, and asked for a timer that was gone.
    #[test]
    fn a_runtime_that_ends_does_not_take_its_timers_from_under_a_login() {
        for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
            let runtime = builder.enable_all().build().unwrap();
            let panicked = Arc::new(AtomicBool::new(false));
            let (stepping, begun) = mpsc::channel();
            let witness = Arc::clone(&panicked);
            let login = log_in(Duration::from_secs(60), move || {
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
            runtime.spawn(login);
            runtime.block_on(async {
                tokio::task::yield_now().await;
                tokio::task::spawn_blocking(move || begun.recv().unwrap()).await.unwrap();
            });
            drop(runtime);
            assert!(!panicked.load(Ordering::SeqCst));
        }
    }
}
