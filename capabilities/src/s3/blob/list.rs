//! Listing: pages of names from both trees, merged in the order of the keys.

use std::pin::Pin;
use std::sync::Arc;

use aws_sdk_s3::types::Object;
use futures_util::stream::{self, BoxStream, Peekable, StreamExt, TryStreamExt};
use larder_kernel::{BlobEntries, BlobEntry, BlobKey, Error, ErrorKind, Outcome, Result};

use super::read;
use super::value::{etag_in, size_in, time_in};
use crate::s3::engine::Engine;
use crate::s3::failure::{Effect, failed};
use crate::s3::key::{Layout, Scan};

const OPERATION: &str = "blobs.list";
/// The number of concurrent requests for blobs whose tags the listing omits.
const HEADS_AT_ONCE: usize = 8;

type Entries = BoxStream<'static, Result<BlobEntry>>;

/// One page of names.
pub(crate) struct Page {
    pub(crate) objects: Vec<Object>,
    /// The name after which the next page begins; `None` after the last page.
    pub(crate) next: Option<String>,
}

/// Reads the names that begin with `prefix` and come after `after`.
///
/// Each page begins after the last name of the previous page, without a token. So the same request serves the
/// beginning and the rest, and no server can lose the token.
pub(crate) async fn page(
    engine: &Engine,
    operation: &'static str,
    prefix: &str,
    after: Option<String>,
) -> Result<Page> {
    let request =
        engine.client.list_objects_v2().bucket(&engine.bucket).prefix(prefix).set_start_after(after);
    let answer = request.send().await.map_err(|error| failed(operation, Effect::Read, &error))?;
    let more = answer.is_truncated().unwrap_or_default();
    let objects = answer.contents.unwrap_or_default();
    let last = objects.last().and_then(|object| object.key.clone());
    if more && last.is_none() {
        return Err(Error::new(
            ErrorKind::Unexpected,
            operation,
            "the server returned an incomplete listing without a position; use another server",
        )
        .with_outcome(Outcome::NotApplied));
    }
    Ok(Page { objects, next: last.filter(|_| more) })
}

/// Returns the blobs under `prefix` after `after`, as a stream.
pub(crate) fn list(
    engine: &Arc<Engine>,
    layout: &Layout,
    prefix: &str,
    after: Option<&BlobKey>,
) -> BlobEntries {
    let mut trees = layout.scans(prefix, after).into_iter().map(|scan| {
        let walk = Walk {
            engine: Arc::clone(engine),
            layout: layout.clone(),
            prefix: prefix.into(),
            after: after.cloned(),
        };
        walk.entries(scan)
    });
    match (trees.next(), trees.next()) {
        (Some(one), Some(other)) => merge(one, other),
        (Some(one), None) => one,
        _ => stream::empty().boxed(),
    }
}

/// Merges two ordered streams into one.
fn merge(one: Entries, other: Entries) -> Entries {
    let both = (one.peekable(), other.peekable());
    stream::unfold(both, async |(mut one, mut other)| {
        let (left, right) = futures_util::future::join(peek(&mut one), peek(&mut other)).await;
        let from_one = match (&left, &right) {
            // An error is delivered immediately.
            (Some(Ok(left)), Some(Ok(right))) => left.key < right.key,
            (Some(Err(_)), _) | (Some(_), None) => true,
            (_, Some(_)) => false,
            (None, None) => return None,
        };
        let entry = if from_one { one.next().await? } else { other.next().await? };
        Some((entry, (one, other)))
    })
    .boxed()
}

async fn peek(entries: &mut Peekable<Entries>) -> Option<&Result<BlobEntry>> {
    Pin::new(entries).peek().await
}

#[derive(Clone)]
struct Walk {
    engine: Arc<Engine>,
    layout: Layout,
    prefix: Arc<str>,
    after: Option<BlobKey>,
}

impl Walk {
    /// Returns the blobs of one tree.
    fn entries(self, scan: Scan) -> Entries {
        let (heads, engine) = (self.layout.clone(), Arc::clone(&self.engine));
        let Scan { tree, prefix, after } = scan;
        stream::try_unfold(Some(after), move |next| {
            let (walk, prefix) = (self.clone(), prefix.clone());
            async move {
                let Some(after) = next else { return Ok::<_, Error>(None) };
                let page = page(&walk.engine, OPERATION, &prefix, after).await?;
                let (mut found, mut next) = (Vec::with_capacity(page.objects.len()), page.next.map(Some));
                for object in page.objects {
                    let Some(key) = object.key().and_then(|name| walk.layout.key(tree, name)) else {
                        continue;
                    };
                    if !key.as_str().starts_with(&*walk.prefix) {
                        if key.as_str() > &*walk.prefix {
                            // All names with the prefix are adjacent, and this name comes after them.
                            next = None;
                            break;
                        }
                        continue;
                    }
                    if walk.after.as_ref().is_none_or(|after| key > *after) {
                        found.push((key, object));
                    }
                }
                Ok(Some((stream::iter(found.into_iter().map(Ok)), next)))
            }
        })
        .try_flatten()
        .map_ok(move |(key, object)| {
            let (layout, engine) = (heads.clone(), Arc::clone(&engine));
            async move { entry(&engine, &layout, key, object).await }
        })
        .try_buffered(HEADS_AT_ONCE)
        .try_filter_map(async |entry| Ok(entry))
        .boxed()
    }
}

/// Returns the blob of a listed object; `None` if it was deleted in between.
async fn entry(engine: &Engine, layout: &Layout, key: BlobKey, object: Object) -> Result<Option<BlobEntry>> {
    if object.e_tag().is_none() {
        // Some servers omit the tag in listings.
        return match read::head(engine, layout, OPERATION, &key).await {
            Ok(info) => Ok(Some(BlobEntry {
                key: info.key,
                size: info.size,
                etag: info.etag,
                modified_at: info.modified_at,
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
    }
    Ok(Some(BlobEntry {
        size: size_in(OPERATION, object.size)?,
        etag: etag_in(OPERATION, object.e_tag())?,
        modified_at: time_in(OPERATION, object.last_modified())?,
        key,
    }))
}
