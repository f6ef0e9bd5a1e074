//! The window of a session under a profile.

use std::time::Duration;

use larder::Stores;
use larder::compaction::OnFailure;
use larder::context::WindowExplanation;
use larder::session::{OnSummaryFailure, SessionInfo, SessionProfile, Sessions, SummaryPolicy};
use larder_kernel::ErrorKind;

use super::{Args, Look};
use crate::output;

impl Look {
    /// Returns the window that the thread's session would have under another profile. It is computed in
    /// memory from the session's data and its history.
    pub(super) async fn session(
        &self,
        args: &Args,
        stores: &Stores,
        profile: SessionProfile,
    ) -> Result<WindowExplanation, String> {
        let kept = match stores.set().key_value() {
            Ok(key_value) => self.kept(Sessions::new(self.history.clone(), key_value)).await,
            Err(_) => Ok(None),
        };
        let kept = kept.map_err(|error| error.to_string())?;
        let (prompt, hints) = kept.map_or_else(Default::default, |info| (info.system_prompt, info.hints));
        let prompt = args.system_prompt.clone().unwrap_or(prompt);
        self.under(profile, prompt, &hints).await.map_err(|error| error.to_string())
    }

    async fn kept(
        &self,
        sessions: larder_kernel::Result<Sessions>,
    ) -> larder_kernel::Result<Option<SessionInfo>> {
        let sessions = sessions?.with_agent(self.thread.agent.clone());
        match sessions.info(&self.thread.session).await {
            Ok(info) => Ok(Some(info)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn under(
        &self,
        profile: SessionProfile,
        prompt: String,
        hints: &[String],
    ) -> larder_kernel::Result<WindowExplanation> {
        let id = &self.thread.session;
        let mut sessions = Sessions::new(self.history.clone(), self.scratch.clone())?
            .with_agent(self.thread.agent.clone())
            .with_token_counter(self.counter.clone());
        match sessions.create_as(id, profile, prompt).await {
            // The session exists from the attempt with the model.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => created?,
        }
        for hint in hints {
            sessions.add_hint(id, hint).await?;
        }
        let model = self.summaries.real_model();
        let summarizes = model.is_some();
        if let Some(model) = model {
            let timeout = Duration::from_millis(self.summaries.timeout_ms);
            let on_failure = match self.summaries.on_failure() {
                OnFailure::Fail => OnSummaryFailure::Fail,
                _ => OnSummaryFailure::Keep,
            };
            sessions =
                sessions.with_summarizer(model).with_summaries(SummaryPolicy::Once, on_failure, timeout);
        }
        let explained = sessions.explain_window_asking(id, Vec::new()).await?;
        let dropped =
            explained.steps.iter().any(|step| step.name == "rolling_window" && !step.dropped.is_empty());
        if dropped && !summarizes && explained.began_with_summary_up_to.is_none() {
            output::note(
                "messages left the window without a summary \
                 (add --model-url and --model to summarize them)",
            );
        }
        Ok(explained)
    }
}
