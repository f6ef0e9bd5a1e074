//! Invariants of every session for any settings: properties over generated conversations.
//!
//! - Reads, `EPHEMERAL` turns, cancelled or dropped turns and failing models leave the stored data unchanged.
//! - Each stored message is in the window, is covered by the summary in the window, or is reported as left
//!   out. A summary was made from the messages that it covers.
//! - A completed turn is stored. Messages are removed only if a strategy was set to erase them, or if a
//!   `FLUSH` left them out of its window.
//! - The window is valid for a model provider: each result directly follows its call, and no call is open.
//! - The window is within its budget. If that is impossible, `begin` fails with the field, before any model
//!   is asked.
//! - No question to a model is answered twice.
//!
//! `LARDER_PROPERTY_CASES` sets the number of combinations, and `LARDER_PROPERTY_SEED` the first one. A
//! failure prints its seed; with that seed and one case, the test runs it alone.

mod case;
mod fixed;
pub(super) mod world;

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;

use futures_util::FutureExt;
use larder_kernel::{
    AppendOptions, ChatMessage, ErrorKind, HistoryProvider, Origin, Seq, SessionId, Thread, Window,
};

use self::case::{Case, End, Random, Turn};
use self::world::{Snapshot, Words, World, mark_of, marks};
use super::{Inference, InferenceRequest, OnSummaryFailure, Persisted, Persistence, Sessions};
use crate::compaction::properties::valid_for_providers;
use crate::compaction::turns::interactions;
use crate::tokens::tokens_of;

const CASES: u64 = 5_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().unwrap())
}

/// Proves: ATH-5, ALQ-4, ALQ-5, ALQ-6, ALQ-7
#[test]
#[allow(clippy::print_stderr, reason = "the seed and the shares are for the reader of the run")]
fn no_combination_of_settings_loses_or_repeats_anything() {
    let cases = number("LARDER_PROPERTY_CASES").unwrap_or(CASES);
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let first = number("LARDER_PROPERTY_SEED").unwrap_or(u64::from(clock.subsec_nanos()));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (mut summarized, mut erased, mut fired) = (0, 0, 0);
    for seed in first..first + cases {
        let case = Case::new(&mut Random(seed));
        let outcome = runtime.block_on(std::panic::AssertUnwindSafe(run(seed, &case)).catch_unwind());
        let Ok(effects) = outcome else {
            panic!("LARDER_PROPERTY_SEED={seed} LARDER_PROPERTY_CASES=1 repeats it: {case:#?}");
        };
        summarized += u64::from(effects.summarized);
        erased += u64::from(effects.erased);
        fired += u64::from(effects.summarized || effects.erased);
    }
    let share = |count: u64| count * 100 / cases.max(1);
    eprintln!(
        "{cases} combinations from seed {first}: {} % summarized, {} % erased, {} % did either",
        share(summarized),
        share(erased),
        share(fired)
    );
    assert!(cases < 100 || share(fired) >= 50, "too few combinations fire a strategy");
}

#[derive(Default)]
struct Effects {
    summarized: bool,
    erased: bool,
}

/// The state of running one combination.
struct Trial<'a> {
    case: &'a Case,
    world: World,
    sessions: Sessions,
    id: SessionId,
    thread: Thread,
    mark: usize,
    /// The marks that only a summary still contains.
    only_told: BTreeSet<usize>,
    effects: Effects,
}

async fn run(seed: u64, case: &Case) -> Effects {
    let mut random = Random(!seed);
    let world = World::new();
    let steps = case.steps.iter().map(|step| step.build(&world)).collect();
    let mut sessions = Sessions::new(world.history.clone(), world.store.clone())
        .unwrap()
        .with_token_counter(std::sync::Arc::new(Words))
        .with_strategies(steps);
    if let Some(policy) = case.summarizer {
        sessions = sessions.with_summarizer(world.model()).with_summaries(
            policy,
            OnSummaryFailure::Keep,
            std::time::Duration::from_secs(30),
        );
    }
    if let Some(memory) = &case.memory {
        sessions = sessions.clone().with_memory(memory.clone()).unwrap_or(sessions);
    }
    let prompt = "word ".repeat(case.prompt_words);
    let id = sessions.create(case.profile.clone(), prompt.trim()).await.unwrap();
    for hint in 0..case.hints {
        // A hint that does not fit is rejected.
        let _ = sessions.add_hint(&id, &format!("hint {hint}")).await;
    }
    let thread = sessions.thread(&id);
    let mut trial = Trial {
        case,
        world,
        sessions,
        id,
        thread,
        mark: 0,
        only_told: BTreeSet::new(),
        effects: Effects::default(),
    };
    for _ in 0..case.interactions {
        let messages = case::interaction(&mut random, &mut trial.mark);
        trial.world.history.append_many(&trial.thread, messages, AppendOptions::default()).await.unwrap();
    }
    for turn in &case.turns {
        trial.turn(turn).await;
    }
    assert_eq!(*trial.world.shared.repeated.lock().unwrap(), None, "a question was answered twice");
    trial.effects.summarized = trial.world.shared.answers.load(Ordering::Relaxed) > 0;
    trial.effects
}

impl Trial<'_> {
    async fn snapshot(&self) -> Snapshot {
        // A dropped inference releases its claim in the background.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        self.world.snapshot(&self.thread).await
    }

    async fn turn(&mut self, turn: &Turn) {
        let before = self.snapshot().await;
        self.mark += 1;
        let question = ChatMessage::user(format!("m{}{}", self.mark, " word".repeat(turn.words - 1)));
        let answers = || self.world.shared.answers.load(Ordering::Relaxed);
        let told = answers();
        self.world.shared.fails.store(turn.model_fails, Ordering::Relaxed);
        // This fails if `begin` fails.
        let _ = self.sessions.explain_window_with(&self.id, vec![question.clone()]).await;
        assert_eq!((self.snapshot().await, answers()), (before.clone(), told), "explain wrote");

        let request = InferenceRequest::new([question]).with_persistence(turn.persistence);
        if let End::Dropped(polls) = turn.end {
            let begin = self.sessions.begin(&self.id, request);
            poll_some(begin, polls).await;
            assert_eq!(self.snapshot().await, before, "a dropped begin wrote");
            return;
        }
        let inference = match self.sessions.begin(&self.id, request).await {
            Ok(inference) => inference,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
                if self.case.memory.is_some() && error.field() == Some("memory") {
                    assert_eq!((self.snapshot().await, answers()), (before, told), "a refusal wrote");
                    return;
                }
                let (actual, limit) = (error.actual().unwrap(), error.limit().unwrap());
                assert!(error.field().is_some() && actual > limit, "{error:?}");
                assert_eq!(Some(limit), self.case.profile.max_tokens());
                assert_eq!((self.snapshot().await, answers()), (before, told), "a refusal wrote");
                return;
            }
        };
        assert_eq!(self.snapshot().await, before, "begin wrote");
        self.check_window(&inference, &before);
        if turn.persistence == Persistence::Ephemeral {
            assert_eq!(answers(), told, "EPHEMERAL asked the model");
        }
        if turn.end == End::Cancelled {
            inference.cancel();
            assert_eq!(self.snapshot().await, before, "a cancelled turn wrote");
            return;
        }
        self.complete(turn, &inference, before).await;
    }

    fn check_window(&self, inference: &Inference, before: &Snapshot) {
        let window = inference.window();
        let tokens: u64 = window.messages.iter().map(|message| tokens_of(&Words, &message.message)).sum();
        if let Some(max_tokens) = self.case.profile.max_tokens() {
            assert!(tokens <= max_tokens, "{tokens} tokens of {max_tokens}");
        }
        valid_for_providers(&window.messages).unwrap();
        let left_out = left_out(inference);
        let (up_to, told) = summary_of(window);
        let shown = shown(window);
        for stored in &before.messages {
            let Some(mark) = mark_of(&stored.message) else { continue };
            let covered = stored.seq <= up_to;
            if shown.contains(&stored.seq) || left_out(stored.seq) {
                continue;
            }
            assert!(covered, "m{mark} at {} fell between; the summary ends at {up_to}", stored.seq);
            assert!(told.contains(&mark), "the summary up to {up_to} has not read m{mark}");
        }
        let reported = left_out(Seq::MIN);
        for mark in &self.only_told {
            assert!(reported || told.contains(mark), "m{mark} is no longer told of");
        }
    }

    async fn complete(&mut self, turn: &Turn, inference: &Inference, before: Snapshot) {
        self.mark += 1;
        let answer = ChatMessage::assistant(format!("m{}", self.mark));
        let persisted = inference.complete([answer.clone()]).await.unwrap();
        let after = self.snapshot().await;
        assert_eq!(inference.complete([answer]).await.unwrap(), persisted, "a retry answers otherwise");
        assert_eq!(self.snapshot().await, after, "a retry wrote");
        let writes = self.sessions.reader.view.writes();
        if turn.persistence == Persistence::Ephemeral || !writes {
            assert_eq!(persisted, Persisted::Nothing);
            assert_eq!(after, before, "a turn that stores nothing wrote");
            return;
        }
        let stored: BTreeSet<usize> =
            after.messages.iter().filter_map(|stored| mark_of(&stored.message)).collect();
        let last: Vec<_> = after.messages.iter().rev().take(2).filter_map(|m| mark_of(&m.message)).collect();
        assert_eq!(last, [self.mark, self.mark - 1], "the turn is not stored");
        let shown = shown(inference.window());
        let (_, told) = summary_of(inference.window());
        let plain: Vec<_> = before.messages.iter().map(|stored| &*stored.message).collect();
        let whole = interactions(&plain);
        let kept = whole.len().saturating_sub(self.case.keeps());
        let kept_from = whole.get(kept).map_or(plain.len(), |interaction| interaction.start);
        for (place, message) in before.messages.iter().enumerate() {
            let Some(mark) = mark_of(&message.message) else { continue };
            if stored.contains(&mark) {
                continue;
            }
            let erased = self.case.erases() && place < kept_from;
            let flushed = turn.persistence == Persistence::Flush && !shown.contains(&message.seq);
            assert!(erased || flushed, "m{mark} is gone and no setting asks for it");
            self.effects.erased = true;
            if told.contains(&mark) {
                self.only_told.insert(mark);
            }
        }
        // If the summary left the window, the marks in it left too.
        self.only_told.retain(|mark| told.contains(mark));
    }
}

/// Polls a future `polls` times and drops it.
async fn poll_some<F: Future>(future: F, polls: usize) {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 || future.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Returns the last position that the window's summary covers, and the marks that it includes.
fn summary_of(window: &Window) -> (Seq, BTreeSet<usize>) {
    let summary = window.messages.iter().find_map(|message| match message.origin {
        Origin::Summary(up_to) => Some((up_to, marks(&message.message.text))),
        _ => None,
    });
    summary.unwrap_or((Seq::MIN, BTreeSet::new()))
}

/// Returns the positions of the stored messages in a window.
fn shown(window: &Window) -> BTreeSet<Seq> {
    let places = window.messages.iter().filter_map(|message| match message.origin {
        Origin::Stored(seq) => Some(seq),
        _ => None,
    });
    places.collect()
}

/// Returns a function that is `true` for a message that was reported as left out.
fn left_out(inference: &Inference) -> impl Fn(Seq) -> bool {
    |seq| inference.left_out().iter().any(|left_out| left_out.contains(seq))
}
