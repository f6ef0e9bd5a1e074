//! Blobs in S3, compared with direct use of the vendor's client, with eight parts in flight.

use std::time::Instant;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{
    BehaviorVersion, Config, Credentials, Region, RequestChecksumCalculation, ResponseChecksumValidation,
};
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::blobs::{Blobs, MIB, rate};
use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::pgbench::{Parts, unescaped};
use super::{Outcome, Plan, payload};

/// The variable that names the service.
pub(super) const VARIABLE: &str = "LARDER_S3_GARAGE_URL";
/// The number of the peer's parts in flight.
pub(super) const IN_FLIGHT: usize = 8;
/// The size of the parts.
pub(super) const PART_BYTES: usize = 8 * MIB;

/// Put and get of a large blob.
pub(super) async fn blobs(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = plan.url(VARIABLE)?;
    let mebibytes = plan.size(256, 64);
    let bytes = payload::blob(mebibytes);
    let larder = Blobs::open(&url, &format!("bench-{}", std::process::id())).await?;
    let peer = Raw::new(&url)?;
    let figures = measure(plan, &larder, &peer, &bytes, mebibytes).await;
    // Removes the data after a failure, too.
    peer.remove().await?;
    larder.erase().await?;
    figures
}

async fn measure(
    plan: &Plan,
    larder: &Blobs,
    peer: &Raw,
    bytes: &Bytes,
    mebibytes: u32,
) -> Outcome<Vec<Figure>> {
    let subject = |name, what: &str, how: &str| Subject {
        name,
        what: format!("{what} of {mebibytes} MiB as a stream"),
        peer: format!("aws-sdk-s3 {}, {how}", aws_sdk_s3::meta::PKG_VERSION),
        settings: format!("{} at {}", peer.server, peer.endpoint),
        unit: Unit::MebiBytesPerSecond,
        target: Some(Target::AtLeast(0.9)),
    };
    let puts = in_turns(plan, async |_| larder.put(bytes).await, async |_| peer.put(bytes).await).await?;
    let gets = in_turns(plan, async |_| larder.get(bytes.len()).await, async |_| peer.get(bytes.len()).await)
        .await?;
    Ok(vec![
        subject("s3-put", "put", "multipart upload, parts of 8 MiB, 8 in flight").figure(&puts),
        subject("s3-get", "get", "ranges of 8 MiB, 8 in flight").figure(&gets),
    ])
}

/// The vendor's client and one object.
struct Raw {
    client: Client,
    bucket: String,
    key: String,
    endpoint: String,
    server: &'static str,
}

impl Raw {
    fn new(url: &str) -> Outcome<Self> {
        // An endpoint in the query contains slashes.
        let (location, query) = url.split_once('?').unwrap_or((url, ""));
        let parts =
            Parts::of(location).ok_or("the URL of S3 is not `s3://key:secret@bucket/prefix?endpoint=...`")?;
        let value =
            |name| query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name));
        let value = |name| value(name).map(|(_, value)| unescaped(value)).transpose();
        let or_variable = |given: &str, variable| {
            if given.is_empty() { std::env::var(variable).map_err(Into::into) } else { unescaped(given) }
        };
        let credentials = Credentials::new(
            or_variable(parts.user, "AWS_ACCESS_KEY_ID")?,
            or_variable(parts.password, "AWS_SECRET_ACCESS_KEY")?,
            None,
            None,
            "bench",
        );
        let http = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc));
        let mut config = Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .credentials_provider(credentials)
            .region(Region::new(value("region")?.unwrap_or_else(|| "us-east-1".to_owned())))
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .force_path_style(value("path_style")?.as_deref() == Some("true"))
            .http_client(http.build_https());
        let endpoint = value("endpoint")?;
        if let Some(endpoint) = &endpoint {
            config = config.endpoint_url(endpoint);
        }
        let prefix = unescaped(parts.path)?;
        let slash = if prefix.is_empty() || prefix.ends_with('/') { "" } else { "/" };
        Ok(Self {
            client: Client::from_conf(config.build()),
            bucket: parts.host.to_owned(),
            key: format!("{prefix}{slash}larder-bench-{}", std::process::id()),
            endpoint: endpoint.unwrap_or_else(|| "Amazon".to_owned()),
            server: "Garage",
        })
    }

    async fn put(&self, bytes: &Bytes) -> Outcome<f64> {
        let begun = Instant::now();
        let create = self.client.create_multipart_upload().bucket(&self.bucket).key(&self.key);
        let upload = create.send().await?.upload_id.ok_or("an upload without an id")?;
        let uploads = (1..).zip((0..bytes.len()).step_by(PART_BYTES)).map(|(number, start)| {
            let part = bytes.slice(start..bytes.len().min(start + PART_BYTES));
            let call = self.client.upload_part().bucket(&self.bucket).key(&self.key).upload_id(&upload);
            async move {
                // Each part has a task, so the signing of one part does not delay the others.
                let call = call.part_number(number).body(ByteStream::from(part)).send();
                let sent = tokio::spawn(call).await??;
                let part = CompletedPart::builder().part_number(number).set_e_tag(sent.e_tag);
                Ok::<_, Box<dyn std::error::Error>>(part.build())
            }
        });
        let parts = stream::iter(uploads).buffered(IN_FLIGHT).try_collect().await?;
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let complete = self.client.complete_multipart_upload().bucket(&self.bucket).key(&self.key);
        complete.upload_id(&upload).multipart_upload(parts).send().await?;
        Ok(rate(bytes.len(), begun))
    }

    async fn get(&self, length: usize) -> Outcome<f64> {
        let begun = Instant::now();
        let reads = (0..length).step_by(PART_BYTES).map(|start| {
            let last = length.min(start + PART_BYTES) - 1;
            let call = self.client.get_object().bucket(&self.bucket).key(&self.key);
            async move {
                let mut body = call.range(format!("bytes={start}-{last}")).send().await?.body;
                let mut found = 0;
                while let Some(piece) = body.try_next().await? {
                    found += piece.len();
                }
                Ok::<_, Box<dyn std::error::Error>>(found)
            }
        });
        let found: usize =
            stream::iter(reads).buffered(IN_FLIGHT).try_fold(0, async |sum, found| Ok(sum + found)).await?;
        if found != length {
            return Err(format!("the peer read {found} of {length} bytes").into());
        }
        Ok(rate(length, begun))
    }

    async fn remove(&self) -> Outcome<()> {
        self.client.delete_object().bucket(&self.bucket).key(&self.key).send().await?;
        Ok(())
    }
}
