//! The numbers of calls and bytes of turns.
#![allow(clippy::print_stdout, reason = "a test of a cost prints it")]

use super::support::{Counts, open};
use crate::checkpoint::{ChannelUpdate, CheckpointId, NewCheckpoint, PendingWrite};

/// The number of deltas after which a turn sets the value of a channel.
const DELTAS: usize = 50;
/// The turns whose costs are printed.
const TURNS: [usize; 3] = [10, 100, 1_000];

/// The costs of one turn.
#[derive(Debug, Clone, Copy)]
struct Turn {
    put: Counts,
    /// The costs of `get` and of `history`, in the turns around the printed ones.
    reads: Option<(Counts, Counts)>,
}

/// Writes and reads 1,010 turns of a thread, and returns the cost of each.
async fn costs(turn: impl Fn(NewCheckpoint, usize, usize) -> NewCheckpoint, pending: bool) -> Vec<Turn> {
    let (store, checkpoints, namespace) = open();
    let mut costs = Vec::new();
    let (mut parent, mut since): (Option<CheckpointId>, usize) = (None, 0);
    for number in 1..=1_010 {
        let new = NewCheckpoint::new(parent.clone(), vec![7; 500]);
        since = if parent.is_none() || since == DELTAS { 0 } else { since + 1 };
        store.take();
        let id = checkpoints.put(&namespace, turn(new, number, since)).await.unwrap();
        if pending {
            let write = PendingWrite::new("task", 0, "log", vec![1; 200]);
            checkpoints.put_writes(&namespace, &id, vec![write]).await.unwrap();
        }
        let put = store.take();
        let mut cost = Turn { put, reads: None };
        if TURNS.iter().any(|turn| number.abs_diff(*turn) <= 5) {
            assert!(checkpoints.get(&namespace, Some(&id)).await.unwrap().is_some());
            let get = store.take();
            if pending {
                let history = checkpoints.history(&namespace, &id, &["log"]).await.unwrap();
                let expected = if since == 0 { DELTAS + 1 } else { since };
                assert_eq!(history["log"].writes.len(), expected);
            }
            cost.reads = Some((get, store.take()));
        }
        costs.push(cost);
        parent = Some(id);
    }
    costs
}

fn print(name: &str, costs: &[Turn]) {
    for number in TURNS {
        let Turn { put, reads } = costs[number - 1];
        let (get, history) = reads.unwrap();
        println!(
            "{name}, turn {number}: put {} calls, {} bytes written, {} read; get {} calls, {} bytes read; \
             history {} calls, {} bytes read",
            put.calls, put.written, put.read, get.calls, get.read, history.calls, history.read
        );
    }
}

/// Returns the bytes that the turns from one value to the next write. The last of them is at most `until`.
fn interval(costs: &[Turn], until: usize) -> u64 {
    let length = DELTAS + 1;
    let end = until - until % length;
    costs[end - length..end].iter().map(|turn| turn.put.written).sum()
}

#[tokio::test]
async fn a_turn_with_deltas_and_values_of_constant_size_costs_the_same_at_any_number_of_turns() {
    let turn = |new: NewCheckpoint, number: usize, since: usize| {
        let new = if since == 0 {
            new.with_value("messages", vec![2; 5_000])
        } else {
            new.with_delta("messages", vec![3; 100])
        };
        if number == 1 { new.with_value("plan", vec![4; 10_000]) } else { new }
    };
    let costs = costs(turn, false).await;
    print("deltas", &costs);
    for turn in &costs[1..] {
        assert_eq!(turn.put.calls, 2);
        // The unchanged channel is not written again.
        assert!(turn.put.written < 9_000, "{turn:?}");
        if let Some((get, _)) = turn.reads {
            assert!(get.calls == 3 && get.read < 25_000, "{turn:?}");
        }
    }
    let (early, late) = (interval(&costs, 110), interval(&costs, 1_010));
    println!("bytes written from one value to the next: {early} until turn 110, {late} until turn 1,010");
    // The numbers in the locations of values get longer.
    assert!(late * 100 <= early * 105, "{early} {late}");
}

#[tokio::test]
async fn the_history_of_a_pending_channel_costs_the_same_at_any_number_of_turns() {
    let turn = |new: NewCheckpoint, _, since| match since {
        0 => new.with_value("log", vec![5; 1_000]),
        _ => new.with_channel("log", ChannelUpdate::Pending),
    };
    let costs = costs(turn, true).await;
    print("pending writes", &costs);
    for turn in &costs[2..] {
        assert!(turn.put.calls == 3 && turn.put.written < 4_000, "{turn:?}");
        if let Some((get, history)) = turn.reads {
            assert!((get.calls, history.calls) == (3, 4) && history.read < 100_000, "{turn:?}");
        }
    }
}

#[tokio::test]
async fn a_plain_channel_that_grows_costs_its_own_size() {
    let turn = |new: NewCheckpoint, number: usize, _| new.with_value("all", vec![6; number * 100]);
    let costs = costs(turn, false).await;
    print("plain channel of 100 bytes a turn", &costs);
    for (number, turn) in (1..).zip(&costs) {
        let own = number * 100;
        assert!((own..own + 2_000).contains(&turn.put.written), "turn {number}: {turn:?}");
    }
}
