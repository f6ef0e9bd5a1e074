//! Presigned URLs.

use std::time::Duration;

use bytes::Bytes;
use larder_kernel::{BlobStoreExt, Capability, Contract, ErrorKind, PresignRequest, Timestamp};

use super::key;
use crate::case::{Case, CaseResult};
use crate::context::{Context, Handles};
use crate::expect;

const VALID_FOR: Duration = Duration::from_secs(600);
/// The largest difference between the store's clock and the suite's.
const SKEW: Duration = Duration::from_secs(120);

fn requests() -> [(Capability, PresignRequest); 2] {
    [
        (Capability::BlobPresignGet, PresignRequest::get(VALID_FOR)),
        (Capability::BlobPresignPut, PresignRequest::put(VALID_FOR).with_content_type("text/plain")),
    ]
}

/// Returns the cases of presigned URLs, once for reads and once for writes.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for ((capability, request), what) in requests().into_iter().zip(["read", "write"]) {
        let signed = request.clone();
        cases.push(
            Case::new(
                Contract::Blobs,
                "BLOB-050",
                format!("a_signed_{what}_names_method_and_expiry"),
                move |context| names_method_and_expiry(context, signed.clone()),
            )
            .needing(capability),
        );
        cases.push(
            Case::new(
                Contract::Blobs,
                "BLOB-052",
                format!("the_locator_of_a_{what}_ends_in_the_key"),
                move |context| locator_ends_in_the_key(context, request.clone()),
            )
            .needing(capability),
        );
    }
    cases
}

async fn names_method_and_expiry(context: Context, request: PresignRequest) -> CaseResult {
    let Handles { a, .. } = context.blobs().await?;
    let key = key("shared/file.txt")?;
    a.put_bytes(&key, Bytes::from_static(b"1")).await?;
    let earliest = Timestamp::now().saturating_add(VALID_FOR - SKEW);
    let url = a.presign(&key, &request).await?;
    let latest = Timestamp::now().saturating_add(VALID_FOR + SKEW);
    expect::equal("the method", &url.method, &request.method)?;
    let timely = (earliest..=latest).contains(&url.expires_at);
    expect::that(timely, format!("an expiry in {VALID_FOR:?}"), url.expires_at)?;
    expect::that(!url.url.is_empty(), "a URL", &url.url)?;
    let mut longer = request;
    longer.valid_for = VALID_FOR * 3;
    let far = a.presign(&key, &longer).await?.expires_at;
    expect::that(far > url.expires_at.saturating_add(VALID_FOR), "the requested expiry", far)
}

pub(super) async fn an_undeclared_method_is_unsupported(context: Context) -> CaseResult {
    let Handles { a, .. } = context.blobs().await?;
    let declared = context.open().await?.capabilities(Contract::Blobs).unwrap_or_default();
    for (capability, request) in requests() {
        let result = a.presign(&key("k")?, &request).await;
        if declared.has(capability) {
            result?;
        } else {
            expect::error("a method that is not declared", result, ErrorKind::Unsupported)?;
        }
    }
    Ok(())
}

async fn locator_ends_in_the_key(context: Context, request: PresignRequest) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let text = "folder/with space/ü.txt";
    let key = key(text)?;
    a.put_bytes(&key, Bytes::from_static(b"1")).await?;
    let url = b.presign(&key, &request).await?;
    let web = url.url.starts_with("http://") || url.url.starts_with("https://");
    let locator = url.url.split_once("://").is_some_and(|(_, rest)| rest.ends_with(text));
    expect::that(web || locator, "a web URL, or a locator that ends in the key", &url.url)?;
    expect::equal("bytes, which signing must not touch", &a.get_bytes(&key).await?, &Bytes::from_static(b"1"))
}
