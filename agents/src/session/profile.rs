//! The limits of a session's window.

use larder_kernel::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::written::whole;

/// The default token limit of a whole window.
pub const MAX_TOKENS_DEFAULT: u64 = 4096;
/// The default number of tokens above which a session is summarized.
pub const SUMMARIZATION_THRESHOLD_DEFAULT: u64 = 3000;
/// The largest token limit that a profile may set.
const TOKENS_MAX: u64 = 1 << 48;

/// The part of a session that the model sees.
///
/// ```
/// use larder_agents::session::SessionProfile;
///
/// let profile: SessionProfile = serde_json::from_str(
///     r#"{"type": "rolling_window", "max_tokens": 4096, "summarization_threshold": 3000}"#,
/// )?;
/// assert_eq!(profile, SessionProfile::default());
///
/// let error = serde_json::from_str::<SessionProfile>(r#"{"type": "rolling_window", "max_tokens": -5}"#)
///     .unwrap_err();
/// assert!(error.to_string().contains("`max_tokens`"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
#[non_exhaustive]
pub enum SessionProfile {
    /// The newest messages that fit; the oldest leave first. The JSON type is `rolling_window`.
    RollingWindow {
        /// The token limit of the whole window: system prompt, summary, hints, stored messages and new
        /// messages.
        max_tokens: u64,
        /// The number of tokens in stored messages above which the older ones become a summary.
        summarization_threshold: u64,
    },
    /// Every message. The JSON type is `everything`; it has no sizes.
    Everything,
}

/// The JSON form of a profile. Numbers are signed, so that the error for a negative one names its field.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    max_tokens: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    summarization_threshold: Option<i64>,
}

const OPERATION: &str = "session.profile";

impl SessionProfile {
    /// Creates a profile with the newest messages within `max_tokens`, summarized above
    /// `summarization_threshold`.
    ///
    /// # Errors
    /// `InvalidInput` with the field that [`check`](Self::check) rejects.
    pub fn rolling_window(max_tokens: u64, summarization_threshold: u64) -> Result<Self> {
        let profile = Self::RollingWindow { max_tokens, summarization_threshold };
        profile.check()?;
        Ok(profile)
    }

    /// Checks the sizes.
    ///
    /// # Errors
    /// `InvalidInput` with `max_tokens` or `summarization_threshold` for 0, for more than 2⁴⁸, and for a
    /// threshold above `max_tokens`. With such a threshold, messages would leave the window before they are
    /// summarized.
    pub fn check(&self) -> Result<()> {
        let Self::RollingWindow { max_tokens, summarization_threshold } = *self else { return Ok(()) };
        for (field, value) in
            [("max_tokens", max_tokens), ("summarization_threshold", summarization_threshold)]
        {
            if value == 0 {
                return Err(Error::under_limit(OPERATION, field, value, 1));
            }
            if value > TOKENS_MAX {
                return Err(Error::over_limit(OPERATION, field, value, TOKENS_MAX));
            }
        }
        if summarization_threshold > max_tokens {
            return Err(Error::invalid(
                OPERATION,
                "summarization_threshold",
                "exceeds `max_tokens`, so messages would leave the window without a summary; lower it",
            )
            .with_limit(summarization_threshold, max_tokens));
        }
        Ok(())
    }

    /// Returns the token limit of the whole window, or `None` for no limit.
    #[must_use]
    pub fn max_tokens(&self) -> Option<u64> {
        match self {
            Self::RollingWindow { max_tokens, .. } => Some(*max_tokens),
            Self::Everything => None,
        }
    }

    /// Returns the number of tokens in stored messages above which the older ones become a summary, or `None`
    /// for never.
    #[must_use]
    pub fn summarization_threshold(&self) -> Option<u64> {
        match self {
            Self::RollingWindow { summarization_threshold, .. } => Some(*summarization_threshold),
            Self::Everything => None,
        }
    }
}

impl Default for SessionProfile {
    fn default() -> Self {
        Self::RollingWindow {
            max_tokens: MAX_TOKENS_DEFAULT,
            summarization_threshold: SUMMARIZATION_THRESHOLD_DEFAULT,
        }
    }
}

fn size(field: &'static str, value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| Error::invalid(OPERATION, field, "is negative; pass 0 or more"))
}

impl TryFrom<Written> for SessionProfile {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        let profile = match written.kind.as_str() {
            "rolling_window" => {
                let max_tokens =
                    written.max_tokens.map_or(Ok(MAX_TOKENS_DEFAULT), |value| size("max_tokens", value))?;
                let summarization_threshold = written.summarization_threshold.map_or_else(
                    // A small `max_tokens` without a threshold is valid: the default threshold is lowered to
                    // it.
                    || Ok(SUMMARIZATION_THRESHOLD_DEFAULT.min(max_tokens)),
                    |value| size("summarization_threshold", value),
                )?;
                Self::RollingWindow { max_tokens, summarization_threshold }
            }
            "everything" => {
                let given = [
                    ("max_tokens", written.max_tokens),
                    ("summarization_threshold", written.summarization_threshold),
                ];
                if let Some((field, _)) = given.into_iter().find(|(_, value)| value.is_some()) {
                    return Err(Error::invalid(
                        OPERATION,
                        field,
                        "has no effect for `everything`; remove it",
                    ));
                }
                Self::Everything
            }
            _ => {
                return Err(Error::invalid(
                    OPERATION,
                    "type",
                    "is neither `rolling_window` nor `everything`; use one of them",
                ));
            }
        };
        profile.check()?;
        Ok(profile)
    }
}

impl From<SessionProfile> for Written {
    fn from(profile: SessionProfile) -> Self {
        let kind = match profile {
            SessionProfile::RollingWindow { .. } => "rolling_window",
            SessionProfile::Everything => "everything",
        };
        let signed = |size| i64::try_from(size).unwrap_or(i64::MAX);
        Self {
            kind: kind.to_owned(),
            max_tokens: profile.max_tokens().map(signed),
            summarization_threshold: profile.summarization_threshold().map(signed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: ATH-3
    #[test]
    fn a_profile_has_the_documented_defaults_and_round_trips() {
        let default = SessionProfile::default();
        assert_eq!((default.max_tokens(), default.summarization_threshold()), (Some(4096), Some(3000)));
        let json = r#"{"type":"rolling_window","max_tokens":4096,"summarization_threshold":3000}"#;
        assert_eq!(serde_json::to_string(&default).unwrap(), json);
        assert_eq!(serde_json::from_str::<SessionProfile>(json).unwrap(), default);
        assert_eq!(serde_json::from_str::<SessionProfile>(r#"{"type":"rolling_window"}"#).unwrap(), default);
        let small = serde_json::from_str::<SessionProfile>(r#"{"type":"rolling_window","max_tokens":100}"#);
        assert_eq!(small.unwrap().summarization_threshold(), Some(100));
        let everything = serde_json::from_str::<SessionProfile>(r#"{"type":"everything"}"#).unwrap();
        assert_eq!(serde_json::to_string(&everything).unwrap(), r#"{"type":"everything"}"#);
    }

    /// Proves: ATH-3
    #[test]
    fn a_wrong_profile_is_refused_by_the_name_of_its_field() {
        for (json, field) in [
            (r#"{"type":"rolling_window","max_tokens":-1}"#, "`max_tokens`"),
            (r#"{"type":"rolling_window","max_tokens":0}"#, "`max_tokens`"),
            (r#"{"type":"rolling_window","summarization_threshold":-3}"#, "`summarization_threshold`"),
            (
                r#"{"type":"rolling_window","max_tokens":10,"summarization_threshold":11}"#,
                "`summarization_threshold`",
            ),
            (r#"{"type":"everything","max_tokens":10}"#, "`max_tokens`"),
            (r#"{"type":"sliding"}"#, "`type`"),
            (r#"{"type":"rolling_window","tokens":1}"#, "`tokens`"),
            ("{}", "`type`"),
        ] {
            let error = serde_json::from_str::<SessionProfile>(json).unwrap_err().to_string();
            assert!(error.contains(field), "{json}: {error}");
        }
        assert_eq!(
            SessionProfile::rolling_window(9, 10).unwrap_err().field(),
            Some("summarization_threshold")
        );
    }
}
