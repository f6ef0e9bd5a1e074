//! HTTP calls with retries and limits. The errors repeat nothing that the server sent.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use larder_kernel::{Error, ErrorKind, Outcome, Result, check};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::config::OpenAiConfig;

/// Sends requests to one endpoint.
#[derive(Clone)]
pub(super) struct Transport {
    client: Client,
    endpoint: Url,
    bearer: Option<HeaderValue>,
    timeout: Duration,
    attempts_max: u32,
    backoff: Duration,
    backoff_max: Duration,
    response_bytes_max: usize,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("endpoint", &self.endpoint.as_str()).finish_non_exhaustive()
    }
}

/// A failed attempt: its error, and the conditions for another attempt.
struct Failed {
    error: Error,
    again: Again,
}

enum Again {
    No,
    Backoff,
    After(Duration),
}

impl Transport {
    pub(super) fn new(config: &OpenAiConfig, path: &str) -> Result<Self> {
        config.check()?;
        let endpoint = config.endpoint(path)?;
        let mut client = Client::builder()
            .connect_timeout(Duration::from_millis(config.connect_timeout_ms))
            // A redirect would send the conversation to an address that was not configured.
            .redirect(redirect::Policy::none());
        if endpoint.scheme() == "http" {
            // A proxy from the environment could read traffic for this machine.
            client = client.no_proxy();
        }
        let client = client
            .build()
            .map_err(|_| Error::new(ErrorKind::Unexpected, "openai.connect", "the TLS setup failed"))?;
        Ok(Self {
            client,
            endpoint,
            bearer: config.bearer()?,
            timeout: Duration::from_millis(config.timeout_ms),
            attempts_max: config.attempts_max,
            backoff: Duration::from_millis(config.backoff_ms),
            backoff_max: Duration::from_millis(config.backoff_ms_max),
            response_bytes_max: config.response_bytes_max,
        })
    }

    /// Posts `request` and reads the answer. Retries if the server is busy or unavailable.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        request: &impl Serialize,
    ) -> Result<T> {
        let body = serde_json::to_vec(request).map_err(|_| {
            Error::new(ErrorKind::Unexpected, operation, "the request cannot be written as JSON")
        })?;
        let mut attempt = 1;
        loop {
            let failed = match self.attempt(operation, body.clone()).await {
                Ok(answer) => {
                    return serde_json::from_slice(&answer).map_err(|_| {
                        failure(
                            ErrorKind::Unexpected,
                            operation,
                            "the response has an unexpected form; check the URL and the model",
                        )
                    });
                }
                Err(failed) => failed,
            };
            match self.pause(attempt, &failed.again) {
                Some(pause) if attempt < self.attempts_max => tokio::time::sleep(pause).await,
                _ => return Err(failed.error.with_context("attempts", u64::from(attempt))),
            }
            attempt += 1;
        }
    }

    /// Returns the pause after the attempt numbered `attempt`, or `None` if waiting does not help.
    fn pause(&self, attempt: u32, again: &Again) -> Option<Duration> {
        match again {
            Again::No => None,
            Again::After(pause) => (*pause <= self.backoff_max).then_some(*pause),
            Again::Backoff => {
                let doubled = self.backoff.saturating_mul(1 << attempt.saturating_sub(1).min(20));
                // The jitter of 25% keeps many callers from retrying at the same time.
                let jitter = 75 + u32::try_from(RandomState::new().hash_one(attempt) % 50).unwrap_or(0);
                Some((doubled.min(self.backoff_max) * jitter / 100).min(self.backoff_max))
            }
        }
    }

    async fn attempt(&self, operation: &'static str, body: Vec<u8>) -> Result<Vec<u8>, Failed> {
        let mut request = self
            .client
            .post(self.endpoint.clone())
            .timeout(self.timeout)
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer.clone());
        }
        let response = request.send().await.map_err(|error| broken(operation, &error))?;
        let status = response.status();
        if status.is_success() {
            self.body(operation, response).await
        } else {
            Err(refused(operation, status, response.headers()))
        }
    }

    async fn body(&self, operation: &'static str, mut response: Response) -> Result<Vec<u8>, Failed> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| broken(operation, &error))? {
            if body.len() + chunk.len() > self.response_bytes_max {
                let error = failure(
                    ErrorKind::ResourceExhausted,
                    operation,
                    "the response exceeds `response_bytes_max`; raise it or request less",
                )
                .with_context("limit", check::size(self.response_bytes_max));
                return Err(Failed { error, again: Again::No });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// Returns an error of a model call. It is idempotent, because asking stores nothing.
pub(super) fn failure(kind: ErrorKind, operation: &'static str, message: &'static str) -> Error {
    Error::new(kind, operation, message).with_outcome(Outcome::NotApplied).with_idempotent(true)
}

/// The client's errors quote the address, so only their class is kept.
fn broken(operation: &'static str, error: &reqwest::Error) -> Failed {
    if error.is_timeout() {
        // After a timeout, only the caller may decide to spend the time again.
        let again = if error.is_connect() { Again::Backoff } else { Again::No };
        return Failed {
            error: failure(
                ErrorKind::Timeout,
                operation,
                "the server did not respond in time; check the server or raise the time limit",
            ),
            again,
        };
    }
    let message = if error.is_connect() {
        "the server cannot be reached; check the URL and the network"
    } else {
        "the connection was lost; try again"
    };
    Failed { error: failure(ErrorKind::Unavailable, operation, message), again: Again::Backoff }
}

fn refused(operation: &'static str, status: StatusCode, headers: &HeaderMap) -> Failed {
    let (kind, message) = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            (ErrorKind::PermissionDenied, "the server refused the API key; check `api_key`")
        }
        StatusCode::NOT_FOUND => (
            ErrorKind::NotFound,
            "the server does not have this model or endpoint; check the URL and the model's name",
        ),
        StatusCode::TOO_MANY_REQUESTS => {
            (ErrorKind::ResourceExhausted, "the server's rate limit is exceeded; try again later")
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => {
            (ErrorKind::Timeout, "the server timed out; try again later")
        }
        _ if status.is_server_error() => (ErrorKind::Unavailable, "the server failed; try again later"),
        _ if status.is_client_error() => (
            ErrorKind::InvalidInput,
            "the server refused the request; check the model's name and the size of the request",
        ),
        _ => (ErrorKind::Unexpected, "the server returned an unexpected HTTP status; check the URL"),
    };
    let passing = matches!(kind, ErrorKind::ResourceExhausted | ErrorKind::Timeout | ErrorKind::Unavailable);
    let again = match retry_after(headers) {
        _ if !passing => Again::No,
        Some(pause) => Again::After(pause),
        None => Again::Backoff,
    };
    let error = failure(kind, operation, message).with_context("status", u64::from(status.as_u16()));
    Failed { error, again }
}

/// Returns the pause that the server requests, if it is in seconds or milliseconds. A date is ignored,
/// because it requires synchronized clocks.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    number("retry-after-ms")
        .map(Duration::from_millis)
        .or_else(|| number("retry-after").map(Duration::from_secs))
}
