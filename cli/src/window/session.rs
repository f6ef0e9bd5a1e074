//! The window of a session under a profile or the memory settings of an agent.

use std::sync::Arc;
use std::time::Duration;

use larder::Stores;
use larder::compaction::OnFailure;
use larder::context::WindowExplanation;
use larder::session::{OnSummaryFailure, SessionInfo, SessionProfile, Sessions, SummaryPolicy};
use larder_kernel::{Error, ErrorKind, LanguageModel, Result};

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
    ) -> std::result::Result<WindowExplanation, String> {
        let made = async {
            let model = self.models.real_model();
            let summarizes = model.is_some();
            let sessions = self.sessions(model)?;
            let explained = self.under(args, stores, &sessions, profile).await?;
            let dropped =
                explained.steps.iter().any(|step| step.name == "rolling_window" && !step.dropped.is_empty());
            if dropped && !summarizes && explained.began_with_summary_up_to.is_none() {
                output::note(
                    "messages left the window without a summary \
                     (add --model-url and --model to summarize them)",
                );
            }
            Ok(explained)
        };
        made.await.map_err(|error: Error| error.to_string())
    }

    /// Returns the window under the memory settings of an agent.
    pub(super) async fn memory(
        &self,
        args: &Args,
        stores: &Stores,
        document: &str,
    ) -> Result<WindowExplanation> {
        let (vectors, embedder) = self.knowledge.clone();
        let model = self.models.model("long_term_memory_strategy");
        let sessions = self.sessions(Some(model))?.with_knowledge(vectors, embedder).configured(document)?;
        let profile = sessions.profile().clone();
        self.under(args, stores, &sessions, profile).await
    }

    fn sessions(&self, model: Option<Arc<dyn LanguageModel>>) -> Result<Sessions> {
        let sessions = Sessions::new(self.history.clone(), self.scratch.clone())?
            .with_agent(self.thread.agent.clone())
            .with_token_counter(self.counter.clone());
        let Some(model) = model else { return Ok(sessions) };
        let timeout = Duration::from_millis(self.models.timeout_ms);
        let on_failure = match self.models.on_failure() {
            OnFailure::Fail => OnSummaryFailure::Fail,
            _ => OnSummaryFailure::Keep,
        };
        Ok(sessions.with_summarizer(model).with_summaries(SummaryPolicy::Once, on_failure, timeout))
    }

    /// Returns the data of the thread's session, if the thread has a session.
    async fn kept(&self, stores: &Stores) -> Result<Option<SessionInfo>> {
        let Ok(key_value) = stores.set().key_value() else { return Ok(None) };
        let sessions = Sessions::new(self.history.clone(), key_value)?.with_agent(self.thread.agent.clone());
        match sessions.info(&self.thread.session).await {
            Ok(info) => Ok(Some(info)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the window that these sessions would make of the thread.
    async fn under(
        &self,
        args: &Args,
        stores: &Stores,
        sessions: &Sessions,
        profile: SessionProfile,
    ) -> Result<WindowExplanation> {
        let id = &self.thread.session;
        let (prompt, hints) =
            self.kept(stores).await?.map_or_else(Default::default, |info| (info.system_prompt, info.hints));
        let prompt = args.system_prompt.clone().unwrap_or(prompt);
        // A new session clears its knowledge base, so it is created without one.
        let plain = self.sessions(None)?;
        match plain.create_as(id, profile, prompt).await {
            // The session exists from the attempt with the model.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => created?,
        }
        for hint in &hints {
            plain.add_hint(id, hint).await?;
        }
        sessions.explain_window_asking(id, Vec::new()).await
    }
}
