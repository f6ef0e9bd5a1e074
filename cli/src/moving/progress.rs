//! A progress line on standard error, which is hidden unless that is a terminal.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use larder::transfer::{Phase, Progress};

/// The progress of a command.
pub(super) struct Meter {
    bar: ProgressBar,
    begun: Instant,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Meter {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {pos} records, {per_sec}, {elapsed}")
        {
            bar.set_style(style);
        }
        Self { bar, begun: Instant::now(), records: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    pub(super) fn told(&self, progress: Progress) {
        let phase = match progress.phase {
            Phase::Check => "checking",
            Phase::Write => "writing",
            Phase::Verify => "verifying",
            _ => "working",
        };
        let bytes = self.bytes.fetch_add(progress.bytes, Ordering::Relaxed) + progress.bytes;
        self.records.fetch_add(1, Ordering::Relaxed);
        self.bar.inc(1);
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{phase} {} {}", progress.contract, HumanBytes(bytes)));
        }
    }

    /// Returns a summary of the amount and the duration.
    pub(super) fn finish(&self) -> String {
        self.bar.finish_and_clear();
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-3);
        let (records, bytes) = (self.records.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        #[allow(clippy::cast_precision_loss)]
        let (rate, bytes_rate) = (records as f64 / seconds, bytes as f64 / seconds / 1e6);
        format!("{seconds:.1} s, {rate:.0} records/s and {bytes_rate:.1} MB/s read")
    }
}
