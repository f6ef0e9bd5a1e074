use larder_kernel::{ErrorKind, TaskStatus};
use tempfile::TempDir;

use super::*;
use crate::sqlite::SqliteConfig;

const LONG: Duration = Duration::from_secs(3_600);

async fn store(folder: &TempDir) -> SqliteTaskStore {
    let sqlite = Sqlite::open(SqliteConfig::new(folder.path().join("larder.db"))).await.unwrap();
    sqlite.tasks(Namespace::new("n").unwrap())
}

fn id(text: &str) -> TaskId {
    TaskId::new(text).unwrap()
}

fn planned(ids: &[&str]) -> NewBoard {
    NewBoard::new(ids.iter().map(|text| NewTask::new(id(text), "t\0t").with_description("d\0d")).collect())
}

#[tokio::test]
async fn claims_take_the_first_free_task_and_stale_tokens_stay_stale() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder).await;
    let (board, worker) = (BoardId::new("c", "a").unwrap(), WorkerId::new("w").unwrap());
    store.create_task_list(&board, planned(&["z", "y", "x"])).await.unwrap();
    let short = store.claim(&board, &worker, Duration::from_millis(1)).await.unwrap().unwrap();
    assert_eq!((short.task.id.as_str(), &*short.task.title), ("z", "t\0t"));
    tokio::time::sleep(Duration::from_millis(5)).await;
    let again = store.claim(&board, &worker, LONG).await.unwrap().unwrap();
    assert_eq!(again.task.id.as_str(), "z");
    assert!(again.token > short.token && again.task.revision > short.task.revision);
    let next = store.claim(&board, &worker, LONG).await.unwrap().unwrap();
    assert_eq!(next.task.id.as_str(), "y");
    let stale = Transition::to(TaskStatus::Succeeded).with_token(short.token);
    assert_eq!(store.update_status(&board, &id("z"), stale).await.unwrap_err().kind(), ErrorKind::Conflict);
    let step = Transition::to(TaskStatus::Planned).with_token(again.token).with_result("r\0r");
    let task = store.update_status(&board, &id("z"), step).await.unwrap();
    assert_eq!((task.lease.as_ref(), task.result.as_deref()), (None, Some("r\0r")));
    assert_eq!(store.get_task(&board, &id("z")).await.unwrap(), Some(task));
    let started =
        store.update_status(&board, &id("x"), Transition::to(TaskStatus::InProgress)).await.unwrap();
    assert_eq!(started.lease, None);
    let last = store.claim(&board, &worker, LONG).await.unwrap().unwrap();
    assert_eq!(last.task.id.as_str(), "z");
    assert_eq!(store.claim(&board, &worker, LONG).await.unwrap(), None);
    let counts = store.get_board(&board).await.unwrap().unwrap().tasks;
    assert_eq!((counts.in_progress, counts.total()), (3, 3));
    assert_eq!(store.settle_conversation(&board.conversation).await.unwrap(), 3);
    assert_eq!(store.settle_conversation(&board.conversation).await.unwrap(), 0);
}

#[tokio::test]
async fn numbers_continue_in_a_board_created_again() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder).await;
    let (board, worker) = (BoardId::new("c", "a").unwrap(), WorkerId::new("w").unwrap());
    store.create_task_list(&board, planned(&["a"]).with_label("l\0l")).await.unwrap();
    let old = store.claim(&board, &worker, LONG).await.unwrap().unwrap();
    let error = store.create_task_list(&board, planned(&["b"])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(store.delete_board(&board).await.unwrap());
    assert!(!store.delete_board(&board).await.unwrap());
    assert_eq!(store.get_board(&board).await.unwrap(), None);
    assert!(store.list_boards(None, PageRequest::first(10)).await.unwrap().items.is_empty());
    let made = store.create_task_list(&board, planned(&["a"])).await.unwrap();
    assert_eq!((made.label, made.tasks.planned), (None, 1));
    let new = store.claim(&board, &worker, LONG).await.unwrap().unwrap();
    assert!(new.token > old.token && new.task.revision > old.task.revision);
    let error = store.add_tasks(&board, planned(&["b", "a"]).tasks).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(store.get_board(&board).await.unwrap().unwrap().tasks.total(), 1);
}

#[tokio::test]
async fn no_lookup_visits_the_whole_board() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder).await;
    let plan = store
        .engine
        .read("test.plan", |connection| crate::sqlite::tests::plan(connection, transitions::FIRST_FREE))
        .await
        .unwrap();
    assert!(plan.contains("COVERING INDEX tasks_by_status (board=? AND status=?)"), "{plan}");
    assert!(
        plan.contains("COVERING INDEX tasks_leased (board=? AND lease_expires_ms>? AND lease_expires_ms<?)"),
        "{plan}"
    );
    assert!(!plan.contains("TEMP B-TREE"), "{plan}");
}

#[tokio::test]
async fn the_cost_of_a_claim_is_independent_of_other_tasks() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder).await;
    let counting = crate::sqlite::tests::Counting::open(&folder.path().join("larder.db"));
    let worker = WorkerId::new("w").unwrap();
    let claim = |board: &BoardId| {
        counting.of(|sql| {
            let claimed = transitions::claim(sql, &Namespace::new("n")?, board, &worker, LONG)?;
            assert!(claimed.is_some());
            Ok(())
        })
    };
    let mut costs = Vec::new();
    for (waiting, done, held) in [(10, 0, 0), (10_000, 0, 0), (10, 300, 0), (10, 0, 300)] {
        let board = BoardId::new("c", format!("{waiting} {done} {held}")).unwrap();
        store.create_task_list(&board, planned(&[])).await.unwrap();
        let ids: Vec<String> = (0..waiting + done + held).map(|number| format!("{number:06}")).collect();
        for batch in ids.chunks(1_000) {
            let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
            store.add_tasks(&board, planned(&batch).tasks).await.unwrap();
        }
        for text in ids.iter().take(done) {
            let claim = store.claim(&board, &worker, LONG).await.unwrap().unwrap();
            assert_eq!(claim.task.id.as_str(), text);
            let done = Transition::to(TaskStatus::Succeeded).with_token(claim.token);
            store.update_status(&board, &claim.task.id, done).await.unwrap();
        }
        for _ in 0..held {
            store.claim(&board, &worker, LONG).await.unwrap().unwrap();
        }
        costs.push(claim(&board));
    }
    let (least, most) = (costs.iter().min().unwrap(), costs.iter().max().unwrap());
    assert!(most * 100 <= least * 115, "{costs:?}");
}
