//! A strategy that erases old interactions from the stored conversation.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::limits::BATCH_MESSAGES_MAX;
use larder_kernel::{
    ChatMessage, CompactionStrategy, ErrorKind, HistoryProvider, Origin, Preparation, Prepared, Reach,
    Replacement, Result, Seq, StrategyEffect, Thread, Window,
};
use serde::{Deserialize, Serialize};

use super::summary_settings::OnFailure;
use super::summary_store::SummaryStore;
use super::triggers::Triggers;
use crate::tokens::{TokenCounter, tokens_of};
use crate::written::whole;

/// The thresholds that start an erasure and the number of interactions to keep, as in an agent profile. With
/// the defaults it never erases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct NeuralyzerConfig {
    /// Erases if the window has more tokens than this; -1 disables the threshold.
    #[serde(deserialize_with = "whole")]
    pub input_tokens_threshold: i64,
    /// Erases if the conversation has more human turns than this; -1 disables the threshold.
    #[serde(deserialize_with = "whole")]
    pub interaction_threshold_qty: i64,
    /// Erases if the interactions have more tokens than this; -1 disables the threshold.
    #[serde(deserialize_with = "whole")]
    pub interaction_threshold_tokens: i64,
    /// Erases if one of these tools succeeded.
    pub on_tools_success_threshold: Vec<String>,
    /// Erases if one of these tools failed.
    pub on_tools_error_threshold: Vec<String>,
    /// The number of newest interactions to keep.
    #[serde(deserialize_with = "whole")]
    pub interaction_keep: usize,
}

impl Default for NeuralyzerConfig {
    fn default() -> Self {
        Self {
            input_tokens_threshold: -1,
            interaction_threshold_qty: -1,
            interaction_threshold_tokens: -1,
            on_tools_success_threshold: Vec::new(),
            on_tools_error_threshold: Vec::new(),
            interaction_keep: 0,
        }
    }
}

impl NeuralyzerConfig {
    /// Checks all settings.
    ///
    /// # Errors
    /// `InvalidInput` with the setting.
    pub fn check(&self) -> Result<()> {
        self.triggers().map(|_| ())
    }

    fn triggers(&self) -> Result<Triggers> {
        let Self { on_tools_success_threshold, on_tools_error_threshold, .. } = self;
        let tools = (on_tools_success_threshold.as_slice(), on_tools_error_threshold.as_slice());
        let thresholds = [
            ("input_tokens_threshold", self.input_tokens_threshold),
            ("interaction_threshold_qty", self.interaction_threshold_qty),
            ("interaction_threshold_tokens", self.interaction_threshold_tokens),
        ];
        Triggers::read("neuralyzer.config", thresholds, tools, self.interaction_keep)
    }

    /// Sets [`input_tokens_threshold`](Self::input_tokens_threshold).
    #[must_use]
    pub fn with_input_tokens_threshold(mut self, input_tokens_threshold: i64) -> Self {
        self.input_tokens_threshold = input_tokens_threshold;
        self
    }

    /// Sets [`interaction_threshold_qty`](Self::interaction_threshold_qty).
    #[must_use]
    pub fn with_interaction_threshold_qty(mut self, interaction_threshold_qty: i64) -> Self {
        self.interaction_threshold_qty = interaction_threshold_qty;
        self
    }

    /// Sets [`interaction_threshold_tokens`](Self::interaction_threshold_tokens).
    #[must_use]
    pub fn with_interaction_threshold_tokens(mut self, interaction_threshold_tokens: i64) -> Self {
        self.interaction_threshold_tokens = interaction_threshold_tokens;
        self
    }

    /// Sets [`on_tools_success_threshold`](Self::on_tools_success_threshold).
    #[must_use]
    pub fn with_on_tools_success_threshold(mut self, on_tools_success_threshold: Vec<String>) -> Self {
        self.on_tools_success_threshold = on_tools_success_threshold;
        self
    }

    /// Sets [`on_tools_error_threshold`](Self::on_tools_error_threshold).
    #[must_use]
    pub fn with_on_tools_error_threshold(mut self, on_tools_error_threshold: Vec<String>) -> Self {
        self.on_tools_error_threshold = on_tools_error_threshold;
        self
    }

    /// Sets the number of newest interactions to keep.
    #[must_use]
    pub fn with_interaction_keep(mut self, interaction_keep: usize) -> Self {
        self.interaction_keep = interaction_keep;
        self
    }
}

/// Erases old interactions once a conversation has grown beyond a threshold.
///
/// Unlike other strategies it changes the stored conversation. It erases the selected interactions,
/// everything stored before them and the thread's summary.
///
/// The erasure names the position that the strategy saw, so messages that arrive during it stay. If another
/// writer changed the thread, the strategy erases nothing. An interaction that is not complete stays.
///
/// ```
/// # use std::sync::Arc;
/// # use larder_agents::tokens::TokenCounter;
/// # use larder_kernel::{ChatMessage, Result};
/// # #[derive(Debug)]
/// # struct Words;
/// # impl TokenCounter for Words {
/// #     fn name(&self) -> &str { "words" }
/// #     fn count(&self, text: &str) -> u64 { text.split_whitespace().count() as u64 }
/// # }
/// use larder_agents::InMemoryHistoryProvider;
/// use larder_agents::compaction::{Neuralyzer, NeuralyzerConfig};
/// use larder_kernel::{CompactionStrategy, HistoryProviderExt, Thread, Window};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let history = Arc::new(InMemoryHistoryProvider::new());
/// let thread = Thread::new("assistant", "session-1")?;
/// for _ in 0..4 {
///     history.append(&thread, ChatMessage::user("Secret?")).await?;
///     history.append(&thread, ChatMessage::assistant("Secret.")).await?;
/// }
/// let config = NeuralyzerConfig::default().with_interaction_threshold_qty(3).with_interaction_keep(1);
/// let strategy = Neuralyzer::new(history.clone(), Arc::new(Words), &config)?;
/// let messages = history.all_messages(&thread).await?.into_iter().map(Into::into).collect();
/// strategy.compact(Window::new(messages).with_thread(thread.clone())).await?;
/// assert_eq!(history.count_messages(&thread).await?, 2);
/// # Ok(())
/// # }
/// ```
pub struct Neuralyzer {
    history: Arc<dyn HistoryProvider>,
    summaries: Option<SummaryStore>,
    counter: Arc<dyn TokenCounter>,
    triggers: Triggers,
    on_failure: OnFailure,
    erases: bool,
}

impl fmt::Debug for Neuralyzer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Neuralyzer").field("history", &self.history).finish_non_exhaustive()
    }
}

impl Neuralyzer {
    /// Creates the strategy for the threads of `history`.
    ///
    /// # Errors
    /// `InvalidInput` with the invalid setting.
    pub fn new(
        history: Arc<dyn HistoryProvider>,
        counter: Arc<dyn TokenCounter>,
        config: &NeuralyzerConfig,
    ) -> Result<Self> {
        let triggers = config.triggers()?;
        Ok(Self {
            history,
            summaries: None,
            counter,
            triggers,
            on_failure: OnFailure::default(),
            erases: true,
        })
    }

    /// Also erases the thread's summary from `summaries`.
    #[must_use]
    pub fn with_summaries(mut self, summaries: SummaryStore) -> Self {
        self.summaries = Some(summaries);
        self
    }

    /// Sets the reaction to an erasure that the store rejects.
    #[must_use]
    pub fn with_on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Only returns the window that would remain, and erases nothing.
    #[must_use]
    pub fn without_erasing(mut self) -> Self {
        self.erases = false;
        self
    }

    /// Returns the last message to erase, and the last one that the window holds.
    fn plan(&self, window: &Window, tokens_beside: u64) -> Option<(Seq, Seq)> {
        let counted = window.messages.iter().map(|message| tokens_of(&*self.counter, &message.message));
        let tokens = counted.fold(tokens_beside, u64::saturating_add);
        let stored: Vec<(Seq, &ChatMessage)> = window
            .messages
            .iter()
            .filter_map(|message| match message.origin {
                Origin::Stored(seq) => Some((seq, &*message.message)),
                _ => None,
            })
            .collect();
        let conversation: Vec<&ChatMessage> = stored.iter().map(|(_, message)| *message).collect();
        let taken = self.triggers.plan(&conversation, tokens, &*self.counter);
        Some((stored[taken.checked_sub(1)?].0, stored.last()?.0))
    }

    /// Erases everything up to `up_to`, unless the thread has lost other messages after `seen`.
    async fn erase(&self, thread: &Thread, up_to: Seq, seen: Seq) -> Result<()> {
        if !self.erases {
            return Ok(());
        }
        // The summary goes first. Without it the messages are read again; without the messages it would be
        // all that remains.
        if let Some(summaries) = &self.summaries {
            summaries.remove(thread).await?;
        }
        erase(&*self.history, thread, up_to, seen).await
    }
}

/// Removes everything up to `up_to`, unless the thread has lost other messages after `seen`.
pub(crate) async fn erase(
    history: &dyn HistoryProvider,
    thread: &Thread,
    up_to: Seq,
    seen: Seq,
) -> Result<()> {
    // A replacement may have assigned positions below 0, but no replacement ends there. Messages that stay,
    // up to position 0, are written again.
    let end = up_to.max(Seq::ZERO);
    let mut kept = Vec::new();
    let mut after = (up_to < end).then_some(up_to);
    while let Some(from) = after {
        let page = history.page_after(thread, from, BATCH_MESSAGES_MAX).await?;
        after = page.next(BATCH_MESSAGES_MAX).filter(|next| *next < end);
        let stays = page.messages.into_iter().take_while(|stored| stored.seq <= end);
        kept.extend(stays.map(|stored| Arc::unwrap_or_clone(stored.message)));
    }
    history.replace(thread, Replacement::new(end, kept).with_seen(seen.max(end))).await?;
    Ok(())
}

#[async_trait]
impl CompactionStrategy for Neuralyzer {
    fn name(&self) -> &'static str {
        "neuralyzer"
    }

    fn reach(&self) -> Reach {
        Reach::Everything
    }

    fn drops(&self) -> bool {
        true
    }

    fn effect(&self) -> StrategyEffect {
        if self.erases { StrategyEffect::Erases } else { StrategyEffect::None }
    }

    async fn compact(&self, window: Window) -> Result<Window> {
        let Some(thread) = window.thread.clone() else { return Ok(window) };
        let Some((up_to, seen)) = self.plan(&window, 0) else { return Ok(window) };
        match self.erase(&thread, up_to, seen).await {
            Ok(()) => Ok(without(window, up_to)),
            // The thread differs from the one that was read; the next window reads the current thread.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(window),
            Err(_) if self.on_failure == OnFailure::Keep => Ok(window),
            Err(error) => Err(error),
        }
    }

    async fn prepare(&self, window: Window, preparation: &Preparation) -> Result<Prepared> {
        let planned = match window.thread {
            Some(_) => self.plan(&window, preparation.tokens_beside),
            None => None,
        };
        let Some((up_to, _)) = planned else { return Ok(window.into()) };
        let mut prepared = Prepared::from(without(window, up_to));
        prepared.erases_up_to = self.erases.then_some(up_to);
        Ok(prepared)
    }
}

/// Removes the erased messages up to a position from a window. The summary goes too, because it covers erased
/// messages.
fn without(mut window: Window, up_to: Seq) -> Window {
    window.messages.retain(|message| match message.origin {
        Origin::Stored(seq) => seq > up_to,
        Origin::Summary(_) => false,
        _ => true,
    });
    window
}
