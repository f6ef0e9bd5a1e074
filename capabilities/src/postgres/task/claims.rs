//! Claims that meet at one board are made together.
//!
//! A board's row is locked until the disk has what was written, so claims one by one cost a flush each. The first worker
//! to come has its claim made at once; those that come meanwhile, and those of the statement before who come again at once,
//! are all served by the next, in the order in which they came.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_kernel::{BoardId, Claim, Error, ErrorKind, Namespace, Outcome, Result, WorkerId};
use tokio::sync::oneshot;

use super::{CLAIM, steps};
use crate::postgres::company;
use crate::postgres::engine::Engine;
use crate::postgres::failure::same_for_all;

/// Workers that are served by one statement.
const TOGETHER_MAX: usize = 64;

/// The board of a namespace.
type Place = (Namespace, BoardId);
type Answer = Result<Option<Claim>>;

/// The workers that wait at each board at which a claim is under way.
#[derive(Default)]
pub(crate) struct Claims {
    waiting: Mutex<HashMap<Place, Vec<Waiting>>>,
}

struct Waiting {
    worker: WorkerId,
    lease: Duration,
    answer: oneshot::Sender<Answer>,
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Vec<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a worker wait. True where nobody serves the board yet.
    fn join(&self, place: &Place, waiting: Waiting) -> bool {
        let mut all = self.lock();
        let free = !all.contains_key(place);
        all.entry(place.clone()).or_default().push(waiting);
        free
    }

    /// How many wait.
    fn waiting(&self, place: &Place) -> usize {
        self.lock().get(place).map_or(0, Vec::len)
    }

    /// The next to be served; nobody, and the board is free, where none wait any longer.
    fn next(&self, place: &Place) -> Vec<Waiting> {
        let mut all = self.lock();
        let Some(waiting) = all.get_mut(place) else { return Vec::new() };
        // Who went away is given nothing.
        waiting.retain(|one| !one.answer.is_closed());
        let next: Vec<Waiting> = waiting.drain(..waiting.len().min(TOGETHER_MAX)).collect();
        if next.is_empty() {
            all.remove(place);
        }
        next
    }
}

/// Frees the board should its server end before its time, with the runtime for example; who waits is told by the loss of
/// its answer.
struct Serving {
    engine: Engine,
    place: Place,
    /// Not once nobody waits: the board may be another's to serve from then on.
    responsible: bool,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.responsible {
            self.engine.claims().lock().remove(&self.place);
        }
    }
}

impl Serving {
    /// Serves the board until nobody waits.
    async fn run(mut self) {
        let mut patient = true;
        loop {
            let next = self.engine.claims().next(&self.place);
            if next.is_empty() {
                self.responsible = false;
                return;
            }
            let workers: Vec<(&WorkerId, Duration)> =
                next.iter().map(|one| (&one.worker, one.lease)).collect();
            let begun = Instant::now();
            let claimed = self
                .engine
                .statement(CLAIM, &(&self.place, &workers), |connection, &((namespace, board), workers)| {
                    Box::pin(steps::claim(connection, namespace, board, workers))
                })
                .await;
            let took = begun.elapsed();
            let company = (next.len() + self.engine.claims().waiting(&self.place)).min(TOGETHER_MAX);
            match claimed {
                Ok(claims) => {
                    let claims = claims.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
                    for (one, claim) in next.into_iter().zip(claims) {
                        // Who went away meanwhile holds a task until its lease passes.
                        let _ = one.answer.send(Ok(claim));
                    }
                    let there = || self.engine.claims().waiting(&self.place);
                    patient = !patient || company::gather(company, took, there).await;
                }
                Err(error) => refuse(next, error),
            }
        }
    }
}

/// Gives all of them the same error.
fn refuse(waiting: Vec<Waiting>, error: Error) {
    let same = same_for_all(error);
    for one in waiting {
        let _ = one.answer.send(Err(same()));
    }
}

/// Has a worker's claim made.
pub(super) async fn claim(
    engine: &Engine,
    namespace: &Namespace,
    board: &BoardId,
    worker: &WorkerId,
    lease: Duration,
) -> Answer {
    let place = (namespace.clone(), board.clone());
    let (answer, claimed) = oneshot::channel();
    if engine.claims().join(&place, Waiting { worker: worker.clone(), lease, answer }) {
        tokio::spawn(Serving { engine: engine.clone(), place, responsible: true }.run());
    }
    claimed.await.unwrap_or_else(|_| {
        let ended =
            Error::new(ErrorKind::Unexpected, CLAIM, "the runtime that made the claim is shutting down");
        Err(ended.with_outcome(Outcome::Unknown))
    })
}
