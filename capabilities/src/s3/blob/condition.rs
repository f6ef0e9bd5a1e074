//! The condition and the attributes of a write, as request headers.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use larder_kernel::{BlobCondition, Error, ErrorKind, Result, UserMetadata};

use super::value::{content_type_out, etag_out, metadata_out};
use crate::s3::engine::Engine;
use crate::s3::failure::{Effect, code, failed, status, turned_away};

const OPERATION: &str = "blobs.put";
/// The maximum number of attempts of a write whose condition the server did not decide.
const UNDECIDED_ATTEMPTS: u32 = 8;
/// The pause before the second attempt. It doubles for each further one.
const UNDECIDED_PAUSE: Duration = Duration::from_millis(20);

/// The condition of a write, as its headers state it.
#[derive(Clone)]
pub(crate) enum Condition {
    None,
    Absent,
    Matches(String),
}

impl Condition {
    pub(crate) fn new(condition: &BlobCondition) -> Result<Self> {
        Ok(match condition {
            BlobCondition::None => Self::None,
            BlobCondition::Absent => Self::Absent,
            BlobCondition::Matches(etag) => Self::Matches(etag_out(etag).ok_or_else(other_version)?),
        })
    }

    pub(crate) fn if_none_match(&self) -> Option<String> {
        matches!(self, Self::Absent).then(|| "*".to_owned())
    }

    pub(crate) fn if_match(&self) -> Option<String> {
        match self {
            Self::Matches(tag) => Some(tag.clone()),
            Self::None | Self::Absent => None,
        }
    }

    /// Returns the client that retries what may be repeated. A conditional write may not be repeated: if the
    /// response to the first attempt is lost, the second meets the effect of the first and fails as if
    /// another writer was faster.
    pub(crate) fn client<'a>(&self, engine: &'a Engine) -> &'a Client {
        match self {
            Self::None => &engine.client,
            Self::Absent | Self::Matches(_) => &engine.client_without_retry,
        }
    }

    /// Runs the request that decides. Runs it again if the server refused to decide, which happens when it is
    /// busy or another write to the same key is in progress. In that case nothing was written.
    pub(crate) async fn attempt<T, E, F>(&self, request: impl Fn() -> F) -> Result<T>
    where
        E: ProvideErrorMetadata,
        F: Future<Output = Result<T, SdkError<E>>>,
    {
        let mut pause = UNDECIDED_PAUSE;
        let mut before = None;
        for attempt in 1.. {
            let error = match request().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // An undecided upload that the server has discarded wrote nothing.
            if let Some(before) = before.filter(|_| code(&error) == Some("NoSuchUpload")) {
                return Err(self.refusal(&before));
            }
            // A 503 without such a code may come from a proxy that lost the response to a write.
            let undecided = status(&error) == Some(409)
                || code(&error).is_some_and(|code| {
                    turned_away(code) || matches!(code, "ConditionalRequestConflict" | "OperationAborted")
                });
            if matches!(self, Self::None) || !undecided || attempt == UNDECIDED_ATTEMPTS {
                return Err(self.refusal(&error));
            }
            before = Some(error);
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(other_version())
    }

    /// Returns the error for a rejected write under this condition.
    pub(crate) fn refusal<E: ProvideErrorMetadata>(&self, error: &SdkError<E>) -> Error {
        let refused = status(error) == Some(412) || code(error) == Some("PreconditionFailed");
        // A missing blob matches no version; S3 reports that with 404.
        let nothing =
            status(error) == Some(404) && !matches!(code(error), Some("NoSuchBucket" | "NoSuchUpload"));
        match self {
            Self::Absent if refused => Error::new(
                ErrorKind::Conflict,
                OPERATION,
                "a blob with this key already exists; use another key or write without the condition",
            ),
            Self::Matches(_) if refused || nothing => other_version(),
            Self::None => failed(OPERATION, Effect::Repeatable, error),
            Self::Absent | Self::Matches(_) => failed(OPERATION, Effect::Once, error),
        }
    }
}

fn other_version() -> Error {
    Error::new(
        ErrorKind::Conflict,
        OPERATION,
        "the blob has another ETag or does not exist; read it again and retry",
    )
}

/// The content type and metadata of a blob, in the form of headers.
#[derive(Clone, Default)]
pub(crate) struct Attributes {
    pub(crate) content_type: String,
    pub(crate) metadata: HashMap<String, String>,
}

impl Attributes {
    pub(crate) fn new(content_type: Option<&str>, metadata: &UserMetadata) -> Self {
        Self { content_type: content_type_out(content_type), metadata: metadata_out(metadata).collect() }
    }
}
