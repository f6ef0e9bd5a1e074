//! Appends that meet are made together.
//!
//! A statement costs its client and the server more than the row that it writes, and each ends in a flush. So only a few are
//! under way at a time, and none for a thread that one of them writes. What comes meanwhile waits, and goes with the next
//! one, all together.

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_kernel::{Appended, Error, ErrorKind, Outcome, Result};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::write::{self, Append};
use super::{APPEND, Address, together};
use crate::postgres::company;
use crate::postgres::engine::Engine;
use crate::postgres::failure::same_for_all;

/// Statements under way at once, beyond which appends wait.
const STATEMENTS_MAX: usize = 2;
/// Appends in one statement.
const TOGETHER_MAX: usize = 64;
/// Bytes of messages in one statement of several appends.
const BYTES_MAX: i64 = 1 << 20;
/// Bytes of an append that may wait for others; a larger one would make them wait.
const EACH_BYTES_MAX: i64 = 1 << 16;
/// How long a statement is one of these.
const SLOW: Duration = Duration::from_millis(20);
/// How long an append waits for others before it goes by itself.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// The appends to one open database that are under way or wait.
#[derive(Default)]
pub(crate) struct Appends {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    statements: usize,
    /// The threads that they write.
    busy: HashSet<Address>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    /// Whether those who were answered last did not come again in time.
    parted: bool,
}

/// An append that waits.
pub(super) struct Waiting {
    pub(super) append: Arc<Append>,
    /// Nothing, where it is to be made by itself after all.
    made: oneshot::Sender<Option<Result<Appended>>>,
}

enum Begun {
    Alone(Statement),
    Waits(oneshot::Receiver<Option<Result<Appended>>>),
}

impl State {
    /// Those that may go now, where one statement more may be under way.
    fn next(&mut self) -> Vec<Waiting> {
        let (mut next, mut left, mut bytes) = (Vec::new(), Vec::new(), 0);
        for one in self.waiting.drain(..) {
            // Who went away wants nothing appended.
            if one.made.is_closed() {
                continue;
            }
            let size = one.append.batch.bytes();
            if next.len() == TOGETHER_MAX
                || bytes + size > BYTES_MAX
                || self.busy.contains(&one.append.address)
            {
                left.push(one);
            } else {
                bytes += size;
                next.push(one);
            }
        }
        self.waiting = left;
        next
    }
}

impl Appends {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds it can stop halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of those that wait may go with the statement after one that writes these threads: at most as many as it
    /// takes, and so many where they fill it.
    fn ready(&self, threads: &HashSet<&Address>) -> usize {
        let state = self.lock();
        let (mut count, mut bytes) = (0, 0);
        for one in &state.waiting {
            let address = &one.append.address;
            if threads.contains(address) || !state.busy.contains(address) {
                count += 1;
                bytes += one.append.batch.bytes();
            }
        }
        if bytes < BYTES_MAX { count.min(TOGETHER_MAX) } else { TOGETHER_MAX }
    }

    /// Whether those who are answered now are worth waiting for.
    fn is_patient(&self) -> bool {
        !std::mem::take(&mut self.lock().parted)
    }

    fn begin(&self, engine: &Engine, append: &Arc<Append>) -> Begun {
        let mut state = self.lock();
        if state.statements < STATEMENTS_MAX && !state.busy.contains(&append.address) {
            state.statements += 1;
            state.busy.insert(append.address.clone());
            let threads = vec![append.address.clone()];
            return Begun::Alone(Statement { engine: engine.clone(), threads, counts: true });
        }
        let (made, answer) = oneshot::channel();
        state.waiting.push(Waiting { append: Arc::clone(append), made });
        Begun::Waits(answer)
    }

    /// Takes back what waits. False where it is on its way already.
    fn withdraw(&self, append: &Arc<Append>) -> bool {
        let mut state = self.lock();
        let place = state.waiting.iter().position(|one| Arc::ptr_eq(&one.append, append));
        place.map(|place| state.waiting.remove(place)).is_some()
    }

    /// Lets those that wait begin the next statement, if one more may be under way.
    fn go_on(&self, engine: &Engine, ended: impl FnOnce(&mut State)) {
        let next = {
            let mut state = self.lock();
            ended(&mut state);
            if state.statements == STATEMENTS_MAX {
                return;
            }
            let next = state.next();
            if next.is_empty() {
                return;
            }
            state.statements += 1;
            state.busy.extend(next.iter().map(|one| one.append.address.clone()));
            next
        };
        let threads = next.iter().map(|one| one.append.address.clone()).collect();
        let statement = Statement { engine: engine.clone(), threads, counts: true };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(statement.run(next))),
            // Outside of every runtime; their own calls are not.
            Err(_) => next.into_iter().for_each(|one| drop(one.made.send(None))),
        }
    }
}

/// A statement that is under way. Dropped, it passes on to those that wait.
struct Statement {
    engine: Engine,
    threads: Vec<Address>,
    /// Whether it is one of the few.
    counts: bool,
}

impl Drop for Statement {
    fn drop(&mut self) {
        self.engine.appends().go_on(&self.engine, |state| {
            for thread in &self.threads {
                state.busy.remove(thread);
            }
            state.statements -= usize::from(self.counts);
        });
    }
}

impl Statement {
    /// Waits for a call, and lets another begin where it takes long: its thread may be held by somebody else.
    async fn lasts<T>(mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        if let Ok(answer) = tokio::time::timeout(SLOW, &mut call).await {
            return answer;
        }
        self.counts = false;
        self.engine.appends().go_on(&self.engine, |state| state.statements -= 1);
        call.await
    }

    async fn run(self, appends: Vec<Waiting>) {
        let begun = Instant::now();
        let made =
            self.engine.statement(APPEND, &appends, |sql, appends| together::append(sql, appends)).await;
        let took = begun.elapsed();
        let queue = self.engine.appends();
        let threads: HashSet<&Address> = self.threads.iter().collect();
        let company = (appends.len() + queue.ready(&threads)).min(TOGETHER_MAX);
        match made {
            Ok(made) => {
                for (one, appended) in appends.into_iter().zip(made) {
                    // Who went away meanwhile does not want to know.
                    let _ = one.made.send(appended.map(Ok));
                }
                // Those with an answer may come back at once, and go with the next.
                if !queue.is_patient() {
                    tokio::task::yield_now().await;
                } else if !company::gather(company, took, || queue.ready(&threads)).await {
                    queue.lock().parted = true;
                }
            }
            Err(error) => refuse(appends, error),
        }
    }
}

/// Tells all of them what is wrong; where it may be with one of them alone, each finds out by itself.
fn refuse(appends: Vec<Waiting>, error: Error) {
    let of_all =
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::ResourceExhausted);
    let known = error.outcome() == Outcome::NotApplied;
    let same = same_for_all(error);
    for one in appends {
        let _ = one.made.send((of_all || !known).then(|| Err(same())));
    }
}

/// Makes an append, with others where they meet.
pub(super) async fn append(engine: &Engine, append: Append) -> Result<Appended> {
    if append.key.is_some() || append.ttl.is_some() || append.batch.bytes() > EACH_BYTES_MAX {
        return alone(engine, &append).await;
    }
    let append = Arc::new(append);
    match engine.appends().begin(engine, &append) {
        Begun::Alone(statement) => statement.lasts(alone(engine, &append)).await,
        Begun::Waits(answer) => match answered(engine, &append, answer).await {
            Some(made) => made,
            None => alone(engine, &append).await,
        },
    }
}

async fn alone(engine: &Engine, append: &Append) -> Result<Appended> {
    engine.statement(APPEND, append, |sql, append| write::append(sql, append)).await
}

async fn answered(
    engine: &Engine,
    append: &Arc<Append>,
    mut answer: oneshot::Receiver<Option<Result<Appended>>>,
) -> Option<Result<Appended>> {
    let made = match tokio::time::timeout(WAIT_MAX, &mut answer).await {
        Ok(made) => made,
        Err(_) if engine.appends().withdraw(append) => return None,
        Err(_) => answer.await,
    };
    made.unwrap_or_else(|_| {
        let ended =
            Error::new(ErrorKind::Unexpected, APPEND, "the runtime that made the append is shutting down");
        Some(Err(ended.with_outcome(Outcome::Unknown)))
    })
}
