//! Windows read page by page, compared with the same rules applied to the whole thread.
//!
//! `LARDER_PROPERTY_CASES` sets the number of cases. A failure prints its seed, and `LARDER_PROPERTY_SEED`
//! runs only that seed.

use futures_util::FutureExt;
use larder_kernel::random::Random;
use larder_kernel::{CompactionStrategy, WindowMessage};

use super::*;
use crate::compaction::properties::valid_for_providers;
use crate::compaction::{SelectiveToolCall, close_tool_calls};
use crate::tokens::EstimatedTokenCounter;

fn message(random: &mut Random) -> ChatMessage {
    let text = "word ".repeat(random.below(12));
    let id = ["1", "2", "3"][random.below(3)];
    let message = match random.below(6) {
        0 | 1 => ChatMessage::user(text),
        2 | 3 => ChatMessage::assistant(text),
        4 => ChatMessage::assistant(text).with_tool_call(ToolCall::new(id, "t", "{}")),
        _ => ChatMessage::tool([ToolResult::new(id, "long ".repeat(random.below(30)))]),
    };
    match random.below(4) {
        0 => message,
        agent => {
            let role = [None, Some(AgentRole::new("r").unwrap())][random.below(2)].clone();
            message.with_author(AgentId::new(["a", "b", "c"][agent - 1]).unwrap(), role)
        }
    }
}

fn pipeline(random: &mut Random) -> Pipeline {
    let mut pipeline = Pipeline::new();
    if random.below(2) == 0 {
        pipeline = pipeline.then(ToolResultTruncation::new(1 + random.below(40)).unwrap());
    }
    match random.below(5) {
        0 => pipeline,
        1 => pipeline.then(SlidingWindow::new(1 + random.below(80)).unwrap()),
        2 => pipeline.then(Truncation::chars(1 + random.below(2_000)).unwrap()),
        3 => pipeline.then(max_tokens(random.below(120), Arc::new(EstimatedTokenCounter))),
        _ => pipeline
            .then(SelectiveToolCall::new(1 + random.below(4)).unwrap())
            .then(SlidingWindow::new(1 + random.below(20)).unwrap()),
    }
}

fn memory(random: &mut Random) -> LimitedWindow {
    let mut memory = LimitedWindow::new().without_max_bytes();
    if random.below(3) == 0 {
        memory = memory.read_last(1 + random.below(60));
    }
    if random.below(3) == 0 {
        memory = memory.with_max_bytes(u64::try_from(1 + random.below(3_000)).unwrap());
    }
    let agent = |random: &mut Random| AgentId::new(["a", "b", "default"][random.below(3)]).unwrap();
    let role = AgentRole::new("r").unwrap();
    memory.filtered(match random.below(10) {
        0 => MemoryFilter::new().include_agent(agent(random)),
        1 => MemoryFilter::new().exclude_agent(agent(random)).include_role(role),
        2 => MemoryFilter::new().exclude_role(role),
        3 => MemoryFilter::new().include_agent(agent(random)).include_agent(agent(random)).exclude_role(role),
        4 => MemoryFilter::new().exclude_agent(agent(random)).exclude_agent(agent(random)),
        5 => MemoryFilter::new().include_role(role).exclude_agent(agent(random)).include_agent(agent(random)),
        _ => MemoryFilter::new(),
    })
}

/// Returns the messages that the memory shows of a thread, by exhaustive computation.
fn shown(memory: &LimitedWindow, messages: Vec<WindowMessage>) -> Vec<WindowMessage> {
    let mut left = messages;
    left.retain(|message| memory.filter().keeps(&thread(), &message.message));
    while !left.is_empty() {
        let bytes: usize = left.iter().map(|message| message.message.size_bytes()).sum();
        let too_many = memory.last().is_some_and(|last| left.len() > last);
        let too_large = memory.max_bytes().is_some_and(|max| larder_kernel::check::size(bytes) > max);
        if !too_many && !too_large {
            break;
        }
        left.remove(0);
    }
    left
}

fn case(seed: u64) {
    let mut random = Random::new(seed);
    let (history, config) = open();
    let length = random.below(150);
    let messages: Vec<ChatMessage> = (0..length).map(|_| message(&mut random)).collect();
    for batch in messages.chunks(100) {
        let thread = thread();
        let appended = history.append_many(&thread, batch.to_vec(), AppendOptions::default());
        appended.now_or_never().unwrap().unwrap();
    }
    let store = summaries();
    let up_to = (random.below(3) == 0).then(|| i64::try_from(random.below(length + 1)).unwrap());
    if let Some(up_to) = up_to {
        store.put(&thread(), None, &summary(up_to)).now_or_never().unwrap().unwrap();
    }
    let (memory, pipeline) = (memory(&mut random), pipeline(&mut random));
    let before = history.all_messages(&thread()).now_or_never().unwrap().unwrap();
    // A summary without messages covers no thread.
    let up_to = up_to.filter(|up_to| *up_to > 0 && memory.filter().is_empty());

    let all = before.iter().filter(|stored| up_to.is_none_or(|up_to| stored.seq.get() > up_to));
    let mut seen = shown(&memory, all.cloned().map(WindowMessage::from).collect());
    if let Some(up_to) = up_to {
        seen.insert(0, crate::compaction::summary_message(&summary(up_to)));
    }
    let whole = Window::new(seen);
    let expected = close_tool_calls(&pipeline.compact(whole).now_or_never().unwrap().unwrap().messages);
    valid_for_providers(&expected).unwrap();

    history.take_writes();
    let filter = memory.filter().clone();
    let config = config.with_memory(memory).with_pipeline(pipeline).with_summaries(store);
    let context = AgentContext::new(config).unwrap();
    let window = context.get_prompt_window(&session()).now_or_never().unwrap().unwrap();
    assert_eq!(window.messages, expected);
    let told = context.explain_window(&session()).now_or_never().unwrap().unwrap();
    assert_eq!(told.window, window);
    for step in &told.steps {
        assert!(step.drops || step.dropped.is_empty(), "{told}");
    }
    for pair in told.steps.windows(2) {
        assert_eq!(pair[0].after, pair[1].before);
    }
    assert_eq!(history.take_writes(), 0);
    if !filter.is_empty() {
        // The store returns no message that the memory does not show.
        history.take();
        context.get_prompt_window(&session()).now_or_never().unwrap().unwrap();
        let kept = before.iter().filter(|stored| filter.keeps(&thread(), &stored.message)).count();
        assert!(history.take().0 <= larder_kernel::check::size(kept));
    }
    assert_eq!(history.all_messages(&thread()).now_or_never().unwrap().unwrap(), before);
}

/// Proves: RAVI-4, RAVI-5, AKKA-2, AKKA-4, PK-4
#[test]
fn a_window_equals_that_of_the_whole_thread_and_changes_nothing() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = variable("LARDER_PROPERTY_SEED") {
        return case(seed);
    }
    for seed in 0..variable("LARDER_PROPERTY_CASES").unwrap_or(2_000) {
        let outcome = std::panic::catch_unwind(|| case(seed));
        let test = "a_window_is_what_the_whole_thread";
        let again = format!("LARDER_PROPERTY_SEED={seed} cargo test -p larder-agents --lib {test}");
        assert!(outcome.is_ok(), "seed {seed}; again: {again}");
    }
}
