//! The client, and how it is opened.

use std::time::Duration;

use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, Builder, Credentials, ProvideCredentials, Region, RequestChecksumCalculation,
    ResponseChecksumValidation, SharedHttpClient, StalledStreamProtectionConfig,
};
use aws_smithy_http_client::tls;
use larder_kernel::{Error, ErrorKind, Outcome, Result};

use super::config::{S3Config, check_endpoint};
use super::failure::{Effect, failed};

pub(crate) const OPEN: &str = "blobs.open";

/// How long credentials may take to be found: the role of an instance is asked over the network.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(15);
/// Attempts of a call, in the SDK's standard mode: backing off, and by a common retry budget so that a server in trouble is
/// not asked ever more.
const ATTEMPTS: u32 = 5;
/// The same of the first call of an opening: who waits for it wants to know soon.
const OPENING_ATTEMPTS: u32 = 3;
/// How many times an attempt's time all attempts of a call may take together.
const ATTEMPTS_TIME: u32 = 3;
/// The slowest connection for which the time allowed for a body is reckoned.
const SLOWEST_BYTES_PER_SECOND: u64 = 64 * 1024;
/// Bytes that this machine's buffers take before the network does, and how quickly it takes those at least: a slower one
/// has smaller buffers.
const BUFFERED_BYTES_MAX: u64 = 4 * 1024 * 1024;
const BUFFERED_BYTES_PER_SECOND: u64 = 1024 * 1024;
/// How long the server may take over what it does with many bytes at once, completing an upload or copying: at least, per
/// byte, and at most.
const SERVER_WORK_MIN: Duration = Duration::from_secs(60);
const SERVER_WORK_BYTES_PER_SECOND: u64 = 32 * 1024 * 1024;
const SERVER_WORK_MAX: Duration = Duration::from_secs(600);

/// What every call needs.
pub(crate) struct Engine {
    pub(crate) client: Client,
    /// A client that never retries, for conditional writes: a retry would fail on the effect of the first attempt.
    pub(crate) client_without_retry: Client,
    pub(crate) bucket: String,
    pub(crate) prefix: String,
    timeouts: Timeouts,
}

/// The timeouts of the URL.
#[derive(Debug, Clone, Copy)]
struct Timeouts {
    connect: Duration,
    response: Duration,
    progress: Duration,
}

impl Engine {
    /// Makes the client, and asks the server for the bucket.
    pub(crate) async fn open(config: &S3Config) -> Result<Self> {
        let conf = client_config(config).await?;
        let once = conf.clone().retry_config(RetryConfig::disabled()).build();
        let engine = Self {
            client: Client::from_conf(conf.build()),
            client_without_retry: Client::from_conf(once),
            bucket: config.bucket.clone(),
            prefix: config.prefix.clone(),
            timeouts: Timeouts::of(config),
        };
        // Unlike a HEAD, a listing is refused with a code that tells what is wrong.
        let request =
            engine.client.list_objects_v2().bucket(&engine.bucket).prefix(&engine.prefix).max_keys(1);
        let response = engine.timeouts.response;
        let first = engine
            .timeouts
            .allow(response, response)
            .retry_config(RetryConfig::standard().with_max_attempts(OPENING_ATTEMPTS));
        request.customize().config_override(first).send().await.map_err(
            |error| match super::failure::status(&error) {
                Some(404) => Error::new(
                    ErrorKind::NotFound,
                    OPEN,
                    "the bucket of the URL is not there; create it, or check name and endpoint",
                )
                .with_field("url"),
                _ => failed(OPEN, Effect::Read, &error),
            },
        )?;
        Ok(engine)
    }

    /// The times allowed for a call that sends this many bytes.
    pub(crate) fn sending(&self, bytes: u64) -> Builder {
        let attempt = self.timeouts.response + Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND);
        self.timeouts.allow(attempt, attempt * ATTEMPTS_TIME)
    }

    /// The times allowed for a call in which the server does something with this many bytes.
    pub(crate) fn server_work(&self, bytes: u64) -> Builder {
        let work = SERVER_WORK_MIN + Duration::from_secs(bytes / SERVER_WORK_BYTES_PER_SECOND);
        let all = work.min(SERVER_WORK_MAX).max(self.timeouts.response);
        self.timeouts.allow(all, all)
    }

    /// How long a transfer may go on without any bytes moving.
    pub(crate) fn progress_timeout(&self) -> Duration {
        self.timeouts.progress
    }

    /// How long the server may take to answer once it has all bytes, and for them to get there: some lie in buffers.
    pub(crate) fn last_answer(&self, bytes: u64) -> Duration {
        let buffered = Duration::from_secs(bytes.min(BUFFERED_BYTES_MAX) / BUFFERED_BYTES_PER_SECOND);
        self.timeouts.progress.max(self.timeouts.response) + buffered
    }
}

impl Timeouts {
    fn of(config: &S3Config) -> Self {
        Self {
            connect: config.connect_timeout,
            response: config.response_timeout,
            progress: config.stall_timeout,
        }
    }

    /// For one call: its attempts, and all of them.
    fn allow(&self, attempt: Duration, all: Duration) -> Builder {
        aws_sdk_s3::Config::builder().timeout_config(self.sdk_config(attempt, all))
    }

    fn sdk_config(&self, attempt: Duration, all: Duration) -> TimeoutConfig {
        TimeoutConfig::builder()
            .connect_timeout(self.connect)
            .operation_attempt_timeout(attempt)
            .operation_timeout(all)
            .build()
    }
}

fn http_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::AwsLc))
        .build_https()
}

async fn client_config(config: &S3Config) -> Result<Builder> {
    let (endpoint, timeouts) = (endpoint(config)?, Timeouts::of(config));
    let region = RegionProviderChain::first_try(config.region.clone().map(Region::new))
        .or_else(EnvironmentVariableRegionProvider::new())
        .or_else(ProfileFileRegionProvider::new())
        .or_else(endpoint.is_some().then(|| Region::new("us-east-1")));
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http_client())
        .region(region)
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
        .timeout_config(timeouts.sdk_config(timeouts.response, timeouts.response * ATTEMPTS_TIME))
        .stalled_stream_protection(
            StalledStreamProtectionConfig::enabled().grace_period(timeouts.progress).build(),
        );
    if let Some((access_key, secret_key)) = &config.keys {
        loader = loader.credentials_provider(Credentials::new(access_key, secret_key, None, None, "url"));
    }
    let shared = loader.load().await;
    if shared.region().is_none() {
        return Err(Error::invalid(OPEN, "url", "names no region, nor does the environment; add `region=`"));
    }
    find_credentials(&shared).await?;
    // A profile may name one, too, and what it names is held to the same rules.
    let endpoint = match endpoint.or_else(|| shared.endpoint_url().map(str::to_owned)) {
        Some(endpoint) => check_endpoint(&endpoint, config.allow_http).map(|()| Some(endpoint))?,
        None => None,
    };
    let path_style = config.path_style.unwrap_or(endpoint.is_some());
    // Checksums of the SDK's own choice are unknown to many servers. What goes over a network goes through TLS.
    let mut builder = Builder::from(&shared)
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .force_path_style(path_style);
    // Also where there is none: what a profile says of this service alone is not taken over unseen.
    builder.set_endpoint_url(endpoint);
    Ok(builder)
}

/// The endpoint of the URL, else that of the environment.
pub(super) fn endpoint(config: &S3Config) -> Result<Option<String>> {
    let from_environment = || {
        ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]
            .into_iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    };
    let endpoint = config.endpoint.clone().or_else(from_environment);
    if let Some(endpoint) = &endpoint {
        check_endpoint(endpoint, config.allow_http)?;
    }
    Ok(endpoint)
}

/// Finds credentials now, so that their lack is told as such.
async fn find_credentials(shared: &aws_config::SdkConfig) -> Result<()> {
    let denied = |message| Error::new(ErrorKind::PermissionDenied, OPEN, message).with_field("url");
    const NONE: &str = "no credentials are found; write them into the URL as `s3://ACCESS_KEY:SECRET_KEY@bucket`, or \
                        set `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or a profile";
    let Some(provider) = shared.credentials_provider() else { return Err(denied(NONE)) };
    match tokio::time::timeout(CREDENTIALS_TIMEOUT, provider.provide_credentials()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(denied(NONE)),
        Err(_) => Err(Error::new(
            ErrorKind::Timeout,
            OPEN,
            "no credentials were found in time; write them into the URL or the environment if this machine has no role, \
             or turn the search for one off with `AWS_EC2_METADATA_DISABLED=true`",
        )
        .with_outcome(Outcome::NotApplied)
        .with_field("url")),
    }
}
