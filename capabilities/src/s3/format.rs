//! The format number of a bucket or prefix.
//!
//! An empty object `format=1` under the prefix of the URL is the number. Each format has a separate object,
//! so creating one cannot race, and the greatest number counts. Opening checks it; a running program does not
//! check it again. So a later format stores its blobs under other names than those of `key.rs`, which only an
//! older program reads and writes.

use aws_sdk_s3::primitives::ByteStream;
use larder_kernel::{ErrorKind, Result};

use super::engine::{Engine, OPEN};
use super::failure::{Effect, failed};
use crate::format::Formats;

/// The format that this program reads and writes.
pub(crate) const FORMAT: i64 = 1;

/// Returns the formats that a program of the format `newest` supports.
pub(crate) fn formats(newest: i64) -> Formats {
    Formats { subject: "the bucket", target: "a new bucket or prefix", oldest: newest, newest }
}

/// Checks the number that the opening found.
pub(crate) fn check(engine: &Engine, format: i64) -> Result<()> {
    engine.format.map_or(Ok(()), |found| formats(format).check(OPEN, found))
}

/// Creates the number if the opening found none: the bucket is new, or older than the first number, which
/// changed nothing else.
pub(crate) async fn create(engine: &Engine, format: i64) -> Result<()> {
    if engine.format.is_some() {
        return Ok(());
    }
    let object = format!("{}{format}", engine.format_prefix());
    let request =
        engine.client.put_object().bucket(&engine.bucket).key(object).body(ByteStream::from_static(b""));
    let sent = request.customize().config_override(engine.sending(0)).send().await;
    if let Err(error) = sent {
        let error = failed(OPEN, Effect::Repeatable, &error);
        // Read-only credentials.
        return if error.kind() == ErrorKind::PermissionDenied { Ok(()) } else { Err(error) };
    }
    // A program of another format may have created its number at the same time. One of the two sees both.
    engine.read_format().await?.map_or(Ok(()), |found| formats(format).check(OPEN, found))
}
