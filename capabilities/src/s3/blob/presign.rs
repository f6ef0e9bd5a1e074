//! Signed URLs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_s3::presigning::{PresignedRequest, PresigningConfig};
use larder_kernel::{
    BlobKey, Error, ErrorKind, Outcome, PresignMethod, PresignRequest, PresignedUrl, Result, Timestamp,
};

use crate::s3::engine::Engine;
use crate::s3::failure::{Effect, failed};
use crate::s3::key::Layout;

const OPERATION: &str = "blobs.presign";

pub(crate) async fn presign(
    engine: &Engine,
    layout: &Layout,
    key: &BlobKey,
    request: &PresignRequest,
) -> Result<PresignedUrl> {
    // A signature has a resolution of one second.
    let valid_for = Duration::from_secs(request.valid_for.as_secs());
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since_1970 = Duration::from_secs(since_1970.as_secs());
    let began = UNIX_EPOCH + since_1970;
    let config = PresigningConfig::builder()
        .start_time(began)
        .expires_in(valid_for)
        .build()
        .map_err(|_| Error::invalid(OPERATION, "valid_for", "is not a possible validity of a URL"))?;
    let object = layout.object(key);
    let signed = match request.method {
        PresignMethod::Get => {
            let signing = engine.client.get_object().bucket(&engine.bucket).key(object).presigned(config);
            signing.await.map_err(|error| failed(OPERATION, Effect::Read, &error))?
        }
        PresignMethod::Put => {
            let signing = engine
                .client
                .put_object()
                .bucket(&engine.bucket)
                .key(object)
                .set_content_type(request.content_type.clone())
                .presigned(config);
            signing.await.map_err(|error| failed(OPERATION, Effect::Read, &error))?
        }
    };
    check_method(&signed, request.method)?;
    Ok(PresignedUrl {
        url: signed.uri().to_owned(),
        method: request.method,
        expires_at: expires_at(since_1970 + valid_for)?,
        headers: signed.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
    })
}

fn expires_at(since_1970: Duration) -> Result<Timestamp> {
    Timestamp::from_micros(i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX))
}

fn check_method(signed: &PresignedRequest, method: PresignMethod) -> Result<()> {
    let wanted = match method {
        PresignMethod::Get => "GET",
        PresignMethod::Put => "PUT",
    };
    if signed.method() == wanted {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unexpected, OPERATION, "the URL was signed for another method")
        .with_outcome(Outcome::NotApplied))
}
