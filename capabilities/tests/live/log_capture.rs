//! The complete log of the program and its drivers.

use std::fmt::{Debug, Write as _};
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The log at every level.
static LOGGED: Mutex<String> = Mutex::new(String::new());

struct Capture;

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Capture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Fields(&mut LOGGED.lock().unwrap()));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut LOGGED.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut logged = LOGGED.lock().unwrap();
        let _ = write!(logged, "\n{} {}:", event.metadata().level(), event.metadata().target());
        event.record(&mut Fields(&mut logged));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Captures the whole log from now on.
pub(crate) fn keep() {
    tracing::subscriber::set_global_default(Capture).expect("the only subscriber");
}

/// Returns the log so far.
pub(crate) fn text() -> String {
    LOGGED.lock().unwrap().clone()
}

/// Asserts that the log so far contains no secret.
pub(crate) fn keeps(secret: &str) {
    let logged = text();
    let shown = logged.lines().find(|line| line.contains(secret));
    assert!(shown.is_none(), "a secret is logged: {shown:?}");
}
