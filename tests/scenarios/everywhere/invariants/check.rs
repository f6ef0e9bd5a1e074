//! The run of one combination, with a check of every invariant after each action.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use larder_agents::session::{
    Ephemeral, Inference, InferenceRequest, Memory, OnSummaryFailure, Persisted, Persistence, Session,
    Sessions,
};
use larder_agents::tokens::tokens_of;
use larder_kernel::{
    AppendOptions, ChatMessage, Error, ErrorKind, HistoryProviderExt, Origin, Role, Seq, SessionId,
    StoredMessage, Thread, Window, WindowMessage,
};

use super::case::{Case, End, Turn};
use super::step::document;
use super::valid::valid_for_providers;
use super::world::{Lengths, Snapshot, World, mark_of, marks};
use crate::everywhere::support::Words;

/// The effects of one combination.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Effects {
    pub(super) summarized: bool,
    pub(super) erased: bool,
    pub(super) refused: bool,
    pub(super) configured: bool,
}

/// The state of running one combination.
struct Trial<'a> {
    case: &'a Case,
    world: &'a World,
    sessions: Sessions,
    id: SessionId,
    thread: Thread,
    mark: usize,
    /// `true` if the agent stores its turns.
    writes: bool,
    /// The marks that only a summary still contains.
    only_told: BTreeSet<usize>,
    effects: Effects,
}

pub(super) async fn run(world: &World, case: &Case) -> Effects {
    let (sessions, configured) = sessions(world, case);
    let (sessions, writes) = match &case.memory {
        Some(memory) => match sessions.clone().with_memory(memory.clone()) {
            Ok(sessions) => (sessions, memory.writes()),
            Err(_) => (sessions, true),
        },
        None => (sessions, true),
    };
    let prompt = "word ".repeat(case.prompt_words);
    let id = sessions.create(case.profile.clone(), prompt.trim()).await.unwrap();
    for hint in 0..case.hints {
        // A hint that does not fit is rejected.
        let _ = sessions.add_hint(&id, &format!("hint {hint}")).await;
    }
    let thread = sessions.thread(&id);
    let effects = Effects { configured, ..Effects::default() };
    let mut trial =
        Trial { case, world, sessions, id, thread, mark: 0, writes, only_told: BTreeSet::new(), effects };
    for interaction in &case.stored {
        let messages = interaction.messages(&mut trial.mark);
        world.history.append_many(&trial.thread, messages, AppendOptions::default()).await.unwrap();
    }
    for turn in &case.turns {
        trial.turn(turn).await;
    }
    assert_eq!(*world.shared.repeated.lock().unwrap(), None, "a question was answered twice");
    trial.effects.summarized = world.shared.answers.load(Ordering::Relaxed) > 0;
    trial.effects
}

/// Returns the sessions, and `true` if a document configures them.
fn sessions(world: &World, case: &Case) -> (Sessions, bool) {
    let mut sessions = Sessions::new(world.history.clone(), world.store.clone())
        .unwrap()
        .with_token_counter(Arc::new(Words))
        .with_hint_order(case.hint_order)
        .with_ephemeral(case.ephemeral);
    let document = case.configured.then(|| document(&case.steps)).flatten();
    if document.is_some() || case.summarizer.is_some() {
        sessions = sessions.with_summarizer(world.model());
    }
    if let Some((policy, on_failure)) = case.summarizer {
        sessions = sessions.with_summaries(policy, on_failure, Duration::from_secs(30));
    }
    if case.ttl {
        sessions = sessions.with_ttl(Duration::from_secs(3_600)).unwrap();
    }
    match document {
        Some(document) => {
            let sessions = sessions.with_knowledge(world.vectors.clone(), Arc::new(Lengths));
            (sessions.configured(&document).unwrap(), true)
        }
        None => {
            let steps = case.steps.iter().map(|step| step.build(world)).collect();
            (sessions.with_strategies(steps), false)
        }
    }
}

impl Trial<'_> {
    async fn snapshot(&self) -> Snapshot {
        // A dropped inference releases its claim in the background.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        self.world.snapshot(&self.thread).await
    }

    fn answers(&self) -> usize {
        self.world.shared.answers.load(Ordering::Relaxed)
    }

    async fn turn(&mut self, turn: &Turn) {
        let before = self.snapshot().await;
        self.mark += 1;
        let question = ChatMessage::user(format!("m{}{}", self.mark, " word".repeat(turn.words - 1)));
        self.world.shared.fails.store(turn.model_fails, Ordering::Relaxed);
        let shown = self.explain(turn, &question, &before).await;

        let told = self.answers();
        let mut request = InferenceRequest::new([question.clone()]).with_persistence(turn.persistence);
        if turn.forgetful {
            request = request.with_memory(Memory::Off);
        }
        if let End::Dropped(polls) = turn.end {
            let begin = self.sessions.begin(&self.id, request);
            poll_some(begin, polls).await;
            assert_eq!(self.snapshot().await, before, "a dropped begin wrote");
            return;
        }
        let inference = match self.sessions.begin(&self.id, request).await {
            Ok(inference) => inference,
            Err(error) => return self.failed(turn, &error, &before, told).await,
        };
        assert_eq!(self.snapshot().await, before, "begin wrote");
        if turn.forgetful {
            assert_eq!(texts(inference.window()), [question.text()], "a request without memory reads");
            assert_eq!(inference.complete([]).await.unwrap(), Persisted::Nothing);
            assert_eq!((self.snapshot().await, self.answers()), (before, told), "without memory it wrote");
            return;
        }
        self.check_window(&inference, &before, &question);
        if let Some(shown) = shown {
            assert_eq!(shown, outline(inference.window()), "the explanation shows another window");
        }
        if turn.persistence == Persistence::Ephemeral {
            assert_eq!(self.answers(), told, "EPHEMERAL asked the model");
        }
        if turn.end == End::Cancelled {
            inference.cancel();
            assert_eq!(self.snapshot().await, before, "a cancelled turn wrote");
            return;
        }
        self.complete(turn, &inference, before).await;
    }

    /// Explains the window, which fails if `begin` fails. Returns the window that `begin` must make.
    async fn explain(&self, turn: &Turn, question: &ChatMessage, before: &Snapshot) -> Option<Vec<Outline>> {
        let told = self.answers();
        let plain = self.sessions.explain_window_with(&self.id, vec![question.clone()]).await;
        assert_eq!((&self.snapshot().await, self.answers()), (before, told), "explain wrote");
        let mut asking = None;
        if turn.explained {
            let asked = self.sessions.explain_window_asking(&self.id, vec![question.clone()]).await;
            assert_eq!(self.snapshot().await, *before, "an explanation that asks wrote");
            asking = asked.ok().filter(|_| !turn.model_fails);
        }
        let shown = if turn.persistence == Persistence::Ephemeral { plain.ok() } else { asking };
        shown.map(|shown| outline(&shown.window))
    }

    /// Checks the error of a `begin`.
    async fn failed(&mut self, turn: &Turn, error: &Error, before: &Snapshot, told: usize) {
        assert_eq!(self.snapshot().await, *before, "a failed begin wrote");
        let may_fail = matches!(self.case.summarizer, Some((_, OnSummaryFailure::Fail)));
        // The model is away, or its summary is longer than the messages.
        let away = error.kind() == ErrorKind::Unavailable && turn.model_fails;
        if may_fail && (away || error.kind() == ErrorKind::Unexpected) {
            return;
        }
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
        assert_eq!(self.answers(), told, "a refusal asked the model");
        self.effects.refused = true;
        if self.case.memory.is_some() && error.field() == Some("memory") {
            return;
        }
        let (actual, limit) = (error.actual().unwrap(), error.limit().unwrap());
        assert!(error.field().is_some() && actual > limit, "{error:?}");
        assert_eq!(Some(limit), self.case.profile.max_tokens());
    }

    fn check_window(&self, inference: &Inference, before: &Snapshot, question: &ChatMessage) {
        let window = inference.window();
        let tokens: u64 = window.messages.iter().map(|message| tokens_of(&Words, &message.message)).sum();
        if let Some(max_tokens) = self.case.profile.max_tokens() {
            assert!(tokens <= max_tokens, "{tokens} tokens of {max_tokens}");
        }
        assert_eq!(texts(window).last(), Some(&question.text()), "the question is not last");
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
        self.check_names(inference, before);
        let reported = left_out(Seq::MIN);
        for mark in &self.only_told {
            assert!(reported || told.contains(mark), "m{mark} is no longer in a summary");
        }
    }

    /// Checks that each message is reported with a step that may have left it out.
    fn check_names(&self, inference: &Inference, before: &Snapshot) {
        let has_tools = |seq: &Seq| {
            let stored = before.messages.iter().find(|stored| stored.seq == *seq);
            let message = &stored.expect("a message that is left out is stored").message;
            !message.tool_calls.is_empty() || !message.tool_results.is_empty()
        };
        for left_out in inference.left_out() {
            let may = match left_out.strategy {
                "pair_tool_calls" => left_out.messages.iter().all(has_tools),
                "rolling_window" => self.case.profile.max_tokens().is_some(),
                "memory" => self.case.memory.is_some(),
                name => self.case.steps.iter().any(|step| step.name() == name),
            };
            assert!(may, "{left_out:?} is reported with a step that leaves out nothing of the kind");
        }
    }

    /// Reads the session, which changes nothing.
    async fn get(&self) -> Session {
        let before = self.snapshot().await;
        let session = self.sessions.get(&self.id).await.unwrap();
        assert_eq!(self.snapshot().await, before, "a read wrote");
        session
    }

    /// Lets another agent read the session, which restarts its time to live, and write to it. Returns the
    /// mark of its message.
    async fn share(&mut self) -> usize {
        self.get().await;
        self.mark += 1;
        let message = ChatMessage::user(format!("m{}", self.mark));
        self.world.history.append(&self.thread, message).await.unwrap();
        self.mark
    }

    async fn complete(&mut self, turn: &Turn, inference: &Inference, before: Snapshot) {
        let asked = self.mark;
        let arrived = match turn.shared {
            true => Some(self.share().await),
            false => None,
        };
        let shared = self.snapshot().await;
        self.mark += 1;
        let answer = ChatMessage::assistant(format!("m{}", self.mark));
        if let End::Retried(polls) = turn.end {
            poll_some(inference.complete([answer.clone()]), polls).await;
        }
        let persisted = inference.complete([answer.clone()]).await.unwrap();
        let after = self.snapshot().await;
        assert_eq!(inference.complete([answer]).await.unwrap(), persisted, "a retry returns another result");
        assert_eq!(self.snapshot().await, after, "a retry wrote");
        let ephemeral = turn.persistence == Persistence::Ephemeral;
        if ephemeral && self.writes && self.case.ephemeral == Ephemeral::LosesSession {
            assert!(after.messages.is_empty() && !after.has_summary(), "EPHEMERAL keeps the session");
            self.only_told.clear();
            return;
        }
        if ephemeral || !self.writes {
            assert_eq!(persisted, Persisted::Nothing);
            assert_eq!(after, shared, "a turn that stores nothing wrote");
            return;
        }
        self.check_stored(turn, inference, (&before, &after), (asked, arrived));
        self.check_summary(inference).await;
    }

    /// Checks that the summary in the window, which a model was paid for, is stored.
    async fn check_summary(&self, inference: &Inference) {
        let (_, told) = summary_of(inference.window());
        let kept = self.get().await.summary.map_or_else(BTreeSet::new, |summary| marks(&summary));
        assert!(told.is_subset(&kept), "the summary of {told:?} was shown, and that of {kept:?} is stored");
    }

    fn check_stored(
        &mut self,
        turn: &Turn,
        inference: &Inference,
        (before, after): (&Snapshot, &Snapshot),
        (asked, arrived): (usize, Option<usize>),
    ) {
        let mut stored: Vec<usize> = after.messages.iter().filter_map(said).collect();
        if let Some(arrived) = arrived {
            let place = stored.iter().rposition(|mark| *mark == arrived);
            stored.remove(place.expect("the message of the other agent is stored"));
        }
        assert_eq!(stored.last_chunk(), Some(&[asked, self.mark]), "the turn is not stored");
        let distinct: BTreeSet<usize> = stored.iter().copied().collect();
        assert_eq!(distinct.len(), stored.len(), "a message is stored twice: {stored:?}");
        let shown = shown(inference.window());
        let (_, told) = summary_of(inference.window());
        let kept_from = kept_from(&before.messages, self.case.keeps());
        for (place, message) in before.messages.iter().enumerate() {
            let Some(mark) = said(message) else { continue };
            if distinct.contains(&mark) {
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

/// Returns the mark of a message that is not a summary.
fn said(stored: &StoredMessage) -> Option<usize> {
    mark_of(&stored.message).filter(|_| stored.message.role != Role::System)
}

/// Returns the place of the first message that an erasure must keep.
fn kept_from(messages: &[StoredMessage], keeps: usize) -> usize {
    // A message of the user without a mark is between a call and its result.
    let begins = |message: &ChatMessage| {
        message.role == Role::User && message.tool_results.is_empty() && mark_of(message).is_some()
    };
    let mut starts: Vec<usize> =
        (0..messages.len()).filter(|place| begins(&messages[*place].message)).collect();
    if starts.first().is_some_and(|first| *first > 0) {
        // The messages before the first question are an interaction too.
        starts.insert(0, 0);
    }
    starts.get(starts.len().saturating_sub(keeps)).copied().unwrap_or(messages.len())
}

/// A message of a window: its origin, its text, and the numbers of its calls and results.
type Outline = (Origin, String, usize, usize);

fn outline(window: &Window) -> Vec<Outline> {
    let of = |WindowMessage { origin, message, .. }: &WindowMessage| {
        (*origin, message.text.clone(), message.tool_calls.len(), message.tool_results.len())
    };
    window.messages.iter().map(of).collect()
}

fn texts(window: &Window) -> Vec<&str> {
    window.messages.iter().map(|message| message.message.text()).collect()
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
