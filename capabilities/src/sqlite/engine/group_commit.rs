//! Group commit: concurrent writes share one transaction and its fsync.
//!
//! Closed-loop writers would split into two alternating groups, each paying a separate fsync. So the writer
//! waits for the callers that it just answered, for less time than a transaction takes. It does not wait for
//! a caller that writes alone or after a pause.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::{WriteJob, WriteMessage};

/// The maximum number of jobs in one transaction, which limits the wait of the first.
const BATCH_JOBS_MAX: usize = 256;
/// The maximum wait of the writer for callers. The wait is a fraction of the time that their transaction
/// took.
const WAIT_MAX: Duration = Duration::from_micros(500);
const WAIT_DIVISOR: u32 = 2;

/// The number of callers that recently wrote at the same time.
pub(super) struct GroupCommit {
    jobs_expected: usize,
    /// The end of the wait for them.
    deadline: Option<Instant>,
}

impl GroupCommit {
    /// Expects the callers of the last transaction and the callers that arrived during it.
    pub(super) fn expecting(jobs: usize) -> Self {
        Self { jobs_expected: jobs.min(BATCH_JOBS_MAX), deadline: None }
    }

    /// Starts the wait for the callers that were just answered, after a transaction that took this long.
    pub(super) fn start_wait(&mut self, took: Duration) {
        self.deadline = Instant::now().checked_add((took / WAIT_DIVISOR).min(WAIT_MAX));
    }

    /// Collects further jobs until all expected callers are back or the wait is over. The expectation applies
    /// to one batch; the next transaction sets a new one.
    pub(super) fn collect_batch(&mut self, queue: &Receiver<WriteMessage>, batch: &mut Vec<WriteJob>) {
        let Self { jobs_expected, deadline } = std::mem::replace(self, Self::expecting(0));
        take_waiting(queue, batch);
        while batch.len() < jobs_expected && deadline.is_some_and(|deadline| Instant::now() < deadline) {
            // A wake-up for each job would cost more than the wait.
            std::thread::yield_now();
            take_waiting(queue, batch);
        }
    }
}

/// Takes the jobs that are in the queue.
pub(super) fn take_waiting(queue: &Receiver<WriteMessage>, jobs: &mut Vec<WriteJob>) {
    while jobs.len() < BATCH_JOBS_MAX {
        match queue.try_recv() {
            Ok(WriteMessage::Job(job)) => jobs.push(job),
            Ok(WriteMessage::Look) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use larder_kernel::Error;
    use rusqlite::Connection;

    use super::super::{Completed, Work};
    use super::*;

    struct Nothing;

    impl Work for Nothing {
        fn run(self: Box<Self>, _: Result<&Connection, &Error>) -> Completed {
            Completed { failed: false, reply: Box::new(|_| ()) }
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
    fn the_writer_waits_once_until_a_group_is_complete() {
        let (jobs, queue) = channel();
        let mut group_commit = GroupCommit::expecting(3);
        group_commit.deadline = Instant::now().checked_add(Duration::from_secs(60));
        let begun = Instant::now();
        let coming = std::thread::spawn(move || {
            for _ in 0..2 {
                std::thread::sleep(Duration::from_millis(20));
                send(&jobs);
            }
            jobs
        });
        let mut batch = vec![job()];
        group_commit.collect_batch(&queue, &mut batch);
        assert_eq!(batch.len(), 3);
        let mut batch = vec![job()];
        group_commit.collect_batch(&queue, &mut batch);
        assert_eq!(batch.len(), 1);
        assert!(begun.elapsed() < Duration::from_secs(30));
        drop(coming.join());
    }

    #[test]
    fn the_writer_does_not_wait_longer_than_the_limit() {
        let (jobs, queue) = channel();
        let mut group_commit = GroupCommit::expecting(1_000_000);
        group_commit.start_wait(Duration::from_secs(60));
        assert!(group_commit.deadline.unwrap() <= Instant::now() + WAIT_MAX);
        send(&jobs);
        let mut batch = vec![job()];
        group_commit.collect_batch(&queue, &mut batch);
        assert_eq!(batch.len(), 2);
        // A caller alone: the queue is drained without a wait.
        let mut alone = GroupCommit::expecting(1);
        alone.start_wait(Duration::from_secs(60));
        let mut batch = vec![job()];
        alone.collect_batch(&queue, &mut batch);
        assert_eq!(batch.len(), 1);
    }

    /// Regression test: a single caller whose writes were rejected waited each time for the callers of the
    /// last commit.
    #[test]
    fn a_transaction_without_expected_callers_does_not_wait() {
        let (_jobs, queue) = channel();
        let mut group_commit = GroupCommit::expecting(1_000_000);
        group_commit.collect_batch(&queue, &mut vec![job()]);
        group_commit.start_wait(Duration::from_secs(60));
        assert_eq!(group_commit.jobs_expected, 0);
    }

    #[test]
    fn the_jobs_of_a_transaction_are_limited() {
        let (jobs, queue) = channel();
        (0..BATCH_JOBS_MAX + 5).for_each(|_| send(&jobs));
        let mut batch = Vec::new();
        GroupCommit::expecting(0).collect_batch(&queue, &mut batch);
        assert_eq!(batch.len(), BATCH_JOBS_MAX);
    }
}
