//! Tests of the view without a terminal: they send keys and check the rendered text.

use larder_kernel::{
    BlobStoreExt, ChatMessage, Entity, EntityId, EntityType, HistoryProviderExt, Key, KeyValueStoreExt,
    NewBoard, NewTask, TaskId,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

async fn filled() -> Stores {
    let stores = larder::open("memory:").await.unwrap();
    let history = stores.set().history().unwrap();
    for session in ["first", "second"] {
        let thread = Thread::new("assistant", session).unwrap();
        for number in 0..30 {
            let text = format!("message {number} of {session}\n\u{1b}[31mred");
            history.append(&thread, ChatMessage::user(text)).await.unwrap();
        }
    }
    let (bucket, key) = (BucketName::new("settings").unwrap(), Key::new("theme").unwrap());
    stores.set().key_value().unwrap().set(&bucket, &key, "dark".into()).await.unwrap();
    let blob = BlobKey::new("a/report.txt").unwrap();
    stores.set().blobs().unwrap().put_bytes(&blob, "hello".into()).await.unwrap();
    let task = NewTask::new(TaskId::new("book").unwrap(), "Book the train");
    let board = BoardId::new("session", "assistant").unwrap();
    stores.set().tasks().unwrap().create_task_list(&board, NewBoard::new(vec![task])).await.unwrap();
    let ada = Entity::new(EntityId::new("ada").unwrap(), EntityType::new("person").unwrap());
    stores.set().graph().unwrap().upsert_entities(vec![ada]).await.unwrap();
    stores
}

async fn app(stores: &Stores, limit: usize) -> App {
    App::new("memory:", &survey::take(stores, limit).await.unwrap())
}

/// Returns the lines that a terminal of this size shows.
fn screen(app: &mut App) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(90, 16)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line =
        |y: u16| (0..90_u16).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..16_u16).map(line).collect()
}

fn press(app: &mut App, code: KeyCode) -> Step {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

async fn enter(app: &mut App, stores: &Stores) {
    let Step::Load(subject) = press(app, KeyCode::Enter) else { panic!("nothing to look into") };
    app.loaded(load(stores, &subject).await);
}

#[tokio::test]
async fn threads_are_listed_and_shown() {
    let stores = filled().await;
    let mut app = app(&stores, 100).await;
    let lines = screen(&mut app);
    assert!(lines[0].contains("threads 2") && lines[0].contains("buckets 1"), "{lines:#?}");
    assert!(lines[1].contains("memory:, namespace default"), "{lines:#?}");
    assert!(lines[2].contains("assistant/first  30 messages"), "{lines:#?}");
    assert!(lines[15].contains("Enter look into"), "{lines:#?}");
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Down);
    enter(&mut app, &stores).await;
    let lines = screen(&mut app).join("\n");
    assert!(
        lines.contains("assistant/second, the last messages") && lines.contains("message 0 of second"),
        "{lines}"
    );
    // Stored text moves no cursor and sets no color.
    assert!(!lines.contains('\u{1b}') && lines.contains(r"\u{1b}[31mred"), "{lines}");
    press(&mut app, KeyCode::End);
    assert!(!screen(&mut app).join("\n").contains("message 0 of second"));
    press(&mut app, KeyCode::Home);
    press(&mut app, KeyCode::PageDown);
    assert!(screen(&mut app).join("\n").contains("message 5 of second"));
    press(&mut app, KeyCode::Esc);
    assert!(screen(&mut app).join("\n").contains("assistant/first"));
}

#[tokio::test]
async fn every_contract_has_a_tab_and_details() {
    let stores = filled().await;
    let mut app = app(&stores, 100).await;
    for (title, inside) in [
        ("graph", "person: ada"),
        ("blobs", "size       5 B"),
        ("boards", "planned      book  Book the train"),
        ("buckets", "theme  revision"),
    ] {
        while !app.tabs[app.tab].title.starts_with(title) {
            assert_eq!(press(&mut app, KeyCode::Right), Step::Stay);
        }
        enter(&mut app, &stores).await;
        let lines = screen(&mut app).join("\n");
        assert!(lines.contains(inside), "{title}: {lines}");
    }
    // From the last tab to the first, and back.
    press(&mut app, KeyCode::Tab);
    assert_eq!((app.tab, &app.detail), (0, &None));
    press(&mut app, KeyCode::BackTab);
    assert_eq!(app.tab, app.tabs.len() - 1);
}

#[tokio::test]
async fn an_empty_namespace_a_cut_and_a_failure_are_shown() {
    let empty = larder::open("memory:").await.unwrap();
    let mut nothing = app(&empty, 100).await;
    assert_eq!(press(&mut nothing, KeyCode::Enter), Step::Stay);
    press(&mut nothing, KeyCode::Down);
    assert!(screen(&mut nothing)[0].contains("threads 0"));

    let stores = filled().await;
    let mut some = app(&stores, 1).await;
    assert!(screen(&mut some)[0].contains("threads 1+"));
    // A file that was deleted after the survey.
    some.loaded(load(&stores, &Subject::Blob(BlobKey::new("gone").unwrap())).await);
    assert!(screen(&mut some)[15].contains("NotFound"), "{:#?}", screen(&mut some));
    some.refreshed(survey::take(&stores, 100).await);
    press(&mut some, KeyCode::Up);
    let lines = screen(&mut some);
    assert!(lines[0].contains("threads 2") && lines[15].contains("Enter look into"), "{lines:#?}");
}

#[tokio::test]
async fn keys_end_and_refresh() {
    let mut app = app(&larder::open("memory:").await.unwrap(), 10).await;
    assert_eq!(press(&mut app, KeyCode::Char('q')), Step::End);
    assert_eq!(app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Step::End);
    assert_eq!(press(&mut app, KeyCode::Char('r')), Step::Refresh);
    assert_eq!(press(&mut app, KeyCode::Char('x')), Step::Stay);
    let release = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
    assert_eq!(app.key(release), Step::Stay);
}
