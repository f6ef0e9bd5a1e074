//! Properties of every method: it stays in its namespace, and its future may be dropped wherever it waits.

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

/// The number of polls up to which a call is dropped.
const POLLS_MAX: u64 = 200;
/// The number of concurrent readers that the store must serve after the drops: more than a pool has
/// connections.
const READERS: usize = 12;
/// The time in which a call is dropped repeatedly: a call to a slow server waits at many points.
const DROPS_TIME_MAX: Duration = Duration::from_secs(10);
/// The longest time in which a request that was sent before the drop may arrive.
const ARRIVAL_MAX: Duration = Duration::from_secs(5);

/// Returns two cases for each call of the contract.
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

/// Returns all readable data of the namespace, in a form that compares equal after equal calls.
async fn dump(stores: &StoreSet, contract: Contract) -> CaseResult<Value> {
    probe::dump(stores, contract).await.map(comparable)
}

async fn open(context: &Context, namespace: &Namespace, handle: usize) -> CaseResult<StoreSet> {
    context.open_with(namespace, &OpenOptions::default().with_handle(handle)).await
}

/// A call must have the same result and effect with and without other namespaces that hold the same ids, and
/// those namespaces must not change. One of them sorts before the call's namespace and was written earlier.
/// The other sorts after it and was written later. So no order of rows hides a defect.
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
    expect::equal("the result next to other namespaces", &call.run(&own).await?, &answer)?;
    for (theirs, held) in [&earlier, &later].into_iter().zip(&before) {
        expect::equal("what another namespace holds", &dump(theirs, contract).await?, held)?;
        expect::equal("what another remembers", &witness(theirs, contract).await?, &remembered)?;
    }
    expect::equal("the state of the caller's namespace after the call", &dump(&own, contract).await?, &left)
}

/// Returns the hidden state of another namespace that is alone in the backend. The query itself can write, so
/// each namespace is queried once. State that a store never keeps is not a defect of its namespaces.
async fn remembered_alone(context: &Context, contract: Contract) -> CaseResult<Value> {
    let theirs = open(context, &context.sibling("-theirs")?, 0).await?;
    lay_out(&theirs, contract, World::Theirs).await?;
    let remembered = witness(&theirs, contract).await?;
    probe::store(&theirs, contract)?.erase().await?;
    Ok(remembered)
}

/// Returns `true` if the call's write must be atomic. A dropped erasure may have removed any part, and a
/// watch of a value that is written twice involves two calls.
fn is_whole(call: &Call) -> bool {
    !matches!(call.name, "erase" | "watch/live")
}

/// The results of a call's dropped futures.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Dropped {
    /// The number of dropped futures.
    pub(crate) futures: u64,
    /// The number of polls before the last drop.
    pub(crate) polls_max: u64,
}

/// Drops the call before its first poll, then after one poll, after two, until it completes or the time is
/// up. A call that writes gets a new namespace each time. After each drop, the readable data must be as
/// before or as after the call. In the end the same store must serve the call and more readers than it can
/// have connections.
///
/// # Errors
/// `Broken` if a write is partial, or if the store no longer works.
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
            // A request that was sent before the drop may still arrive, so each drop has a separate
            // namespace.
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

/// Waits until the readable data is one of two states. A write that was in flight when its future was dropped
/// may still arrive, but only complete.
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

/// A call that is dropped after a number of polls and then yields `None`.
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
            // Dropped before it is woken, as after a caller's timeout.
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
