//! Larder's side of the figures about conversations: the same calls for every backend.

use std::sync::Arc;
use std::time::Instant;

use larder::Stores;
use larder_kernel::{
    AppendOptions, ChatMessage, HistoryProvider, HistoryProviderExt, MessageUpdate, Namespace, Removal,
    Revision, Thread,
};

use super::curve::Plot;
use super::figure::{Figure, Subject, Target, Unit, in_rounds};
use super::{Outcome, Plan, payload, window};

/// Messages per batch during the filling.
const BATCH: u32 = 1_000;
/// The number of parts of an append measurement that counts written bytes.
const PARTS: u32 = 5;

/// The conversations of a namespace that only this run uses.
pub(super) struct Conversations {
    stores: Stores,
    history: Arc<dyn HistoryProvider>,
    /// The seed of the next message, so that no message repeats.
    next: u64,
}

impl Conversations {
    pub(super) async fn open(url: &str) -> Outcome<Self> {
        let namespace = Namespace::new(format!("bench-{}", std::process::id()))?;
        let stores = Stores::builder().namespace(namespace).url(url).open().await?;
        Ok(Self { history: stores.set().history()?, stores, next: 0 })
    }

    /// Removes the conversations of the run.
    pub(super) async fn erase(&self) -> Outcome<()> {
        Ok(self.stores.erase().await?)
    }

    /// Extends a thread.
    pub(super) async fn fill(&mut self, thread: &Thread, messages: u32) -> Outcome<()> {
        let mut left = messages;
        while left > 0 {
            let count = left.min(BATCH);
            let batch = payload::turns(self.next, count);
            self.next += u64::from(count);
            self.history.append_many(thread, batch, AppendOptions::default()).await?;
            left -= count;
        }
        Ok(())
    }

    /// Appends sequentially, and returns the mean microseconds per append.
    pub(super) async fn append(&mut self, thread: &Thread, calls: u32) -> Outcome<f64> {
        self.append_each(thread, calls, payload::text).await
    }

    /// As `append`, with these texts.
    pub(super) async fn append_each(
        &mut self,
        thread: &Thread,
        calls: u32,
        text: fn(u64) -> String,
    ) -> Outcome<f64> {
        let seeds = self.next..self.next + u64::from(calls);
        let messages: Vec<ChatMessage> = seeds.map(|seed| ChatMessage::user(text(seed))).collect();
        self.next += u64::from(calls);
        let begun = Instant::now();
        for message in messages {
            self.history.append(thread, message).await?;
        }
        Ok(window::micros_each(begun, calls))
    }

    /// As `append`, each on the condition that the thread has the last position of the append before.
    pub(super) async fn append_if_last(&mut self, thread: &Thread, calls: u32) -> Outcome<f64> {
        let messages = payload::messages(self.next, calls);
        self.next += u64::from(calls);
        let mut last = self.history.thread_info(thread).await?.last;
        let begun = Instant::now();
        for message in messages {
            let options = AppendOptions::default().with_if_last(last);
            last = self.history.append_many(thread, vec![message], options).await?.last;
        }
        Ok(window::micros_each(begun, calls))
    }

    /// Updates one message again and again, and returns the mean microseconds per update.
    pub(super) async fn update(&mut self, thread: &Thread, calls: u32) -> Outcome<f64> {
        let messages = payload::messages(self.next, calls);
        self.next += u64::from(calls);
        let seq = self.history.append(thread, ChatMessage::user("")).await?;
        let mut revision = Revision::at(seq);
        let begun = Instant::now();
        for message in messages {
            let update = MessageUpdate::new(seq, revision, message);
            revision = self.history.update(thread, update).await?.revision;
        }
        Ok(window::micros_each(begun, calls))
    }

    /// Extends a thread, pops these messages one by one, and returns the mean microseconds per pop.
    pub(super) async fn pop(&mut self, thread: &Thread, calls: u32) -> Outcome<f64> {
        self.fill(thread, calls).await?;
        let begun = Instant::now();
        for _ in 0..calls {
            let found = self.history.remove(thread, Removal::newest(1)).await?.messages.len();
            if found != 1 {
                return Err(format!("a pop of one message returned {found}").into());
            }
        }
        Ok(window::micros_each(begun, calls))
    }

    /// Appends this number of messages from each of many concurrent sessions, and returns the acknowledged
    /// appends per second.
    pub(super) async fn append_from(&mut self, sessions: u32, each: u32) -> Outcome<f64> {
        let mut appending = Vec::new();
        for session in 0..sessions {
            let thread = Thread::new("bench", format!("session-{session}"))?;
            let (history, messages) = (Arc::clone(&self.history), payload::messages(self.next, each));
            self.next += u64::from(each);
            appending.push(async move {
                for message in messages {
                    history.append(&thread, message).await?;
                }
                Ok::<(), larder_kernel::Error>(())
            });
        }
        let begun = Instant::now();
        for task in appending.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
            task.await??;
        }
        Ok(f64::from(sessions * each) / begun.elapsed().as_secs_f64())
    }

    /// Appends in five parts, and returns the mean microseconds and the bytes per append. The bytes are those
    /// of the median part, because some parts include a checkpoint.
    async fn append_logged(
        &mut self,
        thread: &Thread,
        calls: u32,
        written: &mut impl AsyncFnMut() -> Outcome<Option<u64>>,
    ) -> Outcome<(f64, Option<f64>)> {
        let (mut micros, mut logged) = (0.0, Vec::new());
        for _ in 0..PARTS {
            let before = written().await?;
            micros += self.append(thread, calls / PARTS).await? / f64::from(PARTS);
            let after = written().await?;
            let bytes = before.zip(after).map(|(before, after)| after.saturating_sub(before));
            logged.extend(bytes.map(|bytes| bytes as f64 / f64::from(calls / PARTS)));
        }
        logged.sort_by(f64::total_cmp);
        Ok((micros, logged.get(logged.len() / 2).copied()))
    }

    /// Appends to one thread, reads it, and builds windows of it.
    async fn round(
        &mut self,
        thread: &Thread,
        calls: u32,
        written: &mut impl AsyncFnMut() -> Outcome<Option<u64>>,
    ) -> Outcome<Round> {
        let (append, logged) = self.append_logged(thread, calls, written).await?;
        let read = self.last_50(thread, calls).await?;
        // The window then contains tool calls and their results.
        self.fill(thread, 2 * u32::try_from(window::WINDOW_MESSAGES)?).await?;
        let context = window::context(Arc::clone(&self.history), &thread.agent)?;
        Ok(Round { append, logged, read, window: window::windows(&context, &thread.session, calls).await? })
    }

    /// Reads the last 50 messages repeatedly, and returns the mean microseconds per read.
    pub(super) async fn last_50(&self, thread: &Thread, calls: u32) -> Outcome<f64> {
        let begun = Instant::now();
        for _ in 0..calls {
            let found = self.history.tail(thread, None, 50).await?.len();
            if found != 50 {
                return Err(format!("a read of the last 50 messages returned {found}").into());
            }
        }
        Ok(window::micros_each(begun, calls))
    }
}

/// The measurements of one thread in a round: microseconds of each call, and bytes of each append.
struct Round {
    append: f64,
    logged: Option<f64>,
    read: f64,
    window: f64,
}

/// The names of a service's figures about conversations that grow.
pub(super) struct Names {
    /// The name of the backend, in plots.
    pub(super) backend: &'static str,
    pub(super) time: &'static str,
    pub(super) bytes: &'static str,
    pub(super) read: &'static str,
    pub(super) window: &'static str,
    /// The kind of the counted bytes.
    pub(super) log: &'static str,
}

/// Fills a thread, and measures appends and reads at each power of ten.
async fn grow(
    plan: &Plan,
    conversations: &mut Conversations,
    thread: &Thread,
    long: u32,
    names: &Names,
    written: &mut impl AsyncFnMut() -> Outcome<Option<u64>>,
) -> Outcome<()> {
    let calls = plan.size(100, 20);
    let (mut appends, mut bytes, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    let (mut there, mut next) = (0, 100);
    while next <= long {
        conversations.fill(thread, next - there).await?;
        // The cost of connections and prepared statements is not the thread's.
        conversations.append(thread, 10).await?;
        let (micros, logged) = conversations.append_logged(thread, calls, written).await?;
        there = next + 10 + calls;
        let length = f64::from(there);
        appends.push((length, micros));
        bytes.extend(logged.map(|logged| (length, logged)));
        conversations.last_50(thread, 5).await?;
        reads.push((length, conversations.last_50(thread, calls).await?));
        next *= 10;
    }
    conversations.fill(thread, long.saturating_sub(there)).await?;
    plan.draw(Plot::AppendCost, names.backend, appends);
    plan.draw(Plot::TailCost, names.backend, reads);
    if !bytes.is_empty() {
        plan.draw(Plot::AppendBytes, format!("{}, {}", names.backend, names.log), bytes);
    }
    Ok(())
}

/// Measures whether the costs of an append, a read and a window are independent of the thread's length.
/// `written` counts the bytes in the service's log, if it has one. `settled` runs after the long thread is
/// filled.
pub(super) async fn long_thread(
    plan: &Plan,
    conversations: &mut Conversations,
    names: Names,
    settings: &str,
    settled: impl AsyncFnOnce() -> Outcome<()>,
    mut written: impl AsyncFnMut() -> Outcome<Option<u64>>,
) -> Outcome<Vec<Figure>> {
    let (short, long) = (100, plan.size(1_000_000, 100_000));
    let calls = plan.size(100, 50);
    let long_thread = Thread::new("bench", "long")?;
    grow(plan, conversations, &long_thread, long, &names, &mut written).await?;
    settled().await?;
    let subject = |name, what: &str, unit, target| Subject {
        name,
        what: format!("{what} in a thread of {long} messages"),
        peer: format!("the same in a thread of {short}"),
        settings: settings.to_owned(),
        unit,
        target: Some(Target::AtMost(target)),
    };
    let mut rounds = Vec::with_capacity(plan.rounds);
    for round in 0..=plan.rounds {
        let short_thread = Thread::new("bench", format!("short-{round}"))?;
        conversations.fill(&short_thread, short).await?;
        let mut sides = [(&long_thread, None), (&short_thread, None)];
        if round.is_multiple_of(2) {
            sides.reverse();
        }
        for (thread, measured) in &mut sides {
            *measured = Some(conversations.round(thread, calls, &mut written).await?);
        }
        if round.is_multiple_of(2) {
            sides.reverse();
        }
        let [(_, Some(of_long)), (_, Some(of_short))] = sides else { continue };
        if round > 0 {
            rounds.push((of_long, of_short));
        }
    }
    let of = |part: fn(&Round) -> f64| -> Vec<(f64, f64)> {
        rounds.iter().map(|(of_long, of_short)| (part(of_long), part(of_short))).collect()
    };
    let mut figures =
        vec![subject(names.time, "append", Unit::Micros, 1.15).figure(&of(|round| round.append))];
    if rounds.iter().all(|(of_long, of_short)| of_long.logged.is_some() && of_short.logged.is_some()) {
        let what = format!("{} of an append", names.log);
        let logged = of(|round| round.logged.unwrap_or(f64::NAN));
        figures.push(subject(names.bytes, &what, Unit::Bytes, 1.15).figure(&logged));
    }
    figures.push(subject(names.read, "last 50 messages", Unit::Micros, 1.15).figure(&of(|round| round.read)));
    figures
        .push(subject(names.window, window::PIPELINE, Unit::Micros, 1.2).figure(&of(|round| round.window)));
    Ok(figures)
}

/// A peer's side: its name, and a function that runs one round.
pub(super) struct Beside<F> {
    pub(super) subject: Subject,
    pub(super) round: F,
}

/// Measures one figure of a thread's appends and one of its reads, each compared with its peer. `between`
/// does maintenance that the service would do after a while, such as an update of its statistics.
pub(super) async fn beside(
    rounds: usize,
    conversations: &mut Conversations,
    calls: u32,
    append: Beside<impl AsyncFnMut(usize) -> Outcome<f64>>,
    between: impl AsyncFnOnce() -> Outcome<()>,
    last_50: Beside<impl AsyncFnMut(usize) -> Outcome<f64>>,
) -> Outcome<Vec<Figure>> {
    let thread = Thread::new("bench", "session")?;
    let appends =
        in_rounds(rounds, async |_| conversations.append(&thread, calls).await, append.round).await?;
    between().await?;
    let reads =
        in_rounds(rounds, async |_| conversations.last_50(&thread, calls).await, last_50.round).await?;
    Ok(vec![append.subject.figure(&appends), last_50.subject.figure(&reads)])
}
