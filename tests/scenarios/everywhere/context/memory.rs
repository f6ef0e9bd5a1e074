//! The messages of a session that an agent sees, and the messages that it adds.

use async_trait::async_trait;
use larder_kernel::{Appended, Result};

use super::*;
use larder_agents::context::memory::SessionMemory;

fn by(agent: &str, text: impl Into<String>) -> ChatMessage {
    ChatMessage::user(text).with_author(AgentId::new(agent).unwrap(), None)
}

fn only(agent: &str) -> MemoryFilter {
    MemoryFilter::new().include_agent(AgentId::new(agent).unwrap())
}

fn with(config: &ContextConfig, memory: impl Into<MemoryProvider>) -> AgentContext {
    AgentContext::new(config.clone().with_pipeline(Pipeline::new()).with_memory(memory)).unwrap()
}

/// Proves: AKKA-3
pub(crate) async fn each_provider_reads_and_writes_what_it_says(backend: &Backend) {
    let (history, config) = open(backend).await;
    for number in 0..4 {
        history.append(&thread(), ChatMessage::user(number.to_string())).await.unwrap();
    }
    for (memory, sees, writes) in [
        (MemoryProvider::everything(), &["0", "1", "2", "3"][..], true),
        (MemoryProvider::limited_window().into(), &["0", "1", "2", "3"], true),
        (MemoryProvider::none(), &[], false),
        (MemoryProvider::read_only(), &["0", "1", "2", "3"], false),
        (MemoryProvider::write_only(), &[], true),
        (MemoryProvider::read_last(2), &["2", "3"], true),
    ] {
        let context = with(&config, memory.clone());
        assert_eq!(texts(&context.get_prompt_window(&session()).await.unwrap()), sees, "{memory:?}");
        history.take_writes();
        let message = ChatMessage::user("new").with_run(RunId::new("r").unwrap());
        assert_eq!(context.append(&session(), message).await.unwrap().is_some(), writes, "{memory:?}");
        assert_eq!(history.take_writes(), u64::from(writes), "{memory:?}");
        history.clear_run(&thread(), &RunId::new("r").unwrap(), None).await.unwrap();
    }
    history.take();
    with(&config, MemoryProvider::none()).get_prompt_window(&session()).await.unwrap();
    assert_eq!(history.take(), (0, 0));
}

/// Proves: AKKA-2
pub(crate) async fn the_oldest_messages_leave_a_limited_window_until_the_rest_fits(backend: &Backend) {
    let (history, config) = open(backend).await;
    for letter in ["a", "b", "c", "d"] {
        history.append(&thread(), ChatMessage::user(letter.repeat(50 * 1024))).await.unwrap();
    }
    let first = |window: &Window| texts(window).iter().map(|text| text[..1].to_owned()).collect::<String>();
    let window = with(&config, LimitedWindow::new()).get_prompt_window(&session()).await.unwrap();
    assert_eq!(first(&window), "bcd");
    let off = LimitedWindow::new().without_max_bytes();
    let window = with(&config, off).get_prompt_window(&session()).await.unwrap();
    assert_eq!(first(&window), "abcd");
    let exact = LimitedWindow::new().with_max_bytes(2 * 50 * 1024);
    let window = with(&config, exact).get_prompt_window(&session()).await.unwrap();
    assert_eq!(first(&window), "cd");
    let window =
        with(&config, LimitedWindow::new().with_max_bytes(1)).get_prompt_window(&session()).await.unwrap();
    assert!(window.messages.is_empty());
}

/// Proves: AKKA-4, AKKA-1
pub(crate) async fn filters_apply_before_the_limit_at_any_distance(backend: &Backend) {
    let (history, config) = open(backend).await;
    for number in 0..5 {
        history.append(&thread(), by("rare", number.to_string())).await.unwrap();
    }
    fill(&history, 10_000).await;
    history.take();
    let context = with(&config, LimitedWindow::new().read_last(3).filtered(only("rare")));
    assert_eq!(texts(&context.get_prompt_window(&session()).await.unwrap()), ["2", "3", "4"]);
    assert_eq!(history.take(), (3, 1));

    let context = with(&config, LimitedWindow::new().read_last(3).filtered(only("default")));
    assert_eq!(texts(&context.get_prompt_window(&session()).await.unwrap()), ["9997", "9998", "9999"]);
    assert_eq!(history.take(), (3, 1));

    let sliding = AgentContext::new(
        config
            .clone()
            .with_pipeline(SlidingWindow::new(2).unwrap())
            .with_memory(LimitedWindow::new().filtered(only("rare"))),
    );
    let told = sliding.unwrap().explain_window(&session()).await.unwrap();
    assert_eq!(texts(&told.window), ["3", "4"]);
    assert!(!told.scan_ended);
    assert_eq!((told.messages_read, told.pages_read), (2, 1));
    assert_eq!(history.take(), (2, 1));
}

/// Proves: AKKA-4
pub(crate) async fn reads_of_a_filtered_window_are_bounded_and_reported(backend: &Backend) {
    let (history, config) = open(backend).await;
    history.append(&thread(), by("rare", "far")).await.unwrap();
    fill(&history, 3_000).await;
    let config = config.with_scan_messages_max(1_500);
    let memory = LimitedWindow::new().filtered(only("default"));
    let context = with(&config, memory.clone());
    let told = context.explain_window(&session()).await.unwrap();
    assert!(told.window.messages.len() == 1_500 && told.scan_ended);
    assert_eq!(told.messages_read, 1_500);
    assert!(told.to_string().contains("ended at its limit"));
    history.take();
    context.get_prompt_window(&session()).await.unwrap();
    assert_eq!(history.take().0, 1_500);

    // Messages that the store skips do not count.
    let context = with(&config, LimitedWindow::new().read_last(3).filtered(only("rare")));
    let told = context.explain_window(&session()).await.unwrap();
    assert_eq!((texts(&told.window), told.scan_ended), (vec!["far"], false));

    // A window that shows every message that the filter keeps has no limit.
    let context = with(&config, memory.without_max_bytes());
    assert_eq!(context.get_prompt_window(&session()).await.unwrap().messages.len(), 3_000);
}

/// Proves: AKKA-4
pub(crate) async fn of_a_long_thread_only_what_the_filter_keeps_is_handed_over(backend: &Backend) {
    let (history, config) = open(backend).await;
    for number in 0..20 {
        history.append(&thread(), by("x", number.to_string())).await.unwrap();
        fill(&history, 100).await;
    }
    history.take();
    let context = with(&config, LimitedWindow::new().read_last(5).filtered(only("x")));
    let window = context.get_prompt_window(&session()).await.unwrap();
    assert_eq!(texts(&window), ["15", "16", "17", "18", "19"]);
    assert_eq!(history.take(), (5, 1));

    let all = with(&config, LimitedWindow::new().without_max_bytes().filtered(only("x")));
    assert_eq!(all.get_prompt_window(&session()).await.unwrap().messages.len(), 20);
    assert_eq!(history.take(), (20, 1));

    let few = LimitedWindow::new().with_max_bytes(5).filtered(only("x"));
    assert_eq!(texts(&with(&config, few).get_prompt_window(&session()).await.unwrap()), ["18", "19"]);
    assert!(history.take().0 <= 20);
}

/// Proves: AKKA-4
pub(crate) async fn a_filter_that_names_too_many_is_refused_with_the_settings(_backend: &Backend) {
    let filter = (0..65).fold(MemoryFilter::new(), |filter, number| filter.and(only(&number.to_string())));
    let error = MemoryProvider::from(LimitedWindow::new().filtered(filter)).check().unwrap_err();
    assert_eq!((error.field(), error.limit()), (Some("filter"), Some(64)));
}

/// Proves: AKKA-4, RAVI-9
pub(crate) async fn a_filtered_window_neither_shows_nor_feeds_the_summary_of_all(backend: &Backend) {
    let (history, config) = open(backend).await;
    let store = summaries(backend).await;
    for agent in ["a", "b", "a"] {
        history.append(&thread(), by(agent, agent)).await.unwrap();
    }
    store.put(&thread(), None, &summary(2)).await.unwrap();
    let config = config.with_summaries(store);
    let window = with(&config, LimitedWindow::new().filtered(only("a"))).get_prompt_window(&session()).await;
    let window = window.unwrap();
    assert_eq!(texts(&window), ["a", "a"]);
    assert_eq!(window.thread, None);
    let window = with(&config, MemoryProvider::everything()).get_prompt_window(&session()).await.unwrap();
    assert_eq!(window.messages.len(), 2);
    assert_eq!(window.thread, Some(thread()));
}

#[derive(Debug, Clone, Default)]
struct Notebook(Arc<std::sync::Mutex<Vec<ChatMessage>>>);

#[async_trait]
impl SessionMemory for Notebook {
    async fn read(&self, thread: &Thread) -> Result<Window> {
        let mut window = Window::injected(self.0.lock().unwrap().clone());
        window.thread = Some(thread.clone());
        Ok(window)
    }

    async fn write(
        &self,
        _: &Thread,
        messages: Vec<ChatMessage>,
        _: AppendOptions,
    ) -> Result<Option<Appended>> {
        self.0.lock().unwrap().extend(messages);
        Ok(None)
    }

    async fn clear_run(&self, _: &Thread, run: &RunId) -> Result<u64> {
        let mut notes = self.0.lock().unwrap();
        let before = notes.len();
        notes.retain(|note| note.run.as_ref() != Some(run));
        Ok(larder_kernel::check::size(before - notes.len()))
    }
}

/// Proves: AKKA-3
pub(crate) async fn a_custom_memory_replaces_the_history(backend: &Backend) {
    let (history, config) = open(backend).await;
    let notebook = Notebook::default();
    let config = config
        .with_memory(MemoryProvider::custom(notebook.clone()))
        .with_pipeline(SlidingWindow::new(2).unwrap())
        .with_retention(HistoryRetention::Run);
    let context = AgentContext::new(config).unwrap();
    let mut run = context.begin_run(&session(), RunId::new("r").unwrap());
    for text in ["one", "two", "three"] {
        run.append(ChatMessage::user(text)).await.unwrap();
    }
    assert_eq!(texts(&run.window().await.unwrap()), ["two", "three"]);
    assert_eq!(run.end().await.unwrap(), 3);
    assert!(notebook.0.lock().unwrap().is_empty());
    assert_eq!((history.take(), history.take_writes()), ((0, 0), 0));
    let error = context.clear(&session()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
