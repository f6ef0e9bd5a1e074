//! The client and its configuration.

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

/// The time limit of finding credentials: the role of an instance is requested over the network.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum number of attempts of a call in the SDK's standard mode: with backoff, and with a shared retry
/// budget so that a failing server is not overloaded.
const ATTEMPTS: u32 = 5;
/// The maximum number of attempts of the first call of an opening, which must fail soon.
const OPENING_ATTEMPTS: u32 = 3;
/// The time limit of all attempts of a call, as a multiple of the limit of one attempt.
const ATTEMPTS_TIME: u32 = 3;
/// The assumed minimum bandwidth, from which the time limit of a body is computed.
const SLOWEST_BYTES_PER_SECOND: u64 = 64 * 1024;
/// The bytes that this machine's buffers take before the network does.
const BUFFERED_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The assumed minimum rate at which the network empties the buffers. A slower machine has smaller buffers.
const BUFFERED_BYTES_PER_SECOND: u64 = 1024 * 1024;
/// The minimum time limit of work on the server with many bytes, such as completing an upload or copying.
const SERVER_WORK_MIN: Duration = Duration::from_secs(60);
/// The assumed minimum rate of such work.
const SERVER_WORK_BYTES_PER_SECOND: u64 = 32 * 1024 * 1024;
/// The maximum time limit of such work.
const SERVER_WORK_MAX: Duration = Duration::from_secs(600);

/// The shared state of all calls.
pub(crate) struct Engine {
    pub(crate) client: Client,
    /// A client that never retries, for conditional writes: a retry would fail on the effect of the first
    /// attempt.
    pub(crate) client_without_retry: Client,
    pub(crate) bucket: String,
    pub(crate) prefix: String,
    /// The format number that the opening found.
    pub(crate) format: Option<i64>,
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
    /// Creates the client and checks the bucket.
    pub(crate) async fn open(config: &S3Config) -> Result<Self> {
        let conf = client_config(config).await?;
        let once = conf.clone().retry_config(RetryConfig::disabled()).build();
        let mut engine = Self {
            client: Client::from_conf(conf.build()),
            client_without_retry: Client::from_conf(once),
            bucket: config.bucket.clone(),
            prefix: config.prefix.clone(),
            format: None,
            timeouts: Timeouts::of(config),
        };
        engine.format = engine.read_format().await?;
        Ok(engine)
    }

    /// Returns the prefix of the objects that are format numbers.
    pub(crate) fn format_prefix(&self) -> String {
        format!("{}format=", self.prefix)
    }

    /// Returns the greatest format number of the bucket, and checks that the bucket exists. Unlike a HEAD, a
    /// rejected listing returns an error code.
    pub(crate) async fn read_format(&self) -> Result<Option<i64>> {
        let prefix = self.format_prefix();
        let request = self.client.list_objects_v2().bucket(&self.bucket).prefix(&prefix);
        let response = self.timeouts.response;
        let first = self
            .timeouts
            .allow(response, response)
            .retry_config(RetryConfig::standard().with_max_attempts(OPENING_ATTEMPTS));
        let listed = request.customize().config_override(first).send().await.map_err(|error| {
            match super::failure::status(&error) {
                Some(404) => Error::new(
                    ErrorKind::NotFound,
                    OPEN,
                    "the bucket of the URL does not exist; create it, or check name and endpoint",
                )
                .with_field("url"),
                _ => failed(OPEN, Effect::Read, &error),
            }
        })?;
        let number = |name: &str| name.strip_prefix(&prefix)?.parse::<i64>().ok();
        Ok(listed.contents().iter().filter_map(|object| number(object.key()?)).max())
    }

    /// Returns the time limits of a call that sends this many bytes.
    pub(crate) fn sending(&self, bytes: u64) -> Builder {
        let attempt = self.timeouts.response + Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND);
        self.timeouts.allow(attempt, attempt * ATTEMPTS_TIME)
    }

    /// Returns the time limits of a call in which the server processes this many bytes.
    pub(crate) fn server_work(&self, bytes: u64) -> Builder {
        let work = SERVER_WORK_MIN + Duration::from_secs(bytes / SERVER_WORK_BYTES_PER_SECOND);
        let all = work.min(SERVER_WORK_MAX).max(self.timeouts.response);
        self.timeouts.allow(all, all)
    }

    /// Returns how long a transfer may make no progress.
    pub(crate) fn progress_timeout(&self) -> Duration {
        self.timeouts.progress
    }

    /// Returns how long the server may take to reply after the whole body is sent, including the transfer of
    /// bytes in buffers.
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

    /// Sets the time limits of one attempt and of all attempts of a call.
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
        return Err(Error::invalid(
            OPEN,
            "url",
            "has no region, and neither has the environment; add `region=`",
        ));
    }
    find_credentials(&shared).await?;
    // A profile may name an endpoint too; the same rules apply to it.
    let endpoint = match endpoint.or_else(|| shared.endpoint_url().map(str::to_owned)) {
        Some(endpoint) => check_endpoint(&endpoint, config.allow_http).map(|()| Some(endpoint))?,
        None => None,
    };
    let path_style = config.path_style.unwrap_or(endpoint.is_some());
    // Many servers do not support the SDK's default checksums. On a network, TLS protects the bytes.
    let mut builder = Builder::from(&shared)
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .force_path_style(path_style);
    // Set even if it is `None`, so that a service-specific endpoint of a profile is never used unchecked.
    builder.set_endpoint_url(endpoint);
    Ok(builder)
}

/// Returns the endpoint of the URL, otherwise that of the environment.
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

/// Finds credentials now, so that missing credentials get a specific error.
async fn find_credentials(shared: &aws_config::SdkConfig) -> Result<()> {
    let denied = |message| Error::new(ErrorKind::PermissionDenied, OPEN, message).with_field("url");
    const NONE: &str = "no credentials were found; write them into the URL as \
                        `s3://ACCESS_KEY:SECRET_KEY@bucket`, set `AWS_ACCESS_KEY_ID` and \
                        `AWS_SECRET_ACCESS_KEY`, or use a profile";
    let Some(provider) = shared.credentials_provider() else { return Err(denied(NONE)) };
    match tokio::time::timeout(CREDENTIALS_TIMEOUT, provider.provide_credentials()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(denied(NONE)),
        Err(_) => Err(Error::new(
            ErrorKind::Timeout,
            OPEN,
            "no credentials were found in time; if this machine has no role, write them into the URL or the \
             environment, or set `AWS_EC2_METADATA_DISABLED=true`",
        )
        .with_outcome(Outcome::NotApplied)
        .with_field("url")),
    }
}
