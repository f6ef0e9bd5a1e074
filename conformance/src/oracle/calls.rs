//! Calls with a time limit, a count and a log.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use larder_kernel::Result;

use super::{Answer, Defect, Ended, Op};

/// The number of log lines that are kept.
const LINES_MAX: usize = 400;

/// The counts of calls by their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Calls that succeeded.
    pub done: u64,
    /// Calls that were not applied.
    pub refused: u64,
    /// Calls with unknown outcome.
    pub open: u64,
    /// The longest call, in milliseconds.
    pub longest_ms: u128,
}

impl Tally {
    /// Adds the counts of another tally.
    pub fn add(&mut self, other: Self) {
        self.done += other.done;
        self.refused += other.refused;
        self.open += other.open;
        self.longest_ms = self.longest_ms.max(other.longest_ms);
    }
}

/// The state that the calls of one trial share.
#[derive(Debug)]
pub struct Calls {
    /// The time limit of a call.
    limit: Duration,
    /// The number of calls in flight.
    in_flight: Arc<AtomicUsize>,
    begun: Instant,
    lines: Mutex<Vec<String>>,
    tally: Mutex<Tally>,
}

/// Counts a call as in flight until it is dropped.
struct Flight<'a>(&'a AtomicUsize);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Calls {
    pub fn new(limit: Duration, in_flight: Arc<AtomicUsize>) -> Self {
        Self { limit, in_flight, begun: Instant::now(), lines: Mutex::default(), tally: Mutex::default() }
    }

    /// Returns the time limit of a call.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    pub fn tally(&self) -> Tally {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the log, line by line.
    pub fn script(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    /// Makes a call. A call that does not end in time is a defect, and its operation may have been applied.
    pub async fn call(&self, op: &Op, call: impl Future<Output = Result<Answer>>) -> (Ended, Option<Defect>) {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let flight = Flight(&self.in_flight);
        let begun = Instant::now();
        let (ended, late) = match tokio::time::timeout(self.limit, call).await {
            Ok(result) => (Ended::from(result), None),
            Err(_) => {
                let defect = format!("{op:?} did not end within {} s", self.limit.as_secs_f64());
                (Ended::Open(None), Some(Defect::new("STORE-014", defect)))
            }
        };
        drop(flight);
        self.note(op, begun, &ended);
        (ended, late)
    }

    /// Adds a log line that is not about a call.
    pub fn remark(&self, text: &str) {
        let line = format!("{:>7.1} ms  {text}", self.begun.elapsed().as_secs_f64() * 1e3);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < LINES_MAX {
            lines.push(line);
        }
    }

    fn note(&self, op: &Op, begun: Instant, ended: &Ended) {
        let took = begun.elapsed();
        {
            let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            let count = match ended {
                Ended::Done(_) => &mut tally.done,
                Ended::Refused(_) => &mut tally.refused,
                Ended::Open(_) => &mut tally.open,
            };
            *count += 1;
            tally.longest_ms = tally.longest_ms.max(took.as_millis());
        }
        let how = match ended {
            Ended::Done(Answer::Thread(lines)) => format!("{} messages", lines.len()),
            Ended::Done(answer) => format!("{answer:?}"),
            Ended::Refused(error) => format!("not applied: {error}"),
            Ended::Open(Some(error)) => format!("unknown: {error}"),
            Ended::Open(None) => "unknown: no end".to_owned(),
        };
        self.remark(&format!("{op:?} -> {how} ({:.1} ms)", took.as_secs_f64() * 1e3));
    }
}
