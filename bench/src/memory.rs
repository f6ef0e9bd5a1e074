//! Conversations in memory, compared with a minimal store: a `Vec` behind a `Mutex`.

use std::hint::black_box;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use larder::memory::InMemoryHistoryProvider;
use larder_kernel::{AppendOptions, ChatMessage, HistoryProvider, HistoryProviderExt, Thread};
use tokio::runtime::Builder;

use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::window::micros_each;
use super::{Outcome, Plan, payload};

const PEER: &str = "std, a Vec of messages behind a Mutex";
/// Threads of the machine, and sessions, in the figure about two writers.
const WRITERS: u32 = 2;
/// Parts of a round of that figure.
const PARTS: usize = 6;

/// A store that a program chooses at run time: its methods return a boxed future.
#[async_trait]
trait Keeps: Sync {
    async fn append_many(&self, messages: Vec<ChatMessage>) -> i64;
}

#[async_trait]
impl Keeps for Plain {
    async fn append_many(&self, messages: Vec<ChatMessage>) -> i64 {
        messages.into_iter().map(|message| self.append(message)).max().unwrap_or_default()
    }
}

/// Messages by their numbers, shared as Larder shares them.
#[derive(Default)]
struct Plain(Mutex<Vec<(i64, Arc<ChatMessage>)>>);

impl Plain {
    fn append(&self, message: ChatMessage) -> i64 {
        let message = Arc::new(message);
        let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seq = messages.last().map_or(1, |(seq, _)| seq + 1);
        messages.push((seq, message));
        seq
    }

    fn empty(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn tail(&self, limit: usize) -> Vec<(i64, Arc<ChatMessage>)> {
        let messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        messages[messages.len().saturating_sub(limit)..].to_vec()
    }
}

/// Append, the last 50, and appends by two threads to two sessions.
pub(super) async fn history(plan: &Plan) -> Outcome<Vec<Figure>> {
    let calls = plan.size(20_000, 2_000);
    let thread = Thread::new("bench", "session")?;
    // Each round's messages are freed before the next begins, so both sides find the same memory.
    let appends = in_turns(
        plan,
        async |_| {
            let (history, messages) = (InMemoryHistoryProvider::new(), payload::messages(0, calls));
            let begun = Instant::now();
            for message in messages {
                history.append(&thread, message).await?;
            }
            Ok(micros_each(begun, calls))
        },
        async |_| {
            let (plain, messages) = (Plain::default(), payload::messages(0, calls));
            let begun = Instant::now();
            for message in messages {
                black_box(plain.append(message));
            }
            Ok(micros_each(begun, calls))
        },
    )
    .await?;
    let calls_of_a_trait = beside_a_trait(plan, &thread, calls).await?;
    let (history, plain) = (InMemoryHistoryProvider::new(), Plain::default());
    for message in payload::messages(0, 1_000) {
        plain.append(message.clone());
        history.append(&thread, message).await?;
    }
    let reads = in_turns(
        plan,
        async |_| {
            let begun = Instant::now();
            for _ in 0..calls {
                black_box(history.tail(&thread, None, 50).await?.messages);
            }
            Ok(micros_each(begun, calls))
        },
        async |_| {
            let begun = Instant::now();
            for _ in 0..calls {
                black_box(plain.tail(50));
            }
            Ok(micros_each(begun, calls))
        },
    )
    .await?;
    let append = |name| subject(name, "append of a 1 KB message", Unit::Micros, Target::AtMost(2.0));
    let behind_a_trait = Subject {
        peer: format!(
            "{PEER}, called like a store: through a trait object, a boxed future and a Vec of messages"
        ),
        ..append("memory-append-call")
    };
    let mut figures = vec![
        append("memory-append").figure(&appends),
        behind_a_trait.figure(&calls_of_a_trait),
        subject("memory-last-50", "last 50 messages of 1 KB", Unit::Micros, Target::AtMost(2.0))
            .figure(&reads),
    ];
    figures.extend(at_two(plan, calls).await?);
    Ok(figures)
}

/// Measures appends, compared with a peer behind the same kind of interface.
async fn beside_a_trait(plan: &Plan, thread: &Thread, calls: u32) -> Outcome<Vec<(f64, f64)>> {
    in_turns(
        plan,
        async |_| {
            let (history, messages) = (InMemoryHistoryProvider::new(), payload::messages(0, calls));
            let history: &dyn HistoryProvider = black_box(&history);
            let begun = Instant::now();
            for message in messages {
                black_box(history.append_many(thread, vec![message], AppendOptions::default()).await?);
            }
            Ok(micros_each(begun, calls))
        },
        async |_| {
            let (plain, messages) = (Plain::default(), payload::messages(0, calls));
            let plain: &dyn Keeps = black_box(&plain);
            let begun = Instant::now();
            for message in messages {
                black_box(plain.append_many(vec![message]).await);
            }
            Ok(micros_each(begun, calls))
        },
    )
    .await
}

fn subject(name: &'static str, what: &str, unit: Unit, target: Target) -> Subject {
    Subject {
        name,
        what: what.to_owned(),
        peer: PEER.to_owned(),
        settings: "in memory on both sides".to_owned(),
        unit,
        target: Some(target),
    }
}

/// Measures two threads that append to two sessions, compared with two that push to one `Vec`, and with one
/// that appends.
async fn at_two(plan: &Plan, calls: u32) -> Outcome<[Figure; 2]> {
    let beside_vec =
        in_turns(plan, async |_| sessions(WRITERS, calls), async |_| threads(WRITERS, calls)).await?;
    let beside_one = in_turns(plan, async |_| sessions(WRITERS, calls), async |_| sessions(1, calls)).await?;
    let at_two = |name| {
        let what = "appends of 1 KB messages by two threads to two sessions";
        subject(name, what, Unit::MessagesPerSecond, Target::AtLeast(1.5))
    };
    let scaling = Subject {
        peer: "the same by one thread to one session".to_owned(),
        ..at_two("memory-append-scaling")
    };
    Ok([at_two("memory-append-2").figure(&beside_vec), scaling.figure(&beside_one)])
}

/// The requests to a thread of the figures about two writers.
enum Step {
    Append(Vec<ChatMessage>),
    /// Removes the appended messages.
    Empty,
}

const PANICKED: &str = "a writer panicked";

/// A step whose failure or panic is reported at the end: a thread that returned early would block the others.
fn caught(step: impl FnOnce() -> Outcome<()>) -> Result<(), String> {
    let done = std::panic::catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| Err(PANICKED.into()));
    done.map_err(|error| error.to_string())
}

/// Has each thread append its messages, and returns the appends per second. The parts begin at the same
/// moment and reuse the memory of the earlier parts.
fn at_once<W: FnMut(Step) -> Outcome<()>>(
    writers: u32,
    calls: u32,
    begin: impl Fn(u32) -> Outcome<W> + Sync,
) -> Outcome<f64> {
    let ready = Barrier::new(usize::try_from(writers)?);
    let write = |writer: u32| {
        let mut write = begin(writer);
        let (mut seconds, mut failure) = ([0.0; PARTS], None);
        for part in &mut seconds {
            let messages = payload::messages(u64::from(writer * calls), calls);
            ready.wait();
            let begun = Instant::now();
            let appended = match &mut write {
                Ok(write) => caught(|| write(Step::Append(messages))),
                Err(error) => Err(error.to_string()),
            };
            *part = begun.elapsed().as_secs_f64();
            ready.wait();
            let emptied = write.as_mut().map_or(Ok(()), |write| caught(|| write(Step::Empty)));
            failure = failure.or(appended.err()).or(emptied.err());
        }
        failure.map_or(Ok(seconds), Err)
    };
    let seconds = std::thread::scope(|scope| {
        let running: Vec<_> = (0..writers).map(|writer| scope.spawn(move || write(writer))).collect();
        let joined =
            running.into_iter().map(|writer| writer.join().unwrap_or_else(|_| Err(PANICKED.to_owned())));
        joined.collect::<Result<Vec<_>, String>>()
    })?;
    let slowest =
        |part: usize| seconds.iter().map(|of_writer| of_writer[part]).fold(f64::MIN_POSITIVE, f64::max);
    // The first part finds no memory to reuse.
    let total: f64 = (1..PARTS).map(slowest).sum();
    Ok(f64::from(writers * calls) * (PARTS - 1) as f64 / total)
}

fn sessions(writers: u32, calls: u32) -> Outcome<f64> {
    let history = InMemoryHistoryProvider::new();
    at_once(writers, calls, |writer| {
        let thread = Thread::new("bench", format!("session-{writer}"))?;
        let (runtime, history) = (Builder::new_current_thread().build()?, &history);
        Ok(move |step| {
            runtime.block_on(async {
                match step {
                    Step::Empty => drop(history.clear(&thread, None).await?),
                    Step::Append(messages) => {
                        for message in messages {
                            history.append(&thread, message).await?;
                        }
                    }
                }
                Ok(())
            })
        })
    })
}

fn threads(writers: u32, calls: u32) -> Outcome<f64> {
    let plain = Plain::default();
    at_once(writers, calls, |_| {
        Ok(|step| {
            match step {
                Step::Empty => plain.empty(),
                Step::Append(messages) => {
                    for message in messages {
                        black_box(plain.append(message));
                    }
                }
            }
            Ok(())
        })
    })
}
