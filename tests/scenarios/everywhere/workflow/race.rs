//! Several workers on one run.

use larder_kernel::ErrorKind;

use super::bench::{Bench, PING_PONG, ROUTER, ask, call, turn, user};
use crate::test_backend::TestBackend as Backend;

/// Proves: PK-7, PK-10, PK-2
pub(crate) async fn of_two_workers_whose_turns_move_one_run_one_commits_and_the_other_keeps_nothing(
    backend: &Backend,
) {
    let bench = Bench::new(backend, PING_PONG).await;
    let (mut one, mut two) = (bench.open().await, bench.open().await);
    for worker in [&mut one, &mut two] {
        worker.begin_turn().await.unwrap();
        ask(worker, "Go").await;
    }
    let (first, second) = tokio::join!(one.end_turn(user("one")), two.end_turn(user("two")));
    first.unwrap();
    assert_eq!(second.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(bench.said_in(&one, "ping").await, ["one"]);
    assert_eq!(bench.open().await.transitions().len(), 1);
    // The loser starts over, in the new state.
    assert_eq!(turn(&mut two, "two", Some("Go")).await.state, "pong");
    assert_eq!(bench.open().await.current_state(), "ping");
}

/// Proves: PK-10
pub(crate) async fn of_two_concurrent_commits_one_conflicts(backend: &Backend) {
    let bench = Bench::new(backend, ROUTER).await;
    let (mut one, mut two) = (bench.open().await, bench.open().await);
    one.begin_turn().await.unwrap();
    two.begin_turn().await.unwrap();
    ask(&mut one, "Routed").await;
    assert_eq!(two.on_tool_call(&call("c", "Routed")).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(bench.open().await.transitions().len(), 1);
}

/// Proves: PK-2
pub(crate) async fn turns_that_move_nothing_lose_nothing_whatever_others_do(backend: &Backend) {
    let bench = Bench::new(backend, PING_PONG).await;
    let (mut one, mut two) = (bench.open().await, bench.open().await);
    one.begin_turn().await.unwrap();
    two.begin_turn().await.unwrap();
    ask(&mut one, "Go").await;
    one.end_turn(user("moved")).await.unwrap();
    two.end_turn(user("stayed")).await.unwrap();
    assert_eq!(bench.said_in(&one, "ping").await, ["moved", "stayed"]);
}

/// Proves: PK-7, PK-2
pub(crate) async fn under_many_workers_every_transition_leads_on_from_the_one_before(backend: &Backend) {
    let bench = std::sync::Arc::new(Bench::new(backend, PING_PONG).await);
    let workers = (0..8).map(|worker| {
        let bench = bench.clone();
        tokio::spawn(async move {
            let mut workflow = bench.open().await;
            let mut moved = 0;
            for number in 0..20 {
                match workflow.fire("Go", &format!("{worker}/{number}")).await {
                    Ok(_) => moved += 1,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict),
                }
            }
            moved
        })
    });
    let mut moved = 0;
    for worker in workers.collect::<Vec<_>>() {
        moved += worker.await.unwrap();
    }
    let workflow = bench.open().await;
    assert_eq!(workflow.transitions().len(), moved);
    assert!(moved >= 20);
    assert_eq!(workflow.transitions()[0].from, "ping");
    assert!(workflow.transitions().windows(2).all(|pair| pair[0].to == pair[1].from));
    let ids: std::collections::HashSet<_> = workflow.transitions().iter().map(|t| &t.event_id).collect();
    assert_eq!(ids.len(), moved);
}

/// Proves: PK-7, PK-8
pub(crate) async fn workers_with_one_event_id_move_the_run_once_and_all_get_the_result(backend: &Backend) {
    let bench = std::sync::Arc::new(Bench::new(backend, PING_PONG).await);
    let workers = (0..8).map(|_| {
        let bench = bench.clone();
        tokio::spawn(async move { bench.open().await.fire("Go", "once").await.unwrap() })
    });
    let mut answers = Vec::new();
    for worker in workers.collect::<Vec<_>>() {
        answers.push(worker.await.unwrap());
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(bench.open().await.transitions(), &answers[..1]);
}
