//! The diagnosis of a bucket. Only a trial shows which conditional writes the server honors. So small objects
//! are written under `probe/` and removed again; nothing else is changed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use aws_sdk_s3::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::{BoxError, ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};
use larder_kernel::{Error, Result};

use super::blob::probe::{Supported, probe};
use super::blob::versions::Versioning;
use super::config::S3Config;
use super::engine::{Engine, endpoint};
use super::failure::{Effect, failed, status};
use super::format::{FORMAT, formats};
use crate::diagnose::{Check, Findings, clock, failed_to_connect, round_trip};

const OPERATION: &str = "s3.diagnose";
const PINGS: u32 = 5;
const PING_SLOW: Duration = Duration::from_millis(200);
/// The age from which a multipart upload counts as left behind.
const UPLOAD_AGE: Duration = Duration::from_secs(24 * 3600);
/// The resolution of HTTP dates.
const DATE_GRAIN: Duration = Duration::from_secs(1);

const REACH: &str = "the stores need the bucket";
const LOGIN: &str = "the stores use the permissions of these credentials";
const WRITABLE: &str = "the stores write objects, some of them in parts";
const CONDITIONS: &str = "create-only and if-match writes need them; without them, these writes are rejected";
const NAMES: &str = "a key whose name is too long for the server is rejected before any request";
const UPLOADS: &str = "unfinished uploads cost money and appear in no listing";
const VERSIONS: &str = "without versioning, overwritten and deleted data cannot be restored";
const TLS: &str = "without TLS, anyone on the network can read and change the stored data";
const FORMATS: &str = "a bucket of another format is refused and not changed";
const DURABLE: &str = "determines what an acknowledged write survives";

/// Diagnoses the bucket.
pub(crate) async fn diagnose(config: &S3Config, findings: &Findings) {
    findings.add(tls(config));
    let engine = match Engine::open(config).await {
        Ok(engine) => Arc::new(engine),
        Err(error) => return failed_to_connect(findings, &error),
    };
    findings.add(Check::ok("reach", "the server responds, and the bucket exists", REACH));
    findings.add(Check::ok("login", "the credentials can list the bucket", LOGIN));
    findings.add(format_check(engine.format));
    for check in times(&engine).await {
        findings.add(check);
    }
    let seen = "process: a server does not report more";
    findings.add(Check::ok("durability", seen, DURABLE));
    let versioning = Versioning::of_bucket(&engine, OPERATION).await.unwrap_or(Versioning::Off);
    findings.add(versions(&engine, versioning).await);
    match uploads(&engine).await {
        Ok(check) => findings.add(check),
        Err(error) => findings.add(Check::unknown("uploads", &error, UPLOADS)),
    }
    match probe(&engine, versioning).await {
        Ok(honoured) => conditions(&honoured, findings),
        Err(error) => {
            let seen = format!("a probe could not be written: {}", error.kind());
            findings.add(Check::fail("writable", seen, WRITABLE, error.message().to_owned()));
        }
    }
}

fn format_check(found: Option<i64>) -> Check {
    let name = "format";
    let Some(found) = found else {
        return Check::warn(name, "no format number yet", FORMATS, "nothing: opening creates it");
    };
    let seen = format!("format number {found}");
    match formats(FORMAT).check("blobs.diagnose", found) {
        Ok(()) => Check::ok(name, seen, FORMATS),
        Err(error) => Check::fail(name, seen, FORMATS, error.message().to_owned()),
    }
}

fn tls(config: &S3Config) -> Check {
    let endpoint = match endpoint(config) {
        Ok(endpoint) => endpoint.unwrap_or_else(|| "https://".to_owned()),
        Err(error) => return Check::fail("tls", "the endpoint is refused", TLS, error.message().to_owned()),
    };
    if endpoint.starts_with("https://") {
        return Check::ok("tls", "TLS, and the certificate is valid for the name", TLS);
    }
    // On other machines plain HTTP needs an explicit permission.
    if super::config::check_endpoint(&endpoint, false).is_ok() {
        Check::ok("tls", "none, within this machine", TLS)
    } else {
        Check::warn("tls", "none, over a network", TLS, "use an `https://` endpoint, and remove `allow_http`")
    }
}

/// Stores the date of the server's last response.
#[derive(Debug, Clone, Default)]
struct Dates(Arc<Mutex<Option<Duration>>>);

impl Intercept for Dates {
    fn name(&self) -> &'static str {
        "Dates"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _settings: &mut ConfigBag,
    ) -> std::result::Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let date = date.and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok());
        let seconds = date.and_then(|date| u64::try_from(date.secs()).ok());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = seconds.map(Duration::from_secs);
        Ok(())
    }
}

/// Returns the checks of clock and round-trip time, from the smallest possible listing.
async fn times(engine: &Engine) -> Vec<Check> {
    let (dates, mut took, mut skew) = (Dates::default(), Vec::new(), None);
    for _ in 0..PINGS {
        let (begun, before) = (Instant::now(), SystemTime::now());
        let listed = engine
            .client
            .list_objects_v2()
            .bucket(&engine.bucket)
            .prefix(&engine.prefix)
            .max_keys(1)
            .customize()
            .config_override(aws_sdk_s3::Config::builder().interceptor(dates.clone()))
            .send()
            .await;
        if listed.is_err() {
            continue;
        }
        took.push(begun.elapsed());
        let told = *dates.0.lock().unwrap_or_else(PoisonError::into_inner);
        skew = told.map(|there| clock(there, before, DATE_GRAIN)).or(skew);
    }
    skew.into_iter().chain(round_trip(took, PING_SLOW)).collect()
}

async fn versions(engine: &Engine, versioning: Versioning) -> Check {
    let advice = "enable versioning, with a rule that removes old versions after some days, or back up the \
                  bucket";
    if versioning == Versioning::On {
        let seen = "on; the store declares `blob-versions`, and an erasure removes all versions";
        return Check::ok("versioning", seen, VERSIONS);
    }
    match engine.client.get_bucket_versioning().bucket(&engine.bucket).send().await {
        Ok(_) => Check::warn("versioning", "off", VERSIONS, advice),
        Err(error) => unasked("versioning", &error, VERSIONS),
    }
}

/// Returns the check for a request that some servers do not support or some users may not send.
fn unasked<E: ProvideErrorMetadata>(name: &'static str, error: &SdkError<E>, why: &'static str) -> Check {
    match status(error) {
        // Some reply with success and an empty result.
        Some(200..=299 | 400 | 404 | 405 | 501) => {
            Check::ok(name, "the object does not exist on the server", why)
        }
        Some(401 | 403) => Check::ok(name, "the credentials do not allow this query", why),
        _ => Check::unknown(name, &failed(OPERATION, Effect::Read, error), why),
    }
}

async fn uploads(engine: &Engine) -> Result<Check, Error> {
    let request = engine.client.list_multipart_uploads().bucket(&engine.bucket).prefix(&engine.prefix);
    let answer = match request.send().await {
        Ok(answer) => answer,
        Err(error) => return Ok(unasked("uploads", &error, UPLOADS)),
    };
    let before = SystemTime::now().checked_sub(UPLOAD_AGE).map(DateTime::from);
    let ours = answer
        .uploads()
        .iter()
        .filter(|upload| upload.key().is_some_and(|key| key.starts_with(&engine.prefix)));
    let (mut all, mut old) = (0_u64, 0_u64);
    for upload in ours {
        all += 1;
        old +=
            u64::from(upload.initiated().zip(before.as_ref()).is_some_and(|(begun, before)| begun < before));
    }
    let more = if answer.is_truncated().unwrap_or_default() { " at least" } else { "" };
    let seen = format!("{all}{more} unfinished, {old} of them over a day old");
    Ok(if old > 0 {
        let advice = "set a lifecycle rule that aborts unfinished uploads after a day";
        Check::warn("uploads", seen, UPLOADS, advice)
    } else {
        Check::ok("uploads", seen, UPLOADS)
    })
}

fn conditions(honoured: &Supported, findings: &Findings) {
    if *honoured == Supported::NOTHING {
        let advice = "grant `s3:PutObject` and `s3:DeleteObject`, unless these stores are read-only";
        findings.add(Check::warn("writable", "the credentials do not allow writes", WRITABLE, advice));
        return;
    }
    let probed = "a few small objects were written under `probe/` and removed";
    findings.add(Check::ok("writable", probed, WRITABLE));
    let word = |kept: bool| if kept { "honoured" } else { "not honoured" };
    let (created, matched) = (word(honoured.create_only), word(honoured.if_match));
    let seen = format!("create-only {created}, if-match {matched}");
    findings.add(if honoured.create_only && honoured.if_match {
        Check::ok("conditional_writes", seen, CONDITIONS)
    } else {
        let advice = "if your programs need them, use a server that supports them, such as S3";
        Check::warn("conditional_writes", seen, CONDITIONS, advice)
    });
    let seen = format!("names of up to {} bytes are kept", honoured.name_bytes_max);
    findings.add(if honoured.long_keys {
        Check::ok("long_keys", seen, NAMES)
    } else {
        Check::warn(
            "long_keys",
            seen,
            NAMES,
            "keep keys short, or use a server that keeps names of 1,024 bytes",
        )
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::CheckStatus::{self, Ok as Fine, Warn};

    #[test]
    fn plain_http_over_a_network_is_reported() {
        for (url, status) in [
            ("s3://a:b@files?endpoint=https://s3.example", Fine),
            ("s3://a:b@files?endpoint=http://127.0.0.1:3900", Fine),
            ("s3://a:b@files?endpoint=http://10.0.0.1&allow_http=true", Warn),
        ] {
            assert_eq!(tls(&S3Config::from_url(url).unwrap()).status, status, "{url}");
        }
    }

    #[test]
    fn the_result_of_the_probe_is_reported() {
        let statuses = |honoured| {
            let findings = Findings::default();
            conditions(&honoured, &findings);
            findings.take().iter().map(|check| check.status).collect::<Vec<CheckStatus>>()
        };
        let all = Supported { create_only: true, if_match: true, long_keys: true, name_bytes_max: 1024 };
        assert_eq!(statuses(all), [Fine, Fine, Fine]);
        let few = Supported { if_match: false, long_keys: false, ..all };
        assert_eq!(statuses(few), [Fine, Warn, Warn]);
        assert_eq!(statuses(Supported::NOTHING), [Warn]);
    }
}
