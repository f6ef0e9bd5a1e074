//! The strategies of a context, and the summaries that they make.

use std::sync::Arc;

use larder_kernel::{
    CompactionStrategy, ErrorKind, Origin, Preparation, Result, StrategyEffect, Thread, Window, WindowMessage,
};

use super::AgentContext;
use super::explain::Assembly;
use crate::compaction::{Covered, MessageMark, StoredSummary, Summary, SummaryStore, summary_in};

impl AgentContext {
    /// Runs strategies on a window that was read. For an explanation, nothing is stored.
    pub(super) async fn run_strategies(
        &self,
        strategies: &[Arc<dyn CompactionStrategy>],
        assembly: &mut Assembly,
    ) -> Result<()> {
        let is_read = |message: &&WindowMessage| message.origin != Origin::Injected;
        let read: Arc<[_]> = assembly.window.messages.iter().filter(is_read).cloned().collect();
        let preparation = Preparation::default().with_model().with_since_summary(read);
        let mut dropped = false;
        for strategy in strategies {
            let (window, explains) = (assembly.window.clone(), assembly.explains());
            let summarizes = strategy.effect() == StrategyEffect::Summarizes;
            // A strategy that received a part of the thread would summarize it as the whole.
            let keeps = self.config.summaries.as_ref().filter(|_| dropped && summarizes && !explains);
            let window = if let (Some(summaries), Some(thread)) = (keeps, window.thread.clone()) {
                let prepared = strategy.prepare(window, &preparation).await?;
                for write in &prepared.writes {
                    write.commit().await?;
                }
                let read = &preparation.since_summary;
                self.keep(summaries, &thread, strategy.name(), &prepared.window, read).await?;
                prepared.window
            } else if explains {
                strategy.prepare(window, &preparation).await?.window
            } else {
                strategy.compact(window).await?
            };
            dropped |= strategy.drops();
            assembly.step(strategy.name(), strategy.drops(), window);
        }
        Ok(())
    }

    /// Stores the summary at the front of a window, if it is new.
    async fn keep(
        &self,
        summaries: &SummaryStore,
        thread: &Thread,
        maker: &str,
        window: &Window,
        read: &[WindowMessage],
    ) -> Result<()> {
        let Some(new) = summary_in(&window.messages, self.counter()) else { return Ok(()) };
        let kept = summaries.look(&*self.config.history, thread).await?;
        let revision = kept.as_ref().map(|(kept, _)| kept.revision);
        let known = kept.filter(|(_, current)| *current).map(|(StoredSummary { summary, .. }, _)| summary);
        if known.as_ref().is_some_and(|known| known.up_to >= new.up_to) {
            return Ok(());
        }
        let first = match &known {
            Some(known) => known.covers.map(|covers| covers.first),
            None => read.iter().find_map(MessageMark::of),
        };
        let last = read.iter().filter_map(MessageMark::of).find(|mark| mark.seq == new.up_to);
        let covers = first.zip(last).map(|(first, last)| Covered { first, last });
        let summary = Summary { strategy: maker.to_owned(), covers, ..new };
        match summaries.put(thread, revision, &summary).await {
            // Another caller has stored a summary; it is equally valid.
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            written => drop(written?),
        }
        // If this removal fails, the draft no longer fits any summary, and it expires.
        let _ = summaries.drop_drafts(thread).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::{
        AgentContextProtocol, ChatMessage, HistoryProviderExt, LanguageModel, LanguageModelRequest, SessionId,
    };

    use super::*;
    use crate::compaction::{
        Pipeline, SlidingWindow, Summarization, SummarizationConfig, SummaryMaker, SummarySettings,
    };
    use crate::context::ContextConfig;
    use crate::tokens::EstimatedTokenCounter;
    use crate::{InMemoryHistoryProvider, InMemoryKeyValueStore};

    /// A test model that returns the numbers in its input.
    #[derive(Debug)]
    struct Numbers;

    #[async_trait::async_trait]
    impl LanguageModel for Numbers {
        fn name(&self) -> &str {
            "numbers"
        }

        async fn generate(&self, request: LanguageModelRequest) -> Result<ChatMessage> {
            let text = request.messages.last().map(|message| message.text.clone()).unwrap_or_default();
            let numbers: String = text.chars().filter(char::is_ascii_digit).collect();
            Ok(ChatMessage::assistant(numbers))
        }
    }

    /// Proves: RAVI-5, RAVI-9
    #[tokio::test]
    async fn a_summary_reads_messages_that_an_earlier_strategy_dropped_and_explain_stores_nothing() {
        let (history, store) =
            (Arc::new(InMemoryHistoryProvider::new()), Arc::new(InMemoryKeyValueStore::new()));
        let summaries = SummaryStore::new(store).unwrap();
        let counter = Arc::new(EstimatedTokenCounter);
        let settings = SummarySettings::default();
        let maker = SummaryMaker::new(Arc::new(Numbers), counter, summaries.clone(), settings).unwrap();
        let config = SummarizationConfig { recent_token_budget: 20, min_old_tokens: 20, instructions: None };
        let pipeline = Pipeline::new()
            .then(SlidingWindow::new(6).unwrap())
            .then(Summarization::new(maker, config).unwrap());
        let context =
            ContextConfig::new(history.clone()).with_pipeline(pipeline).with_summaries(summaries.clone());
        let context = AgentContext::new(context).unwrap();
        let session = SessionId::new("s").unwrap();
        let thread = context.thread(&session);
        for number in 0..10 {
            let text = format!("{number} and a few more words that make this message long enough");
            history.append(&thread, ChatMessage::user(text)).await.unwrap();
        }
        let explained = context.explain_window(&session).await.unwrap();
        assert!(explained.window.messages[0].message.text.ends_with("012345678"), "{explained}");
        assert_eq!(summaries.get(&thread).await.unwrap(), None);
        let window = context.get_prompt_window(&session).await.unwrap();
        assert_eq!(window, explained.window);
        let kept = summaries.get(&thread).await.unwrap().unwrap().summary;
        assert_eq!((&*kept.text, kept.messages), ("012345678", 9));
        assert_eq!(context.get_prompt_window(&session).await.unwrap(), window);
        assert_eq!(history.count_messages(&thread).await.unwrap(), 10);
    }
}
