//! The window that a model reads: compared with LangChain's, and measured in messages read and tokenized.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use larder::compaction::{Pipeline, SlidingWindow, ToolResultTruncation};
use larder::context::{AgentContext, ContextConfig};
use larder::memory::InMemoryHistoryProvider;
use larder::tokens::{EstimatedTokenCounter, TokenCounter};
use larder_kernel::{
    AgentContextProtocol, AgentId, AppendOptions, ChatMessage, HistoryProvider, SessionId, Thread,
};

use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::pgbench::run;
use super::{Outcome, Plan, payload};

/// Messages of a window.
pub(super) const WINDOW_MESSAGES: usize = 40;

/// The strategies of all these figures, in words.
pub(super) const PIPELINE: &str = "window of 40 after cutting tool results";

/// A context of the agent that truncates tool results and keeps the newest messages.
pub(super) fn context(history: Arc<dyn HistoryProvider>, agent: &AgentId) -> Outcome<AgentContext> {
    Ok(AgentContext::new(config(history)?)?.for_agent(agent.clone()))
}

fn config(history: Arc<dyn HistoryProvider>) -> Outcome<ContextConfig> {
    let pipeline =
        Pipeline::new().then(ToolResultTruncation::default()).then(SlidingWindow::new(WINDOW_MESSAGES)?);
    Ok(ContextConfig::new(history).with_pipeline(pipeline))
}

/// Builds a thread's window repeatedly, and returns the mean microseconds of one.
pub(super) async fn windows(context: &AgentContext, session: &SessionId, calls: u32) -> Outcome<f64> {
    let begun = Instant::now();
    for _ in 0..calls {
        let found = context.get_prompt_window(session).await?.messages.len();
        if found == 0 || found > WINDOW_MESSAGES {
            return Err(format!("a window of {WINDOW_MESSAGES} messages has {found}").into());
        }
    }
    Ok(micros_each(begun, calls))
}

/// The window over 10,000 messages, compared with LangChain's `trim_messages` on the same transcript.
pub(super) async fn beside_langchain(plan: &Plan) -> Outcome<Vec<Figure>> {
    let count = plan.size(10_000, 1_000);
    let messages = payload::turns(0, count);
    let transcript = plan.scratch.join("transcript.jsonl");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&transcript)?);
    for message in &messages {
        serde_json::to_writer(&mut file, message)?;
        file.write_all(b"\n")?;
    }
    file.flush()?;
    let history = Arc::new(InMemoryHistoryProvider::new());
    let thread = Thread::new("bench", "transcript")?;
    for batch in messages.chunks(1_000) {
        history.append_many(&thread, batch.to_vec(), AppendOptions::default()).await?;
    }
    let context = context(history, &thread.agent)?;
    let mut version = String::new();
    let rounds = in_turns(
        plan,
        async |_| Ok(1e6 / windows(&context, &thread.session, plan.size(2_000, 200)).await?),
        async |_| {
            let (found, micros) = trim_messages(&transcript, plan.size(20, 3))?;
            version = found;
            Ok(1e6 / micros)
        },
    )
    .await?;
    let subject = Subject {
        name: "window-trim",
        what: format!("{PIPELINE}, {count} messages in memory"),
        peer: format!("langchain-core {version}, trim_messages to {WINDOW_MESSAGES} messages"),
        settings: "the same transcript, in memory on both sides".to_owned(),
        unit: Unit::WindowsPerSecond,
        target: Some(Target::AtLeast(100.0)),
    };
    Ok(vec![subject.figure(&rounds)])
}

/// LangChain's version, and the microseconds of a call.
fn trim_messages(transcript: &Path, calls: u32) -> Outcome<(String, f64)> {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/run");
    let mut command = Command::new(peers);
    command.args(["langchain", "trim_messages.py"]).arg(transcript);
    let said = run(command.arg(WINDOW_MESSAGES.to_string()).arg(calls.to_string()))?;
    let (version, micros) = said.trim().split_once(' ').ok_or("trim_messages.py printed no figure")?;
    Ok((version.to_owned(), micros.parse()?))
}

/// Counts the messages that are tokenized.
#[derive(Debug, Default)]
struct Counting {
    messages: AtomicU64,
    counter: EstimatedTokenCounter,
}

impl TokenCounter for Counting {
    fn name(&self) -> &str {
        self.counter.name()
    }

    fn count(&self, text: &str) -> u64 {
        self.counter.count(text)
    }

    fn count_message(&self, message: &ChatMessage) -> u64 {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.counter.count_message(message)
    }
}

/// Counts the messages that are tokenized for an append to a long thread and the window after it.
pub(super) async fn tokenized(plan: &Plan) -> Outcome<Vec<Figure>> {
    let count = plan.size(100_000, 10_000);
    let counting = Arc::new(Counting::default());
    let config = config(Arc::new(InMemoryHistoryProvider::new()))?.with_counter(counting.clone());
    let context = AgentContext::new(config)?.for_agent(AgentId::new("bench")?);
    let session = SessionId::new("tokens")?;
    let messages = payload::turns(0, count);
    for batch in messages.chunks(1_000) {
        context.append_many(&session, batch.to_vec(), AppendOptions::default()).await?;
    }
    let mut rounds = Vec::with_capacity(plan.rounds);
    for round in 0..plan.rounds {
        let before = counting.messages.load(Ordering::Relaxed);
        let seed = u64::from(count) + u64::try_from(round)?;
        context.append(&session, ChatMessage::user(payload::text(seed))).await?;
        context.get_prompt_window(&session).await?;
        let tokenized = counting.messages.load(Ordering::Relaxed) - before;
        rounds.push((f64::from(u32::try_from(tokenized)?), 1.0));
    }
    let subject = Subject {
        name: "window-tokenized",
        what: format!("messages tokenized for an append to {count} messages and the next window"),
        peer: "the one new message".to_owned(),
        settings: "counted, not timed".to_owned(),
        unit: Unit::Messages,
        target: Some(Target::AtMost(1.0)),
    };
    Ok(vec![subject.figure(&rounds)])
}

/// Returns the mean microseconds of a call.
pub(super) fn micros_each(begun: Instant, calls: u32) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
}
