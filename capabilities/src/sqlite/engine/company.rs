//! Callers who write at the same time, and share a transaction and its flush.
//!
//! Those who write one thing after the other would be divided in two parties for ever: one is under way while the other
//! waits, and each pays for a flush of its own. So the callers that were just answered are waited for, though for less
//! than a transaction takes, and only while it is theirs to come back: whoever writes alone, or after a pause, waits for
//! nobody.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::{WriteJob, WriteMessage};

/// Most jobs that share one transaction, so that the first need not wait for ever.
const BATCH_JOBS_MAX: usize = 256;
/// How long callers are waited for: a part of what their transaction took, and no longer than this.
const PATIENCE_MAX: Duration = Duration::from_micros(500);
const PATIENCE_SHARE: u32 = 2;

/// Who wrote at the same time lately.
pub(super) struct Company {
    jobs: usize,
    /// Until when those are waited for.
    until: Option<Instant>,
}

impl Company {
    /// So many jobs: those that a transaction has done, and those that came meanwhile.
    pub(super) fn of(jobs: usize) -> Self {
        Self { jobs: jobs.min(BATCH_JOBS_MAX), until: None }
    }

    /// Those who were just answered may come back, after a transaction that took so long.
    pub(super) fn answered(&mut self, took: Duration) {
        self.until = Instant::now().checked_add((took / PATIENCE_SHARE).min(PATIENCE_MAX));
    }

    /// Takes what else there is, until the company is complete or was waited for long enough. It is waited for once, and then
    /// there is none, unless the next transaction makes one.
    pub(super) fn gather(&mut self, queue: &Receiver<WriteMessage>, batch: &mut Vec<WriteJob>) {
        let Self { jobs, until } = std::mem::replace(self, Self::of(0));
        take(queue, batch);
        while batch.len() < jobs && until.is_some_and(|until| Instant::now() < until) {
            // Being woken for each of them would cost more than the wait.
            std::thread::yield_now();
            take(queue, batch);
        }
    }
}

/// Takes the jobs that are there.
pub(super) fn take(queue: &Receiver<WriteMessage>, jobs: &mut Vec<WriteJob>) {
    while jobs.len() < BATCH_JOBS_MAX {
        match queue.try_recv() {
            Ok(WriteMessage::Job(job)) => jobs.push(job),
            Ok(WriteMessage::Watched) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use larder_kernel::Error;
    use rusqlite::Connection;

    use super::super::{Executed, Work};
    use super::*;

    struct Nothing;

    impl Work for Nothing {
        fn run(self: Box<Self>, _: Result<&Connection, &Error>) -> Executed {
            Executed { failed: false, answer: Box::new(|_| ()) }
        }

        fn is_abandoned(&self) -> bool {
            false
        }
    }

    fn job() -> WriteJob {
        WriteJob { sent: Instant::now(), work: Box::new(Nothing) }
    }

    fn send(queue: &Sender<WriteMessage>) {
        queue.send(WriteMessage::Job(job())).unwrap();
    }

    #[test]
    fn a_company_is_waited_for_until_it_is_complete_and_only_once() {
        let (jobs, queue) = channel();
        let mut company = Company::of(3);
        company.until = Instant::now().checked_add(Duration::from_secs(60));
        let begun = Instant::now();
        let coming = std::thread::spawn(move || {
            for _ in 0..2 {
                std::thread::sleep(Duration::from_millis(20));
                send(&jobs);
            }
            jobs
        });
        let mut batch = vec![job()];
        company.gather(&queue, &mut batch);
        assert_eq!(batch.len(), 3);
        let mut batch = vec![job()];
        company.gather(&queue, &mut batch);
        assert_eq!(batch.len(), 1);
        assert!(begun.elapsed() < Duration::from_secs(30));
        drop(coming.join());
    }

    #[test]
    fn who_does_not_come_back_in_time_is_not_waited_for() {
        let (jobs, queue) = channel();
        let mut company = Company::of(1_000_000);
        company.answered(Duration::from_secs(60));
        assert!(company.until.unwrap() <= Instant::now() + PATIENCE_MAX);
        send(&jobs);
        let mut batch = vec![job()];
        company.gather(&queue, &mut batch);
        assert_eq!(batch.len(), 2);
        // Nobody else was there: what is there is taken, and no clock is asked.
        let mut alone = Company::of(1);
        alone.answered(Duration::from_secs(60));
        let mut batch = vec![job()];
        alone.gather(&queue, &mut batch);
        assert_eq!(batch.len(), 1);
    }

    /// Once a caller alone whose writes were refused waited each time for those of the last commit.
    #[test]
    fn a_transaction_that_makes_no_company_leaves_nobody_to_wait_for() {
        let (_jobs, queue) = channel();
        let mut company = Company::of(1_000_000);
        company.gather(&queue, &mut vec![job()]);
        company.answered(Duration::from_secs(60));
        assert_eq!(company.jobs, 0);
    }

    #[test]
    fn a_transaction_has_a_most_of_jobs() {
        let (jobs, queue) = channel();
        (0..BATCH_JOBS_MAX + 5).for_each(|_| send(&jobs));
        let mut batch = Vec::new();
        Company::of(0).gather(&queue, &mut batch);
        assert_eq!(batch.len(), BATCH_JOBS_MAX);
    }
}
