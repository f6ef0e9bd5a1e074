//! Panics of generated cases: their texts are kept instead of printed, because a search for a smaller case
//! panics many times.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::panic;
use std::pin::pin;
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a future and keeps the texts of panics on its thread.
pub(super) async fn quiet<F: Future>(future: F) -> F::Output {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if QUIET.get() {
                LAST.set(panic.to_string());
            } else {
                default(panic);
            }
        }));
    });
    let mut future = pin!(future);
    poll_fn(|context| {
        QUIET.set(true);
        let polled = future.as_mut().poll(context);
        QUIET.set(false);
        polled
    })
    .await
}

/// Returns the text and the place of the last panic on this thread.
pub(super) fn last() -> String {
    LAST.take()
}
