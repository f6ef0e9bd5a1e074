use larder_kernel::TaskStatus;

use super::*;

const SHORT: Duration = Duration::from_millis(15);
const LONG: Duration = Duration::from_secs(60);

fn id(text: &str) -> TaskId {
    TaskId::new(text).unwrap()
}

fn worker(text: &str) -> WorkerId {
    WorkerId::new(text).unwrap()
}

async fn board_of(store: &InMemoryTaskStore, names: &[&str]) -> BoardId {
    let board = BoardId::new("conversation", "agent").unwrap();
    let tasks = names.iter().map(|name| NewTask::new(id(name), *name)).collect();
    store.create_task_list(&board, NewBoard::new(tasks)).await.unwrap();
    board
}

#[tokio::test]
async fn an_expired_lease_accepts_its_token_until_the_next_claim() {
    let store = InMemoryTaskStore::new();
    let board = board_of(&store, &["a", "b"]).await;
    let first = store.claim(&board, &worker("w1"), SHORT).await.unwrap().unwrap();
    let second = store.claim(&board, &worker("w2"), LONG).await.unwrap().unwrap();
    assert_eq!((first.task.id.as_str(), second.task.id.as_str()), ("a", "b"));
    assert!(store.claim(&board, &worker("w3"), LONG).await.unwrap().is_none());
    tokio::time::sleep(SHORT * 2).await;

    // The lease was renewed late but in time, so the task cannot be claimed.
    store.renew_lease(&board, &id("a"), first.token, SHORT).await.unwrap();
    assert!(store.claim(&board, &worker("w3"), LONG).await.unwrap().is_none());
    tokio::time::sleep(SHORT * 2).await;

    let third = store.claim(&board, &worker("w3"), LONG).await.unwrap().unwrap();
    assert_eq!(third.task.id.as_str(), "a");
    assert!(third.token > second.token);
    let stale = Transition::to(TaskStatus::Succeeded).with_token(first.token);
    let error = store.update_status(&board, &id("a"), stale).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let step = Transition::to(TaskStatus::Succeeded).with_token(third.token);
    assert!(store.update_status(&board, &id("a"), step).await.unwrap().lease.is_none());
}

#[tokio::test]
async fn a_task_with_an_expired_lease_precedes_later_planned_tasks() {
    let store = InMemoryTaskStore::new();
    let board = board_of(&store, &["a", "b", "c"]).await;
    store.claim(&board, &worker("w1"), SHORT).await.unwrap();
    store.claim(&board, &worker("w1"), LONG).await.unwrap();
    tokio::time::sleep(SHORT * 2).await;
    for expected in ["a", "c"] {
        let claim = store.claim(&board, &worker("w2"), LONG).await.unwrap().unwrap();
        assert_eq!(claim.task.id.as_str(), expected);
    }
    assert_eq!(store.settle_conversation(&board.conversation).await.unwrap(), 3);
    assert_eq!(store.get_board(&board).await.unwrap().unwrap().tasks.succeeded, 3);
    assert!(store.claim(&board, &worker("w2"), LONG).await.unwrap().is_none());
}

#[tokio::test]
async fn a_board_created_again_continues_tokens_and_revisions() {
    let backend = MemoryBackend::new();
    let store = InMemoryTaskStore::open(&backend, default_namespace());
    let board = board_of(&store, &["a"]).await;
    let old = store.claim(&board, &worker("w"), LONG).await.unwrap().unwrap();
    assert!(store.delete_board(&board).await.unwrap());
    assert!(!store.delete_board(&board).await.unwrap());
    assert!(store.list_boards(None, PageRequest::default()).await.unwrap().items.is_empty());
    board_of(&store, &["a"]).await;
    let new = store.claim(&board, &worker("w"), LONG).await.unwrap().unwrap();
    assert!(new.token > old.token && new.task.revision > old.task.revision);
    store.erase().await.unwrap();
    assert_eq!(backend.bytes(), 0);
}

#[tokio::test]
async fn boards_are_listed_by_conversation_and_agent_across_pages() {
    let store = InMemoryTaskStore::new();
    let names = [("a", "1"), ("a", "2"), ("ab", "1"), ("b", "1")];
    for (conversation, agent) in names.into_iter().rev() {
        let board = BoardId::new(conversation, agent).unwrap();
        store.create_task_list(&board, NewBoard::default()).await.unwrap();
    }
    let (mut page, mut seen) = (PageRequest::first(1), Vec::new());
    loop {
        let boards = store.list_boards(None, page).await.unwrap();
        seen.extend(boards.items.into_iter().map(|board| board.id));
        let Some(next) = boards.next else { break };
        page = PageRequest::after(next, 1);
    }
    assert_eq!(seen, names.map(|(conversation, agent)| BoardId::new(conversation, agent).unwrap()));
    let wanted = ConversationId::new("a").unwrap();
    assert_eq!(store.list_boards(Some(&wanted), PageRequest::default()).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn the_global_store_is_chosen_once() {
    let store = InMemoryTaskStore::new();
    let used = GlobalTaskStore::get();
    let error = GlobalTaskStore::set(Arc::new(store)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(Arc::ptr_eq(&used, &GlobalTaskStore::get()));
}

#[tokio::test]
async fn a_refused_board_leaves_nothing_and_a_shorter_result_is_never_refused() {
    let backend = MemoryBackend::with_bytes_max(4_096);
    let store = InMemoryTaskStore::open(&backend, default_namespace());
    for conversation in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"] {
        let board = BoardId::new(conversation, "agent").unwrap();
        let tasks = (0..10).map(|number| NewTask::new(id(&format!("t{number}")), "t"));
        let refused = store.create_task_list(&board, NewBoard::new(tasks.collect())).await.unwrap_err();
        assert_eq!((refused.kind(), backend.bytes()), (ErrorKind::ResourceExhausted, 0));
    }
    let (board, task) = (board_of(&store, &["t"]).await, id("t"));
    for bytes in [2_000, 1_900] {
        let claim = store.claim(&board, &worker("w"), LONG).await.unwrap().unwrap();
        let step = Transition::to(TaskStatus::Failed).with_token(claim.token).with_result("x".repeat(bytes));
        store.update_status(&board, &task, step).await.unwrap();
        store.increment_retry(&board, &task, None).await.unwrap();
    }
}
