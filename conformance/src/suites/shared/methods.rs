//! What holds for each method alike: it stays in its namespace, and its future may be dropped wherever it waits.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Waking, Poll};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use larder_kernel::{Contract, Namespace};
use serde_json::Value;

use super::probe;
use crate::calls::{Call, World, comparable, lay_out, of, witness};
use crate::case::{Case, CaseResult};
use crate::context::Context;
use crate::expect;
use crate::harness::{OpenOptions, StoreSet};

/// A call that is woken more often than this is dropped no later.
const POLLS_MAX: u64 = 200;
/// How many readers at once must be served after the drops: more than a pool has connections.
const READERS: usize = 12;
/// How long a call is dropped again and again: a slow server has many places where one waits.
const DROPS_TIME_MAX: Duration = Duration::from_secs(10);
/// How long what was sent before the drop may take to arrive.
const ARRIVAL_MAX: Duration = Duration::from_secs(5);

/// Two cases for each call of the contract.
pub(super) fn cases(contract: Contract) -> Vec<Case> {
    let calls = of(contract).into_iter();
    calls.flat_map(|call| [namespace_case(call), drop_case(call)]).collect()
}

fn namespace_case(call: Call) -> Case {
    let name = format!("{}_stays_in_its_namespace", call.title());
    Case::new(call.contract, "STORE-001", name, move |context| stays_in_its_namespace(context, call))
}

fn drop_case(call: Call) -> Case {
    let name = format!("{}_is_dropped_wherever_it_waits", call.title());
    Case::new(call.contract, "STORE-011", name, move |context| async move {
        dropped_wherever_it_waits(&context, call).await.map(drop)
    })
}

/// Everything in the namespace that two equal lives read alike.
async fn dump(stores: &StoreSet, contract: Contract) -> CaseResult<Value> {
    probe::dump(stores, contract).await.map(comparable)
}

async fn open(context: &Context, namespace: &Namespace, handle: usize) -> CaseResult<StoreSet> {
    context.open_with(namespace, &OpenOptions::default().with_handle(handle)).await
}

/// What the call answers and leaves where nobody else used its ids, it must answer and leave beside other namespaces that
/// hold the same ids, which stay as they are. One of them sorts before the call's own and was written earlier, the other
/// sorts behind it and was written later, so that no order of rows hides them; no other case is needed to make it show.
async fn stays_in_its_namespace(context: Context, call: Call) -> CaseResult {
    let contract = call.contract;
    let alone = open(&context, &context.sibling("-alone")?, 0).await?;
    lay_out(&alone, contract, World::Mine).await?;
    let answer = call.run(&alone).await?;
    let left = dump(&alone, contract).await?;
    probe::store(&alone, contract)?.erase().await?;

    let remembered = remembered_alone(&context, contract).await?;
    let own = open(&context, &context.sibling("-own")?, 0).await?;
    let earlier = open(&context, &context.namespace, 0).await?;
    let later = open(&context, &context.sibling("-own-later")?, 0).await?;
    lay_out(&earlier, contract, World::Theirs).await?;
    lay_out(&own, contract, World::Mine).await?;
    lay_out(&later, contract, World::Theirs).await?;
    let before = [dump(&earlier, contract).await?, dump(&later, contract).await?];
    expect::equal("the answer beside other namespaces", &call.run(&own).await?, &answer)?;
    for (theirs, held) in [&earlier, &later].into_iter().zip(&before) {
        expect::equal("what another namespace holds", &dump(theirs, contract).await?, held)?;
        expect::equal("what another remembers", &witness(theirs, contract).await?, &remembered)?;
    }
    expect::equal("what the call left in its own", &dump(&own, contract).await?, &left)
}

/// What another namespace remembers where nobody is beside it. Asking can itself write, on a store that forgets, so each
/// namespace is asked once, and what a store does not keep at all is not held against its namespaces.
async fn remembered_alone(context: &Context, contract: Contract) -> CaseResult<Value> {
    let theirs = open(context, &context.sibling("-theirs")?, 0).await?;
    lay_out(&theirs, contract, World::Theirs).await?;
    let remembered = witness(&theirs, contract).await?;
    probe::store(&theirs, contract)?.erase().await?;
    Ok(remembered)
}

/// Whether what the call writes must be seen whole or not at all. An erasure that is dropped may have removed any part,
/// and who watches what is written twice has it written by two calls.
fn is_whole(call: &Call) -> bool {
    !matches!(call.name, "erase" | "watch/live")
}

/// What became of a call's futures.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Dropped {
    /// How many were dropped.
    pub(crate) futures: u64,
    /// After how many polls the last of them was.
    pub(crate) polls_max: u64,
}

/// Drops the call before its first poll, then after one poll, after two, until it ends by itself or the time is up; each
/// time in a namespace of its own where the call writes. Everything that can be read is then as before the call or as
/// after it, and in the end the same store takes the call and more readers than it can have connections.
///
/// # Errors
/// `Broken` where something stands in part, or the store does not go on.
pub(crate) async fn dropped_wherever_it_waits(context: &Context, call: Call) -> CaseResult<Dropped> {
    let contract = call.contract;
    let begun = Instant::now();
    let whole = open(context, &context.sibling("-whole")?, 0).await?;
    lay_out(&whole, contract, World::Mine).await?;
    let before = dump(&whole, contract).await?;
    call.run(&whole).await?;
    let after = dump(&whole, contract).await?;

    let mut dropped = Dropped::default();
    let (mut own, mut other) =
        (open(context, &context.namespace, 0).await?, open(context, &context.namespace, 1).await?);
    lay_out(&own, contract, World::Mine).await?;
    for polls in 0..=POLLS_MAX {
        let ended = Polls { call: call.run(&own), left: polls }.await;
        let cut = ended.is_none();
        if let Some(answer) = ended {
            answer?;
        }
        if !cut || is_whole(&call) {
            let states = if cut { [&before, &after] } else { [&after, &after] };
            settles(&other, contract, states, polls).await?;
        }
        if !cut || begun.elapsed() > DROPS_TIME_MAX {
            break;
        }
        dropped.futures += 1;
        dropped.polls_max = polls;
        if before != after {
            // What was sent before the drop may still arrive, so nothing else may stand where it arrives.
            let namespace = context.sibling(&format!("-{polls}"))?;
            (own, other) = (open(context, &namespace, 0).await?, open(context, &namespace, 1).await?);
            lay_out(&own, contract, World::Mine).await?;
        }
    }
    call.run(&own).await?;
    let readers = join_all((0..READERS).map(|_| probe::count_batch(&own, contract, "none"))).await;
    readers.into_iter().collect::<CaseResult<Vec<_>>>()?;
    Ok(dropped)
}

/// Waits until everything that can be read is one of two states. A write that was on its way when its future was dropped
/// may still arrive, whole.
async fn settles(stores: &StoreSet, contract: Contract, states: [&Value; 2], polls: u64) -> CaseResult {
    let begun = Instant::now();
    loop {
        let read = dump(stores, contract).await?;
        if states.contains(&&read) {
            return Ok(());
        }
        if begun.elapsed() > ARRIVAL_MAX {
            let what = format!("everything as before or after the call, dropped after {polls} polls");
            return expect::equal(&what, &read, states[0]);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A call that is given up after so many polls: `None` then.
struct Polls<'a> {
    call: BoxFuture<'a, CaseResult<Value>>,
    left: u64,
}

impl Future for Polls<'_> {
    type Output = Option<CaseResult<Value>>;

    fn poll(mut self: Pin<&mut Self>, waking: &mut Waking<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.call.as_mut().poll(waking) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            // Given up before it is woken, as a caller does whose time is over.
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
