//! How summaries are made.

use std::time::Duration;

use crate::written::whole;
use larder_kernel::{Error, Result, check};
use serde::{Deserialize, Serialize};

const DAY_MS: u64 = 24 * 3600 * 1000;

/// What becomes of a window when its summary fails: the model errs, answers nonsense or is late, or a store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The window stays as it was, longer than it should be; [`SummaryMaker::failures`](super::SummaryMaker::failures) counts it.
    #[default]
    Keep,
    /// The error is returned.
    Fail,
}

/// How summaries are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SummarySettings {
    /// Longest time that the model has for one answer, in milliseconds.
    #[serde(deserialize_with = "whole")]
    pub timeout_ms: u64,
    /// How long to wait for somebody else who is summarizing the same thread, in milliseconds; 0 not at all.
    #[serde(deserialize_with = "whole")]
    pub wait_ms: u64,
    /// Most tokens of conversation that the model is given at a time; a longer one is taken in by parts.
    #[serde(deserialize_with = "whole")]
    pub input_tokens_max: u64,
    /// Most tokens of the summary.
    #[serde(deserialize_with = "whole")]
    pub summary_tokens_max: u32,
    /// What becomes of the window when the summary fails.
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
    /// Checks every setting.
    ///
    /// # Errors
    /// `InvalidInput` naming the setting and the limit.
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
}
