//! Turns whose calls of the stores fail, each at every place, and are repeated.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder_kernel::{
    AppendOptions, ChatMessage, Error, ErrorKind, HistoryProvider, HistoryProviderExt, IdempotencyKey,
    LanguageModel, LanguageModelRequest, Outcome, Result, SessionId,
};

use crate::layers::Layer;
use crate::layers::tests::{Scripted, Step};
use crate::session::testing::{Words, World};
use crate::session::{
    InferenceRequest, OnSummaryFailure, Persistence, SessionProfile, Sessions, SummaryPolicy,
};

const PASS: Step = Step::Late(Duration::ZERO);
const LOST: Step = Step::After(ErrorKind::Unavailable, Outcome::Unknown);
const REFUSED: Step = Step::Before(ErrorKind::Unavailable, Outcome::NotApplied);

const NEURALYZER: &str = r#"{"long_term_memory_id": "neuralyzer", "interaction_threshold_qty": 5,
    "interaction_keep": 2}"#;
const SUMMARIZER: &str = r#"{"long_term_memory_id": "summarizer", "interaction_threshold_qty": 2,
    "cod_max_loops": 2, "interaction_keep": 1}"#;
const KEEPS_MANY: &str = r#"{"long_term_memory_id": "summarizer", "interaction_threshold_qty": 2,
    "cod_max_loops": 1, "interaction_keep": 600}"#;

/// A model that is away.
#[derive(Debug)]
struct Away;

#[async_trait]
impl LanguageModel for Away {
    fn name(&self) -> &str {
        "away"
    }

    async fn generate(&self, _: LanguageModelRequest) -> Result<ChatMessage> {
        Err(Error::new(ErrorKind::Unavailable, "model", "away"))
    }
}

/// A combination of settings.
#[derive(Debug, Clone, Copy)]
struct Settings {
    long_term: &'static str,
    persistence: Persistence,
    ttl: bool,
    profile_summarizes: bool,
    stored: usize,
}

struct Run {
    world: World,
    script: Scripted,
    sessions: Sessions,
    id: SessionId,
}

/// The stored data of a session: the texts of its messages, and the summary.
#[derive(Debug, PartialEq)]
struct Stored(Vec<String>, Option<String>);

impl Run {
    async fn new(settings: Settings) -> Self {
        let (world, script) = (World::new(), Scripted::default());
        let history = script.history(world.history.clone());
        let mut sessions = Sessions::new(history, script.key_value(world.store.clone()))
            .unwrap()
            .with_token_counter(Arc::new(Words))
            .with_summarizer(world.model())
            .with_summaries(SummaryPolicy::Rolling, OnSummaryFailure::Keep, Duration::from_secs(5));
        if settings.ttl {
            sessions = sessions.with_ttl(Duration::from_secs(3_600)).unwrap();
        }
        let document = format!(r#"{{"long_term_memory_strategy": [{}]}}"#, settings.long_term);
        sessions = sessions.configured(&document).unwrap();
        let profile = match settings.profile_summarizes {
            true => SessionProfile::rolling_window(60, 20).unwrap(),
            false => SessionProfile::Everything,
        };
        let id = sessions.create(profile, "prompt").await.unwrap();
        let thread = sessions.thread(&id);
        let messages: Vec<_> = (1..=settings.stored)
            .map(|mark| match mark % 2 {
                1 => ChatMessage::user(format!("m{mark} and more")),
                _ => ChatMessage::assistant(format!("m{mark}")),
            })
            .collect();
        for part in messages.chunks(1_000) {
            world.history.append_many(&thread, part.to_vec(), AppendOptions::default()).await.unwrap();
        }
        let run = Self { world, script, sessions, id };
        // The first turn makes a summary, so that the second one replaces it.
        for mark in [9_001, 9_003, 9_005] {
            run.turn(settings, mark, [].into()).await;
        }
        run
    }

    /// Runs a turn whose completion follows a script, and repeats it until it succeeds. Returns `true` if a
    /// call failed.
    async fn turn(&self, settings: Settings, mark: usize, script: Vec<Step>) -> bool {
        let question = ChatMessage::user(format!("m{mark} and more"));
        let request = InferenceRequest::new([question]).with_persistence(settings.persistence);
        let turn = self.sessions.begin(&self.id, request).await.unwrap();
        let answer = || [ChatMessage::assistant(format!("m{}", mark + 1))];
        self.script.follow(script);
        let first = turn.complete(answer()).await;
        let failed = self.script.follow([]) == 0;
        let again = turn.complete(answer()).await.unwrap_or_else(|error| panic!("{settings:?}: {error:?}"));
        if let Ok(first) = first {
            assert_eq!(first, again, "{settings:?}");
        }
        failed
    }

    async fn stored(&self) -> Stored {
        let thread = self.sessions.thread(&self.id);
        let summary = self.sessions.get(&self.id).await.unwrap().summary;
        let messages = self.world.history.all_messages(&thread).await.unwrap();
        Stored(messages.iter().map(|stored| stored.text().to_owned()).collect(), summary)
    }
}

fn all_settings() -> Vec<Settings> {
    let both = format!("{NEURALYZER}, {SUMMARIZER}");
    let both: &'static str = both.leak();
    let mut all = Vec::new();
    for persistence in [Persistence::Incremental, Persistence::Flush, Persistence::Ephemeral] {
        for ttl in [false, true] {
            let settings = |long_term, profile_summarizes, stored| Settings {
                long_term,
                persistence,
                ttl,
                profile_summarizes,
                stored,
            };
            for long_term in ["", NEURALYZER, SUMMARIZER, both] {
                all.push(settings(long_term, false, 12));
                all.push(settings(long_term, true, 12));
            }
            all.push(settings("", false, 1_001));
            all.push(settings(KEEPS_MANY, false, 1_500));
        }
    }
    all
}

/// Proves: ALQ-7, ATH-2
#[tokio::test]
async fn a_turn_that_is_repeated_after_any_failed_call_stores_what_it_would_have_stored() {
    for settings in all_settings() {
        let expected = {
            let run = Run::new(settings).await;
            run.turn(settings, 9_007, Vec::new()).await;
            run.stored().await
        };
        for step in [LOST, REFUSED] {
            for place in 0.. {
                let run = Run::new(settings).await;
                let script = [vec![PASS; place], vec![step]].concat();
                if !run.turn(settings, 9_007, script).await {
                    break;
                }
                assert_eq!(run.stored().await, expected, "{settings:?} {step:?} at call {place}");
            }
        }
    }
}

/// Proves: ATH-5, ALQ-4, PK-3
#[tokio::test]
async fn a_summary_that_extends_an_earlier_one_is_stored() {
    for settings in all_settings().into_iter().filter(|settings| {
        let summarizes = settings.profile_summarizes || settings.long_term.contains("summarizer");
        summarizes && settings.persistence == Persistence::Incremental && settings.stored == 12
    }) {
        let run = Run::new(settings).await;
        let mut last = run.stored().await.1.unwrap();
        let mut grown = 0;
        for mark in (9_007..9_027).step_by(2) {
            let asked = run.world.shared.answers.load(std::sync::atomic::Ordering::Relaxed);
            run.turn(settings, mark, Vec::new()).await;
            let summary = run.stored().await.1.unwrap();
            if run.world.shared.answers.load(std::sync::atomic::Ordering::Relaxed) > asked {
                assert_ne!(summary, last, "the summary was paid for and not stored: {settings:?}");
                grown += 1;
            }
            last = summary;
        }
        assert!(grown > 1, "{settings:?}");
    }
}

/// Proves: ATH-2, ALQ-7
#[tokio::test]
async fn a_flush_begun_again_with_its_key_writes_once_whether_its_summary_fails_or_not() {
    let settings = Settings {
        long_term: SUMMARIZER,
        persistence: Persistence::Flush,
        ttl: false,
        profile_summarizes: false,
        stored: 12,
    };
    for fails_first in [false, true] {
        let run = Run::new(settings).await;
        let document = format!(r#"{{"long_term_memory_strategy": [{SUMMARIZER}]}}"#);
        let away = run.sessions.clone().with_summarizer(Arc::new(Away)).configured(&document).unwrap();
        let (first, second) = if fails_first { (&away, &run.sessions) } else { (&run.sessions, &away) };
        let key = IdempotencyKey::new("turn").unwrap();
        let begin = async |sessions: &Sessions| {
            let request = InferenceRequest::new([ChatMessage::user("m9007 and more")])
                .with_persistence(Persistence::Flush)
                .with_idempotency_key(key.clone());
            sessions.begin(&run.id, request).await.unwrap()
        };
        let answer = || [ChatMessage::assistant("m9008")];
        if fails_first {
            // After one more turn, a summary is due.
            run.turn(settings, 9_101, Vec::new()).await;
        }
        let turn = begin(first).await;
        assert_eq!(turn.summary_failure().is_some(), fails_first);
        let persisted = turn.complete(answer()).await.unwrap();
        let stored = run.stored().await;
        // The process does not get the reply, and repeats the whole turn.
        for _ in 0..2 {
            let again = begin(second).await;
            assert_eq!(again.summary_failure().is_some(), !fails_first);
            assert_eq!(again.complete(answer()).await.unwrap(), persisted, "{fails_first}");
            assert_eq!(run.stored().await, stored, "{fails_first}");
        }
        if !fails_first {
            let other = begin(second).await;
            let conflict = other.complete([ChatMessage::assistant("another")]).await.unwrap_err();
            assert_eq!(conflict.kind(), ErrorKind::Conflict);
        }
        // With another key, the same words are stored again.
        let request = InferenceRequest::new([ChatMessage::user("m9007 and more")])
            .with_persistence(Persistence::Flush)
            .with_idempotency_key(IdempotencyKey::new("next").unwrap());
        run.sessions.begin(&run.id, request).await.unwrap().complete(answer()).await.unwrap();
        let texts = run.stored().await.0;
        assert_eq!(texts[texts.len() - 4..].iter().filter(|text| *text == "m9008").count(), 2, "{texts:?}");
    }
}
