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
use larder_kernel::{Error, ErrorKind, Result};

use super::config::{S3Config, check_endpoint};
use super::failure::{Effect, failed};

pub(crate) const OPEN: &str = "blobs.open";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one attempt of a call without much data may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long credentials may take to be found: the role of an instance is asked over the network.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a body may stand still before the attempt counts as failed.
const STALLED_GRACE: Duration = Duration::from_secs(20);
/// Attempts of a call, in the SDK's standard mode: backing off, and by a common allowance so that a server in trouble is
/// not asked ever more.
const ATTEMPTS: u32 = 5;
/// The slowest connection for which the time allowed for a body is reckoned.
const SLOWEST_BYTES_PER_SECOND: u64 = 64 * 1024;
/// How long the server may take over what it does with many bytes at once: completing an upload, copying.
const SERVER_WORK_TIMEOUT: Duration = Duration::from_secs(600);

/// What every call needs.
pub(crate) struct Engine {
    pub(crate) client: Client,
    /// The same without attempts after the first, for writes whose condition would meet their own effect.
    pub(crate) once: Client,
    pub(crate) bucket: String,
    pub(crate) prefix: String,
}

impl Engine {
    /// Makes the client, and asks the server for the bucket.
    pub(crate) async fn open(config: &S3Config) -> Result<Self> {
        let conf = client_config(config).await?;
        let once = conf.clone().retry_config(RetryConfig::disabled()).build();
        let engine = Self {
            client: Client::from_conf(conf.build()),
            once: Client::from_conf(once),
            bucket: config.bucket.clone(),
            prefix: config.prefix.clone(),
        };
        // Unlike a HEAD, a listing is refused with a code that tells what is wrong.
        let request =
            engine.client.list_objects_v2().bucket(&engine.bucket).prefix(&engine.prefix).max_keys(1);
        request.send().await.map_err(|error| match super::failure::status(&error) {
            Some(404) => Error::new(
                ErrorKind::NotFound,
                OPEN,
                "the bucket of the URL is not there; create it, or check name and endpoint",
            )
            .with_field("url"),
            _ => failed(OPEN, Effect::Read, &error),
        })?;
        Ok(engine)
    }
}

/// The time allowed for one attempt of a call that sends this many bytes.
pub(crate) fn sending(bytes: u64) -> Builder {
    attempt(ATTEMPT_TIMEOUT + Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND))
}

/// The time allowed for one attempt of a call over which the server may take long.
pub(crate) fn server_work() -> Builder {
    attempt(SERVER_WORK_TIMEOUT)
}

fn attempt(timeout: Duration) -> Builder {
    aws_sdk_s3::Config::builder().timeout_config(timeouts(timeout))
}

fn timeouts(attempt: Duration) -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).operation_attempt_timeout(attempt).build()
}

fn http_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::AwsLc))
        .build_https()
}

async fn client_config(config: &S3Config) -> Result<Builder> {
    let endpoint = endpoint(config)?;
    let region = RegionProviderChain::first_try(config.region.clone().map(Region::new))
        .or_else(EnvironmentVariableRegionProvider::new())
        .or_else(ProfileFileRegionProvider::new())
        .or_else(endpoint.is_some().then(|| Region::new("us-east-1")));
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http_client())
        .region(region)
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
        .timeout_config(timeouts(ATTEMPT_TIMEOUT))
        .stalled_stream_protection(
            StalledStreamProtectionConfig::enabled().grace_period(STALLED_GRACE).build(),
        );
    if let Some((access_key, secret_key)) = &config.keys {
        loader = loader.credentials_provider(Credentials::new(access_key, secret_key, None, None, "url"));
    }
    let shared = loader.load().await;
    if shared.region().is_none() {
        return Err(Error::invalid(OPEN, "url", "names no region, nor does the environment; add `region=`"));
    }
    find_credentials(&shared).await?;
    let path_style = config.path_style.unwrap_or(endpoint.is_some());
    // Checksums of the SDK's own choice are unknown to many servers. What goes over a network goes through TLS.
    let builder = Builder::from(&shared)
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .force_path_style(path_style);
    Ok(match endpoint {
        Some(endpoint) => builder.endpoint_url(endpoint),
        None => builder,
    })
}

/// The endpoint of the URL, else that of the environment.
fn endpoint(config: &S3Config) -> Result<Option<String>> {
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
        Err(_) => Err(denied("no credentials were found in time")),
    }
}
