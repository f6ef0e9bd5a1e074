//! The messages that the model sees.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use larder_agents::compaction::SummaryStore;
use larder_agents::session::{HintOrder, InferenceRequest, Memory, SessionProfile, Sessions};
use larder_kernel::random::Random;
use larder_kernel::{
    ChatMessage, CompactionStrategy, HistoryProvider, HistoryProviderExt, Origin, Reach, Result, Role, Seq,
    ToolCall, ToolResult, Window,
};

use crate::everywhere::session_support::{Model, Reply, World, stored, texts, turn, user};
use crate::test_backend::TestBackend as Backend;

/// Proves: ATH-2
pub(crate) async fn with_memory_the_session_is_prepended_and_without_it_is_neither_read_nor_written(
    backend: &Backend,
) {
    let world = World::new(backend).await;
    let probe = world.probe();
    let sessions = world.sessions_on(probe.clone());
    let id = sessions.create(SessionProfile::default(), "You are helpful.").await.unwrap();
    turn(&sessions, &id, "What's 2+2?", "4").await;
    let inference = sessions.begin(&id, user("Multiply that by 3")).await.unwrap();
    assert_eq!(texts(&inference), ["You are helpful.", "What's 2+2?", "4", "Multiply that by 3"]);

    let (read, written) = (probe.messages_read.load(Ordering::Relaxed), probe.writes.load(Ordering::Relaxed));
    let inference = sessions.begin(&id, user("Alone").with_memory(Memory::Off)).await.unwrap();
    assert_eq!(texts(&inference), ["Alone"]);
    inference.complete([ChatMessage::assistant("Unheard")]).await.unwrap();
    assert_eq!(probe.messages_read.load(Ordering::Relaxed), read);
    assert_eq!(probe.writes.load(Ordering::Relaxed), written);
    assert_eq!(stored(&sessions, &id).await, ["What's 2+2?", "4"]);
}

/// Proves: ATH-4
pub(crate) async fn over_max_tokens_the_oldest_messages_leave_and_the_system_prompt_stays(backend: &Backend) {
    let sessions = World::new(backend).await.sessions();
    let id = sessions.create(SessionProfile::rolling_window(10, 10).unwrap(), "system prompt").await.unwrap();
    for (question, answer) in [("one one", "two two"), ("three three", "four four")] {
        turn(&sessions, &id, question, answer).await;
    }
    // 2 of the prompt and 2 of the question leave 6: three messages.
    let inference = sessions.begin(&id, user("five five")).await.unwrap();
    assert_eq!(texts(&inference), ["system prompt", "two two", "three three", "four four", "five five"]);
    assert_eq!(inference.window().messages[1].origin, Origin::Stored(Seq::new(2)));
    let inference = sessions.begin(&id, user("1 2 3 4 5 6 7")).await.unwrap();
    assert_eq!(texts(&inference), ["system prompt", "1 2 3 4 5 6 7"]);
    let error = sessions.begin(&id, user("1 2 3 4 5 6 7 8 9")).await.unwrap_err();
    assert_eq!((error.field(), error.actual(), error.limit()), (Some("messages"), Some(11), Some(10)));
    assert_eq!(stored(&sessions, &id).await.len(), 4, "the stored messages stay");
}

/// Proves: ATH-6, ATH-7
pub(crate) async fn hints_are_under_their_header_in_the_requested_order(backend: &Backend) {
    let world = World::new(backend).await;
    let sessions = world.sessions();
    let id = sessions.create(SessionProfile::default(), "prompt").await.unwrap();
    sessions.add_hint(&id, "User prefers Python over JavaScript").await.unwrap();
    sessions.add_hint(&id, "Project uses\nPostgreSQL").await.unwrap();
    turn(&sessions, &id, "a", "b").await;
    let hints = "[Important context]\n- User prefers Python over JavaScript\n- Project uses\n  PostgreSQL";
    for order in [HintOrder::AfterSummary, HintOrder::BeforeSummary] {
        let inference = world.sessions().with_hint_order(order).begin(&id, user("c")).await.unwrap();
        assert_eq!(texts(&inference), ["prompt", hints, "a", "b", "c"]);
        assert_eq!(inference.window().messages[1].message.role, Role::System);
    }
}

/// Proves: ALQ-1
pub(crate) async fn without_a_strategy_every_message_is_included(backend: &Backend) {
    let sessions = World::new(backend).await.sessions();
    let id = sessions.create(SessionProfile::Everything, "prompt").await.unwrap();
    for index in 0..100 {
        turn(&sessions, &id, &format!("question {index}"), &"long answer ".repeat(100)).await;
    }
    let inference = sessions.begin(&id, user("last")).await.unwrap();
    assert_eq!(texts(&inference).len(), 202);
}

fn called(id: &str) -> ChatMessage {
    ChatMessage::assistant("").with_tool_call(ToolCall::new(id, "look", "{}"))
}

fn answered(id: &str, text: &str) -> ChatMessage {
    ChatMessage::tool([ToolResult::new(id, text)])
}

fn parts(inference: &larder_agents::session::Inference) -> Vec<(usize, usize)> {
    let messages = &inference.window().messages;
    messages.iter().map(|m| (m.message.tool_calls.len(), m.message.tool_results.len())).collect()
}

/// Proves: ATH-4
pub(crate) async fn a_call_and_its_result_are_dropped_together(backend: &Backend) {
    let sessions = World::new(backend).await.sessions();
    let id = sessions.create(SessionProfile::rolling_window(12, 12).unwrap(), "").await.unwrap();
    let begun = sessions.begin(&id, user("find it")).await.unwrap();
    begun.complete([called("1")]).await.unwrap();
    // The result is new, so its call stays, whatever its length.
    let request = InferenceRequest::new([answered("1", "a b c d e f g")]);
    let begun = sessions.begin(&id, request).await.unwrap();
    assert_eq!(parts(&begun), [(0, 0), (1, 0), (0, 1)]);
    let long = InferenceRequest::new([answered("1", &"z ".repeat(10))]);
    assert_eq!(parts(&sessions.begin(&id, long).await.unwrap()), [(1, 0), (0, 1)]);
    let longer = InferenceRequest::new([answered("1", &"z ".repeat(11))]);
    let error = sessions.begin(&id, longer).await.unwrap_err();
    assert_eq!((error.field(), error.actual(), error.limit()), (Some("messages"), Some(13), Some(12)));
    begun.complete([ChatMessage::assistant("found it")]).await.unwrap();

    // 9 of the pair, 2 of the answer: with 1 new the pair fits, with 2 new the whole pair is removed.
    assert_eq!(parts(&sessions.begin(&id, user("x")).await.unwrap()), [(1, 0), (0, 1), (0, 0), (0, 0)]);
    assert_eq!(parts(&sessions.begin(&id, user("x y")).await.unwrap()), [(0, 0), (0, 0)]);

    let error = sessions.begin(&id, InferenceRequest::new([answered("9", "?")])).await.unwrap_err();
    assert_eq!(error.field(), Some("messages"));
}

/// Proves: PK-4, ATH-4
pub(crate) async fn a_window_reads_only_as_far_back_as_its_tokens(backend: &Backend) {
    let world = World::new(backend).await;
    let probe = world.probe();
    let sessions = world.sessions_on(probe.clone());
    let id = sessions.create(SessionProfile::rolling_window(100, 100).unwrap(), "prompt").await.unwrap();
    let thread = sessions.thread(&id);
    let mut read = Vec::new();
    for batches in [1, 19] {
        for _ in 0..batches {
            let messages = (0..1000).map(|_| ChatMessage::user("one two").with_token_count(2)).collect();
            probe.append_many(&thread, messages, larder_kernel::AppendOptions::default()).await.unwrap();
        }
        probe.messages_read.store(0, Ordering::Relaxed);
        let inference = sessions.begin(&id, user("new")).await.unwrap();
        assert_eq!(texts(&inference).len(), 1 + 49 + 1);
        read.push(probe.messages_read.load(Ordering::Relaxed));
    }
    assert_eq!(read[0], read[1], "the same for 1,000 and for 20,000 messages");
    assert!(read[0] <= 100, "{read:?}");
}

/// Proves: PK-4, ALQ-4
pub(crate) async fn with_a_summary_a_window_reads_only_what_follows_it(backend: &Backend) {
    let document = r#"{"long_term_memory_strategy": [{"long_term_memory_id": "summarizer",
        "interaction_threshold_qty": 500, "interaction_threshold_tokens": -1, "cod_max_loops": 1,
        "interaction_keep": 10}]}"#;
    let world = World::new(backend).await;
    let probe = world.probe();
    let model = Model::new(&[Reply::Text("They counted.")]);
    let sessions =
        world.sessions_on(probe.clone()).with_summarizer(model.clone()).configured(document).unwrap();
    let id = sessions.create(sessions.profile().clone(), "prompt").await.unwrap();
    let thread = sessions.thread(&id);
    let said = |number: usize| match number % 2 {
        0 => ChatMessage::user(format!("q{number}")),
        _ => ChatMessage::assistant(format!("a{number}")),
    };
    for part in 0..3 {
        let messages = (0..1000).map(|number| said(1000 * part + number)).collect();
        probe.append_many(&thread, messages, larder_kernel::AppendOptions::default()).await.unwrap();
    }
    turn(&sessions, &id, "new", "newer").await;
    probe.messages_read.store(0, Ordering::Relaxed);
    let inference = sessions.begin(&id, user("newest")).await.unwrap();
    assert_eq!((texts(&inference).len(), model.times()), (2 + 20 + 2 + 1, 1));
    assert!(inference.left_out().is_empty(), "{:?}", inference.left_out());
    assert!(sessions.explain_window(&id).await.unwrap().steps.iter().all(|step| step.dropped.is_empty()));
    let read = probe.messages_read.load(Ordering::Relaxed);
    assert!(read <= 2 * 70, "{read} messages were read");
    inference.complete([ChatMessage::assistant("done")]).await.unwrap();

    // Without the summary the whole conversation is read again.
    SummaryStore::new(world.key_value()).unwrap().remove(&thread).await.unwrap();
    let plain = world.sessions().begin(&id, user("newest")).await.unwrap();
    assert_eq!(texts(&plain).len(), 1 + 3004 + 1);
}

/// Proves: ATH-4
pub(crate) async fn tokens_are_counted_once_and_stored(backend: &Backend) {
    let world = World::new(backend).await;
    let counter = Arc::new(crate::everywhere::session_support::Words::default());
    let sessions =
        Sessions::new(world.probe(), world.key_value()).unwrap().with_token_counter(counter.clone());
    let id = sessions.create(SessionProfile::default(), "prompt").await.unwrap();
    for _ in 0..50 {
        turn(&sessions, &id, "a question", "an answer of five words").await;
    }
    let messages = world.probe().all_messages(&sessions.thread(&id)).await.unwrap();
    assert_eq!((messages[0].message.token_count, messages[1].message.token_count), (Some(2), Some(5)));
    let before = counter.0.load(Ordering::Relaxed);
    turn(&sessions, &id, "a question", "an answer").await;
    assert_eq!(counter.0.load(Ordering::Relaxed) - before, 2, "the new messages alone");
}

/// Keeps the newest messages.
#[derive(Debug)]
struct Newest(usize);

#[async_trait]
impl CompactionStrategy for Newest {
    fn name(&self) -> &'static str {
        "newest"
    }

    fn reach(&self) -> Reach {
        Reach::Messages(self.0)
    }

    fn drops(&self) -> bool {
        true
    }

    async fn compact(&self, mut window: Window) -> Result<Window> {
        let surplus = window.messages.len().saturating_sub(self.0);
        window.messages.drain(..surplus);
        Ok(window)
    }
}

/// Proves: ALQ-1
pub(crate) async fn strategies_choose_among_the_stored_messages(backend: &Backend) {
    let world = World::new(backend).await;
    let sessions = world.sessions().with_strategies(vec![Arc::new(Newest(3))]);
    let id = sessions.create(SessionProfile::Everything, "prompt").await.unwrap();
    for index in 0..40 {
        turn(&sessions, &id, &format!("q{index}"), &format!("a{index}")).await;
    }
    let inference = sessions.begin(&id, user("new")).await.unwrap();
    assert_eq!(texts(&inference), ["prompt", "a38", "q39", "a39", "new"]);
}

/// Returns a transcript in which results of calls are late, partial, duplicated, missing or unrequested.
fn transcript(dice: &mut Random) -> Vec<ChatMessage> {
    let length = 1 + dice.below(30);
    let message = |dice: &mut Random| match dice.below(4) {
        0 => ChatMessage::user("u ".repeat(dice.below(4))),
        1 => (0..1 + dice.below(3)).fold(ChatMessage::assistant("a ".repeat(dice.below(3))), |message, _| {
            message.with_tool_call(ToolCall::new(format!("c{}", dice.below(8)), "look", "{}"))
        }),
        2 => ChatMessage::tool(
            (0..1 + dice.below(2))
                .map(|_| ToolResult::new(format!("c{}", dice.below(8)), "r"))
                .collect::<Vec<_>>(),
        ),
        _ => ChatMessage::assistant("a ".repeat(1 + dice.below(4))),
    };
    (0..length).map(|_| message(dice)).collect()
}

/// Proves: ATH-4
pub(crate) async fn no_transcript_makes_a_window_that_is_too_long_or_splits_a_pair(backend: &Backend) {
    for seed in 0..2_000 {
        let mut dice = Random::new(seed);
        let world = World::new(backend).await;
        let probe = world.probe();
        let sessions = world.sessions_on(probe.clone());
        let max_tokens = 2 + u64::try_from(dice.below(40)).unwrap();
        let profile = SessionProfile::rolling_window(max_tokens, max_tokens).unwrap();
        let id = sessions.create(profile, "prompt").await.unwrap();
        let thread = sessions.thread(&id);
        let options = larder_kernel::AppendOptions::default();
        probe.append_many(&thread, transcript(&mut dice), options).await.unwrap();
        let before = probe.all_messages(&thread).await.unwrap();

        let inference = sessions.begin(&id, user("new")).await.unwrap();
        let messages: Vec<_> = inference.window().messages.iter().map(|message| &message.message).collect();
        let counter = crate::everywhere::session_support::Words::default();
        let tokens: u64 =
            messages.iter().map(|message| larder_agents::tokens::tokens_of(&counter, message)).sum();
        assert!(tokens <= max_tokens, "seed {seed}: {tokens} of {max_tokens}");
        assert_eq!(
            (&*messages[0].text, &*messages[messages.len() - 1].text),
            ("prompt", "new"),
            "seed {seed}"
        );
        for (place, message) in messages.iter().enumerate() {
            for call in &message.tool_calls {
                let answer = messages[place..]
                    .iter()
                    .any(|later| later.tool_results.iter().any(|result| result.call_id == call.id));
                assert!(answer, "seed {seed}: a call without its result");
            }
            for result in &message.tool_results {
                let asked = messages[..=place]
                    .iter()
                    .any(|earlier| earlier.tool_calls.iter().any(|call| call.id == result.call_id));
                assert!(asked, "seed {seed}: a result without its call");
            }
        }
        assert_eq!(probe.all_messages(&thread).await.unwrap(), before, "seed {seed}");
    }
}
