//! Sessions configured by a document.

use std::sync::Arc;

use larder_kernel::{CompactionStrategy, Embedder, Error, Result, VectorStore};
use serde_json::Value;

use super::config::{Memory, MemoryConfig, MemoryDocument, OPERATION, parse_config};
use super::knowledge::Knowledge;
use super::profile::SessionProfile;
use super::sessions::Sessions;
use super::summarize::OnSummaryFailure;
use crate::compaction::{
    CombinedMemory, KnowledgeBase, LongTermMemory, Neuralyzer, OnFailure, Summarizer, SummarizerConfig,
    SummaryMaker, SummarySettings,
};

/// The advice for a summary without a model.
const NEEDS_MODEL: &str = "needs a model for its summaries; set one with `Sessions::with_summarizer`";

impl Sessions {
    /// Applies a JSON configuration document. It is one of: the memory settings of an agent with all of their
    /// strategies and the persistence of an inference, a pipeline of strategies, the profile of a session, or
    /// the memory of agents that share sessions.
    ///
    /// Strategies that summarize use the model of [`with_summarizer`](Self::with_summarizer), and a
    /// `knowledge_base` uses the store of [`with_knowledge`](Self::with_knowledge). Set both, the token
    /// counter and the agent before this call.
    ///
    /// Documents of different kinds add up: a profile, and strategies or the memory of agents. The strategies
    /// of a later document replace those of an earlier one.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use larder_agents::session::{InferenceRequest, Sessions};
    /// use larder_agents::{InMemoryHistoryProvider, InMemoryKeyValueStore};
    /// use larder_kernel::ChatMessage;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder_kernel::Result<()> {
    /// let sessions = Sessions::new(
    ///     Arc::new(InMemoryHistoryProvider::new()),
    ///     Arc::new(InMemoryKeyValueStore::new()),
    /// )?
    /// .configured(
    ///     r#"{"profile": {
    ///         "short_term_memory_strategy": [
    ///             {"memory_strategy_id": "max_tokens", "memory_max_tokens": 8000}
    ///         ],
    ///         "long_term_memory_strategy": [
    ///             {"long_term_memory_id": "neuralyzer", "interaction_threshold_qty": 30}
    ///         ],
    ///         "persistence_strategy": "FLUSH"
    ///     }}"#,
    /// )?;
    /// let id = sessions.create(sessions.profile().clone(), "You are terse.").await?;
    /// let turn = sessions.begin(&id, InferenceRequest::new([ChatMessage::user("Hello")])).await?;
    /// turn.complete([ChatMessage::assistant("Hi")]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` with `config` and the path to the error. `InvalidInput` with
    /// `long_term_memory_strategy`, `pipeline` or `summarization_threshold` for a summary without a model,
    /// and with `knowledge_base` for one without a store to search. `InvalidInput` with `memory` as for
    /// [`with_memory`](Self::with_memory).
    pub fn configured(mut self, document: &str) -> Result<Self> {
        let strategies = match MemoryDocument::parse(document)? {
            MemoryDocument::Session(profile) => {
                self.check_model(document)?;
                (self.profile, self.has_profile) = (profile, true);
                self.check_view(OPERATION, Some(&self.profile), self.persistence)?;
                return Ok(self);
            }
            MemoryDocument::Memory(config) => {
                self.persistence = config.persistence();
                self.memory_strategies(&config)?
            }
            MemoryDocument::Agent(memory) => {
                self.memory = if memory.is_enabled() { Memory::On } else { Memory::Off };
                self.see_everything();
                return self.with_memory(memory.window());
            }
            MemoryDocument::Pipeline(config) => {
                let maker = || self.maker("pipeline");
                config.build(&self.reader.counter, &maker)?.strategies().to_vec()
            }
        };
        self.see_everything();
        self = self.with_strategies(strategies);
        self.check_view(OPERATION, None, self.persistence)?;
        Ok(self)
    }

    /// Sets the profile of a document that has none, unless an earlier document set one.
    fn see_everything(&mut self) {
        if !self.has_profile {
            self.profile = SessionProfile::Everything;
        }
    }

    /// Rejects the profile of a session that asks for summaries if no model can make them.
    fn check_model(&self, document: &str) -> Result<()> {
        const FIELD: &str = "summarization_threshold";
        let written: Value = parse_config(document)?;
        match written.get(FIELD) {
            Some(threshold) if self.summarizer.is_none() && !threshold.is_null() => {
                Err(Error::invalid(OPERATION, FIELD, NEEDS_MODEL))
            }
            _ => Ok(()),
        }
    }

    /// Sets the store of a document's `knowledge_base`. Each question is embedded by `embedder` and searched
    /// in `store`.
    #[must_use]
    pub fn with_knowledge(mut self, store: Arc<dyn VectorStore>, embedder: Arc<dyn Embedder>) -> Self {
        self.knowledge = Some(Knowledge { store, embedder });
        self
    }

    /// Returns the profile of new sessions, from the [document](Self::configured) or the default.
    #[must_use]
    pub fn profile(&self) -> &SessionProfile {
        &self.profile
    }

    /// Long-term strategies run first; the short-term ones select among the messages that remain.
    fn memory_strategies(&mut self, config: &MemoryConfig) -> Result<Vec<Arc<dyn CompactionStrategy>>> {
        let mut strategies: Vec<Arc<dyn CompactionStrategy>> = Vec::new();
        self.bases.clear();
        for settings in config.long_term() {
            strategies.push(match settings.config()? {
                LongTermMemory::Summarizer(config) => Arc::new(self.summarizer_of(config)?),
                LongTermMemory::Neuralyzer(config) => {
                    let (history, counter) = (self.reader.history.clone(), self.reader.counter.clone());
                    Arc::new(
                        Neuralyzer::new(history, counter, &config)?
                            .with_summaries(self.reader.summaries.clone()),
                    )
                }
            });
        }
        for strategy in config.short_term_strategies(&self.reader.counter)? {
            // It selects among the messages that remain; their summary stays in front of them.
            strategies.push(Arc::new(CombinedMemory::new(Vec::new(), vec![strategy])));
        }
        Ok(strategies)
    }

    fn summarizer_of(&mut self, config: SummarizerConfig) -> Result<Summarizer> {
        let mut maker = self.maker("long_term_memory_strategy")?;
        if let Some(base) = &config.knowledge_base {
            let Some(Knowledge { store, embedder }) = self.knowledge.clone() else {
                let message = "needs a vector store; set one with `Sessions::with_knowledge`";
                return Err(Error::invalid(OPERATION, "knowledge_base", message));
            };
            let base = KnowledgeBase::new(store, base.collection_id.clone()).with_embedder(embedder);
            self.bases.push(base.clone());
            maker = maker.with_knowledge_base(base);
        }
        Summarizer::new(maker, config)
    }

    fn maker(&self, field: &'static str) -> Result<SummaryMaker> {
        let Some(summarizer) = &self.summarizer else {
            return Err(Error::invalid(OPERATION, field, NEEDS_MODEL));
        };
        let (model, counter) = (summarizer.model.clone(), self.reader.counter.clone());
        let summaries = self.reader.summaries.clone();
        let options = summarizer.options;
        let mut settings = SummarySettings::default();
        if let Some(timeout) = options.timeout {
            settings.timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        }
        if options.on_failure == OnSummaryFailure::Fail {
            settings.on_failure = OnFailure::Fail;
        }
        let maker = SummaryMaker::new(model, counter, summaries, settings)?;
        Ok(maker.with_answers(summarizer.answers.clone()))
    }
}

#[cfg(test)]
mod tests;
