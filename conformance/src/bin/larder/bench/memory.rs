//! Conversations in memory beside the least that could keep them: a `Vec` behind a `Mutex`.

use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::Instant;

use larder_agents::InMemoryHistoryProvider;
use larder_kernel::{ChatMessage, HistoryProvider, HistoryProviderExt, Thread};
use tokio::runtime::Builder;

use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::history::micros_each;
use super::{Outcome, Plan, payload};

const PEER: &str = "std, a Vec of messages behind a Mutex";
/// Threads, and sessions, of the figure about both.
const WRITERS: u32 = 2;

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

    fn tail(&self, limit: usize) -> Vec<(i64, Arc<ChatMessage>)> {
        let messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        messages[messages.len().saturating_sub(limit)..].to_vec()
    }
}

/// Append, the last 50, and appends by two threads to two sessions.
pub(super) async fn history(plan: &Plan) -> Outcome<Vec<Figure>> {
    let calls = plan.size(20_000, 2_000);
    let thread = Thread::new("bench", "session")?;
    // Each round's messages go before the next begins, so that both sides find the same memory.
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
                std::hint::black_box(plain.append(message));
            }
            Ok(micros_each(begun, calls))
        },
    )
    .await?;
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
                std::hint::black_box(history.tail(&thread, None, 50).await?);
            }
            Ok(micros_each(begun, calls))
        },
        async |_| {
            let begun = Instant::now();
            for _ in 0..calls {
                std::hint::black_box(plain.tail(50));
            }
            Ok(micros_each(begun, calls))
        },
    )
    .await?;
    let mut figures = vec![
        subject("memory-append", "append of a 1 KB message", Unit::Micros, Target::AtMost(2.0))
            .figure(&appends),
        subject("memory-last-50", "last 50 messages of 1 KB", Unit::Micros, Target::AtMost(2.0))
            .figure(&reads),
    ];
    figures.extend(at_two(plan, calls).await?);
    Ok(figures)
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

/// Two threads that append to two sessions, beside two that push to one Vec, and beside one that appends.
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

/// Has each of some threads append its messages, and gives how many a second were appended.
fn at_once(
    writers: u32,
    calls: u32,
    append: impl Fn(u32, Vec<ChatMessage>) -> Outcome<()> + Sync,
) -> Outcome<f64> {
    let ready = Barrier::new(usize::try_from(writers)?);
    let seconds = std::thread::scope(|scope| {
        let running: Vec<_> = (0..writers)
            .map(|writer| {
                let (ready, append) = (&ready, &append);
                scope.spawn(move || {
                    let messages = payload::messages(u64::from(writer * calls), calls);
                    ready.wait();
                    let begun = Instant::now();
                    append(writer, messages).map_err(|error| error.to_string())?;
                    Ok::<_, String>(begun.elapsed().as_secs_f64())
                })
            })
            .collect();
        let joined = running
            .into_iter()
            .map(|writer| writer.join().unwrap_or_else(|_| Err("a writer panicked".to_owned())));
        joined.collect::<Result<Vec<f64>, String>>()
    })?;
    Ok(f64::from(writers * calls) / seconds.into_iter().fold(f64::MIN_POSITIVE, f64::max))
}

fn sessions(writers: u32, calls: u32) -> Outcome<f64> {
    let history = InMemoryHistoryProvider::new();
    at_once(writers, calls, |writer, messages| {
        let thread = Thread::new("bench", format!("session-{writer}"))?;
        Builder::new_current_thread().build()?.block_on(async {
            for message in messages {
                history.append(&thread, message).await?;
            }
            Ok(())
        })
    })
}

fn threads(writers: u32, calls: u32) -> Outcome<f64> {
    let plain = Plain::default();
    at_once(writers, calls, |_, messages| {
        for message in messages {
            std::hint::black_box(plain.append(message));
        }
        Ok(())
    })
}
