//! Memory settings in their document form.

use std::sync::Arc;

use larder_agents::compaction::{LongTermMemory, ShortTermMemory, SummarizerConfig};
use larder_agents::session::{
    LongTermSettings, MemoryConfig, Persistence, SessionProfile, ShortTermSettings, parse_config,
};
use larder_agents::tokens::TokenCounter;
use larder_kernel::ErrorKind;
use serde_json::{Value, json};

use super::support::{Words, World, texts, turn, user};
use crate::test_backend::TestBackend as Backend;

/// The four sample documents.
fn documents() -> [Value; 4] {
    let short = json!([{"memory_strategy_id": "max_tokens", "memory_max_tokens": 8000}]);
    [
        json!({"short_term_memory_strategy": short}),
        json!({"long_term_memory_strategy": [{
            "long_term_memory_id": "summarizer",
            "interaction_threshold_qty": 20,
            "interaction_threshold_tokens": 20000,
            "cod_max_loops": 5,
            "interaction_keep": 3,
            "instructions": "Focus on action items and decisions made.",
            "knowledge_base": {"collection_id": "session-summaries", "search_mode": "always"}
        }]}),
        json!({"long_term_memory_strategy": [{
            "long_term_memory_id": "neuralyzer",
            "interaction_threshold_qty": 30,
            "interaction_keep": 5
        }]}),
        json!({"profile": {
            "short_term_memory_strategy": short,
            "long_term_memory_strategy": [{
                "long_term_memory_id": "summarizer",
                "interaction_threshold_qty": 20,
                "cod_max_loops": 3,
                "interaction_keep": 2
            }]
        }}),
    ]
}

fn read(document: &Value) -> larder_kernel::Result<MemoryConfig> {
    parse_config(&document.to_string())
}

#[allow(clippy::needless_pass_by_value)] // It reads as the document does.
fn long(settings: Value) -> Value {
    json!({"long_term_memory_strategy": [settings]})
}

/// Proves: ALQ-8
#[test]
fn the_documents_are_read_unchanged_and_round_trip() {
    for document in documents() {
        let config = read(&document).unwrap();
        assert_eq!(serde_json::to_value(&config).unwrap(), document);
        assert_eq!(serde_json::from_value::<MemoryConfig>(document).unwrap(), config);
    }
    let [first, second, third, fourth] = documents().map(|document| read(&document).unwrap());
    assert_eq!(first.short_term()[0].max_tokens(), 8000);
    assert_eq!(first.session_profile(), SessionProfile::Everything);
    let LongTermSettings::Summarizer(settings) = &second.long_term()[0] else { panic!("a summarizer") };
    assert_eq!(settings.cod_max_loops(), 5);
    assert_eq!(settings.instructions(), Some("Focus on action items and decisions made."));
    assert_eq!(settings.knowledge_base_collection(), Some("session-summaries"));
    assert_eq!(second.long_term()[0].interaction_keep(), 3);
    assert!(matches!(third.long_term()[0], LongTermSettings::Neuralyzer(_)));
    assert_eq!(third.long_term()[0].interaction_threshold_qty(), Some(30));
    assert_eq!(fourth.long_term()[0].interaction_threshold_tokens(), Some(20_000), "the default");
    assert_eq!((fourth.short_term().len(), fourth.long_term().len()), (1, 1));
}

/// Proves: ALQ-1, ALQ-7, ALQ-8
#[test]
fn omitted_fields_have_the_documented_default() {
    let config = read(&json!({})).unwrap();
    assert!(config.short_term().is_empty() && config.long_term().is_empty());
    assert_eq!(config.persistence(), Persistence::Incremental);
    let config =
        read(&json!({"short_term_memory_strategy": [{"memory_strategy_id": "max_tokens"}]})).unwrap();
    let ShortTermSettings::MaxTokens(settings) = &config.short_term()[0] else { panic!("max_tokens") };
    assert_eq!((settings.max_tokens(), settings.conditions().len()), (10_000, 0));
    let summarizer = read(&long(json!({"long_term_memory_id": "summarizer"}))).unwrap();
    let memory = &summarizer.long_term()[0];
    assert_eq!(memory.interaction_threshold_qty(), Some(20));
    assert_eq!(memory.interaction_threshold_tokens(), Some(20_000));
    assert_eq!((memory.input_tokens_threshold(), memory.interaction_keep()), (None, 0));
    let neuralyzer = read(&long(json!({"long_term_memory_id": "neuralyzer"}))).unwrap();
    let memory = &neuralyzer.long_term()[0];
    assert_eq!((memory.interaction_threshold_qty(), memory.interaction_threshold_tokens()), (None, None));
    assert!(memory.on_tools_success().is_empty() && memory.on_tools_error().is_empty());
}

/// Proves: ALQ-2, ALQ-8
#[tokio::test]
async fn the_settings_choose_what_the_model_sees() {
    let world = World::new(&Backend::memory().await).await;
    let strategy = json!({"memory_strategy_id": "max_tokens", "memory_max_tokens": 4});
    for (settings, seen) in [(json!([]), 7), (json!([strategy]), 3)] {
        let config = read(&json!({"short_term_memory_strategy": settings})).unwrap();
        let counter: Arc<dyn TokenCounter> = Arc::new(Words::default());
        let strategies = config.short_term_strategies(&counter).unwrap();
        let sessions = world.sessions().with_strategies(strategies);
        let id = sessions.create(config.session_profile(), "").await.unwrap();
        for _ in 0..3 {
            turn(&sessions, &id, "a b", "c").await;
        }
        let request = user("x").with_persistence(config.persistence());
        assert_eq!(texts(&sessions.begin(&id, request).await.unwrap()).len(), seen);
    }
}

/// Proves: ALQ-8
#[test]
fn the_settings_configure_their_strategies() {
    let [first, second, third, _] = documents().map(|document| read(&document).unwrap());
    let ShortTermMemory::MaxTokens(config) = first.short_term()[0].config() else { panic!("max_tokens") };
    assert_eq!(config.memory_max_tokens, 8000);
    let LongTermMemory::Summarizer(config) = second.long_term()[0].config().unwrap() else { panic!() };
    assert_eq!((config.cod_max_loops, config.interaction_keep), (5, 3));
    assert_eq!((config.interaction_threshold_qty, config.interaction_threshold_tokens), (20, 20_000));
    assert_eq!(config.knowledge_base.unwrap().collection_id.as_str(), "session-summaries");
    let LongTermMemory::Neuralyzer(config) = third.long_term()[0].config().unwrap() else { panic!() };
    assert_eq!((config.interaction_threshold_qty, config.interaction_threshold_tokens), (30, -1));
    let default = read(&long(json!({"long_term_memory_id": "summarizer"}))).unwrap();
    let LongTermMemory::Summarizer(config) = default.long_term()[0].config().unwrap() else { panic!() };
    assert_eq!(config, SummarizerConfig::default());
}

/// Proves: ALQ-8
#[test]
fn minus_one_has_the_documented_meaning_of_each_setting() {
    let nothing = json!({"memory_strategy_id": "max_tokens", "memory_max_tokens": -1});
    let config = read(&json!({"short_term_memory_strategy": [nothing]})).unwrap();
    assert_eq!(config.short_term()[0].max_tokens(), 0, "nothing is included");
    for id in ["summarizer", "neuralyzer"] {
        let never = long(json!({
            "long_term_memory_id": id,
            "interaction_threshold_qty": -1,
            "interaction_threshold_tokens": -1,
            "input_tokens_threshold": -1,
            "interaction_keep": 9
        }));
        let config = read(&never).unwrap();
        let memory = &config.long_term()[0];
        assert_eq!(memory.interaction_threshold_qty(), None);
        assert_eq!(memory.interaction_threshold_tokens(), None);
        assert_eq!(memory.input_tokens_threshold(), None);
        assert_eq!(serde_json::to_value(&config).unwrap(), never);
    }
}

/// Proves: ALQ-8
#[test]
fn a_mistake_is_an_error_that_names_the_field() {
    let short = |settings| json!({"short_term_memory_strategy": [settings]});
    for (document, field) in [
        (json!({"memory": 1}), "memory"),
        (json!({"profile": {"memory": 1}}), "memory"),
        (json!({"profile": {}, "persistence_strategy": "FLUSH"}), "persistence_strategy"),
        (json!({"persistence_strategy": "flush"}), "persistence_strategy"),
        (short(json!({"memory_strategy_id": "newest"})), "memory_strategy_id"),
        (short(json!({"memory_max_tokens": 5})), "memory_strategy_id"),
        (short(json!({"memory_strategy_id": "max_tokens", "memory_max_tokens": -2})), "memory_max_tokens"),
        (short(json!({"memory_strategy_id": "max_tokens", "memory_max_tokens": "1"})), "memory_max_tokens"),
        (short(json!({"memory_strategy_id": "max_tokens", "tokens": 1})), "tokens"),
        (short(json!({"memory_strategy_id": "max_tokens", "conditions": [""]})), "conditions"),
        (long(json!({"long_term_memory_id": "eraser"})), "long_term_memory_id"),
        (long(json!({"long_term_memory_id": "neuralyzer", "cod_max_loops": 2})), "cod_max_loops"),
        (long(json!({"long_term_memory_id": "neuralyzer", "interaction_keep": -1})), "interaction_keep"),
        (long(json!({"long_term_memory_id": "summarizer", "cod_max_loops": 0})), "cod_max_loops"),
        (long(json!({"long_term_memory_id": "summarizer", "cod_max_loops": 1000})), "cod_max_loops"),
        (
            long(json!({"long_term_memory_id": "summarizer", "interaction_threshold_qty": -7})),
            "interaction_threshold_qty",
        ),
        (
            long(json!({"long_term_memory_id": "summarizer", "on_tools_error_threshold": [""]})),
            "on_tools_error_threshold",
        ),
        (
            long(json!({"long_term_memory_id": "summarizer", "knowledge_base": {"collection_id": ""}})),
            "collection_id",
        ),
        (
            long(json!({
                "long_term_memory_id": "summarizer",
                "knowledge_base": {"collection_id": "c", "search_mode": "never"}
            })),
            "search_mode",
        ),
    ] {
        let error = read(&document).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains(field), "{document}: {error}");
    }
    assert!(parse_config::<MemoryConfig>("{} {}").is_err());
}
