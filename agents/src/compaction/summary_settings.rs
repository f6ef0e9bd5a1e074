//! Settings for making summaries.

use std::time::Duration;

use crate::written::whole;
use larder_kernel::{Error, Result, check};
use serde::{Deserialize, Serialize};

const DAY_MS: u64 = 24 * 3600 * 1000;

/// The reaction to a failed summary. A summary fails if the model fails, returns unusable text or is late, or
/// if a store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnFailure {
    /// Keeps the window unchanged, above its intended size.
    /// [`SummaryMaker::failures`](super::SummaryMaker::failures) counts the failure.
    #[default]
    Keep,
    /// Returns the error.
    Fail,
}

/// Settings for making summaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct SummarySettings {
    /// The time limit of one model call, in milliseconds.
    #[serde(deserialize_with = "whole")]
    pub timeout_ms: u64,
    /// The longest wait for another caller that is summarizing the same thread, in milliseconds; 0 does not
    /// wait.
    #[serde(deserialize_with = "whole")]
    pub wait_ms: u64,
    /// The largest number of conversation tokens in one model call. A longer conversation is summarized in
    /// parts.
    #[serde(deserialize_with = "whole")]
    pub input_tokens_max: u64,
    /// The largest number of tokens in the summary.
    #[serde(deserialize_with = "whole")]
    pub summary_tokens_max: u32,
    /// The reaction to a failed summary.
    pub on_failure: OnFailure,
}

impl Default for SummarySettings {
    fn default() -> Self {
        Self {
            timeout_ms: 120_000,
            wait_ms: 10_000,
            input_tokens_max: 60_000,
            summary_tokens_max: 2_000,
            on_failure: OnFailure::Keep,
        }
    }
}

impl SummarySettings {
    /// Checks all settings.
    ///
    /// # Errors
    /// `InvalidInput` with the setting and the limit.
    pub fn check(&self) -> Result<()> {
        const OPERATION: &str = "summary.settings";
        check::ttl(OPERATION, "timeout_ms", Duration::from_millis(self.timeout_ms))?;
        for (field, actual) in [("timeout_ms", self.timeout_ms), ("wait_ms", self.wait_ms)] {
            if actual > DAY_MS {
                return Err(Error::over_limit(OPERATION, field, actual, DAY_MS));
            }
        }
        let tokens_max = u64::from(self.summary_tokens_max);
        for (field, actual) in
            [("input_tokens_max", self.input_tokens_max), ("summary_tokens_max", tokens_max)]
        {
            if actual < 16 {
                return Err(Error::under_limit(OPERATION, field, actual, 16));
            }
        }
        Ok(())
    }

    /// Sets the time limit of one model call, in milliseconds.
    #[must_use]
    pub fn with_timeout_ms(mut self, timeout_ms: u64) -> Self {
        self.timeout_ms = timeout_ms;
        self
    }

    /// Sets the longest wait for another caller that is summarizing the same thread, in milliseconds.
    #[must_use]
    pub fn with_wait_ms(mut self, wait_ms: u64) -> Self {
        self.wait_ms = wait_ms;
        self
    }

    /// Sets the largest number of conversation tokens in one model call.
    #[must_use]
    pub fn with_input_tokens_max(mut self, input_tokens_max: u64) -> Self {
        self.input_tokens_max = input_tokens_max;
        self
    }

    /// Sets the largest number of tokens in the summary.
    #[must_use]
    pub fn with_summary_tokens_max(mut self, summary_tokens_max: u32) -> Self {
        self.summary_tokens_max = summary_tokens_max;
        self
    }

    /// Sets the reaction to a failed summary.
    #[must_use]
    pub fn with_on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }
}
